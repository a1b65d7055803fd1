"""Workers that are lost: what was promised is done, in its order, and nothing twice that must not be."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from fault_stage import away
from worker_play import Gateway, Nest, configure, wait_for

import forks
from builders import PATIENCE, rows
from holdfast.log import OWNER, Store, agenda, check
from holdfast.runtime import open_home
from holdfast.services import Services
from holdfast.testing import Asked, Call, Say, ScriptedOpenAI, Stall, Turn

_NAMED = re.compile(r"`([a-z]+(?:\.[a-z]+)?)`")
KILL, STOP = signal.SIGKILL, signal.SIGTERM
ENDS = [KILL, STOP, STOP, KILL, STOP] * (6 if int(os.environ.get("HOLDFAST_CRASH_KILLS", "6")) >= 100 else 1)
BATCHES = 30
IN_A_BATCH = "substr(content, 1, 6) = 'batch '"
EXEC = {"tools": {"exec": {"security": "full", "ask": "off"}}}


class Model:
    """By what it is shown: one long answer that comes when `calm`, and before it one call with an effect."""

    def __init__(self, effect: str) -> None:
        self.effect = effect
        self.calm = threading.Event()

    def __call__(self, asked: Asked) -> Turn:
        told = json.dumps(asked.messages)
        last = asked.messages[-1]
        if "You are a subagent" in told:
            return Say("The child is done.") if self.calm.is_set() else Stall("The child ")
        if "cut off before this call" in str(last["content"]):
            return Call("exec", {"command": self.effect}, id="effect-2")
        if last["role"] == "tool" and "sessions_spawn" not in told:
            return Say("All is done.") if self.calm.is_set() else Stall("All is ")
        if last["role"] == "tool":
            return Say("Sent off.")
        if "long" in str(last["content"]):
            return Call("exec", {"command": self.effect}, id="effect-1")
        if "delegate" in str(last["content"]):
            return Call("sessions_spawn", {"task": "Look into it."}, id="spawn-1")
        return Say("Heard.")


def asked_for(server: ScriptedOpenAI, said: str) -> int:
    return sum(said in json.dumps(asked.messages) for asked in server.requests)


def ingest(gateway: Gateway, life: int) -> None:
    """Batches that a killed gateway may have begun, in the order of their numbers."""
    for number in range(BATCHES):
        entries = [{"content": f"batch {life:02}-{number:02}", "sessionKey": "agent:main:web:dm:bulk"}]
        answer = gateway.api.post("/api/ingest", json=entries)
        assert answer.status_code == 202, answer.text


def found(store: Store, where: str) -> list[tuple[Any, ...]]:
    return rows(store, f"SELECT content FROM entries WHERE {where} ORDER BY position")


def test_accepted_work_goes_on_over_kills_and_restarts_until_it_is_done(
    store_url: str, tmp_path: Path, nest: Nest
) -> None:
    home, marked = tmp_path / "home", tmp_path / "marked"
    model = Model(f"echo once >> {marked}")
    with ScriptedOpenAI(model, models=["scripted"]) as server:
        configure(home, server.url, **EXEC)
        one = nest.gateway(home, store_url)
        long, child = one.say("A long one."), one.say("Please delegate.", "agent:main:web:dm:ada")
        after = one.say("And then?", mode="queue")
        # A child may be at work before it is written down that it was sent off: then that is in doubt.
        wait_for(lambda: asked_for(server, "spawn-1") > 0, "for the child to be sent off")
        for life, how in enumerate(ENDS):
            wait_for(lambda n=life: asked_for(server, "effect-1") > n, "for the long answer")
            wait_for(lambda n=life: asked_for(server, "You are a subagent") > n, "for the child")
            ingest(one, life)
            one.end(how)
            one = nest.gateway(home, store_url)
        model.calm.set()
        told = [one.ended(run) for run in (long, child, after)]
        store = Store(store_url)
        wait_for(lambda: rows(store, "SELECT outcome FROM subagent_runs") == [("success",)])
        done = len(ENDS) * BATCHES
        wait_for(lambda: len(found(store, IN_A_BATCH)) == done, "for all batches to be taken in")
        wait_for(lambda: found(store, "status = 'pending'") == [], "for all to be sorted")
        wait_for(lambda: rows(store, "SELECT DISTINCT status FROM turns") == [("committed",)], "for turns")
    assert [run["status"] for run in told] == ["committed"] * 3
    assert [run["reply"] for run in told[::2]] == ["All is done.", "Heard."]
    assert marked.read_text() == "once\n"
    batches = [content for (content,) in found(store, IN_A_BATCH)]
    assert batches == sorted(batches)
    assert len(batches) == len(set(batches)) == done
    assert rows(store, "SELECT count(*) FROM entries WHERE code = 'classifier_error'") == [(0,)]
    assert rows(store, "SELECT count(*) FROM agenda WHERE status = 'failed'") == [(0,)]
    assert check(store) == []
    store.close()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_turn_whose_effect_is_in_doubt_says_so_and_is_not_repeated(
    store_url: str, tmp_path: Path, nest: Nest
) -> None:
    home, struck = tmp_path / "home", tmp_path / "struck"
    model = Model(f"echo once >> {struck}; sleep 60")
    with ScriptedOpenAI(model, models=["scripted"]) as server:
        configure(home, server.url, **EXEC)
        one = nest.gateway(home, store_url)
        for life, how in enumerate((KILL, STOP), start=1):
            run_id = one.say("A long one.", f"agent:main:web:dm:{life}")
            wait_for(lambda n=life: struck.exists() and len(struck.read_text().split()) == n)
            one.end(how)
            one = nest.gateway(home, store_url)
            told = one.ended(run_id)
            assert (told["status"], told["resumable"]) == ("interrupted", True)
        store = Store(store_url)
        notes = [note for (note,) in found(store, "substr(content, 1, 22) = 'Turn 1 was interrupted'")]
        assert ["exec ran" in note and "is not known" in note for note in notes] == [True, True]
        model.calm.set()
        one.api.post(f"/api/agent/{run_id}/resume").raise_for_status()
        assert one.ended(run_id)["reply"] == "All is done."
    result = [m["content"] for m in server.requests[-1].messages if m["role"] == "tool"]
    assert "whether it took effect is not known" in result[0]
    assert struck.read_text() == "once\nonce\n"
    store.close()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_call_that_waits_for_a_person_waits_on_after_a_restart(
    store_url: str, tmp_path: Path, nest: Nest
) -> None:
    home, marked = tmp_path / "home", tmp_path / "marked"
    model = Model(f"echo once >> {marked}")
    model.calm.set()
    with ScriptedOpenAI(model, models=["scripted"]) as server:
        configure(home, server.url, tools={"exec": {"security": "full", "ask": "always"}})
        one = nest.gateway(home, store_url)
        run_id = one.say("A long one.")
        wait_for(lambda: len(asked_of(one)) == 1)
        one.end(STOP)
        assert not marked.exists()
        one = nest.gateway(home, store_url)
        wait_for(lambda: len(server.requests) == 2, "for the model to be told that nothing was run")

        def approved() -> bool:
            for asked in asked_of(one):
                one.api.post(f"/api/approvals/{asked}", json={"decision": "approve"}).raise_for_status()
            return bool(one.run(run_id)["ended"])

        wait_for(approved)
        assert one.run(run_id)["reply"] == "All is done."
    assert marked.read_text() == "once\n"


def asked_of(gateway: Gateway) -> list[str]:
    """The calls that wait for a person."""
    told = gateway.api.get("/api/approvals", params={"status": "pending"}).json()
    return [str(one["id"]) for one in told]


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
def test_an_end_that_could_not_be_written_is_written_when_the_database_is_back(
    store_url: str, tmp_path: Path, nest: Nest
) -> None:
    """With leases of ten minutes: nobody waits for one to run out."""
    home, gone, answered = tmp_path / "home", threading.Event(), threading.Event()

    def answer(asked: Asked) -> Turn:
        gone.wait(4 * PATIENCE)
        answered.set()
        return Say("Here I am.")

    with ScriptedOpenAI(answer, models=["scripted"]) as server:
        configure(home, server.url, agenda={"leaseSeconds": 600})
        one = nest.gateway(home, store_url)
        runs = [one.say("Are you there?", f"agent:main:web:dm:{n}") for n in range(3)]
        wait_for(lambda: len(server.requests) == 3)
        with away(store_url):
            gone.set()
            wait_for(answered.is_set)
            wait_for(lambda: one.api.get("/healthz", params={"ready": True}).status_code != 200)
        told = [one.ended(run) for run in runs]
    assert [(run["status"], run["reply"]) for run in told] == [("committed", "Here I am.")] * 3


HELD = """
import asyncio, logging, sys
from holdfast.log import Store, Threads, agenda

async def held(job):
    print("begun", flush=True)
    await asyncio.to_thread(sys.stdin.readline)

async def main():
    runner = agenda.Runner(Store(sys.argv[1]), Threads(4), lease_ms=600_000)
    runner.register("held", agenda.Kind(held))
    await runner.run()

logging.basicConfig()
asyncio.run(main())
"""


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
def test_the_end_of_any_work_is_written_again_until_it_stands(store_url: str, tmp_path: Path) -> None:
    """A turn writes its end itself, and tries again by itself; other work leaves that to the runner."""
    said = tmp_path / "said"
    store = Store(store_url)
    with store.write(OWNER) as tx:
        item = agenda.enqueue(tx, "held", {})
    with said.open("w") as errors:
        worker = forks.Popen(
            [sys.executable, "-c", HELD, store_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert worker.stdout.readline() == "begun\n", said.read_text()
        with away(store_url):
            worker.stdin.write("go on\n")
            worker.stdin.flush()
            wait_for(lambda: "cannot be written yet" in said.read_text(), "for the end to be refused")

        def status() -> agenda.Status:
            with store.read(OWNER) as tx:
                return agenda.get(tx, item.id).status

        wait_for(lambda: status() is agenda.Status.DONE, "for the end to be written")
    finally:
        worker.kill()
        worker.communicate()
        store.close()


def test_the_table_of_what_a_lost_worker_means_names_every_kind(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "architecture.md"
    named = {name for line in page.read_text().splitlines() for name in _NAMED.findall(line)}
    with open_home(tmp_path / "home") as hold:
        kinds = set(Services(hold).runner._kinds)
    assert kinds <= named


DEADLY = """
import asyncio, os, signal, sys
from holdfast.log import Store, Threads, agenda

async def deadly(job):
    os.kill(os.getpid(), signal.SIGKILL)

async def harmless(job):
    with open(sys.argv[2], "a") as file:
        file.write(job.item.payload["name"] + "\\n")

async def main():
    runner = agenda.Runner(Store(sys.argv[1]), Threads(2))
    runner.register("deadly", agenda.Kind(deadly))
    runner.register("harmless", agenda.Kind(harmless))
    await runner.drain()

deaths = 0
while True:
    pid = os.fork()
    if pid == 0:
        asyncio.run(main())
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0:
        break
    deaths += 1
print(deaths)
"""


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_what_ends_every_process_that_runs_it_is_given_up_and_others_are_not(
    store_url: str, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    store = Store(store_url)
    with store.write(OWNER) as tx:
        deadly = agenda.enqueue(tx, "deadly", {}, lane="d")
        for name in "abc":
            agenda.enqueue(tx, "harmless", {"name": name}, lane="d")
    done = forks.run(
        [sys.executable, "-c", DEADLY, store_url, str(ran)], capture_output=True, text=True, timeout=60
    )
    assert int(done.stdout) == agenda.MOST_LOSSES, done.stderr
    with store.read(OWNER) as tx:
        ended = agenda.get(tx, deadly.id)
    assert ended.status is agenda.Status.FAILED
    assert f"{agenda.MOST_LOSSES} processes in a row" in (ended.error or "")
    assert ran.read_text() == "a\nb\nc\n"
    store.close()
