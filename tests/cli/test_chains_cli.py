"""`holdfast chains`, `continuation stop` and `stop-all`: with a gateway and without one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from cli_stage import Run
from talk_builders import Scripted, gateway, scripted

from builders import draft, until
from holdfast.log import OWNER, sessions, turns
from holdfast.runtime import open_home
from holdfast.testing import Asked, Call, Say, Stall, Turn

__all__ = ["scripted"]

KEY = "agent:main:main"
STEADY = {
    "defaults": {"model": "scripted/m", "continuation": {"enabled": True}, "heartbeat": {"every": "0m"}}
}


def is_child(asked: Asked) -> bool:
    return "You are a subagent" in json.dumps(asked.messages)


def hanging_child(asked: Asked) -> Turn:
    """Sends off a subagent that never answers."""
    if is_child(asked):
        return Stall("Well, ")
    if asked.messages[-1]["role"] == "tool":
        return Say("On its way.")
    return Call("sessions_spawn", {"task": "Look for ever"}, id="c1")


@pytest.fixture
def elected(run: Run, scripted: Scripted) -> str:
    """A home without a gateway whose agent has elected a turn in five minutes; the chain's id."""
    scripted(
        [Call("continue_work", {"reason": "look again", "delaySeconds": 300}), Say("Later.")], agents=STEADY
    )
    assert run("agent", "-m", "watch the pond").exit_code == 0
    [chain] = json.loads(run("chains", "--json").stdout)
    return str(chain["id"])


def test_chains_are_a_table_and_one_of_them_a_tree_by_the_end_of_its_id(run: Run, elected: str) -> None:
    lines = run("chains", "--live").stdout.splitlines()
    assert lines[0].split() == ["state", "id", "asked", "by", "steps", "tokens", "cost", "next", "lives"]
    assert lines[1].startswith(f"live   {elected[-8:]}  ")
    for words in (KEY, "1/10", "in 4 min", "1 election"):
        assert words in lines[1]
    tree = run("chains", "show", elected[-6:]).stdout
    assert tree.startswith(f"{elected} is live: asked by ")
    assert tree.index("turn (user) committed") < tree.index("elected turn queued")
    assert "next in 4 min · “look again”" in tree
    told = json.loads(run("chains", "show", elected, "--json").stdout)
    assert [(node["kind"], node["depth"]) for node in told["nodes"]] == [("turn", 0), ("work", 1)]


def test_a_chain_is_named_by_enough_of_its_end(run: Run, elected: str) -> None:
    for given, why in (
        (elected[-3:], "too short"),
        ("zzzz", "no chain ends in"),
        ("turn-none" * 9, "no chain"),
    ):
        result = run("chains", "show", given)
        assert (result.exit_code, why in result.stderr) == (2, True), result.stderr
    for args in ([], [elected, "--all"], ["--session", KEY, "--all"]):
        assert run("continuation", "stop", *args).exit_code == 2


@pytest.mark.parametrize("by", ["chain", "--session", "--all"])
def test_without_a_gateway_chains_are_stopped_in_the_store(run: Run, elected: str, by: str) -> None:
    args = {"chain": [elected[-4:]], "--session": ["--session", KEY], "--all": ["--all"]}[by]
    done = run("continuation", "stop", *args, "--reason", "enough")
    assert (done.exit_code, done.stdout) == (0, "Stopped 1 elected turn.\n"), done.stderr
    [chain] = json.loads(run("chains", "--json").stdout)
    assert (chain["state"], chain["stopReason"]) == ("stopped", "enough")
    assert run("chains", "--live").stdout == "Nothing lives.\n"
    assert "Nothing was elected." in run("continuation", "list").stdout


def test_through_a_gateway_a_running_child_is_stopped(run: Run, home: Path, scripted: Scripted) -> None:
    model = scripted(hanging_child, agents=STEADY)
    with gateway(home):
        assert run("agent", "-m", "send it off").exit_code == 0
        asyncio.run(until(lambda: any(is_child(one) for one in model.requests)))
        [chain] = json.loads(run("chains", "--live", "--json").stdout)
        assert "1 turn, 1 subagent" in run("chains").stdout
        assert "main: chain 0/10, 1 turn, 1 subagent" in run("status").stdout
        assert "Look for ever" in run("chains", "show", chain["id"][-8:]).stdout
        done = json.loads(run("continuation", "stop", "--session", KEY, "--json").stdout)
        assert (done["chains"], done["ended"]["turn"], done["stillRunning"]) == ([chain["id"]], 1, [])
        assert run("chains", "--live").stdout == "Nothing lives.\n"


def test_stop_all_without_a_gateway_holds_for_the_next_one_until_it_is_released(
    run: Run, home: Path, elected: str
) -> None:
    done = run("stop-all", "--reason", "it ran wild")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("Stopped 1 elected turn. Nothing begins until: holdfast stop-all --release")
    first = run("status").stdout.splitlines()[0]
    assert first.startswith("EVERYTHING IS STOPPED since ")
    assert "(it ran wild). Release it: holdfast stop-all --release" in first
    assert json.loads(run("status", "--json").stdout)["halted"]["reason"] == "it ran wild"
    assert halt_findings(run) == ["warn"]
    with gateway(home):
        assert "it ran wild" in run("agent", "-m", "/status").stdout
        assert run("stop-all", "--release").stdout == "Released: agents work again.\n"
        assert run("stop-all", "--release").stdout == "Nothing was stopped.\n"
        assert json.loads(run("stop-all", "--json").stdout)["halted"] is True
        assert run("stop-all", "--release").exit_code == 0
    assert halt_findings(run) == []
    assert not run("status").stdout.startswith("EVERYTHING")
    assert "none live" in run("status").stdout


def test_of_a_chain_with_very_many_turns_the_newest_are_shown_below_its_beginning(
    run: Run, home: Path
) -> None:
    assert run("init").exit_code == 0
    with open_home(home) as hold, hold.store.write(OWNER) as tx:
        session = sessions.ensure(tx, KEY)
        first = turns.accept(tx, session, draft("begin"), key="first").turn
        for number in range(520):
            last = turns.accept(tx, session, None, key=f"more-{number}", chain_id=first.id).turn
    told = json.loads(run("chains", "show", first.id, "--json").stdout)
    ids = [node["id"] for node in told["nodes"]]
    assert (told["cut"], len(ids), ids[0], ids[-1]) == (True, 500, first.id, last.id)
    assert told["nodes"][-1]["depth"] == 499
    shown = run("chains", "show", first.id)
    assert shown.exit_code == 0, shown.stderr
    assert "more than this were left out" in shown.stdout


def halt_findings(run: Run) -> list[str]:
    found: list[dict[str, Any]] = json.loads(run("doctor", "--json").stdout)
    return [one["level"] for one in found if one["check"] == "halt"]
