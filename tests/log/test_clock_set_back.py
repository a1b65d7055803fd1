"""A clock on the wall that is set back makes nobody wait longer for a delay."""

from __future__ import annotations

import asyncio

import pytest

from builders import claim, enqueue, item, soon, until
from holdfast.clock import ManualClock
from holdfast.log import OWNER, Store, Threads, agenda
from holdfast.log.agenda import Job, Kind, Runner, Status

HOUR = 3_600_000
MINUTE = 60_000


async def nothing(job: Job) -> None:
    return


async def failing(job: Job) -> None:
    raise RuntimeError("broke")


def started(store: Store, threads: Threads) -> Runner:
    one = Runner(store, threads, idle_seconds=0.01)
    one.register("delay", Kind(nothing, relative=True))
    one.register("time", Kind(nothing))
    one.register("failing", Kind(failing))
    return one


def set_back(store: Store, threads: Threads, clock: ManualClock, ms: int) -> list[int]:
    """Let a runner see the clock before and after; what it told the rooms."""
    told: list[int] = []

    async def scene() -> None:
        one = started(store, threads)
        one.on_clock_set_back(lambda ms, _: told.append(ms))
        await soon(one._heed_clock())
        clock.set(clock.now() - ms)
        await soon(one._heed_clock())
        await soon(one._heed_clock())

    asyncio.run(scene())
    return told


def test_a_delay_is_as_long_as_before_and_a_time_of_the_day_stands(
    store: Store, threads: Threads, clock: ManualClock
) -> None:
    delay = enqueue(store, "delay", due_at=clock.now() + 10 * MINUTE)
    time = enqueue(store, "time", due_at=clock.now() + 10 * MINUTE)
    at_once = enqueue(store, "time")
    assert set_back(store, threads, clock, HOUR) == [HOUR]
    assert item(store, delay.id).due_at == clock.now() + 10 * MINUTE
    assert item(store, time.id).due_at == time.due_at
    assert item(store, at_once.id).due_at == clock.now()


def test_a_small_correction_moves_nothing(store: Store, threads: Threads, clock: ManualClock) -> None:
    delay = enqueue(store, "delay", due_at=clock.now() + MINUTE)
    assert set_back(store, threads, clock, 2_000) == []
    assert item(store, delay.id) == delay


def test_time_that_passes_between_two_looks_is_no_part_of_the_jump(
    store: Store, threads: Threads, clock: ManualClock
) -> None:
    told: list[int] = []

    async def scene() -> None:
        one = started(store, threads)
        one.on_clock_set_back(lambda ms, _: told.append(ms))
        clock.advance(minutes=1)
        clock.set(clock.now() - HOUR)
        clock.advance(minutes=1)
        await soon(one._heed_clock())

    asyncio.run(scene())
    assert told == [HOUR]


def test_a_wait_before_the_next_attempt_is_brought_forward_whatever_its_kind(
    store: Store, threads: Threads, clock: ManualClock
) -> None:
    made = enqueue(store, "failing", max_attempts=3)

    async def scene() -> None:
        await soon(started(store, threads).drain())

    asyncio.run(scene())
    wait = item(store, made.id).due_at - clock.now()
    set_back(store, threads, clock, HOUR)
    assert (item(store, made.id).due_at - clock.now(), wait > 0) == (wait, True)


def test_two_runners_that_see_the_same_jump_move_an_item_once(
    store: Store, threads: Threads, clock: ManualClock
) -> None:
    async def scene() -> None:
        both = [started(store, threads), started(store, threads)]
        made = enqueue(store, "delay", due_at=clock.now() + 10 * MINUTE)
        clock.advance(seconds=1)
        clock.set(clock.now() - HOUR)
        for one in both:
            clock.advance(seconds=1)
            await soon(one._heed_clock())
        assert item(store, made.id).due_at == made.due_at - HOUR

    asyncio.run(scene())


def test_a_clock_set_back_while_nobody_served_is_noticed_at_the_start_and_once(
    store: Store, threads: Threads, clock: ManualClock
) -> None:
    told: list[int] = []

    async def scene() -> None:
        one = started(store, threads)
        one.on_clock_set_back(lambda ms, _: told.append(ms))
        await soon(one._heed_clock())
        await soon(one._heed_clock())

    first = enqueue(store, "time", lane="l")
    clock.advance(ms=5)
    second = enqueue(store, "time", lane="l")
    delay = enqueue(store, "delay", due_at=clock.now() + MINUTE)
    time = enqueue(store, "time", due_at=clock.now() + MINUTE)
    clock.set(clock.now() - HOUR)
    asyncio.run(scene())
    asyncio.run(scene())
    assert told == [HOUR]
    assert item(store, first.id).due_at < item(store, second.id).due_at == clock.now()
    assert item(store, delay.id).due_at == clock.now() + MINUTE
    assert item(store, time.id).due_at == time.due_at


def test_a_lease_lasts_no_longer_because_the_clock_was_set_back(
    store: Store, threads: Threads, clock: ManualClock
) -> None:
    made = enqueue(store, "time")
    claim(store, {"time": 1}, owner="elsewhere", lease_ms=MINUTE)
    for _ in range(2):
        set_back(store, threads, clock, HOUR)
        assert item(store, made.id).lease_until == clock.now() + MINUTE
    with store.write(OWNER) as tx:
        assert agenda.expire(tx) == []
    clock.advance(minutes=1)
    with store.write(OWNER) as tx:
        assert [one.id for one in agenda.expire(tx)] == [made.id]


@pytest.mark.parametrize("since", [-5 * HOUR, 0])
def test_what_was_written_by_the_clock_as_it_is_now_is_left_alone(
    sqlite_store: Store, threads: Threads, clock: ManualClock, since: int
) -> None:
    """On one machine all that was written before the jump is moved, however long ago."""
    made = enqueue(sqlite_store, "delay", due_at=clock.now() + 10 * HOUR)
    with sqlite_store.write(OWNER) as tx:
        moved = agenda.bring_forward(tx, ["delay"], ms=HOUR, since=clock.now() + since + 1)
    assert moved == (1 if since == 0 else 0)
    assert item(sqlite_store, made.id).due_at == made.due_at - moved * HOUR


def test_a_runner_that_serves_runs_what_a_clock_set_back_would_have_put_off(
    store: Store, threads: Threads, clock: ManualClock
) -> None:
    async def scene() -> None:
        one = started(store, threads)
        made = enqueue(store, "delay", due_at=clock.now() + MINUTE)
        task = asyncio.create_task(one.run())
        clock.set(clock.now() - HOUR)
        clock.advance(minutes=1)
        await until(lambda: item(store, made.id).status is Status.DONE)
        await soon(one.stop())
        await soon(task)

    asyncio.run(scene())
