"""The places in which jobs run: so many of each kind and in all. Who only waits lends its place to others."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Final

MOST_AWAY: Final = 256


@dataclass(slots=True)
class _Away:
    """A job without a place: of which kind, and how many of its parts still wait for something."""

    kind: str
    waits: int = 0


class Places:
    """Who has a place, who gave it back, and who wants it again, in the order in which they came back.

    Used on one event loop. `freed` is called when a place may have become free.
    """

    def __init__(
        self,
        limit: Callable[[str], int],
        most: int,
        freed: Callable[[], None] = lambda: None,
        *,
        most_away: int = MOST_AWAY,
    ) -> None:
        self._limit = limit
        self._most = most
        self._most_away = most_away
        self._freed = freed
        self._taken: dict[Hashable, str] = {}
        self._away: dict[Hashable, _Away] = {}
        self._returning: dict[Hashable, asyncio.Future[None]] = {}
        self._claiming = False

    @property
    def left(self) -> int:
        """How many more may run, of whatever kind."""
        return self._most - len(self._taken)

    def free(self, kind: str) -> int:
        """How many more of a kind may run; below zero after a cut of its limit."""
        return min(self._limit(kind) - Counter(self._taken.values())[kind], self.left)

    @contextlib.contextmanager
    def claiming(self) -> Iterator[None]:
        """What is free now is meant for what is claimed in the block: until its end nobody returns."""
        self._grant()
        self._claiming = True
        try:
            yield
        finally:
            self._claiming = False
            self._grant()

    def begin(self, job: Hashable, kind: str) -> None:
        self._taken[job] = kind

    def end(self, job: Hashable) -> bool:
        """Whether the end of the job made room where there was none."""
        kind = self._taken.get(job)
        full = kind is not None and self.free(kind) <= 0
        self._taken.pop(job, None)
        self._away.pop(job, None)
        self._let(job)
        self._grant()
        return full

    @contextlib.asynccontextmanager
    async def waiting(self, job: Hashable, after: float = 0.0) -> AsyncIterator[None]:
        """Give the place back for as long as the block lasts, once it has lasted `after` seconds.

        Blocks of one job may overlap: the last of them takes the place again. Who is cancelled has it at
        once, above the limit if need be: it only winds up.
        """
        wait = _Wait(self, job)
        timer = asyncio.get_running_loop().call_later(after, wait.begin) if after > 0 else None
        if timer is None:
            wait.begin()
        try:
            yield
        except asyncio.CancelledError:
            wait.end()
            self._seat(job)
            raise
        finally:
            if timer is not None:
                timer.cancel()
            if wait.end():
                await self._back(job)

    def _give(self, job: Hashable) -> bool:
        """Whether one more part of the job waits without a place; too many away keep theirs."""
        away = self._away.get(job)
        if away is None:
            if job not in self._taken or len(self._away) >= self._most_away:
                return False
            away = self._away[job] = _Away(self._taken.pop(job))
            self._grant()
            self._freed()
        away.waits += 1
        self._let(job)
        return True

    def _came(self, job: Hashable) -> bool:
        """One part waits no more; whether it was the last."""
        away = self._away.get(job)
        if away is None:
            return False
        away.waits -= 1
        return not away.waits

    async def _back(self, job: Hashable) -> None:
        self._returning[job] = back = asyncio.get_running_loop().create_future()
        self._grant()
        try:
            await back
        except asyncio.CancelledError:
            self._seat(job)
            raise

    def _grant(self) -> None:
        """Give what is free to those who came back, the first first."""
        if self._claiming:
            return
        for job in tuple(self._returning):
            if self.free(self._away[job].kind) > 0:
                self._seat(job)

    def _seat(self, job: Hashable) -> None:
        away = self._away.get(job)
        if away is not None and not away.waits:
            del self._away[job]
            self._taken[job] = away.kind
            self._let(job)

    def _let(self, job: Hashable) -> None:
        """Let who waits for a place go on."""
        back = self._returning.pop(job, None)
        if back is not None and not back.done():
            back.set_result(None)


class _Wait:
    """One block in which a job waits: begun at most once, ended at most once."""

    def __init__(self, places: Places, job: Hashable) -> None:
        self._places = places
        self._job = job
        self._given = False

    def begin(self) -> None:
        self._given = self._places._give(self._job)

    def end(self) -> bool:
        """Whether the job is to come back now."""
        given, self._given = self._given, False
        return given and self._places._came(self._job)
