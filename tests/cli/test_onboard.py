"""The first minutes with `holdfast onboard`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_stage import Run
from talk_builders import KEYS, Pty, Scripted, gateway, scripted, write_config

from builders import rows
from holdfast.config import load_config
from holdfast.runtime import open_home
from holdfast.testing import Fail, Say, ScriptedOpenAI
from holdfast.testing.script import Script

__all__ = ["scripted"]


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither a key nor an OpenClaw home of whoever runs the tests."""
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def found_here(scripted: Scripted, home: Path, script: Script) -> ScriptedOpenAI:
    """A server on this machine, at the address that the config has for Ollama; no model is set."""
    server = scripted(script)
    write_config(home, server.url, models={"providers": {"ollama": {"baseUrl": server.url}}}, agents={})
    return server


def told(run: Run, *args: object) -> dict[str, Any]:
    result = run("onboard", "--json", *args)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    found: dict[str, Any] = json.loads(result.stdout)
    return found | {"exit": result.exit_code}


def test_without_any_model_it_says_what_to_do_and_writes_nothing(run: Run, home: Path) -> None:
    found = told(run)
    assert (found["model"], found["tried"], found["exit"]) == (None, None, 1)
    assert "ANTHROPIC_API_KEY" in found["missing"][0]
    assert "Ollama" in found["missing"][0]
    assert not home.exists()
    plain = run("onboard")
    assert plain.exit_code == 1
    assert "missing   No model was found." in plain.stdout
    assert all(len(line) < 400 for line in plain.stdout.splitlines())


def test_a_model_is_tried_with_a_whole_turn_and_written_only_after_a_yes(
    run: Run, home: Path, scripted: Scripted
) -> None:
    server = found_here(scripted, home, lambda asked: Say("Good morning, I am here."))
    before = (home / "holdfast.json").read_text()
    looked = told(run)
    assert (looked["model"], looked["exit"], looked["written"]) == ("ollama/scripted", 0, [])
    assert looked["tried"]["reply"] == "Good morning, I am here."
    assert (home / "holdfast.json").read_text() == before
    assert len(server.requests) == 1
    assert server.requests[0].messages[0]["role"] == "system", "a turn as any other, not a bare question"
    done = told(run, "--yes")
    assert done["configured"]
    assert load_config(home / "holdfast.json").agents.defaults.model.primary == "ollama/scripted"
    assert (home / "workspace" / "AGENTS.md").is_file()
    with open_home(home) as hold:
        assert "Good morning" not in str(rows(hold.store, "SELECT content FROM entries"))
    again = told(run, "--yes", "--no-try")
    assert (again["written"], again["exit"]) == ([], 0)


def test_comments_of_a_config_survive(run: Run, home: Path, scripted: Scripted) -> None:
    server = scripted([Say("Hello.")])
    provider = json.dumps({"scripted": {"baseUrl": server.url, "apiKey": "key"}})
    (home / "holdfast.json").write_text(f"{{\n  // mine\n  models: {{ providers: {provider} }},\n}}\n")
    assert told(run, "--yes", "--model", "scripted/scripted")["exit"] == 0
    assert "// mine" in (home / "holdfast.json").read_text()
    assert load_config(home / "holdfast.json").agents.defaults.model.primary == "scripted/scripted"


def test_a_model_that_does_not_answer_is_told_in_words_and_not_written(
    run: Run, home: Path, scripted: Scripted
) -> None:
    found_here(scripted, home, lambda asked: Fail(401, "no such key", trouble="auth"))
    found = told(run, "--yes")
    assert (found["exit"], found["tried"]["answered"], found["configured"]) == (1, False, False)
    assert "ollama/scripted gave no answer" in found["missing"][0]
    assert load_config(home / "holdfast.json").agents.defaults.model.primary is None


def test_with_a_gateway_running_that_one_is_asked(run: Run, home: Path, scripted: Scripted) -> None:
    scripted(lambda asked: Say("From the gateway."))
    with gateway(home):
        found = told(run)
    assert found["tried"]["reply"] == "From the gateway."
    with open_home(home) as hold:
        assert "From the gateway" not in str(rows(hold.store, "SELECT content FROM entries"))


def test_an_openclaw_home_is_seen_and_taken_over_when_asked(
    run: Run, home: Path, tmp_path: Path, scripted: Scripted
) -> None:
    theirs = tmp_path / ".openclaw"
    (theirs / "workspace").mkdir(parents=True)
    (theirs / "openclaw.json").write_text("{}")
    (theirs / "workspace" / "SOUL.md").write_text("I am theirs.")
    scripted([Say("Hello."), Say("Hello.")])
    assert told(run)["openclaw"] == str(theirs)
    assert told(run, "--yes", "--import", theirs)["exit"] == 0
    assert (home / "workspace" / "SOUL.md").read_text() == "I am theirs."


def test_at_a_terminal_each_thing_is_written_only_after_a_yes_to_it(home: Path, scripted: Scripted) -> None:
    found_here(scripted, home, lambda asked: Say("Good morning, I am here."))
    screen = Pty("--home", home, "onboard")
    assert "Good morning" in screen.expect("Write a config with ollama/scripted as the model")
    screen.type("n\r")
    screen.expect("nothing was written")
    screen.expect("(empty: no channel)")
    screen.type("n\r")
    screen.expect("begins with http")
    screen.expect("(empty: no channel)")
    screen.type("http://127.0.0.1:9/pier\r")
    screen.expect("A name for that channel")
    screen.type("pier\r")
    screen.expect("/api/channels/pier/inbound")
    assert screen.end() == 0
    written = load_config(home / "holdfast.json")
    assert written.agents.defaults.model.primary is None
    assert written.channels["pier"].signing_secret is not None
