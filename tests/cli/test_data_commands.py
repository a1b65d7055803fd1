from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from holdfast.log import OWNER, EntryDraft, Outcome, sessions, turns
from holdfast.runtime import open_home

Run = Callable[..., Result]
KEY = "agent:main:main"
AT = "2026-01-31T09:30:00.000Z"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = [
        {"type": "session", "version": 4, "id": "s-1", "timestamp": AT, "cwd": ""},
        {"type": "message", "id": "a1", "timestamp": AT, "message": {"role": "user", "content": "hello"}},
    ]
    path = tmp_path / "s-1.jsonl"
    path.write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    return path


def test_a_transcript_goes_in_and_comes_out_the_same(run: Run, file: Path, tmp_path: Path) -> None:
    done = json.loads(run("sessions", "import", file, "--key", KEY, "--json").stdout)
    assert (done["sessionId"], done["added"], done["created"]) == ("s-1", 2, True)
    assert run("sessions", "export", KEY).stdout_bytes == file.read_bytes()
    out = tmp_path / "out.jsonl"
    assert run("sessions", "export", "agent:MAIN:main", "-o", out).exit_code == 0
    assert out.read_bytes() == file.read_bytes()
    assert run("sessions", "export", KEY, "-o", out).exit_code == 2
    assert run("sessions", "export", KEY, "-o", out, "--force").exit_code == 0
    assert "### User" in run("sessions", "export", KEY, "--format", "markdown").stdout
    assert run("sessions", "export", KEY, "-o", tmp_path / "none" / "x").exit_code == 2
    again = run("sessions", "import", file, "--key", KEY)
    assert "0 of 2 lines added" in again.stdout


def test_a_session_is_listed_shown_reset_and_archived(run: Run, file: Path) -> None:
    run("sessions", "import", file, "--key", KEY)
    assert KEY in run("sessions", "list").stdout
    shown = run("sessions", "show", KEY)
    assert "hello" in shown.stdout
    assert json.loads(run("sessions", "show", "s-1", "--json").stdout)["entries"][-1]["content"] == "hello"
    successor = json.loads(run("sessions", "reset", KEY, "--json").stdout)["sessionId"]
    assert successor != "s-1"
    assert run("sessions", "archive", KEY).exit_code == 0
    assert run("sessions", "archive", KEY).exit_code == 2
    assert json.loads(run("sessions", "list", "--json").stdout) == []
    every = json.loads(run("sessions", "list", "--status", "all", "--json").stdout)
    assert {each["sessionId"] for each in every} == {"s-1", successor}


def test_a_trajectory_holds_turns_and_entries(run: Run, home: Path) -> None:
    with open_home(home) as hold:
        with hold.store.write(OWNER) as tx:
            session = sessions.ensure(tx, KEY)
            turn = turns.accept(tx, session, EntryDraft(content="hi", role="user"), key="k").turn
            turns.start(tx, turn)
        with hold.store.write(OWNER) as tx:
            turns.commit(tx, "k", Outcome(entries=[EntryDraft(content="yes", role="assistant")], model="m"))
    rows = [json.loads(row) for row in run("export-trajectory", "--session-key", KEY).stdout.splitlines()]
    assert [row["record"] for row in rows] == ["session", "turn", "entry", "entry"]
    assert (rows[1]["model"], rows[2]["turnId"]) == ("m", rows[1]["turnId"])
    assert [row["content"] for row in rows[2:]] == ["hi", "yes"]
    assert "hi" in run("sessions", "show", KEY).stdout


def test_what_is_due_is_listed(run: Run, home: Path) -> None:
    with open_home(home) as hold, hold.store.write(OWNER) as tx:
        turns.accept(tx, sessions.ensure(tx, KEY), EntryDraft(content="hi"), key="k")
    (item,) = json.loads(run("agenda", "list", "--json").stdout)
    assert (item["kind"], item["lane"], item["status"]) == ("turn", KEY, "queued")
    assert KEY in run("agenda", "list").stdout
    assert "Nothing is due" in run("agenda", "list", "--kind", "other").stdout


def test_tokens_are_made_listed_without_text_and_revoked(run: Run) -> None:
    run("init")
    made = run("tokens", "add", "laptop", "--scope", "read", "--expires", "30d")
    text = made.stdout.strip()
    assert text.startswith("hf_")
    assert run("tokens", "add", "laptop").exit_code == 2
    listed = run("tokens", "list")
    assert "laptop" in listed.stdout
    assert text not in listed.stdout
    assert run("tokens", "revoke", "laptop").exit_code == 0
    assert run("tokens", "revoke", "laptop").exit_code == 2
    (each,) = json.loads(run("tokens", "list", "--json").stdout)
    assert each["revokedAt"]


def test_an_agent_is_added_with_its_workspace_and_removed_again(run: Run, home: Path) -> None:
    run("init")
    assert run("agents", "add", "Work", "--model", "openai/gpt-5").exit_code == 0
    assert (home / "workspace-work/AGENTS.md").is_file()
    listed = json.loads(run("agents", "list", "--json").stdout)
    assert [(row["id"], row["default"]) for row in listed] == [("main", True), ("work", False)]
    assert listed[1]["model"] == "openai/gpt-5"
    assert run("agents", "add", "work").exit_code == 2
    assert run("agents", "remove", "work").exit_code == 0
    assert (home / "workspace-work/AGENTS.md").is_file()
    assert [row["id"] for row in json.loads(run("agents", "list", "--json").stdout)] == ["main"]


def test_bindings_are_listed_and_explained(run: Run, home: Path) -> None:
    run("init")
    match = {"channel": "slack", "teamId": "T1"}
    config = {
        "agents": {"list": [{"id": "main", "default": True}, {"id": "work"}]},
        "bindings": [{"agentId": "work", "match": match}],
    }
    (home / "holdfast.json").write_text(json.dumps(config))
    assert "teamId=T1" in run("agents", "bindings").stdout
    facts = ["channel=slack", "team=T1", "peer=dm:7"]
    told = json.loads(run("agents", "bindings", "--explain", *facts, "--json").stdout)
    assert (told["agentId"], told["rule"]) == ("work", "team")
    assert "main by default" in run("agents", "bindings", "--explain", "channel=irc").stdout
    assert run("agents", "remove", "work").exit_code == 2


def test_a_store_is_copied_migrated_and_checked(run: Run, home: Path, file: Path, tmp_path: Path) -> None:
    run("sessions", "import", file, "--key", KEY)
    copy = tmp_path / "copy.db"
    counts = json.loads(run("store", "copy", home / "holdfast.db", copy, "--json").stdout)
    assert counts["entries"] == 2
    assert run("store", "copy", home / "holdfast.db", copy).exit_code == 2
    assert "already" in run("store", "migrate").stdout
    assert run("store", "check").exit_code == 0
    other = tmp_path / "other"
    other.mkdir()
    copy.rename(other / "holdfast.db")
    assert run("sessions", "export", KEY, "--home", other).stdout_bytes == file.read_bytes()


def test_an_openclaw_home_is_adopted_from_the_command_line(
    run: Run, home: Path, tmp_path: Path, file: Path
) -> None:
    claw = tmp_path / "claw"
    folder = claw / "agents/main/sessions"
    folder.mkdir(parents=True)
    (claw / "openclaw.json").write_text("{}")
    file.rename(folder / "s-1.jsonl")
    (folder / "sessions.json").write_text(json.dumps({KEY: {"sessionId": "s-1"}}))
    dry = run("import", "openclaw", claw, "--dry-run")
    assert dry.exit_code == 0
    assert "2 log entries would be added" in dry.stdout
    assert not home.exists()
    assert json.loads(run("import", "openclaw", claw, "--json").stdout)["entriesAdded"] == 2
    assert "Nothing changed" in run("import", "openclaw", claw).stdout
    (claw / "openclaw.json").write_text("{ broken")
    assert run("import", "openclaw", claw).exit_code == 1
