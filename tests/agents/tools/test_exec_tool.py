"""`exec`: what runs unasked, what a person is asked for, where it runs, and how it is followed and ended."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tool_world import World

from builders import soon, until
from holdfast.agents.approvals import audit, requests
from holdfast.agents.approvals.requests import Approval, ApprovalStatus
from holdfast.agents.sandbox import Bubblewrap
from holdfast.agents.tools import BackgroundCommands, Caller, Toolbox
from holdfast.agents.tools.exec_tool import ExecTool
from holdfast.context import ToolCall, ToolResult
from holdfast.log import OWNER

SANDBOX = pytest.mark.skipif(
    Bubblewrap().missing() is not None, reason=f"no bubblewrap: {Bubblewrap().missing()}"
)
FULL = {"security": "full"}


def exec_config(here: World, exec_: dict[str, Any], **tools: Any) -> None:
    here.configure(tools={"exec": exec_, **tools})


def pending(here: World) -> list[Approval]:
    with here.hold.store.read(OWNER) as tx:
        return requests.listing(tx, status=ApprovalStatus.PENDING)


async def asked(here: World, command: str, answer: str, caller: Caller | None = None) -> ToolResult:
    """Run a command that waits for a person, who then answers."""
    calls = [ToolCall("c1", "exec", {"command": command})]
    running = asyncio.create_task(here.toolbox.run_all(caller or here.caller(), calls, here.events.append))
    await until(lambda: bool(pending(here)))
    with here.hold.store.write(OWNER) as tx:
        decide = requests.approve if answer == "approve" else requests.deny
        decide(tx, pending_id(tx), by="ann")
    return (await soon(running))[0]


def pending_id(tx: Any) -> str:
    return requests.listing(tx, status=ApprovalStatus.PENDING)[0].id


def events_of(here: World) -> list[str]:
    with here.hold.store.read(OWNER) as tx:
        return [record.event for record in reversed(audit.listing(tx))]


def test_a_command_that_only_reads_runs_unasked_in_the_workspace(here: World) -> None:
    (here.workspace / "notes").write_text("one\ntwo\n")
    (here.workspace / "sub").mkdir()
    assert here.ok("exec", {"command": "cat notes | wc -l"}).strip() == "2"
    assert here.ok("exec", {"command": "pwd", "cwd": "sub"}).strip() == str(here.workspace / "sub")
    said = here.refused("exec", {"command": "grep three notes"})
    assert "exit code 1" in said
    assert "not a folder" in here.refused("exec", {"command": "pwd", "cwd": "nowhere"})
    assert events_of(here) == ["run", "run", "run"]


def test_holdfasts_own_home_is_not_read_unasked_even_where_the_workspace_holds_it(here: World) -> None:
    home, above = here.hold.home, here.hold.home.path.parent
    token = home.admin_token()
    (above / "notes").mkdir()
    (above / "notes" / "a").write_text("fine\n")
    exec_config(here, {"ask": "off"})
    caller = replace(here.caller(), workspace=above)
    assert here.ok("exec", {"command": "cat notes/a"}, caller) == "fine\n"
    assert here.ok("exec", {"command": "grep -rh fine notes"}, caller) == "fine\n"
    assert "notes" in here.ok("exec", {"command": "ls"}, caller)
    for command in (
        "cat home/credentials/token",
        "grep -r hf_",
        "grep -rh hf_ .",
        "grep --recursive hf_ ./notes/..",
        "grep -re hf_",
        "ls -R",
        "ls home",
    ):
        said = here.refused("exec", {"command": command}, caller)
        assert "refused" in said
        assert token not in said
    for cwd in ("home", "home/credentials"):
        assert token not in here.refused("exec", {"command": "cat credentials/token", "cwd": cwd}, caller)


@SANDBOX
@pytest.mark.parametrize("access", ["ro", "rw"])
def test_no_sandbox_shares_holdfasts_own_home_with_the_workspace(here: World, access: str) -> None:
    here.configure(
        agents={"defaults": {"sandbox": {"mode": "all", "workspaceAccess": access}}}, tools={"exec": FULL}
    )
    token = here.hold.home.admin_token()
    caller = replace(here.caller(), workspace=here.hold.home.path.parent)
    assert "home" in here.ok("exec", {"command": "ls"}, caller)
    said = here.ok("exec", {"command": "ls -a home; grep -rhs hf_ . ; echo searched"}, caller)
    assert "searched" in said
    assert token not in said
    assert "holdfast.db" not in said


def test_what_is_not_on_the_list_is_refused_when_nobody_is_asked(here: World) -> None:
    exec_config(here, {"ask": "off"})
    for command in ("touch made", "cat /etc/passwd", "ls; touch made", "ls > made", "cat ../holdfast.db"):
        assert "refused" in here.refused("exec", {"command": command})
    exec_config(here, {"security": "deny"})
    assert "switched off" in here.refused("exec", {"command": "ls"})
    assert not (here.workspace / "made").exists()


def test_a_person_approves_the_very_command_and_it_runs_once_as_it_was_read(here: World) -> None:
    result = here.run(asked(here, "echo hi > made && cat made", "approve"))
    assert (result.text, result.is_error) == ("hi\n", False)
    told = [event.text for event in here.events if event.kind == "progress"]
    assert "waiting for approval appr-" in told[0]
    assert told[1] == "approved by ann"
    assert events_of(here) == ["requested", "approved", "used"]
    (here.workspace / "made").unlink()
    result = here.run(asked(here, "echo hi > made && cat made", "deny"))
    assert result.is_error
    assert "it was denied" in result.text
    assert not (here.workspace / "made").exists()


@pytest.mark.parametrize(
    ("command", "was_there"),
    [
        ("sh job", True),
        ("./job", True),
        ("./job", False),
        ("cd . && . ./job", True),
        ("python3 'job.py'", True),
        ("python3 job.py", False),
    ],
)
def test_a_script_that_changes_before_it_was_approved_does_not_run(
    here: World, command: str, was_there: bool
) -> None:
    script = here.workspace / ("job.py" if "py" in command else "job")
    if was_there:
        script.write_text("echo harmless\n")
        script.chmod(0o755)
    harm = "open('made', 'w')" if "py" in command else "touch made"

    async def scene() -> ToolResult:
        calls = [ToolCall("c1", "exec", {"command": command})]
        running = asyncio.create_task(here.toolbox.run_all(here.caller(), calls))
        await until(lambda: bool(pending(here)))
        script.write_text(harm)
        script.chmod(0o755)
        with here.hold.store.write(OWNER) as tx:
            requests.approve(tx, pending_id(tx), by="ann")
        return (await soon(running))[0]

    result = here.run(scene())
    assert result.is_error
    assert "has changed since" in result.text
    assert not (here.workspace / "made").exists()
    assert not here.run(asked(here, command, "approve")).is_error
    assert (here.workspace / "made").exists()


def test_a_file_that_a_command_only_reads_may_grow_while_it_waits(here: World) -> None:
    (here.workspace / "log").write_text("one\n")

    async def scene() -> ToolResult:
        calls = [ToolCall("c1", "exec", {"command": "cp log copy && wc -l < copy"})]
        running = asyncio.create_task(here.toolbox.run_all(here.caller(), calls))
        await until(lambda: bool(pending(here)))
        (here.workspace / "log").write_text("one\ntwo\n")
        with here.hold.store.write(OWNER) as tx:
            requests.approve(tx, pending_id(tx), by="ann")
        return (await soon(running))[0]

    assert here.run(scene()).text.strip() == "2"


def test_a_turn_that_is_cancelled_while_it_waits_leaves_the_approval_and_runs_nothing(here: World) -> None:
    stop: list[bool] = []

    async def scene() -> ToolResult:
        caller = here.caller(cancelled=lambda: bool(stop))
        calls = [ToolCall("c1", "exec", {"command": "touch made"})]
        running = asyncio.create_task(here.toolbox.run_all(caller, calls))
        await until(lambda: bool(pending(here)))
        stop.append(True)
        return (await soon(running))[0]

    assert "cancelled" in here.run(scene()).text
    assert len(pending(here)) == 1
    assert not (here.workspace / "made").exists()


def test_output_errors_and_time_are_told(here: World) -> None:
    exec_config(here, {**FULL, "maxOutputChars": 1000})
    text = here.refused("exec", {"command": "printf '\\033[31mred\\033[0m\\n'; echo oops >&2; exit 3"})
    assert text.startswith("red\noops\n[it ended with exit code 3")
    assert "ran out of time" in here.refused("exec", {"command": "sleep 30", "timeoutSeconds": 1})
    long = here.refused("exec", {"command": "seq 1 2000; echo why it failed; exit 1"})
    assert "bytes were not kept" in long
    assert long.startswith("1\n2\n")
    assert "2000\nwhy it failed\n[it ended with exit code 1" in long
    assert "wrote nothing" in here.ok("exec", {"command": "true"})
    assert "exactly one of command, poll, log and kill" in here.refused("exec", {})


def test_commands_get_the_environment_of_config_and_skills_and_no_answer_shows_it(here: World) -> None:
    skill = here.workspace / "skills/weather/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(
        "---\nname: weather\ndescription: W.\n"
        'metadata: {"holdfast": {"primaryEnv": "WEATHER_KEY"}}\n---\nAsk.\n'
    )
    here.configure(
        tools={"exec": {**FULL, "env": {"PLACE": "harbour-town"}}},
        skills={"entries": {"weather": {"apiKey": "weather-secret-1"}}},
    )
    text = here.ok("exec", {"command": "echo $PLACE ${#WEATHER_KEY} $WEATHER_KEY $HOLDFAST_TOKEN."})
    assert text.strip() == "*** 16 *** ."
    assert "weather-secret-1" not in repr(here.events)
    exec_config(here, {**FULL, "env": {"PLACE": "harbour-town"}, "maxOutputChars": 2000})
    cut = here.ok("exec", {"command": "printf '%0994d'; echo $PLACE; printf '%05000d'"})
    assert "were not kept" in cut
    assert "harbour" not in cut


def test_a_long_command_goes_on_in_the_background_and_is_followed_and_ended_by_its_id(here: World) -> None:
    exec_config(here, {**FULL, "backgroundMs": 30})
    said = here.ok("exec", {"command": "echo begun; until [ -e go ]; do sleep 0.02; done; echo ended"})
    id_ = said.split("as cmd-")[1].split(".")[0]
    assert "still runs" in here.ok("exec", {"poll": f"cmd-{id_}"})
    other = here.caller("agent:main:discord:dm:7")
    assert "no command" in here.refused("exec", {"poll": f"cmd-{id_}"}, other)
    assert "no command" in here.refused("exec", {"kill": f"cmd-{id_}"}, other)
    (here.workspace / "go").touch()
    assert here.ok("exec", {"poll": f"cmd-{id_}", "waitSeconds": 20}) == "begun\nended\n"
    assert here.ok("exec", {"poll": f"cmd-{id_}"}) == "begun\nended\n"
    said = here.ok("exec", {"command": "sleep 60", "background": True})
    id_ = said.split("as cmd-")[1].split(".")[0]
    assert "ended as asked" in here.refused("exec", {"kill": f"cmd-{id_}"})


def test_commands_are_bounded_per_session_and_end_with_the_gateway(here: World) -> None:
    commands = BackgroundCommands(of_session=1)
    parts = here.parts
    here.toolbox = Toolbox(parts.threads, parts.store, parts.outputs())
    here.toolbox.register(ExecTool(parts.store, parts.threads, parts.home, commands).tool())
    exec_config(here, FULL)
    said = here.ok("exec", {"command": "sleep 60", "background": True})
    command = commands.get(here.session().id, "cmd-" + said.split("as cmd-")[1].split(".")[0])
    assert "run already" in here.refused("exec", {"command": "true"})
    commands.close()
    assert not command.running
    assert "stopping" in here.refused("exec", {"command": "true"})


def test_cancelling_the_turn_ends_the_command_that_it_waits_for(here: World) -> None:
    exec_config(here, {**FULL, "backgroundMs": 60_000})

    async def scene() -> None:
        calls = [ToolCall("c1", "exec", {"command": "echo $$ > pid; exec sleep 60"})]
        running = asyncio.create_task(here.toolbox.run_all(here.caller(), calls))
        pid = here.workspace / "pid"
        await until(lambda: pid.exists() and pid.read_text().strip() != "")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await until(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists())

    here.run(scene())


@SANDBOX
def test_in_a_sandbox_commands_see_what_the_config_gives_them(here: World) -> None:
    (here.workspace / "note").write_text("shared")
    for access, listing in (("none", ""), ("ro", "note"), ("rw", "note")):
        sandbox = {"mode": "all", "workspaceAccess": access}
        here.configure(agents={"defaults": {"sandbox": sandbox}}, tools={"exec": FULL})
        assert here.ok("exec", {"command": "ls; touch /scratch/x"}).split()[: len(listing)] == listing.split()
        assert here.call("exec", {"command": "touch /workspace/new"}).is_error is (access != "rw")
        assert here.refused("exec", {"command": f"cat {here.hold.home.path}/holdfast.db"})
        assert "outside the workspace" in here.refused("exec", {"command": "ls", "cwd": "/etc"})
    here.ok("file_write", {"path": "/scratch/from-file-tool", "content": "hello"})
    assert here.ok("exec", {"command": "cat from-file-tool", "cwd": "/scratch"}) == "hello"


@SANDBOX
def test_only_a_sender_who_is_named_has_a_command_run_outside_the_sandbox(here: World) -> None:
    here.configure(
        agents={"defaults": {"sandbox": {"mode": "all"}}},
        tools={"exec": FULL, "elevated": {"allowFrom": {"discord": ["ann"]}}},
    )
    command = {"command": f"ls {here.hold.home.path}", "elevated": True}
    ann, bob = (here.caller(channel="discord", sender=name) for name in ("ann", "bob"))
    assert "holdfast.db" in here.ok("exec", command, ann)
    assert "may not leave the sandbox" in here.refused("exec", command, bob)
    assert "holdfast.db" not in here.refused("exec", {**command, "elevated": False}, ann)


def test_what_a_surface_is_told_of_a_command_is_structured(here: World) -> None:
    exec_config(here, FULL)
    here.refused("exec", {"command": "exit 4"})
    details = here.events[-1].details
    assert (details["exitCode"], details["running"], details["end"]) == (4, False, "exited")
    assert json.dumps(dict(details))


def test_that_a_command_is_longer_than_what_is_shown_of_it_is_said(here: World) -> None:
    here.run(asked(here, f"true {'a ' * 8000}; rm -r x", "deny"))
    told = [event.approval.command for event in here.events if event.approval is not None]
    assert told
    assert all("more characters: look at the approval itself" in each for each in told)
