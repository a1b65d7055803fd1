"""Who goes first: what a client waits for before what nobody waits for.

One process has one interpreter and, on SQLite, one writer. While requests come close upon one another, work
in the background waits for a gap; not for ever, so that a gateway that is never idle still keeps its views.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

RUSH: Final = 6
GAP_SECONDS: Final = 0.3
LOOK_SECONDS: Final = 0.05

Sleep = Callable[[float], Awaitable[None]]


class Pace:
    """Feels how close upon one another requests come; known to the gateway and to what runs behind it."""

    def __init__(
        self,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        gap: float = GAP_SECONDS,
    ) -> None:
        self._now = now
        self._sleep = sleep
        self._gap = gap
        self._beats: deque[float] = deque(maxlen=RUSH)

    def beat(self) -> None:
        """A request begins or ends."""
        self._beats.append(self._now())

    @property
    def busy(self) -> bool:
        """Whether they come in a rush; a single one now and then is none, nor is one that takes long."""
        beats = tuple(self._beats)
        return len(beats) == RUSH and self._now() - beats[0] < self._gap

    async def gap(self, patience: float) -> None:
        """Wait for a moment in which nobody waits for us, at most so many seconds."""
        until = self._now() + patience
        while self.busy and self._now() < until:
            await self._sleep(LOOK_SECONDS)


class Allowance:
    """So many in each stretch of time, for what must go on under load."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._taken: deque[float] = deque()

    def left(self, most: int, seconds: float) -> int:
        """How many may still begin in the stretch that ends now."""
        while self._taken and self._taken[0] <= self._now() - seconds:
            self._taken.popleft()
        return max(0, most - len(self._taken))

    def take(self) -> None:
        self._taken.append(self._now())
