"""Commands in the background: what they have written so far, after a restart too, and when they end."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tool_world import World

from builders import KEY, PATIENCE, until
from holdfast.agents.loop import Ask
from holdfast.agents.loop.parts import ProcessHook
from holdfast.agents.tools import BackgroundCommands, Toolbox
from holdfast.agents.tools.commands import CommandOutput
from holdfast.agents.tools.exec_tool import ExecTool
from holdfast.context import ToolCall
from holdfast.log import OWNER, sessions

CONFIG = {"security": "full", "backgroundMs": 30, "env": {"TOKEN": "very-secret-token"}}


def begun(here: World, command: str) -> str:
    said = here.ok("exec", {"command": command, "background": True})
    return "cmd-" + said.split("as cmd-")[1].split(".")[0]


def polled(here: World, id_: str, wanted: str) -> str:
    """What polls tell until the command has said something."""
    told = ""
    until_ = time.monotonic() + PATIENCE
    while wanted not in told and time.monotonic() < until_:
        told += here.ok("exec", {"poll": id_, "waitSeconds": 1})
    return told


def test_what_a_command_has_written_is_read_while_it_runs_once_by_poll_and_whole_by_log(here: World) -> None:
    here.configure(tools={"exec": CONFIG})
    id_ = begun(here, "echo one $TOKEN; until [ -e a ]; do sleep 0.02; done; echo two; sleep 60")
    first = polled(here, id_, "one")
    assert first.count("one ***") == 1
    assert "still runs" in first
    (here.workspace / "a").touch()
    second = polled(here, id_, "two")
    assert "one" not in second.split("[The command")[0].replace("nothing more", "")
    assert here.ok("exec", {"log": id_}).startswith("one ***\ntwo\n")
    assert "very-secret-token" not in repr(here.events)
    assert here.refused("exec", {"kill": id_}).startswith("one ***\ntwo\n[it was ended as asked")


def test_after_a_restart_what_a_command_had_written_is_still_read_by_its_own_session(here: World) -> None:
    here.configure(tools={"exec": CONFIG})
    running = begun(here, "echo begun $TOKEN; sleep 60")
    ended = begun(here, "echo done; until [ -e go ]; do sleep 0.02; done; exit 3")
    polled(here, running, "begun")
    (here.workspace / "go").touch()
    here.call("exec", {"poll": ended, "waitSeconds": 20})
    folder = here.hold.home.path / "agents/main/commands"

    async def written() -> None:
        await until(lambda: any("begun ***" in path.read_text() for path in folder.glob(f"{running}.*.json")))

    here.run(written())
    kept = {path: path.read_text() for path in folder.iterdir()}
    parts = here.parts
    parts.commands.close()
    for path, text in kept.items():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert "very-secret-token" not in text
        path.write_text(text)  # as a kill would have left them
    here.toolbox = Toolbox(parts.threads, parts.store, parts.outputs())
    here.toolbox.register(ExecTool(parts.store, parts.threads, parts.home, BackgroundCommands()).tool())
    said = here.ok("exec", {"poll": running})
    assert said.startswith("begun ***\n[Holdfast was stopped while it ran")
    assert "exit code 3" in here.ok("exec", {"log": ended})
    stranger = here.caller("agent:main:discord:dm:7")
    assert "no command" in here.refused("exec", {"poll": running}, stranger)


def with_the_homes_own_commands(here: World) -> BackgroundCommands:
    here.configure(tools={"exec": {"security": "full"}})
    parts, processes = here.parts, here.hold.agency.processes
    here.toolbox = Toolbox(parts.threads, parts.store, parts.outputs())
    here.toolbox.register(ExecTool(parts.store, parts.threads, parts.home, processes).tool())
    with here.hold.store.write(OWNER) as tx:
        sessions.next_turn_number(tx, sessions.ensure(tx, KEY).id)
    return processes


async def set_going(here: World, key: str = KEY) -> Path:
    """A command in the background; where its process is to be seen while it runs."""
    pid = here.workspace / "pid"
    pid.unlink(missing_ok=True)
    call = {"command": "echo $$ > pid; exec sleep 60", "background": True}
    await here.toolbox.run_all(here.caller(key), [ToolCall("c1", "exec", call)])
    await until(lambda: pid.exists() and pid.read_text().strip() != "")
    return Path(f"/proc/{pid.read_text().strip()}")


def test_who_leaves_a_session_ends_its_background_commands_and_is_told_so(here: World) -> None:
    with_the_homes_own_commands(here)

    async def scene() -> None:
        runs = here.hold.runs
        process = await set_going(here)
        said = await runs.accept(Ask(text="/reset", session_key=KEY))
        ended = "Ended with the former session: 1 background command."
        assert said.reply == f"A new session has begun. {ended}"
        await until(lambda: not process.exists())
        assert (await runs.accept(Ask(text="/new", session_key=KEY))).reply == "A new session has begun."
        process = await set_going(here)
        asked = await runs.accept(Ask(text="/new what now?", session_key=KEY))
        assert asked.json()["told"] == ended
        await until(lambda: not process.exists())

    here.run(scene())


def test_stop_ends_the_background_commands_of_its_session_alone_and_says_so(here: World) -> None:
    processes = with_the_homes_own_commands(here)

    async def scene() -> None:
        runs = here.hold.runs
        process = await set_going(here)
        session = here.session()
        other = Ask(text="/stop", session_key="agent:main:discord:dm:7")
        assert (await runs.accept(other)).reply == "Nothing was running."
        assert processes.behind(session.id) == 1
        said = await runs.accept(Ask(text="/stop", session_key=KEY))
        assert said.reply == "Stopped 1 background command."
        await until(lambda: not process.exists())
        assert (await runs.accept(Ask(text="/stop", session_key=KEY))).reply == "Nothing was running."
        assert here.session().id == session.id

    here.run(scene())


@pytest.mark.parametrize(
    ("key", "ends"), [(KEY, False), ("agent:main:subagent:3f2b8c1e-0000-4000-8000-000000000001", True)]
)
def test_a_stopped_run_leaves_the_background_to_its_session_but_a_subagent_takes_it_along(
    here: World, key: str, ends: bool
) -> None:
    processes = with_the_homes_own_commands(here)

    async def scene() -> None:
        runs = here.hold.runs
        run = await runs.accept(Ask(text="serve it", session_key=key))
        process = await set_going(here, key)
        assert (await runs.cancel(run.run_id)).status == "cancelled"
        assert processes.behind(run.session_id) == (0 if ends else 1)
        await until(lambda: process.exists() is not ends)
        processes.end_session(run.session_id)

    here.run(scene())


@pytest.mark.parametrize("how", ["reset", "archive", "stop"])
def test_a_session_that_is_ended_or_stopped_in_another_process_takes_its_commands_along(
    here: World, how: str
) -> None:
    here.configure(tools={"exec": {"security": "full"}})
    with here.hold.store.write(OWNER) as tx:
        session = sessions.ensure(tx, KEY)
    id_ = begun(here, "sleep 60")
    elsewhere = ProcessHook(BackgroundCommands())
    with here.hold.store.write(OWNER) as tx:
        if how == "stop":
            elsewhere.stopped(tx, session)
        else:
            {"reset": sessions.reset, "archive": sessions.archive}[how](tx, session, cause=how)
    command = here.parts.commands.get(session.id, id_)

    async def over() -> None:
        await until(lambda: not command.running)

    here.run(over())
    assert command.killed


@given(
    pieces=st.lists(st.text("abs3cret \n", max_size=12).map(str.encode), max_size=40),
    most=st.integers(2_000, 2_100),
    times=st.integers(1, 60),
)
def test_what_was_said_is_kept_within_its_bound_and_no_secret_passes_however_it_is_cut(
    pieces: list[bytes], most: int, times: int
) -> None:
    said, told, place = CommandOutput(most, ("s3cret", "cret a")), b"", 0
    for piece in pieces * times:
        said.take(piece)
        heard = said.since(place)
        told, place = told + heard.first + heard.last, heard.end
        assert heard.missing == 0
    said.close()
    rest = said.since(place)
    told += rest.first + rest.last
    assert len(told) == said.seen
    assert b"s3cret" not in told
    assert b"cret a" not in told
    whole = said.since()
    assert len(whole.first) + len(whole.last) <= most
    assert len(whole.first) + whole.missing + len(whole.last) == said.seen
    assert told.startswith(whole.first)
    assert told.endswith(whole.last)
