"""Following the change feed: readers are cursors, not queues, so a slow one costs nothing and loses nothing.

The feed keeps the newest changes in memory for those who are up to date; one who has fallen behind reads
from the store; one who is too far behind, or asks for what was pruned, is told to start over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

from holdfast.log import changes
from holdfast.log.audience import SYSTEM
from holdfast.log.changes import Change
from holdfast.log.pulse import Pulse
from holdfast.log.store import Store
from holdfast.log.threads import Threads, ringing, rung

RING: Final = 1_000
BATCH: Final = 200
_TROUBLE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Ping:
    """Nothing happened for a while."""

    seq: int


@dataclass(frozen=True, slots=True)
class Reset:
    """What was asked for is gone: read the state anew, then follow from `seq`."""

    seq: int


class Waiter:
    """Waits for a bell or a time-out; tests hand in one with its own idea of time."""

    async def wait(self, bell: asyncio.Event, seconds: float) -> bool:
        return await rung(bell, seconds)


class Feed:
    """The shared end of the change feed in one process."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        *,
        ping_seconds: float = 25.0,
        replay_limit: int = 5_000,
        waiter: Waiter | None = None,
    ) -> None:
        self._store = store
        self._threads = threads
        self._ping = ping_seconds
        self._replay = replay_limit
        self._waiter = waiter or Waiter()
        self._ring: deque[Change] = deque(maxlen=RING)
        self._head = 0
        self._bells: set[asyncio.Event] = set()
        self._new = asyncio.Event()
        self._closed = False
        self.pulse = Pulse("feed")

    @property
    def head(self) -> int:
        return self._head

    async def run(self) -> None:
        """Keep the ring up to date while anyone follows; runs for as long as the gateway does."""
        unsubscribe = self._store.signals.subscribe(changes.SIGNAL, ringing(self._new.set))
        try:
            _, self._head = await self._threads(self._bounds)
            # Whoever follows already may have looked before the newest of these was there.
            self._ring_bells()
            while True:
                await self._new.wait()
                self._new.clear()
                if not self._bells:
                    continue
                self.pulse.begin()
                try:
                    await self._take_in()
                    self.pulse.passed()
                except Exception as error:  # noqa: BLE001 - readers wait for what comes: told, and tried again
                    self.pulse.failed(error)
                    self._new.set()
                    await asyncio.sleep(_TROUBLE_SECONDS)
        finally:
            unsubscribe()

    def close(self) -> None:
        """End every reader once it has seen what there is."""
        self._closed = True
        self._ring_bells()

    def _ring_bells(self) -> None:
        for bell in self._bells:
            bell.set()

    async def follow(self, after: int | None) -> AsyncGenerator[Change | Ping | Reset]:
        """Every change behind `after`, until the feed closes; None begins with what happens next."""
        bell = asyncio.Event()
        self._bells.add(bell)
        self._new.set()
        try:
            low, high = await self._threads(self._bounds)
            seq = high if after is None else after
            if seq > high or seq < low - 1 or high - seq > self._replay:
                seq = high
                yield Reset(seq)
            while True:
                bell.clear()
                batch = await self._behind(seq)
                if batch and batch[0].seq > seq + 1 and await self._pruned(seq):
                    seq = (await self._threads(self._bounds))[1]
                    yield Reset(seq)
                    continue
                for change in batch:
                    seq = change.seq
                    yield change
                if batch:
                    continue
                if self._closed:
                    return
                if not await self._waiter.wait(bell, self._ping):
                    yield Ping(seq)
        finally:
            self._bells.discard(bell)

    async def _take_in(self) -> None:
        while True:
            batch = await self._threads(self._read, self._head)
            self._ring.extend(batch)
            self._head = batch[-1].seq if batch else self._head
            if batch:
                self._ring_bells()
            if len(batch) < BATCH:
                return

    async def _behind(self, seq: int) -> list[Change]:
        if self._ring and self._ring[0].seq <= seq + 1:
            return [c for c in self._ring if c.seq > seq][:BATCH]
        return await self._threads(self._read, seq)

    async def _pruned(self, seq: int) -> bool:
        low, _ = await self._threads(self._bounds)
        return low > seq + 1

    def _bounds(self) -> tuple[int, int]:
        with self._store.read(SYSTEM) as tx:
            return changes.bounds(tx)

    def _read(self, seq: int) -> list[Change]:
        with self._store.read(SYSTEM) as tx:
            return changes.since(tx, seq, limit=BATCH)
