from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import templates
from holdfast.clock import parse_iso
from holdfast.config import Config
from holdfast.context.workspace import (
    AgentIdentity,
    FileReader,
    Occasion,
    SessionKind,
    Workspace,
    identity_of,
    kind_of,
    names_for,
    trust_of,
)
from holdfast.context.workspace.files import MOST_BYTES, FileText, cut, fit
from holdfast.log import FOR_OWNER, for_group, for_peer

ALL = ["IDENTITY.md", "SOUL.md", "USER.md", "AGENTS.md", "TOOLS.md", "MEMORY.md"]


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    root = tmp_path / "ws"
    root.mkdir()
    for name in ALL:
        (root / name).write_text(f"This is {name}.")
    return Workspace(root, FileReader())


def _texts(place: Workspace, names: list[str], **limits: int) -> dict[str, str]:
    limits = {"per_file": 12_000, "total": 60_000} | limits
    return {f.name: f.text for f in place.files(names, **limits)}


def test_each_kind_of_session_gets_its_files_in_order() -> None:
    main = names_for(SessionKind.MAIN, first_session=True)
    assert main == (*ALL, "BOOTSTRAP.md")
    assert names_for(SessionKind.MAIN) == tuple(ALL)
    assert names_for(SessionKind.PRIVATE) == tuple(ALL)
    assert names_for(SessionKind.SHARED) == tuple(ALL[:-1])
    assert names_for(SessionKind.MAIN, Occasion.HEARTBEAT) == (*ALL, "HEARTBEAT.md")
    assert names_for(SessionKind.MAIN, Occasion.BOOT)[-1] == "BOOT.md"
    assert names_for(SessionKind.SUBAGENT, first_session=True) == ("AGENTS.md", "TOOLS.md")
    assert names_for(SessionKind.SUBAGENT, subagent_files=ALL) == tuple(ALL[:-1])


def test_the_kind_is_read_from_the_key_and_from_who_hears_it() -> None:
    guest, group = for_peer("telegram", None, "42"), for_group("discord", None, "42")
    assert kind_of("agent:main:main", FOR_OWNER) is SessionKind.MAIN
    assert kind_of("agent:main:telegram:dm:42", FOR_OWNER) is SessionKind.PRIVATE
    assert kind_of("agent:main:telegram:dm:42", guest) is SessionKind.SHARED
    assert kind_of("agent:main:discord:channel:42", group) is SessionKind.SHARED
    assert kind_of("agent:main:discord:channel:42", FOR_OWNER) is SessionKind.PRIVATE
    assert kind_of("agent:main:slack:group:42", group) is SessionKind.SHARED
    assert kind_of("agent:main:subagent:0198", FOR_OWNER) is SessionKind.SUBAGENT
    assert kind_of("agent:main:cron:job:run:1", FOR_OWNER) is SessionKind.OTHER
    assert kind_of("clawboard:topic:t1", FOR_OWNER) is SessionKind.OTHER


def test_an_edit_is_seen_at_the_next_read_even_if_size_and_time_are_the_same(place: Workspace) -> None:
    before = _texts(place, ["AGENTS.md"])["AGENTS.md"]
    path = place.path / "AGENTS.md"
    stamp = path.stat()
    other = path.with_name("draft")
    other.write_text(before.replace("This", "That"))
    os.utime(other, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    other.replace(path)
    assert _texts(place, ["AGENTS.md"])["AGENTS.md"].startswith("That")


def test_a_link_out_of_the_workspace_is_refused_and_one_within_is_followed(
    place: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "secret.md").write_text("secret")
    (place.path / "SOUL.md").unlink()
    (place.path / "SOUL.md").symlink_to(tmp_path / "secret.md")
    (place.path / "docs").mkdir()
    (place.path / "docs" / "user.md").write_text("linked")
    (place.path / "USER.md").unlink()
    (place.path / "USER.md").symlink_to("docs/user.md")
    files = {f.name: f for f in place.files(["SOUL.md", "USER.md"], per_file=100, total=1000)}
    assert files["SOUL.md"].text == ""
    assert "outside" in (files["SOUL.md"].warning or "")
    assert files["USER.md"].text == "linked"


def test_strange_files_are_left_out_with_a_warning(place: Workspace) -> None:
    (place.path / "SOUL.md").write_bytes(b"\x00\x01binary")
    (place.path / "USER.md").unlink()
    os.mkfifo(place.path / "USER.md")
    (place.path / "TOOLS.md").unlink()
    files = {f.name: f for f in place.files(ALL, per_file=12_000, total=60_000)}
    assert "not text" in (files["SOUL.md"].warning or "")
    assert "not a regular file" in (files["USER.md"].warning or "")
    assert "missing" in files["TOOLS.md"].text
    (place.path / "MEMORY.md").unlink()
    assert "MEMORY.md" not in _texts(place, ALL)


def test_of_a_huge_file_head_and_tail_are_read(place: Workspace) -> None:
    path = place.path / "AGENTS.md"
    with path.open("wb") as file:
        file.write(b"HEAD" + b"x" * MOST_BYTES)
        file.seek(40 * MOST_BYTES)
        file.write(b"TAIL")
    [found] = place.files(["AGENTS.md"], per_file=12_000, total=60_000)
    assert found.text.startswith("HEAD")
    assert found.text.endswith("TAIL")
    assert len(found.text) == 12_000
    assert found.warning is not None


@given(
    st.dictionaries(st.sampled_from(ALL), st.text(max_size=3000)), st.integers(0, 2000), st.integers(0, 5000)
)
def test_budgets_hold_whatever_the_files_are(texts: dict[str, str], per_file: int, total: int) -> None:
    files = [FileText(name, texts[name]) for name in ALL if name in texts]
    fitted = fit(files, per_file=per_file, total=total)
    assert all(len(f.text) <= per_file for f in fitted)
    assert sum(len(f.text) for f in fitted) <= total
    assert [f.name for f in fitted] == [f.name for f in files]
    for file, shown in zip(files, fitted, strict=True):
        assert (shown.text == file.text) == (shown.warning is None)


def test_a_cut_file_keeps_head_and_tail_and_says_so() -> None:
    text = "".join(f"line {i}\n" for i in range(2000))
    shown = cut(text, 1200, "AGENTS.md")
    assert len(shown) == 1200
    assert shown.startswith("line 0\n")
    assert shown.endswith("line 1999\n")
    assert "AGENTS.md is cut here" in shown


def test_required_files_are_served_first_when_the_total_is_short() -> None:
    files = [FileText("SOUL.md", "s" * 900), FileText("AGENTS.md", "a" * 900)]
    soul, agents = fit(files, per_file=1000, total=1000)
    assert agents.text == "a" * 900
    assert len(soul.text) <= 100
    assert "bootstrapTotalMaxChars" in (soul.warning or "")


def test_nested_files_come_only_by_the_hook_and_only_with_a_known_name(place: Workspace) -> None:
    nested = place.path / "team"
    nested.mkdir()
    (nested / "AGENTS.md").write_text("nested rules")
    (nested / "notes.md").write_text("not for you")
    assert "nested rules" not in "".join(_texts(place, ALL).values())
    files = place.files(
        ALL, per_file=12_000, total=60_000, extra=["team/*.md", "../AGENTS.md", "/etc/AGENTS.md"]
    )
    found = {f.name: f for f in files}
    assert found["team/AGENTS.md"].text == "nested rules"
    assert found["team/notes.md"].text == ""
    assert "outside" in (found["../AGENTS.md"].warning or "")
    assert "outside" in (found["/etc/AGENTS.md"].warning or "")


def test_an_identity_is_read_from_the_frontmatter() -> None:
    text = """---
name: Logic
emoji: 🤖
creature: "AI: assistant"
vibe: sharp, precise   # most days
theme: 'it''s dark'
avatar: ./avatar.png
other: [1, 2]
---
# Who I am
"""
    who = identity_of(text)
    assert (who.name, who.emoji, who.creature) == ("Logic", "🤖", "AI: assistant")
    assert (who.vibe, who.theme, who.avatar) == ("sharp, precise", "it's dark", "./avatar.png")
    assert identity_of("no frontmatter").name is None
    assert identity_of("---\nname: open").name is None


def test_an_identity_is_read_from_the_list_that_the_template_has() -> None:
    template = (Path(templates.__file__).parent / "IDENTITY.md").read_text()
    assert identity_of(template) == AgentIdentity()
    filled = template.replace("- Name:", "- **Name:** Logic").replace("- Emoji:", "- Emoji: 🤖")
    assert identity_of(filled) == AgentIdentity(name="Logic", emoji="🤖")
    both = "---\nname: First\n---\n- Name: Second\n- Vibe: calm\n"
    assert identity_of(both) == AgentIdentity(name="First", vibe="calm")


def test_what_the_config_says_of_an_agent_goes_before_its_file(tmp_path: Path) -> None:
    (tmp_path / "IDENTITY.md").write_text("---\nname: Logic\nvibe: calm\nemoji: 🤖\n---\n")
    identity = {"emoji": "⚓", "creature": "a ship's clerk", "theme": "slate", "avatar": "clerk.png"}
    own = {"id": "main", "name": "Clerk", "identity": identity}
    entry = Config.model_validate({"agents": {"list": [own]}}).agent("main")
    found = Workspace(tmp_path, FileReader()).identity(entry)
    assert (found.name, found.emoji, found.creature, found.vibe) == ("Clerk", "⚓", "a ship's clerk", "calm")
    assert (found.theme, found.avatar) == ("slate", "clerk.png")


@given(st.text(max_size=300))
def test_any_text_can_be_read_as_an_identity(text: str) -> None:
    identity_of(text)
    identity_of(f"---\n{text}\n---\n")


def test_daily_notes_follow_the_users_calendar(place: Workspace) -> None:
    (place.path / "memory").mkdir()
    for day in ("2026-03-09", "2026-03-10", "2026-03-11"):
        (place.path / "memory" / f"{day}.md").write_text(f"notes of {day}")
    now = parse_iso("2026-03-10T23:30:00Z")
    assert list(place.daily(now, "UTC")) == ["memory/2026-03-09.md", "memory/2026-03-10.md"]
    assert list(place.daily(now, "Asia/Tokyo")) == ["memory/2026-03-10.md", "memory/2026-03-11.md"]


def test_what_the_agent_writes_itself_is_not_the_operators_word() -> None:
    assert trust_of("AGENTS.md").label == "operator"
    assert trust_of("MEMORY.md").label == "model"
    assert trust_of("memory/2026-03-10.md").label == "model"
