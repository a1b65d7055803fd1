"""Everything in open forms, and back again: nothing is lost or added, and no credential leaves the home."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.backup.export import CREDENTIALS, export, load
from holdfast.board import tasks, topics
from holdfast.board.attachments import Files
from holdfast.cli.root import cli
from holdfast.errors import Conflict, InvalidInput
from holdfast.gateway import tokens
from holdfast.home import Home
from holdfast.log import OWNER, EntryDraft, EntryType, entries, sessions
from holdfast.runtime import Holdfast, open_home


def silent(_: str) -> None:
    return None


def lived_in(hold: Holdfast) -> str:
    """A home in which something of every kind is; the text of a token that must not leave it."""
    with hold.store.write(OWNER) as tx:
        session = sessions.ensure(tx, "agent:main:main", agent_id="main", label="Ünïcode \u2028 label")
        topic = topics.upsert(tx, "Herons").topic
        tasks.upsert(tx, "Count the nests", topic_id=topic.id)
        for number in range(1200):
            draft = EntryDraft(
                content=f"entry {number} 🦆 \x7f",
                session_key=session.key,
                session_id=session.id,
                role="user",
                agent_id="user",
                topic_id=topic.id,
                source={"a": [1, None, {"b": "ü"}]},
            )
            entries.append(tx, draft)
        entries.append(tx, EntryDraft(content="a note", type=EntryType.NOTE, agent_id="main"))
        _, token = tokens.add(tx, "somebody")
    Files(hold.home.path / "attachments").put(b"\x00picture")
    workspace = hold.workspace("main")
    (workspace / "memory").mkdir(parents=True, exist_ok=True)
    (workspace / "memory" / "a.md").write_text("remembered")
    return token


def data_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "data").iterdir())}


def test_a_home_that_went_out_and_came_back_is_the_same_to_the_byte(tmp_path: Path) -> None:
    with open_home(tmp_path / "old") as hold:
        token = lived_in(hold)
        counts = export(hold, tmp_path / "out", silent)
    assert counts["entries"] == 1201
    assert load(tmp_path / "out", Home(tmp_path / "new"), silent) == counts
    with open_home(tmp_path / "new") as hold:
        assert export(hold, tmp_path / "again", silent) == counts
        assert (hold.workspace("main") / "memory" / "a.md").read_text() == "remembered"
        with hold.store.write(OWNER) as tx:
            made = entries.append(tx, EntryDraft(content="and it goes on", agent_id="user"))
        assert made.entry.position > 1201
    assert data_of(tmp_path / "out") == data_of(tmp_path / "again")
    everything = b"".join(path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert token.encode() not in everything
    assert not any((tmp_path / "out" / "data" / f"{name}.jsonl").exists() for name in CREDENTIALS)


def test_people_can_read_it(tmp_path: Path) -> None:
    with open_home(tmp_path / "old") as hold:
        lived_in(hold)
        export(hold, tmp_path / "out", silent)
    (talk,) = (tmp_path / "out" / "conversations").glob("agent-main-main*.md")
    assert "### user" in talk.read_text()
    assert "entry 1199 🦆" in talk.read_text()
    assert "- [ ] Count the nests" in (tmp_path / "out" / "board.md").read_text()
    row = json.loads((tmp_path / "out" / "data" / "topics.jsonl").read_text().splitlines()[0])
    assert row["name"] == "Herons"


def test_nothing_is_overwritten_and_nothing_damaged_is_read(tmp_path: Path) -> None:
    with open_home(tmp_path / "old") as hold:
        lived_in(hold)
        export(hold, tmp_path / "out", silent)
        with pytest.raises(Conflict):
            export(hold, tmp_path / "out", silent)
    with pytest.raises(Conflict):
        load(tmp_path / "out", Home(tmp_path / "old"), silent)
    file = tmp_path / "out" / "data" / "entries.jsonl"
    file.write_text(file.read_text().replace("entry 7 ", "entry 8 "))
    with pytest.raises(InvalidInput, match="not as it was written"):
        load(tmp_path / "out", Home(tmp_path / "new"), silent)


def test_the_command_line_does_both(tmp_path: Path) -> None:
    with open_home(tmp_path / "old") as hold:
        lived_in(hold)
    run, out = CliRunner(), str(tmp_path / "out")
    done = run.invoke(cli, ["export", out, "--json", "--home", str(tmp_path / "old")], catch_exceptions=False)
    assert json.loads(done.output)["entries"] == 1201
    back = run.invoke(cli, ["import", "export", out, "--json", "--home", str(tmp_path / "new")])
    assert json.loads(back.output) == json.loads(done.output)
    wrong = run.invoke(cli, ["import", "export", str(tmp_path), "--home", str(tmp_path / "newer")])
    assert (wrong.exit_code, wrong.output.count("\n")) == (2, 1)
