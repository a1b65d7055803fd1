from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import forks
from builders import PATIENCE, accept, claim, enqueue, item, outcome, rows, soon, until
from holdfast.clock import ManualClock
from holdfast.errors import Conflict, Unavailable
from holdfast.log import OWNER, Bridge, Store, Threads, TurnStatus, agenda, check, rung, turns
from holdfast.log import changes as bridge_module
from holdfast.log.agenda import Job, Kind, PostponeJob, Retry, Runner, Status

FOREVER = 3_600.0
NOW = Retry(base_ms=0)


def runner(store: Store, threads: Threads, **options: Any) -> Runner:
    options.setdefault("idle_seconds", FOREVER)
    return Runner(store, threads, **options)


@asynccontextmanager
async def serving(one: Runner) -> AsyncIterator[None]:
    task = asyncio.create_task(one.run())
    try:
        yield
        await soon(one.stop(grace_seconds=0))
        await soon(task)
    finally:
        task.cancel()


class Gate:
    """A handler that reports its beginning and waits to be let through."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.ended: list[str] = []
        self.most = 0
        self.open = asyncio.Event()

    async def __call__(self, job: Job) -> None:
        self.began.append(job.item.id)
        self.most = max(self.most, len(self.began) - len(self.ended))
        try:
            await self.open.wait()
        finally:
            self.ended.append(job.item.id)


async def nothing(job: Job) -> None:
    return


def test_a_kind_is_registered_once(store: Store, threads: Threads) -> None:
    one = runner(store, threads)
    one.register("work", Kind(nothing))
    with pytest.raises(ValueError, match="work"):
        one.register("work", Kind(nothing))


def test_what_is_due_is_run_to_the_end_and_what_follows_from_it_too(store: Store, threads: Threads) -> None:
    ran: list[int] = []

    async def handler(job: Job) -> None:
        depth = job.item.payload["depth"]
        ran.append(depth)
        if depth < 3:
            enqueue(store, payload={"depth": depth + 1})

    async def scene() -> None:
        one = runner(store, threads)
        one.register("work", Kind(handler))
        await soon(one.drain())

    first = enqueue(store, payload={"depth": 0})
    asyncio.run(scene())
    assert ran == [0, 1, 2, 3]
    assert item(store, first.id).status is Status.DONE


def test_a_new_item_starts_without_waiting_for_the_idle_time(store: Store, threads: Threads) -> None:
    async def scene() -> None:
        gate, one = Gate(), runner(store, threads)
        one.register("work", Kind(gate))
        async with serving(one):
            for n in range(1, 4):
                made = await threads(enqueue, store)
                await until(lambda n=n: len(gate.began) == n)
                assert gate.began[-1] == made.id

    asyncio.run(scene())


def test_an_item_that_falls_due_later_starts_while_another_lane_is_blocked(
    store: Store, threads: Threads, clock: ManualClock
) -> None:
    """The due item that waits for its lane must not hide the one whose time comes next."""

    async def scene() -> None:
        gate, one = Gate(), runner(store, threads)
        one.register("work", Kind(gate))
        blocked = [enqueue(store, lane="l"), enqueue(store, lane="l")]
        later = enqueue(store, lane="m", due_at=clock.now() + 60)
        async with serving(one):
            await until(lambda: len(gate.began) == 1)
            clock.advance(ms=60)
            await until(lambda: len(gate.began) == 2)
            assert gate.began == [blocked[0].id, later.id]

    asyncio.run(scene())


def test_caps_hold_per_kind_and_in_total(store: Store, threads: Threads) -> None:
    async def scene() -> None:
        a, b = Gate(), Gate()
        one = runner(store, threads, max_concurrent=5)
        one.register("a", Kind(a, limit=2))
        one.register("b", Kind(b, limit=9))
        for _ in range(8):
            enqueue(store, "a")
        for _ in range(8):
            enqueue(store, "b")
        async with serving(one):
            await until(lambda: len(a.began) == 2 and len(b.began) == 3)
            assert len(one.running) == 5
            a.open.set()
            await until(lambda: len(a.ended) == 8)
            b.open.set()
            await until(lambda: len(b.ended) == 8)
        assert (a.most, b.most <= 5) == (2, True)

    asyncio.run(scene())
    assert rows(store, "SELECT DISTINCT status FROM agenda") == [("done",)]


def test_a_limit_that_is_asked_for_counts_as_it_is_now(store: Store, threads: Threads) -> None:
    async def scene() -> None:
        gate, limit = Gate(), [1]
        one = runner(store, threads)
        one.register("a", Kind(gate, limit=lambda: limit[0]))
        for _ in range(4):
            enqueue(store, "a")
        async with serving(one):
            await until(lambda: len(gate.began) == 1)
            limit[0] = 3
            enqueue(store, "a")
            await until(lambda: len(gate.began) == 3)
            limit[0] = 1
            gate.open.set()
            await until(lambda: len(gate.ended) == 5)
        assert gate.most == 3

    asyncio.run(scene())


def test_a_cap_of_the_operator_goes_before_the_kind_s_own(sqlite_store: Store, threads: Threads) -> None:
    async def scene() -> None:
        a, b, caps = Gate(), Gate(), {"a": 1}
        one = runner(sqlite_store, threads, caps=lambda: caps)
        one.register("a", Kind(a, limit=5))
        one.register("b", Kind(b, limit=2))
        for _ in range(3):
            enqueue(sqlite_store, "a")
            enqueue(sqlite_store, "b")
        async with serving(one):
            await until(lambda: len(a.began) == 1 and len(b.began) == 2)
            caps["a"] = 4
            enqueue(sqlite_store, "a")
            await until(lambda: len(a.began) == 4)
            a.open.set()
            b.open.set()
            await until(lambda: len(a.ended) == 4 and len(b.ended) == 3)
        assert (a.most, b.most) == (4, 2)

    asyncio.run(scene())


def test_lanes_are_run_one_at_a_time_and_in_order(store: Store, threads: Threads) -> None:
    running: dict[str, int] = {}
    order: dict[str, list[int]] = {}

    async def handler(job: Job) -> None:
        lane = job.item.lane
        assert running.setdefault(lane, 0) == 0
        running[lane] = 1
        await asyncio.sleep(0)
        order.setdefault(lane, []).append(job.item.payload["n"])
        running[lane] = 0

    async def scene() -> None:
        one = runner(store, threads, max_concurrent=8)
        one.register("work", Kind(handler, limit=8))
        await soon(one.drain())

    for n in range(30):
        enqueue(store, lane=f"l{n % 3}", payload={"n": n})
    asyncio.run(scene())
    assert order == {f"l{k}": list(range(k, 30, 3)) for k in range(3)}


def test_a_failing_handler_is_tried_again_after_a_growing_wait(
    store: Store, threads: Threads, clock: ManualClock
) -> None:
    seen: list[tuple[int, int]] = []
    began = clock.now()

    async def handler(job: Job) -> None:
        seen.append((job.item.attempts, clock.now() - began))
        raise RuntimeError("broke")

    async def scene() -> None:
        one = runner(store, threads)
        one.register("work", Kind(handler, retry=Retry(base_ms=100)))
        for _ in range(4):
            await soon(one.drain())
            await soon(one.drain())
            with store.read(OWNER) as tx:
                clock.set(agenda.next_due(tx, ["work"]) or clock.now())

    made = enqueue(store, max_attempts=3)
    asyncio.run(scene())
    assert seen == [(1, 0), (2, 100), (3, 300)]
    last = item(store, made.id)
    assert (last.status, last.error) == (Status.FAILED, "RuntimeError: broke")


def test_our_own_errors_are_kept_in_their_own_words(store: Store, threads: Threads) -> None:
    async def handler(job: Job) -> None:
        raise Conflict("the board is closed")

    async def scene() -> None:
        one = runner(store, threads)
        one.register("work", Kind(handler))
        await soon(one.drain())

    made = enqueue(store)
    asyncio.run(scene())
    assert item(store, made.id).error == "the board is closed"


def test_postponing_costs_no_attempt(store: Store, threads: Threads, clock: ManualClock) -> None:
    tries = 0

    async def handler(job: Job) -> None:
        nonlocal tries
        tries += 1
        if tries < 5:
            raise PostponeJob(clock.now() + 10, "busy")

    async def scene() -> None:
        one = runner(store, threads)
        one.register("work", Kind(handler))
        for _ in range(5):
            await soon(one.drain())
            clock.advance(ms=10)

    made = enqueue(store, max_attempts=1)
    asyncio.run(scene())
    last = item(store, made.id)
    assert (last.status, last.attempts, tries) == (Status.DONE, 1, 5)


def test_cancelling_stops_the_handler_that_runs_here(store: Store, threads: Threads) -> None:
    async def scene() -> None:
        gate, one = Gate(), runner(store, threads)
        one.register("work", Kind(gate))
        made = enqueue(store, max_attempts=3)
        async with serving(one):
            await until(lambda: bool(gate.began))
            await soon(one.cancel(made.id, reason="no longer wanted"))
            await until(lambda: not one.running)
        assert gate.ended == [made.id]
        assert item(store, made.id).status is Status.CANCELLED

    asyncio.run(scene())


def test_cancelling_reaches_what_was_claimed_and_has_not_begun(store: Store, threads: Threads) -> None:
    class Slow:
        """Threads whose claims arrive late."""

        claimed, let = asyncio.Event(), asyncio.Event()

        async def __call__(self, work: Any, *args: Any, **more: Any) -> Any:
            done = await threads(work, *args, **more)
            if work.__name__ == "_claim" and done[0]:
                self.claimed.set()
                await self.let.wait()
            return done

    async def scene() -> None:
        gate, slow = Gate(), Slow()
        one = runner(store, slow, lease_ms=3_600_000)  # type: ignore[arg-type]
        one.register("work", Kind(gate))
        made = enqueue(store, max_attempts=3)
        async with serving(one):
            await soon(slow.claimed.wait())
            cancelling = asyncio.create_task(one.cancel(made.id))
            await until(lambda: item(store, made.id).cancel_requested)
            slow.let.set()
            await soon(cancelling)
            await until(lambda: item(store, made.id).status is Status.CANCELLED)
        assert not one.running

    asyncio.run(scene())


def test_a_turn_cancelled_before_it_ran_is_cancelled_visibly(store: Store, threads: Threads) -> None:
    async def scene() -> None:
        one = runner(store, threads)
        one.register("turn", Kind(nothing, on_interrupt=turns.interrupted))
        await soon(one.cancel(turn.agenda_id or "", reason="never mind"))

    turn = accept(store)
    asyncio.run(scene())
    with store.read(OWNER) as tx:
        after = turns.get(tx, turn.id)
    assert (after.status, after.error) == (TurnStatus.CANCELLED, "never mind")


def test_a_cancellation_elsewhere_reaches_the_handler_with_the_next_renewal(
    store: Store, threads: Threads
) -> None:
    async def scene() -> None:
        gate, one = Gate(), runner(store, threads, lease_ms=30)
        one.register("work", Kind(gate))
        made = enqueue(store)
        async with serving(one):
            await until(lambda: bool(gate.began))
            with store.write(OWNER) as tx:
                agenda.cancel(tx, made.id)
            await until(lambda: bool(gate.ended))
            await until(lambda: item(store, made.id).status is Status.CANCELLED)

    asyncio.run(scene())


@pytest.mark.parametrize("way", ["runner", "transaction"])
def test_a_cancellation_in_another_process_stops_the_handler_at_once(
    store: Store, threads: Threads, way: str
) -> None:
    """Another store stands for another process: its bells ring here only through the database."""

    async def scene() -> None:
        gate, one = Gate(), runner(store, threads, lease_ms=3_600_000, owner="here")
        one.register("work", Kind(gate))
        other = Store(store.url, clock=store.clock)
        elsewhere = runner(other, threads, lease_ms=3_600_000, owner="there")
        bridge = Bridge(store, poll_seconds=0.02)
        bridge.start()
        made, kept = enqueue(store), enqueue(store)
        try:
            async with serving(one):
                await until(lambda: len(gate.began) == 2)
                if way == "runner":
                    await soon(elsewhere.cancel(made.id, reason="no longer wanted"))
                else:
                    with other.write(OWNER) as tx:
                        agenda.cancel(tx, made.id, reason="no longer wanted")
                await until(lambda: gate.ended == [made.id])
                await until(lambda: item(store, made.id).status is Status.CANCELLED)
                assert item(store, kept.id).status is Status.RUNNING
        finally:
            bridge.stop()
            other.close()

    asyncio.run(scene())


def test_a_handler_that_winds_up_is_told_to_stop_once(sqlite_store: Store, threads: Threads) -> None:
    told: list[str] = []

    async def handler(job: Job) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.append(job.item.id)
            try:
                await asyncio.sleep(0.1)
            except asyncio.CancelledError:
                told.append("again")

    async def scene() -> None:
        one = runner(sqlite_store, threads, lease_ms=3_600_000)
        one.register("work", Kind(handler))
        made = enqueue(sqlite_store)
        async with serving(one):
            await until(lambda: bool(one.running))
            await soon(one.cancel(made.id))
            while item(sqlite_store, made.id).status is Status.RUNNING:
                sqlite_store.signals.notify(agenda.CANCEL_SIGNAL)
                await asyncio.sleep(0.002)
            assert told == [made.id]

    asyncio.run(scene())


def test_leases_are_renewed_while_handlers_run(store: Store, threads: Threads, clock: ManualClock) -> None:
    async def scene(how: str) -> None:
        gate, one = Gate(), runner(store, threads, lease_ms=90)
        one.register("work", Kind(gate))
        made = enqueue(store)
        serve = asyncio.create_task(one.run() if how == "run" else one.drain())
        await until(lambda: bool(gate.began))
        for _ in range(3):
            clock.advance(ms=89)
            await until(lambda: item(store, made.id).lease_until == clock.now() + 90)
        gate.open.set()
        await until(lambda: item(store, made.id).status is Status.DONE)
        assert gate.began == [made.id]
        await soon(one.stop())
        await soon(serve)

    asyncio.run(scene("run"))
    asyncio.run(scene("drain"))


def test_who_lost_the_lease_is_stopped_and_writes_no_end(
    store: Store, threads: Threads, clock: ManualClock
) -> None:
    async def scene() -> None:
        gate, one = Gate(), runner(store, threads, lease_ms=60, owner="a")
        one.register("work", Kind(gate, retry=NOW))
        made = enqueue(store, max_attempts=5)
        async with serving(one):
            await until(lambda: bool(gate.began))
            with store.write(OWNER) as tx:
                agenda.expire(tx, dead=lambda owner: True)
                (theirs,) = agenda.claim(tx, {"work": 1}, owner="b", lease_ms=10**9)
            await until(lambda: bool(gate.ended))
        assert item(store, made.id) == theirs

    asyncio.run(scene())


def test_the_same_item_never_runs_twice_at_once_in_one_process(
    store: Store, threads: Threads, clock: ManualClock
) -> None:
    """Its lease ran out while the process slept; when it claims the item anew, the old handler ends first."""

    async def scene() -> None:
        gate, one = Gate(), runner(store, threads, owner="a")
        one.register("work", Kind(gate, retry=NOW))
        made = enqueue(store, max_attempts=5)
        async with serving(one):
            await until(lambda: len(gate.began) == 1)
            with store.write(OWNER) as tx:
                agenda.expire(tx, dead=lambda owner: True)
            await until(lambda: len(gate.began) == 2)
            assert gate.most == 1
            gate.open.set()
            await until(lambda: item(store, made.id).status is Status.DONE)
        assert (item(store, made.id).attempts, item(store, made.id).claims) == (1, 2)

    asyncio.run(scene())


def test_stopping_lets_what_runs_finish_within_the_grace(store: Store, threads: Threads) -> None:
    async def scene() -> None:
        gate, one = Gate(), runner(store, threads)
        one.register("work", Kind(gate))
        made, waiting = enqueue(store, lane="l"), enqueue(store, lane="l")
        serve = asyncio.create_task(one.run())
        await until(lambda: bool(gate.began))
        stop = asyncio.create_task(one.stop(grace_seconds=FOREVER))
        await asyncio.sleep(0)
        gate.open.set()
        await soon(stop)
        await soon(serve)
        assert item(store, made.id).status is Status.DONE
        assert item(store, waiting.id).status is Status.QUEUED

    asyncio.run(scene())


def test_what_does_not_finish_within_the_grace_is_interrupted_visibly(store: Store, threads: Threads) -> None:
    async def handler(job: Job) -> None:
        with store.write(OWNER) as tx:
            turns.start(tx, turns.get(tx, job.item.payload["turnId"]))
        await asyncio.Event().wait()

    async def scene() -> None:
        one = runner(store, threads)
        one.register("turn", Kind(handler, on_interrupt=turns.interrupted))
        async with serving(one):
            await until(lambda: rows(store, "SELECT status FROM turns") == [("running",)])

    turn = accept(store)
    asyncio.run(scene())
    with store.read(OWNER) as tx:
        assert turns.get(tx, turn.id).status is TurnStatus.INTERRUPTED
    assert item(store, turn.agenda_id or "").status is Status.QUEUED


def test_a_turn_whose_handler_broke_is_interrupted_and_begins_again(
    store: Store, threads: Threads, clock: ManualClock
) -> None:
    tries = 0

    async def handler(job: Job) -> None:
        nonlocal tries
        tries += 1
        with store.write(OWNER) as tx:
            turns.start(tx, turns.get(tx, job.item.payload["turnId"]))
        if tries == 1:
            raise RuntimeError("model hung up")
        with store.write(OWNER) as tx:
            turns.commit(tx, "k1", outcome(), job)

    async def scene() -> None:
        one = runner(store, threads)
        one.register("turn", Kind(handler, on_interrupt=turns.interrupted))
        await soon(one.drain())
        with store.read(OWNER) as tx:
            broken = turns.get(tx, turn.id)
        assert (broken.status, broken.error) == (TurnStatus.INTERRUPTED, "RuntimeError: model hung up")
        clock.advance(minutes=1)
        await soon(one.drain())

    turn = accept(store)
    asyncio.run(scene())
    with store.read(OWNER) as tx:
        assert turns.get(tx, turn.id).status is TurnStatus.COMMITTED
    assert check(store) == []


def test_what_a_dead_process_left_running_is_taken_back_at_the_start(store: Store, threads: Threads) -> None:
    process = forks.Popen(
        [sys.executable, "-c", "from holdfast.log import this_process; print(this_process())"],
        stdout=subprocess.PIPE,
        text=True,
    )
    dead = process.communicate()[0].strip()
    turn = accept(store)
    claim(store, owner=dead, lease_ms=10**9)
    with store.write(OWNER) as tx:
        turns.start(tx, turns.get(tx, turn.id))

    async def scene() -> None:
        gate, one = Gate(), runner(store, threads)
        gate.open.set()
        one.register("turn", Kind(gate, retry=NOW, on_interrupt=turns.interrupted))
        async with serving(one):
            await until(lambda: bool(gate.ended))

    asyncio.run(scene())
    with store.read(OWNER) as tx:
        assert turns.get(tx, turn.id).status is TurnStatus.INTERRUPTED


def test_a_store_in_trouble_for_a_while_does_not_end_the_runner(store: Store, threads: Threads) -> None:
    class Flaky(Store):
        """A store that can be made to refuse writing, as a full disk does."""

        broken = True

        def run(self, *args: Any, **options: Any) -> Any:
            if self.broken:
                raise Unavailable("the disk is full", code="store_full")
            return super().run(*args, **options)

    async def scene() -> None:
        flaky = Flaky(store.url, clock=store.clock)
        gate, one = Gate(), runner(flaky, threads)
        gate.open.set()
        one.register("work", Kind(gate))
        enqueue(flaky)
        async with serving(one):
            await asyncio.sleep(0)
            flaky.broken = False
            await until(lambda: bool(gate.ended))
        flaky.close()

    asyncio.run(scene())


def test_suspects_follow_one_another_and_everybody_else_runs_beside_them(
    store: Store, threads: Threads
) -> None:
    made = [enqueue(store, lane=f"l{n}").id for n in range(3)]
    for n in range(agenda.SUSPECT_LOSSES):
        claim(store, owner=f"dead{n}")
        with store.write(OWNER) as tx:
            agenda.expire(tx, dead=lambda owner: True)
    other = enqueue(store).id

    async def scene() -> None:
        gates = {id_: asyncio.Event() for id_ in made}
        began: list[str] = []

        async def handler(job: Job) -> None:
            began.append(job.item.id)
            if job.item.id in gates:
                await gates[job.item.id].wait()

        one = runner(store, threads)
        one.register("work", Kind(handler))
        async with serving(one):
            for n, id_ in enumerate(made):
                await until(lambda n=n: began == [made[0], other, *made[1 : n + 1]])
                gates[id_].set()
            await until(lambda: not one.running)

    asyncio.run(scene())


class Away(Store):
    """A store that can be made to break off a number of writes: before they are written, or right after."""

    before = after = 0

    def run(self, *args: Any, **options: Any) -> Any:
        if self.before:
            self.before -= 1
            raise Unavailable("the database cannot be reached", code="store_unreachable")
        done = super().run(*args, **options)
        if self.after:
            self.after -= 1
            raise Unavailable("the database cannot be reached", code="store_unreachable")
        return done


@pytest.mark.parametrize("side", ["before", "after"])
def test_an_end_that_was_not_written_is_written_again_and_nobody_waits_for_the_lease(
    store: Store, threads: Threads, side: str
) -> None:
    """Whether the write or only the word of it was lost."""

    async def scene() -> None:
        away = Away(store.url, clock=store.clock)
        ran: list[str] = []

        async def handler(job: Job) -> None:
            ran.append(job.item.id)
            setattr(away, side, 3 if side == "before" else 1)

        one = runner(away, threads, lease_ms=3_600_000)
        one.register("work", Kind(handler))
        made = enqueue(store)
        async with serving(one):
            await until(lambda: item(store, made.id).status is Status.DONE)
            await until(lambda: not one.running)
        assert ran == [made.id]
        away.close()

    asyncio.run(scene())


def test_an_end_is_written_though_what_a_room_has_to_say_to_it_fails(store: Store, threads: Threads) -> None:
    def faulty(tx: Any, one: agenda.Item) -> None:
        raise KeyError("a fault")

    async def handler(job: Job) -> None:
        raise Conflict("no")

    async def scene() -> None:
        one = runner(store, threads, lease_ms=3_600_000)
        one.register("work", Kind(handler, on_interrupt=faulty))
        made = enqueue(store)
        async with serving(one):
            await until(lambda: item(store, made.id).status is Status.FAILED)

    asyncio.run(scene())


def test_what_a_broken_store_kept_from_being_done_is_done_again_at_no_cost(
    store: Store, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agenda.runner, "_TROUBLE_SECONDS", 0.001)
    tries = 0

    async def handler(job: Job) -> None:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise Unavailable("the database cannot be reached", code="store_unreachable")

    async def scene() -> None:
        one = runner(store, threads)
        one.register("work", Kind(handler))
        await soon(one.drain())

    made = enqueue(store, max_attempts=1)
    asyncio.run(scene())
    after = item(store, made.id)
    assert (after.status, after.attempts, after.claims, after.losses) == (Status.DONE, 1, 4, 0)


def test_what_was_claimed_without_our_being_told_is_run_at_once(store: Store, threads: Threads) -> None:
    async def scene() -> None:
        away = Away(store.url, clock=store.clock)
        gate, one = Gate(), runner(away, threads, lease_ms=3_600_000, idle_seconds=0.01)
        gate.open.set()
        one.register("work", Kind(gate))
        async with serving(one):
            await until(lambda: one._looked_ahead)
            away.after = 1
            made = enqueue(store)
            away.signals.notify(agenda.SIGNAL)
            await until(lambda: item(store, made.id).status is Status.DONE)
        assert item(store, made.id).claims == 2
        away.close()

    asyncio.run(scene())


def test_work_that_gets_on_makes_lost_processes_count_no_more(store: Store, threads: Threads) -> None:
    seen: list[int] = []

    async def handler(job: Job) -> None:
        with store.write(OWNER) as tx:
            job.advance(tx)
        seen.append(item(store, job.item.id).losses)
        await asyncio.Event().wait()

    async def scene() -> None:
        one = runner(store, threads)
        one.register("work", Kind(handler))
        async with serving(one):
            await until(lambda: bool(seen))

    made = enqueue(store)
    for _ in range(5):
        claim(store, owner="dead")
        with store.write(OWNER) as tx:
            agenda.expire(tx, dead=lambda owner: owner == "dead")
    assert item(store, made.id).losses == 5
    asyncio.run(scene())
    after = item(store, made.id)
    assert (seen, after.status, after.attempts, after.losses) == ([0], Status.QUEUED, 0, 0)


SHARED = """
import asyncio, json, sys, time
from holdfast.log import Bridge, Threads, agenda, open_store
from holdfast.log.agenda import Kind, Runner

async def main():
    store, threads = open_store(sys.argv[1]), Threads(4)
    runner = Runner(store, threads, max_concurrent=6, idle_seconds=3600)
    out = open(sys.argv[2], "a", buffering=1)

    async def handler(job):
        began = time.monotonic_ns()
        await asyncio.sleep(0.001)
        out.write(json.dumps([job.item.lane, job.item.id, began, time.monotonic_ns()]) + "\\n")

    runner.register("work", Kind(handler, limit=6))
    bridge = Bridge(store, poll_seconds=0.02)
    bridge.start()
    print("ready", flush=True)
    serve = asyncio.create_task(runner.run())
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    await runner.stop()
    await serve
    bridge.stop()

asyncio.run(main())
"""


@pytest.fixture
def processes(store: Store, tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Two processes that serve the same agenda; each writes down what it ran."""
    url = store.url.render_as_string(hide_password=False)
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running = [
        forks.Popen([sys.executable, "-c", SHARED, url, str(tmp_path / f"{n}.jsonl")], **pipes)
        for n in range(2)
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    yield running
    for process in running:
        process.kill()
        process.communicate()


def test_two_processes_share_the_agenda_without_overlap_in_a_lane(
    store: Store, processes: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    made = {enqueue(store, lane=f"l{n % 10}").id for n in range(200)}
    asyncio.run(until(lambda: rows(store, "SELECT count(*) FROM agenda WHERE status <> 'done'") == [(0,)]))
    for process in processes:
        process.communicate("stop\n", timeout=PATIENCE)
    assert [process.returncode for process in processes] == [0, 0]
    logs = [(tmp_path / f"{n}.jsonl").read_text().splitlines() for n in range(2)]
    assert all(logs)
    ran = [json.loads(line) for log in logs for line in log]
    assert sorted(id_ for _, id_, _, _ in ran) == sorted(made)
    for lane in {lane for lane, *_ in ran}:
        times = sorted((began, ended) for name, _, began, ended in ran if name == lane)
        assert all(before[1] <= after[0] for before, after in pairwise(times))


def test_a_cancellation_that_comes_as_a_bell_rings_is_not_missed() -> None:
    async def scene() -> None:
        bell = asyncio.Event()

        async def wait_for_ever() -> None:
            while True:
                await rung(bell, FOREVER)
                bell.clear()

        task = asyncio.create_task(wait_for_ever())
        await asyncio.sleep(0)
        bell.set()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(task)

    asyncio.run(scene())


def test_a_bridge_ends_when_it_is_told_to_not_at_its_next_beat(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge_module, "_BEAT_SECONDS", FOREVER)
    bridge = Bridge(store, poll_seconds=FOREVER)
    bridge.start()
    bridge.stop()
    assert not bridge.alive
