"""The file tools: within the workspace whatever is tried, whole or not at all, helpful when they refuse."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest
from tool_world import World

from holdfast.agents import safe_files
from holdfast.agents.skills import Skill, SkillRoom
from holdfast.errors import Conflict, InvalidInput

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


def test_a_file_is_written_read_changed_and_deleted(here: World) -> None:
    assert "Wrote plans/trip.md" in here.ok("file_write", {"path": "plans/trip.md", "content": "one\ntwo\n"})
    path = here.workspace / "plans/trip.md"
    path.chmod(0o640)
    assert here.ok("file_read", {"path": "plans/trip.md"}) == "one\ntwo\n"
    assert "line 2" in here.ok("file_edit", {"path": str(path), "oldText": "two", "newText": "2"})
    assert path.read_text() == "one\n2\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert "Replaced" in here.ok("file_write", {"path": "./plans/../plans/trip.md", "content": "new"})
    assert path.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in path.parent.iterdir()] == ["trip.md"]
    assert "trip.md" in here.ok("file_read", {"path": "plans"})
    assert "not empty" in here.refused("file_delete", {"path": "plans"})
    here.ok("file_delete", {"path": "plans/trip.md"})
    here.ok("file_delete", {"path": "plans"})
    assert not path.parent.exists()
    assert "there is no" in here.refused("file_read", {"path": "plans/trip.md"})
    assert "folder itself" in here.refused("file_delete", {"path": "."})


def test_nothing_outside_the_workspace_is_reached_by_path_or_by_link(here: World, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("the secret")
    (here.workspace / "file-link").symlink_to(outside / "secret")
    (here.workspace / "folder-link").symlink_to(outside)
    (here.workspace / "dangling").symlink_to(outside / "new")
    (here.workspace / "plain").write_text("x")
    paths = [
        "../outside/secret",
        "a/../../../outside/secret",
        str(outside / "secret"),
        "/etc/passwd",
        "~/.ssh/id_rsa",
        "file-link",
        "folder-link/secret",
        "folder-link",
        "plain/x",
        "/proc/self/environ",
        "\0",
        " ",
    ]
    for path in paths:
        assert "the secret" not in here.refused("file_read", {"path": path})
        here.refused("file_edit", {"path": path, "oldText": "the secret", "newText": "gone"})
    for path in [*paths, "dangling", "folder-link/new"]:
        here.refused("file_write", {"path": path, "content": "mine"})
    for path in ("../outside/secret", "folder-link/secret"):
        here.refused("file_delete", {"path": path})
    assert [(p.name, p.read_text()) for p in outside.iterdir()] == [("secret", "the secret")]
    assert "link" in here.ok("file_delete", {"path": "file-link"})
    assert (outside / "secret").exists()


@pytest.mark.parametrize("step", ["folder", "file"])
def test_what_is_swapped_for_a_link_at_the_last_moment_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "folder").mkdir(parents=True)
    outside.mkdir()
    (outside / "file").write_text("outside")
    (root / "folder/file").write_text("inside")
    swapped = root / "folder" if step == "folder" else root / "folder/file"
    really_open, swaps = os.open, []

    def opens(path: Any, *arguments: Any, **options: Any) -> int:
        """Everything that was looked at before is in place; what is opened now is a link."""
        if path != step:
            return really_open(path, *arguments, **options)
        os.rename(swapped, tmp_path / "away")
        os.symlink(outside if step == "folder" else outside / "file", swapped)
        try:
            swaps.append(path)
            return really_open(path, *arguments, **options)
        finally:
            os.unlink(swapped)
            os.rename(tmp_path / "away", swapped)

    monkeypatch.setattr(os, "open", opens)
    place = ("folder", "file")
    with pytest.raises(InvalidInput, match="link"), safe_files.opened(root, place):
        pass
    with pytest.raises(InvalidInput, match="link"):
        safe_files.write_at(root, place, b"mine", expected=b"inside")
    assert len(swaps) == 2
    assert (outside / "file").read_text() == "outside"
    assert (root / "folder/file").read_text() == "inside"
    assert not [p for p in outside.iterdir() if p.name != "file"]


def test_without_the_bound_other_files_are_reached_but_holdfasts_own_are_not(
    here: World, tmp_path: Path
) -> None:
    (tmp_path / "note").write_text("elsewhere")
    (tmp_path / "way").symlink_to(here.hold.home.path)
    here.configure(tools={"fs": {"workspaceOnly": False}})
    assert here.ok("file_read", {"path": str(tmp_path / "note")}) == "elsewhere"
    assert here.ok("file_read", {"path": "../../note"}) == "elsewhere"
    token = here.hold.home.admin_token()
    for path in (here.hold.home.credentials / "token", tmp_path / "way/credentials/token", tmp_path / "way"):
        said = here.refused("file_read", {"path": str(path)})
        assert "out of reach" in said
        assert token not in said
    assert "out of reach" in here.refused("file_write", {"path": "../holdfast.json", "content": "{}"})


def test_devices_pipes_and_binaries_are_not_read(here: World) -> None:
    os.mkfifo(here.workspace / "pipe")
    (here.workspace / "blob").write_bytes(b"ab\0cd")
    (here.workspace / "latin").write_bytes("grün".encode("latin-1"))
    assert "not a regular file" in here.refused("file_read", {"path": "pipe"})
    assert "not text (5 bytes)" in here.refused("file_read", {"path": "blob"})
    assert "gr\ufffdn" in here.ok("file_read", {"path": "latin"})
    assert "not UTF-8" in here.refused("file_edit", {"path": "latin", "oldText": "gr", "newText": "x"})


def test_pictures_are_shown_to_models_that_see(here: World) -> None:
    (here.workspace / "dot.png").write_bytes(PNG)
    seen = here.call("file_read", {"path": "dot.png"}, here.caller(images=True))
    assert base64.b64decode(seen.images[0].data) == PNG
    assert seen.images[0].mime == "image/png"
    blind = here.call("file_read", {"path": "dot.png"})
    assert not blind.images
    assert "cannot look at pictures" in blind.text


def test_a_long_file_comes_in_pages_by_lines_and_within_a_line(here: World) -> None:
    (here.workspace / "long").write_text("".join(f"{n}\n" for n in range(1, 1001)))
    part = here.ok("file_read", {"path": "long", "from": 10, "lines": 2})
    assert part == '10\n11\n[lines 10 to 11 of 1000; read on with "from": 12]'
    assert (
        here.ok("file_read", {"path": "long", "from": 1000}) == "1000\n[lines 1000 to 1000, the last of 1000]"
    )
    assert "only 1000 lines" in here.refused("file_read", {"path": "long", "from": 1001})
    (here.workspace / "wide").write_text("a" * 20_000 + "b" * 20_000)
    here.configure(tools={"resultMaxChars": 15_000})
    first = here.ok("file_read", {"path": "wide"})
    offset = int(first.split('"offset": ')[1].rstrip("]"))
    rest = here.ok("file_read", {"path": "wide", "offset": offset + 10_000})
    assert first.startswith("a" * offset)
    assert rest.startswith("b")
    assert "output:" not in first + rest
    (here.workspace / "empty").touch()
    assert here.ok("file_read", {"path": "empty"}) == "[the file is empty]"


def test_a_file_that_changed_since_it_was_read_is_not_overwritten_by_an_edit(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("now")
    with pytest.raises(Conflict, match="changed meanwhile"):
        safe_files.write_at(tmp_path, ("f",), b"mine", expected=b"before")
    assert (tmp_path / "f").read_text() == "now"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_file_keeps_its_rights_but_not_its_owners(here: World) -> None:
    (here.workspace / "tool").write_text("old")
    (here.workspace / "tool").chmod(0o4755)
    here.ok("file_write", {"path": "tool", "content": "new"})
    assert (here.workspace / "tool").stat().st_mode & 0o7777 == 0o755


def test_a_write_replaces_the_name_and_never_what_shares_its_content(here: World, tmp_path: Path) -> None:
    (tmp_path / "shared").write_text("theirs")
    os.link(tmp_path / "shared", here.workspace / "mine")
    here.ok("file_write", {"path": "mine", "content": "mine"})
    assert (tmp_path / "shared").read_text() == "theirs"


@pytest.mark.parametrize(
    ("access", "reads", "writes"), [("none", False, False), ("ro", True, False), ("rw", True, True)]
)
def test_in_a_sandbox_the_workspace_is_as_open_as_the_config_says(
    here: World, access: str, reads: bool, writes: bool
) -> None:
    (here.workspace / "note").write_text("from the workspace")
    sandbox = {"mode": "all", "workspaceAccess": access}
    here.configure(agents={"defaults": {"sandbox": sandbox}}, tools={"fs": {"workspaceOnly": False}})
    assert here.call("file_read", {"path": "/workspace/note"}).is_error is not reads
    assert here.call("file_write", {"path": "/workspace/new", "content": "x"}).is_error is not writes
    assert (here.workspace / "new").exists() is writes
    here.ok("file_write", {"path": "/scratch/own", "content": "mine"})
    assert here.ok("file_read", {"path": "/scratch/own"}) == "mine"
    assert here.call("file_read", {"path": "note"}).is_error is not reads
    for path in ("/etc/passwd", str(here.hold.home.path / "holdfast.json"), "/scratch/../etc/passwd"):
        here.refused("file_read", {"path": path})


def test_the_files_of_a_skill_are_the_skills_own_even_if_its_folder_is_swapped(
    here: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, outside = here.workspace / "skills" / "mine", tmp_path / "outside"
    folder.mkdir(parents=True)
    outside.mkdir()
    (outside / "key").write_text("the secret")
    (folder / "key").write_text("the skill's")
    (folder / "SKILL.md").write_text("---\nname: mine\ndescription: Mine.\n---\nDo it.\n")
    assert here.ok("skill_read", {"name": "mine", "file": "key"}) == "the skill's"
    really_read = type(here.parts.skills).read

    def swapped(room: SkillRoom, agent_id: str, name: str) -> Skill:
        skill = really_read(room, agent_id, name)
        folder.rename(tmp_path / "away")
        folder.symlink_to(outside)
        return skill

    monkeypatch.setattr(SkillRoom, "read", swapped)
    assert "the secret" not in here.refused("skill_read", {"name": "mine", "file": "key"})
