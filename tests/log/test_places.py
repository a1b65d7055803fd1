"""Waiting costs no place: who waits lets others run, and takes a place again before it goes on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from builders import enqueue, item, soon, until
from holdfast.clock import ManualClock
from holdfast.log import Store, Threads, agenda
from holdfast.log.agenda import Job, Kind, Runner, Status
from holdfast.log.agenda.places import Places


class Waits:
    """A handler that waits without its place until it is let go on, then works until it may end."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.working: list[str] = []
        self.most = 0
        self.go_on: dict[str, asyncio.Event] = {}
        self.end = asyncio.Event()

    async def __call__(self, job: Job) -> None:
        go_on = self.go_on.setdefault(job.item.id, asyncio.Event())
        async with agenda.waiting():
            self.waiting.append(job.item.id)
            try:
                await go_on.wait()
            finally:
                self.waiting.remove(job.item.id)
        self.working.append(job.item.id)
        self.most = max(self.most, len(self.working))
        await self.end.wait()
        self.working.remove(job.item.id)


@asynccontextmanager
async def serving(store: Store, threads: Threads, handler: Any, **options: Any) -> AsyncIterator[Runner]:
    one = Runner(store, threads, idle_seconds=3_600.0, lease_ms=options.pop("lease_ms", 60_000))
    one.register("work", Kind(handler, **options))
    task = asyncio.create_task(one.run())
    try:
        yield one
        await soon(one.stop(grace_seconds=0))
        await soon(task)
    finally:
        task.cancel()


def test_who_waits_lets_others_begin_and_goes_on_in_a_place_again(store: Store, threads: Threads) -> None:
    async def scene() -> None:
        work = Waits()
        made = [enqueue(store).id for _ in range(5)]
        async with serving(store, threads, work, limit=2):
            await until(lambda: len(work.waiting) == 5)
            for go_on in work.go_on.values():
                go_on.set()
            await until(lambda: len(work.working) == 2)
            await asyncio.sleep(0.02)
            assert (len(work.waiting), len(work.working)) == (0, 2)
            work.end.set()
            await until(lambda: all(item(store, id_).status is Status.DONE for id_ in made))
        assert work.most == 2

    asyncio.run(scene())


def test_who_comes_back_first_goes_on_first_and_before_what_is_new(store: Store, threads: Threads) -> None:
    async def scene() -> None:
        work = Waits()
        first, second, third = (enqueue(store).id for _ in range(3))
        async with serving(store, threads, work, limit=1):
            await until(lambda: len(work.waiting) == 3)
            order = []
            work.go_on[second].set()
            await until(lambda: work.working == [second])
            for id_ in (third, first):
                work.go_on[id_].set()
                await until(lambda id_=id_: id_ not in work.waiting)
            new = enqueue(store).id
            for _ in range(3):
                order += work.working
                work.end.set()
                work.end = asyncio.Event()
                await until(lambda order=order: work.working not in ([], order[-1:]) or len(order) == 3)
        assert order == [second, third, first]
        assert new not in order

    asyncio.run(scene())


def test_a_lane_is_held_and_the_lease_renewed_while_its_job_waits(
    store: Store, threads: Threads, clock: ManualClock
) -> None:
    async def scene() -> None:
        work = Waits()
        one, behind = enqueue(store, lane="l").id, enqueue(store, lane="l").id
        async with serving(store, threads, work, limit=2, lease_ms=90):
            await until(lambda: work.waiting == [one])
            for _ in range(3):
                clock.advance(ms=89)
                await until(lambda: item(store, one).lease_until == clock.now() + 90)
            assert (work.waiting, item(store, behind).status) == ([one], Status.QUEUED)

    asyncio.run(scene())


@pytest.mark.parametrize("phase", ["waiting", "coming back", "working"])
def test_a_job_can_be_cancelled_in_every_phase_and_leaves_its_place(
    store: Store, threads: Threads, phase: str
) -> None:
    async def scene() -> None:
        work = Waits()
        one, other = enqueue(store).id, enqueue(store).id
        async with serving(store, threads, work, limit=1) as runner:
            await until(lambda: len(work.waiting) == 2)
            if phase == "coming back":
                work.go_on[other].set()
                await until(lambda: work.working == [other])
            if phase != "waiting":
                work.go_on[one].set()
                await until(lambda: one not in work.waiting)
            await soon(runner.cancel(one))
            await until(lambda: item(store, one).status is Status.CANCELLED)
            work.working = [id_ for id_ in work.working if id_ != one]
            work.go_on[other].set()
            await until(lambda: work.working == [other])
            work.end.set()
            await until(lambda: item(store, other).status is Status.DONE)
            await until(lambda: not runner.running)
            assert (runner._places.left, runner._places.free("work")) == (32, 1)

    asyncio.run(scene())


def test_a_short_wait_keeps_the_place_and_a_long_one_gives_it_back() -> None:
    async def scene() -> None:
        places = Places(lambda _: 1, 1)
        places.begin("a", "work")
        async with places.waiting("a", after=0.02):
            assert places.free("work") == 0
            await until(lambda: places.free("work") == 1)
        assert places.free("work") == 0
        async with places.waiting("a", after=60):
            await asyncio.sleep(0)
            assert places.free("work") == 0

    asyncio.run(scene())


def test_no_more_than_so_many_wait_without_a_place() -> None:
    async def scene() -> None:
        places = Places(lambda _: 9, 9, most_away=1)
        places.begin("a", "work")
        places.begin("b", "work")
        async with places.waiting("a"), places.waiting("b"):
            assert places.left == 8
        assert places.left == 7

    asyncio.run(scene())


def test_outside_of_a_job_waiting_is_any_other_block() -> None:
    async def scene() -> str:
        async with agenda.waiting(), agenda.waiting(after=1):
            return "went on"

    assert asyncio.run(scene()) == "went on"


STEPS = st.lists(
    st.tuples(st.sampled_from(["begin", "wait", "back", "cancel", "end", "claim"]), st.integers(0, 7)),
    max_size=60,
)


@given(STEPS, st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))
def test_whatever_happens_no_place_is_lost_and_none_is_taken_twice(
    steps: list[tuple[str, int]], limit: int, most: int, most_away: int
) -> None:
    """Jobs of two kinds begin, wait in overlapping blocks, come back, are cancelled and end, in any order."""

    async def scene() -> None:
        places = Places(lambda _: limit, most, most_away=most_away)
        actors: dict[int, Actor] = {}
        cancelled = 0
        for what, number in steps:
            kind = "ab"[number % 2]
            actor = actors.get(number)
            if what == "begin" and actor is None and places.free(kind) > 0:
                actors[number] = Actor(places, number, kind)
            elif what == "claim":
                with places.claiming():
                    await asyncio.sleep(0)
            elif actor is not None:
                cancelled += actor.does(what)
                if what == "end":
                    del actors[number]
            await asyncio.sleep(0)
            _check(places, limit + cancelled, most + cancelled, most_away)
        for actor in actors.values():
            actor.does("end")
        await asyncio.sleep(0)
        assert (places.left, places.free("a"), places.free("b")) == (most, *[min(limit, most)] * 2)
        assert not places._away
        assert not places._returning

    asyncio.run(scene())


def _check(places: Places, limit: int, most: int, most_away: int) -> None:
    by_kind = Counter(places._taken.values())
    assert all(count <= limit for count in by_kind.values())
    assert len(places._taken) <= most
    assert len(places._away) <= most_away
    for job in places._returning:  # nobody waits for a place that is free
        assert places.free(places._away[job].kind) <= 0


class Actor:
    """A job with parts that wait side by side."""

    def __init__(self, places: Places, number: int, kind: str) -> None:
        self._places = places
        self._number = number
        self._parts: list[tuple[asyncio.Task[None], asyncio.Event]] = []
        places.begin(number, kind)

    def does(self, what: str) -> int:
        """Returns how many were cancelled, each of which may be above the limit until it ends."""
        if what == "wait":
            go_on = asyncio.Event()
            self._parts.append((asyncio.create_task(self._wait(go_on)), go_on))
        elif what == "back" and self._parts:
            self._parts.pop(0)[1].set()
        elif what == "cancel" and self._parts:
            self._parts.pop()[0].cancel()
            return 1
        elif what == "end":
            for task, _ in self._parts:
                task.cancel()
            self._places.end(self._number)
        return 0

    async def _wait(self, go_on: asyncio.Event) -> None:
        async with self._places.waiting(self._number):
            await go_on.wait()
