"""Waiting for turns to end, wherever they run: one look at the store serves all who wait."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from holdfast.agents.loop.status import RunStatus, status_of, status_of_turn
from holdfast.errors import HoldfastError
from holdfast.log import SYSTEM, Store, Threads, changes, ringing, turns

log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.1
_TROUBLE_SECONDS: Final = 1.0
_LOOK_AGAIN_SECONDS: Final = 15.0


class EndWatch:
    """Rung by the change feed's signal, which on PostgreSQL crosses processes; looks only while one waits.

    What ends here says so through `look`; for the rest a look every tenth of a second is enough.
    """

    def __init__(self, store: Store, threads: Threads) -> None:
        self._store = store
        self._threads = threads
        self._waiting: dict[str, asyncio.Future[RunStatus]] = {}
        self._task: asyncio.Task[None] | None = None
        self._bell = asyncio.Event()
        self._now = asyncio.Event()

    def look(self) -> None:
        """A run has just ended in this process."""
        self._now.set()
        self._bell.set()

    async def ended(self, run_id: str) -> RunStatus:
        """The run's status once it has ended."""
        now = await self._threads(self._status, run_id)
        if now.ended:
            self._settle(run_id, now)
            return now
        future = self._waiting.get(run_id)
        if future is None:
            future = self._waiting[run_id] = asyncio.get_running_loop().create_future()
        self._begin()
        return await asyncio.shield(future)

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="run-ends")
        self._bell.set()

    async def _run(self) -> None:
        unsubscribe = self._store.signals.subscribe(changes.SIGNAL, ringing(self._bell.set))
        try:
            while self._waiting:
                await _rung(self._bell, _LOOK_AGAIN_SECONDS)
                await _rung(self._now, _PAUSE_SECONDS)
                self._bell.clear()
                self._now.clear()
                try:
                    ended = await self._threads(self._ended_among, list(self._waiting))
                except HoldfastError:
                    log.exception("the ends of runs cannot be read; trying again")
                    await asyncio.sleep(_TROUBLE_SECONDS)
                    self._bell.set()
                    continue
                for status in ended:
                    self._settle(status.run_id, status)
        finally:
            unsubscribe()

    def _settle(self, run_id: str, status: RunStatus) -> None:
        future = self._waiting.pop(run_id, None)
        if future is not None and not future.done():
            future.set_result(status)

    def _status(self, run_id: str) -> RunStatus:
        with self._store.read(SYSTEM) as tx:
            return status_of(tx, run_id)

    def _ended_among(self, ids: list[str]) -> list[RunStatus]:
        with self._store.read(SYSTEM) as tx:
            found = [status_of_turn(tx, turn) for turn in turns.get_many(tx, ids) if turn.status.ended]
            return [status for status in found if status.ended]


async def _rung(bell: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(bell.wait(), seconds)
