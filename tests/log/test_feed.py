from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from builders import soon, until
from holdfast.log import OWNER, Change, Feed, Ping, Reset, Retention, Store, Threads, Waiter, changes, prune
from holdfast.log.changes import RING


def emit(store: Store, count: int = 1) -> None:
    with store.write(OWNER) as tx:
        for n in range(count):
            changes.emit(tx, "x", str(n))


class Doorbell(Waiter):
    """Tells when a reader has seen all and begins to wait."""

    def __init__(self) -> None:
        self.waiting = asyncio.Event()

    async def wait(self, bell: asyncio.Event, seconds: float) -> bool:
        self.waiting.set()
        return await super().wait(bell, seconds)


class Hourglass(Waiter):
    """Time passes at once: every wait that is not rung for is over."""

    def __init__(self, quiet: int) -> None:
        self.quiet = quiet

    async def wait(self, bell: asyncio.Event, seconds: float) -> bool:
        if self.quiet == 0:
            await soon(bell.wait())
            return True
        await asyncio.sleep(0)
        self.quiet -= not bell.is_set()
        return bell.is_set()


@asynccontextmanager
async def running(feed: Feed) -> AsyncIterator[Feed]:
    task = asyncio.create_task(feed.run())
    try:
        yield feed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


Seen = Change | Ping | Reset


async def take(stream: AsyncIterator[Seen], count: int) -> list[Seen]:
    return [await soon(anext(stream)) for _ in range(count)]


def numbers(seen: list[Seen]) -> list[int]:
    assert all(isinstance(one, Change) for one in seen), seen
    return [one.seq for one in seen]


def test_a_reader_gets_what_happens_from_now_on(store: Store, threads: Threads) -> None:
    async def scene() -> None:
        emit(store, 3)
        doorbell = Doorbell()
        async with running(Feed(store, threads, waiter=doorbell)) as feed:
            first = asyncio.create_task(take(feed.follow(None), 2))
            await soon(doorbell.waiting.wait())
            await threads(emit, store)
            await threads(emit, store)
            assert numbers(await soon(first)) == [4, 5]

    asyncio.run(scene())


class HeldUp(Threads):
    """The first call waits until it is let go, as on a machine that has no thread to spare."""

    def __init__(self) -> None:
        super().__init__(2)
        self.let_go = asyncio.Event()
        self._first = True

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._first:
            self._first = False
            await self.let_go.wait()
        return await super().__call__(*args, **kwargs)


def test_what_happens_while_the_feed_is_still_starting_is_told_at_once(sqlite_store: Store) -> None:
    async def scene() -> None:
        doorbell, threads = Doorbell(), HeldUp()
        emit(sqlite_store)
        async with running(Feed(sqlite_store, threads, waiter=doorbell, ping_seconds=3600)) as feed:
            await until(lambda: not threads._first)
            stream = feed.follow(0)
            assert numbers(await take(stream, 1)) == [1]
            following = asyncio.create_task(take(stream, 1))
            await soon(doorbell.waiting.wait())
            emit(sqlite_store)
            threads.let_go.set()
            assert numbers(await soon(following)) == [2]
        threads.close()

    asyncio.run(scene())


def test_a_reader_that_comes_back_gets_what_it_missed(store: Store, threads: Threads) -> None:
    async def scene() -> None:
        emit(store, 10)
        async with running(Feed(store, threads)) as feed:
            assert numbers(await take(feed.follow(4), 6)) == [5, 6, 7, 8, 9, 10]
            assert numbers(await take(feed.follow(0), 10)) == list(range(1, 11))

    asyncio.run(scene())


def test_a_quiet_hour_is_full_of_pings_and_loses_nothing(store: Store, threads: Threads) -> None:
    async def scene() -> None:
        emit(store)
        pings = 3600 // 25
        async with running(Feed(store, threads, waiter=Hourglass(pings))) as feed:
            stream = feed.follow(None)
            assert await take(stream, pings) == [Ping(1)] * pings
            following = asyncio.create_task(take(stream, 1))
            await threads(emit, store)
            assert numbers(await soon(following)) == [2]

    asyncio.run(scene())


def test_a_reader_that_asks_for_what_is_gone_starts_over(store: Store, threads: Threads) -> None:
    async def scene() -> None:
        emit(store, 20)
        prune(store, Retention(changes_rows=5, changes_days=None))
        async with running(Feed(store, threads, replay_limit=4)) as feed:
            for asked in (1, 14, 15, 99):
                assert await take(feed.follow(asked), 1) == [Reset(20)]
            assert numbers(await take(feed.follow(16), 4)) == [17, 18, 19, 20]

    asyncio.run(scene())


def test_a_reader_that_is_overtaken_by_pruning_is_told_and_goes_on(store: Store, threads: Threads) -> None:
    async def scene() -> None:
        emit(store, 5)
        async with running(Feed(store, threads)) as feed:
            stream = feed.follow(0)
            assert numbers(await take(stream, 5)) == [1, 2, 3, 4, 5]
            for _ in range(RING // 100 + 5):
                await threads(emit, store, 100)
            await until(lambda: feed.head == 5 + RING + 500)
            prune(store, Retention(changes_rows=10, changes_days=None))
            assert await take(stream, 1) == [Reset(5 + RING + 500)]
            following = asyncio.create_task(take(stream, 1))
            await threads(emit, store)
            assert numbers(await soon(following)) == [6 + RING + 500]

    asyncio.run(scene())


def test_a_slow_reader_costs_no_more_memory_and_loses_nothing(store: Store, threads: Threads) -> None:
    async def scene() -> None:
        emit(store)
        async with running(Feed(store, threads)) as feed:
            await until(lambda: feed.head == 1)
            slow = feed.follow(0)
            assert numbers(await take(slow, 1)) == [1]
            await until(lambda: feed.head == 1)
            for _ in range(6):
                await threads(emit, store, RING // 2)
            await until(lambda: feed.head == 3 * RING + 1)
            assert len(feed._ring) == RING
            assert numbers(await take(slow, 3 * RING)) == list(range(2, 3 * RING + 2))

    asyncio.run(scene())


def test_many_readers_see_the_same(store: Store, threads: Threads) -> None:
    async def scene() -> None:
        async with running(Feed(store, threads)) as feed:
            readers = [asyncio.create_task(take(feed.follow(0), 40)) for _ in range(50)]
            for _ in range(20):
                await threads(emit, store, 2)
            for reader in readers:
                assert numbers(await soon(reader)) == list(range(1, 41))

    asyncio.run(scene())


def test_a_reader_that_leaves_is_forgotten(store: Store, threads: Threads) -> None:
    async def scene() -> None:
        emit(store)
        async with running(Feed(store, threads)) as feed:
            stream = feed.follow(0)
            await take(stream, 1)
            assert len(feed._bells) == 1
            await stream.aclose()
            assert feed._bells == set()

    asyncio.run(scene())


def test_readers_end_when_the_feed_closes_after_they_saw_all(store: Store, threads: Threads) -> None:
    async def scene() -> None:
        emit(store, 3)
        async with running(Feed(store, threads)) as feed:
            feed.close()

            async def rest() -> list[Seen]:
                return [one async for one in feed.follow(0)]

            assert numbers(await soon(rest())) == [1, 2, 3]

    asyncio.run(scene())
