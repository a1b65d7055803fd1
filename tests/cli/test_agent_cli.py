"""`holdfast agent`: one turn, in process and through a gateway."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_stage import Run
from talk_builders import PATIENCE_SECONDS, Scripted, gateway, scripted

import forks
from holdfast.testing import Call, Say, Stall, Used, unauthorised

__all__ = ["scripted"]


def test_the_reply_is_printed_and_what_tools_do_is_told_beside_it(
    run: Run, home: Path, scripted: Scripted
) -> None:
    (home / "workspace/note.md").write_text("The heron is called Winifred.")
    server = scripted([Call("file_read", {"path": "note.md"}), Say("She is called *Winifred*.")])
    result = run("agent", "-m", "What is the heron called?")
    assert (result.exit_code, result.stdout) == (0, "She is called *Winifred*.\n"), result.stderr
    assert result.stderr.splitlines()[0] == "· file_read  note.md"
    assert result.stderr.splitlines()[1].startswith("✓ file_read")
    assert "Winifred" in server.requests[1].last_text


def test_programs_get_the_end_of_the_turn_as_json(run: Run, scripted: Scripted) -> None:
    scripted([Say("Hello.", used=Used(input=900, output=12))])
    result = run("agent", "-m", "Hi", "--session", "work", "--json")
    told = json.loads(result.stdout)
    assert (told["status"], told["reply"], told["model"]) == ("committed", "Hello.", "scripted/m")
    assert (told["usage"]["inputTokens"], told["usage"]["outputTokens"]) == (900, 12)
    assert told["sessionKey"] == json.loads(run("sessions", "list", "--json").stdout)[0]["sessionKey"]


def test_text_from_stdin_is_streamed_back_in_pieces_that_a_terminal_does_not_obey(
    run: Run, scripted: Scripted
) -> None:
    server = scripted([Say("One\x1b[2J two\u202e three.", chunks=9)])
    result = run("agent", "-m", "-", "--stream", "--model", "scripted/other", input="from a pipe\n")
    assert result.stdout == "One\ufffd[2J two\ufffd three.\n"
    assert "from a pipe" in server.requests[0].last_text
    assert server.requests[0].model == "other"


def test_an_agent_that_has_nothing_to_say_prints_nothing(run: Run, scripted: Scripted) -> None:
    scripted([Say("NO_REPLY"), Say("NO_REPLY")])
    for more in ([], ["--stream"]):
        result = run("agent", "-m", "Hi", *more)
        assert (result.exit_code, result.stdout) == (0, "")


def test_a_command_is_answered_without_a_model(run: Run, scripted: Scripted) -> None:
    server = scripted([])
    result = run("agent", "-m", "/status")
    assert result.exit_code == 0
    assert "Model scripted/m" in result.stdout
    assert server.requests == []


def test_a_turn_that_fails_ends_with_one_and_says_how_to_mend_it(run: Run, scripted: Scripted) -> None:
    scripted([unauthorised()])
    result = run("agent", "-m", "Hi")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: scripted/m: 401 Incorrect API key provided. Check the credential")


@pytest.mark.parametrize(
    "args",
    [
        ["-m", "Hi", "--agent", "nobody"],
        ["-m", "  "],
        ["-m", "Hi", "--model", "no-slash"],
        ["-m", "Hi", "--stream", "--json"],
        ["-m", "Hi", "--timeout", "0"],
        [],
    ],
)
def test_wrong_use_ends_with_two(run: Run, scripted: Scripted, args: list[str]) -> None:
    scripted([])
    result = run("agent", *args)
    assert (result.exit_code, result.stdout) == (2, ""), result.stderr


def test_without_a_home_it_says_how_to_make_one(run: Run) -> None:
    result = run("agent", "-m", "Hi")
    assert result.exit_code == 2
    assert "holdfast init" in result.stderr


def test_a_turn_that_takes_too_long_is_stopped(run: Run, scripted: Scripted) -> None:
    scripted([Say("Hello."), Stall("Well, ")])
    assert run("agent", "-m", "Hello").exit_code == 0  # what is loaded for a first turn takes a while
    result = run("agent", "-m", "Hi", "--timeout", "3", "--stream")
    assert (result.exit_code, result.stdout) == (1, "Well, \n")
    assert result.stderr == "error: there was no reply within 3 seconds.\n"
    assert json.loads(run("status", "--json").stdout)["turns"] == {"cancelled": 1, "committed": 1}


def test_where_nobody_can_be_asked_it_waits_for_a_decision_from_elsewhere(
    run: Run, home: Path, scripted: Scripted
) -> None:
    scripted([Call("exec", {"command": "echo one > made.txt"}), Say("Made.")])
    command = [sys.executable, "-m", "holdfast", "--home", str(home), "agent", "-m", "Make it"]
    with forks.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = ""
        while "Decide with: " not in told:
            line = process.stderr.readline()
            assert line, told
            told += line
        assert "    echo one > made.txt\n" in told
        id_ = told.partition("holdfast approvals approve ")[2].split()[0]
        assert run("approvals", "approve", id_).exit_code == 0
        said, rest = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, said) == (0, "Made.\n"), rest
    assert (home / "workspace/made.txt").read_text() == "one\n"


def test_ctrl_c_stops_the_turn_and_what_was_said_stays(run: Run, home: Path, scripted: Scripted) -> None:
    scripted([Stall("Half of it")])
    command = [sys.executable, "-m", "holdfast.cli", "--home", str(home), "agent", "-m", "Hi", "--stream"]
    with forks.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(len("Half of it")) == b"Half of it"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 1
        assert process.stderr.read() == b"error: interrupted.\n"
    assert json.loads(run("status", "--json").stdout)["turns"] == {"cancelled": 1}
    assert "Half of it" in run("sessions", "show", "agent:main:main").stdout


def test_through_a_gateway_it_is_the_same(run: Run, home: Path, scripted: Scripted) -> None:
    (home / "workspace/note.md").write_text("The heron is called Winifred.")
    scripted([Call("file_read", {"path": "note.md"}), Say("Winifred."), unauthorised()])
    with gateway(home):
        result = run("agent", "-m", "What is the heron called?", "--stream")
        assert (result.exit_code, result.stdout) == (0, "Winifred.\n"), result.stderr
        assert result.stderr.splitlines()[0] == "· file_read  note.md"
        assert "Model scripted/m" in run("agent", "-m", "/status").stdout
        failed = run("agent", "-m", "And now?", "--json")
        assert (failed.exit_code, json.loads(failed.stdout)["status"]) == (1, "failed")
        assert run("agent", "-m", "Hi", "--agent", "nobody").exit_code == 2
