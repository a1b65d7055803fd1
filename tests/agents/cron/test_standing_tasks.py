"""Standing tasks through the real loop: due by the clock, once, with the rights of who asked for them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "heartbeat"))

from heart_stage import HOME, HeartStage

from builders import soon
from holdfast.agents.cron import Wish
from holdfast.errors import Busy, Conflict, NotFound
from holdfast.log import FOR_OWNER, OWNER, SessionStatus, Store, Threads, agenda, changes, sessions
from holdfast.testing import Call, Say, broken

CLI = {"kind": "cli", "owner": True}


def test_a_task_runs_when_it_is_due_afresh_each_time_and_its_delivery_is_a_state_of_its_own(
    store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with HeartStage(store, threads, tmp_path, [Say("hi"), Say("cloudless"), Say("rain")]) as stage:
            await stage.say("hello", deliver=HOME)
            fresh = stage.session().last_external_at
            made = stage.standing.add(Wish(prompt="Look at the sky.", name="sky", every="1h"), CLI)
            await stage.beat(hours=1)
            key = made["sessionKey"]
            assert key == f"agent:main:cron:{made['id']}"
            assert stage.spoken(key) == [("user", "[cron:sky] Look at the sky."), ("assistant", "cloudless")]
            await stage.beat(hours=1)
            assert "cloudless" not in json.dumps(stage.server.requests[2].messages)
            (told,) = stage.standing.listing()
            assert (told["runs"], told["lastStatus"], told["lastDelivery"]) == (2, "ok", "pending")
            assert [(target, p["text"]) for target, p in stage.posted()[1:]] == [
                *(("chat:42", "cloudless"), ("chat:42", "rain")),
            ]
            assert stage.session().last_external_at == fresh
            await stage.beat(hours=24)
            with stage.store.read(OWNER) as tx:
                assert {s.status for s in sessions.history(tx, key)[:2]} == {SessionStatus.ARCHIVED}
                assert "cron.upserted" in {change.type for change in changes.since(tx, 0)}

    asyncio.run(main())


def test_what_was_missed_runs_once_and_the_schedule_goes_on(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with HeartStage(sqlite_store, threads, tmp_path, [Say("done")] * 3) as stage:
            wish = Wish(prompt="Look.", cron="0 * * * *", tz="UTC", session="main", deliver="none")
            stage.standing.add(wish, CLI)
            await stage.beat(hours=7, minutes=20)
            (told,) = stage.standing.listing()
            assert (told["runs"], told["nextDue"]) == (1, "2026-01-01T08:00:00.000Z")
            assert len(stage.due("cron")) == 1
            await stage.beat(minutes=40)
            assert len(stage.server.requests) == 2

    asyncio.run(main())


def test_a_task_for_once_is_over_after_it_and_a_failing_one_says_so(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with HeartStage(sqlite_store, threads, tmp_path, [Say("hi"), *[broken()] * 12]) as stage:
            await stage.say("hello", deliver=HOME)
            stage.standing.add(Wish(prompt="Call Ada.", at="20m"), CLI)
            await stage.beat(minutes=20)
            (told,) = stage.standing.listing()
            assert (told["enabled"], told["nextDue"], told["lastStatus"]) == (False, None, "failed")
            assert told["lastError"]
            assert told["failures"] == 1
            assert stage.posted()[-1][1]["error"]
            stage.clock.advance(hours=24 * 8)
            assert stage.standing.schedule() == 0
            assert stage.standing.listing() == []

    asyncio.run(main())


def test_an_agent_makes_tasks_that_may_no_more_than_who_asked_for_them(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    create = {"prompt": "Water the plants.", "cron": "0 9 * * *"}
    script = [
        *(Call("cron_create", create), Say("made")),
        *(Call("cron_create", {"action": "list"}), Say("listed")),
        *(Call("cron_create", {**create, "name": "mine"}), Say("made")),
    ]

    async def main() -> None:
        config: dict[str, Any] = {"tools": {"profile": "full"}}
        async with HeartStage(sqlite_store, threads, tmp_path, script, **config) as stage:
            await stage.say("remind me", sender="ada")
            await stage.say("what is there?", sender="eve", owner=False, heard=FOR_OWNER)
            seen = json.dumps(stage.server.requests[3].messages[-1])
            assert "Water the plants" not in seen
            await stage.say("remind me too", sender="eve", owner=False, heard=FOR_OWNER)
            found = stage.standing.listing()
            assert [t["createdBy"]["sender"] for t in found][:1] == ["ada"]
            assert all(t["createdBy"]["owner"] is (t["createdBy"]["sender"] == "ada") for t in found)
            assert found[0]["name"] == "Water the plants."

    asyncio.run(main())


def test_tasks_can_be_changed_run_at_once_and_removed(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with HeartStage(
            sqlite_store, threads, tmp_path, [Say("now")] * 2, cron={"maxJobs": 1}
        ) as stage:
            made = stage.standing.add(Wish(prompt="Look.", every="2h"), CLI)
            with pytest.raises(Busy):
                stage.standing.add(Wish(prompt="Look again.", every="2h"), CLI)
            later = stage.standing.change(made["id"], {"every": "5h", "prompt": "Look well."})
            assert later["nextDue"] == "2026-01-01T05:00:00.000Z"
            assert [item.due_at - stage.clock.now() for item in stage.due("cron")] == [5 * 3_600_000]
            with pytest.raises(Conflict):
                stage.standing.change(made["id"], {"enabled": False}, revision=0)
            stage.standing.run_now(made["id"])
            stage.standing.schedule()
            await stage.beat()
            assert len(stage.server.requests) == 1
            assert [item.due_at for item in stage.due("cron")] == [stage.clock.now() + 5 * 3_600_000]
            stage.standing.change(made["id"], {"enabled": False})
            assert stage.due("cron") == []
            stage.standing.remove(made["id"])
            with pytest.raises(NotFound):
                stage.standing.get(made["id"])

    asyncio.run(main())


def test_a_run_that_is_not_over_leaves_the_next_one_out_and_others_wait_their_turn(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    script = [Call("wait", {"word": "x"}), Say("waited"), Say("second")]

    async def main() -> None:
        async with HeartStage(sqlite_store, threads, tmp_path, script) as stage:
            slow = stage.standing.add(Wish(prompt="Slow.", every="1h", deliver="none"), CLI)
            stage.standing.add(Wish(prompt="Other.", at="90m", deliver="none"), CLI)
            stage.clock.advance(hours=1)
            await soon(stage.begun.wait())
            stage.clock.advance(hours=1)
            await stage.until(lambda: all(item.due_at > stage.clock.now() for item in stage.due("cron")))
            told = stage.standing.get(slow["id"])
            assert (told["runs"], told["lastStatus"]) == (1, "running")
            assert "left out" in told["lastError"]
            waiting = [item for item in stage.due("cron") if item.payload["taskId"] != slow["id"]]
            assert [item.status for item in waiting] == [agenda.Status.QUEUED]
            stage.gate.set()
            await stage.until(lambda: stage.standing.get(slow["id"])["lastStatus"] == "ok")
            await stage.beat(seconds=16)
            assert [t["lastStatus"] for t in stage.standing.listing()] == ["ok", "ok"]

    asyncio.run(main())


def test_the_session_of_a_schedule_is_kept_for_as_long_as_the_config_says(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        script = [Say("cloudless")]
        cron = {"cron": {"sessionRetention": "2h"}}
        async with HeartStage(sqlite_store, threads, tmp_path, script, **cron) as stage:
            made = stage.standing.add(Wish(prompt="Look at the sky.", name="sky", every="24h"), CLI)
            await stage.beat(hours=24)
            (waits,) = stage.due("cron.archive")
            assert waits.due_at - stage.clock.now() == 2 * 3_600_000
            await stage.beat(hours=2)
            with stage.store.read(OWNER) as tx:
                assert sessions.history(tx, made["sessionKey"])[0].status is SessionStatus.ARCHIVED

    asyncio.run(main())
