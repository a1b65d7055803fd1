"""A passing trouble of the store is not the work's failure: the work is given back, and costs no attempt."""

from __future__ import annotations

import asyncio

import pytest

from builders import accept, enqueue, item
from holdfast.clock import ManualClock
from holdfast.errors import Transient
from holdfast.log import OWNER, Store, Threads, agenda, turns
from holdfast.log.agenda import Job, Kind, Runner
from holdfast.log.turns import TurnStatus


def troubled(tries: list[int], good_from: int) -> agenda.Handler:
    async def handler(job: Job) -> None:
        tries.append(job.item.attempts)
        if len(tries) < good_from:
            raise Transient("the database cannot be reached")

    return handler


def drain(runner: Runner) -> None:
    asyncio.run(runner.drain())


def test_an_item_goes_on_after_the_trouble_with_the_attempts_it_had(
    store: Store, threads: Threads, clock: ManualClock
) -> None:
    tries: list[int] = []
    runner = Runner(store, threads)
    runner.register("work", Kind(troubled(tries, good_from=6)))
    id_ = enqueue(store, max_attempts=1).id
    for n in range(1, 6):
        drain(runner)
        waiting = item(store, id_)
        assert len(tries) == n
        assert (waiting.status, waiting.attempts) == (agenda.Status.QUEUED, 0)
        assert waiting.error == "the database cannot be reached"
        assert clock.now() < waiting.due_at <= clock.now() + 15_000
        clock.advance(ms=15_000)
    drain(runner)
    assert item(store, id_).status is agenda.Status.DONE
    assert set(tries) == {1}


def test_a_trouble_that_never_passes_ends_the_work_in_time(
    store: Store, threads: Threads, clock: ManualClock
) -> None:
    tries: list[int] = []
    runner = Runner(store, threads)
    runner.register("work", Kind(troubled(tries, good_from=1000)))
    id_ = enqueue(store, max_attempts=1).id
    while not item(store, id_).status.ended:
        drain(runner)
        clock.advance(ms=600_000)
        assert len(tries) < 20
    assert item(store, id_).status is agenda.Status.FAILED


@pytest.mark.parametrize("begun", [False, True])
def test_a_turn_that_is_given_back_is_seen_to_be_interrupted_and_can_begin_again(
    store: Store, threads: Threads, clock: ManualClock, begun: bool
) -> None:
    turn = accept(store)
    tries: list[int] = []

    async def handler(job: Job) -> None:
        tries.append(1)
        if begun or len(tries) > 1:
            with store.write(OWNER) as tx:
                turns.start(tx, turns.get(tx, turn.id))
        if len(tries) == 1:
            raise Transient("the database cannot be reached")
        with store.write(OWNER) as tx:
            turns.commit(tx, turn.key, turns.Outcome(entries=[]), job)

    runner = Runner(store, threads)
    runner.register(turns.KIND, Kind(handler, on_interrupt=turns.interrupted))
    drain(runner)
    with store.read(OWNER) as tx:
        now = turns.get(tx, turn.id).status
    assert now is (TurnStatus.INTERRUPTED if begun else TurnStatus.ACCEPTED)
    clock.advance(ms=15_000)
    drain(runner)
    with store.read(OWNER) as tx:
        assert turns.get(tx, turn.id).status is TurnStatus.COMMITTED
