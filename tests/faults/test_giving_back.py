"""A passing trouble of the store is not the work's failure: the work is given back, and costs no attempt."""

from __future__ import annotations

import asyncio

import pytest

from builders import accept, enqueue, item
from holdfast.errors import Transient
from holdfast.log import OWNER, Store, Threads, agenda, turns
from holdfast.log.agenda import Job, Kind, Runner
from holdfast.log.agenda import runner as runner_module
from holdfast.log.turns import TurnStatus


def troubled(tries: list[int], good_from: int) -> agenda.Handler:
    async def handler(job: Job) -> None:
        tries.append(job.item.attempts)
        if len(tries) < good_from:
            raise Transient("the database cannot be reached")

    return handler


def noting(order: list[str]) -> agenda.Handler:
    async def handler(job: Job) -> None:
        order.append(job.item.id)

    return handler


def drain(runner: Runner) -> None:
    asyncio.run(runner.drain())


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "_TROUBLE_SECONDS", 0.0)


def test_an_item_goes_on_after_the_trouble_with_the_attempts_and_the_place_it_had(
    store: Store, threads: Threads
) -> None:
    tries: list[int] = []
    order: list[str] = []
    runner = Runner(store, threads)
    runner.register("work", Kind(troubled(tries, good_from=6)))
    runner.register("next", Kind(noting(order)))
    first = enqueue(store, lane="l", max_attempts=1)
    second = enqueue(store, "next", lane="l")
    drain(runner)
    done = item(store, first.id)
    assert (done.status, done.due_at, done.losses) == (agenda.Status.DONE, first.due_at, 0)
    assert tries == [1] * 6
    assert order == [second.id]


def test_a_trouble_that_lasts_is_never_the_end_of_the_work(store: Store, threads: Threads) -> None:
    tries: list[int] = []
    runner = Runner(store, threads)
    runner.register("work", Kind(troubled(tries, good_from=agenda.MOST_LOSSES + 10)))
    id_ = enqueue(store, max_attempts=1).id
    drain(runner)
    assert item(store, id_).status is agenda.Status.DONE


@pytest.mark.parametrize("begun", [False, True])
def test_a_turn_that_is_given_back_is_seen_to_be_interrupted_and_begins_again(
    store: Store, threads: Threads, begun: bool
) -> None:
    turn = accept(store)
    seen: list[TurnStatus] = []

    async def handler(job: Job) -> None:
        with store.read(OWNER) as tx:
            seen.append(turns.get(tx, turn.id).status)
        if begun or len(seen) > 1:
            with store.write(OWNER) as tx:
                turns.start(tx, turns.get(tx, turn.id))
        if len(seen) == 1:
            raise Transient("the database cannot be reached")
        with store.write(OWNER) as tx:
            turns.commit(tx, turn.key, turns.Outcome(entries=[]), job)

    runner = Runner(store, threads)
    runner.register(turns.KIND, Kind(handler, on_interrupt=turns.interrupted))
    drain(runner)
    with store.read(OWNER) as tx:
        assert turns.get(tx, turn.id).status is TurnStatus.COMMITTED
    assert seen == [TurnStatus.ACCEPTED, TurnStatus.INTERRUPTED if begun else TurnStatus.ACCEPTED]
