"""Threads: the bounded pool in which asynchronous code runs the synchronous store, who goes first in it,
wake-ups by name from any thread to any thread, and what a part that runs for long tells of itself.

A part that meets the same trouble again and again says so once, and from then on how often.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from holdfast.errors import HoldfastError, Transient, Unavailable


class Signals:
    """A bell for each name. Callbacks run on the thread that rings and must only hand over."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: dict[str, list[Callable[[], None]]] = {}

    def subscribe(self, name: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` on every ring of `name`; returns the function that ends it."""
        with self._lock:
            self._callbacks.setdefault(name, []).append(callback)

        def unsubscribe() -> None:
            with self._lock:
                if callback in self._callbacks.get(name, ()):
                    self._callbacks[name].remove(callback)

        return unsubscribe

    def notify_all(self) -> None:
        """Ring every bell: something happened, and it is not known what."""
        for name in tuple(self._callbacks):
            self.notify(name)

    def notify(self, name: str) -> None:
        with self._lock:
            callbacks = tuple(self._callbacks.get(name, ()))
        for callback in callbacks:
            callback()


log = logging.getLogger(__name__)

REMIND_SECONDS: Final = 60.0


class Pulse:
    """The passes of one loop. Written by the loop alone, on its own thread; read by anyone."""

    def __init__(self, name: str, *, now: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.passes = 0
        self.errors = 0
        self.error: HoldfastError | str | None = None
        self.last_error: str | None = None
        self.since: float | None = None
        self._now = now
        self._begun: float | None = None
        self._again = 0
        self._told = 0.0

    def begin(self) -> None:
        """A pass begins; until it has passed or failed, the part may be stuck in it."""
        self._begun = self._now()

    def passed(self) -> None:
        """A pass went well."""
        self._begun = None
        self.passes += 1
        if self.error is not None:
            log.info("%s: works again%s", self.name, self._counted())
            self.error, self.since, self._again = None, None, 0

    def failed(self, error: Exception) -> None:
        """A pass went wrong, and there will be another."""
        self._begun = None
        self.errors += 1
        known, self.error = self.error, error if isinstance(error, HoldfastError) else described(error)
        self.since = self._now() if self.since is None else self.since
        if str(known) == str(self.error):
            self._again += 1
            if self._now() - self._told >= REMIND_SECONDS:
                log.warning("%s: %s%s", self.name, self.error, self._counted())
                self._told, self._again = self._now(), 0
            return
        self._told, self._again, self.last_error = self._now(), 0, str(self.error)
        trace = None if isinstance(error, HoldfastError) else error
        log.error("%s: %s; trying again", self.name, self.error, exc_info=trace)

    def busy_for(self) -> float:
        """Seconds since the pass began that is under way."""
        begun = self._begun
        return 0.0 if begun is None else self._now() - begun

    def failing_for(self) -> float:
        """Seconds since it last went well, if it does not now."""
        since = self.since
        return 0.0 if since is None else self._now() - since

    def _counted(self) -> str:
        return f" (the same error {self._again} times more)" if self._again else ""


def described(error: Exception) -> str:
    """A fault that nobody foresaw, in one line."""
    first = (str(error).splitlines() or [""])[0][:300]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


P = ParamSpec("P")
T = TypeVar("T")

PATIENCE_SECONDS: Final = 45.0
_PAUSE_SECONDS: Final = 0.5


class Threads:
    """A context build or a request is one hop here, not ten."""

    def __init__(self, size: int = 8) -> None:
        self._executor = ThreadPoolExecutor(size, thread_name_prefix="holdfast")

    async def __call__(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: work(*args, **kwargs))

    async def patiently(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As a call, tried again while the store is in a passing trouble, for as long as one may take.

        For work that may be repeated and whose loss would cost what cannot be done again.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE_SECONDS
        while True:
            try:
                return await self(work, *args, **kwargs)
            except Unavailable as error:
                if not _passes_and_wrote_nothing(error) or loop.time() > until:
                    raise
            await asyncio.sleep(_PAUSE_SECONDS)

    def close(self) -> None:
        self._executor.shutdown(wait=True)


def _passes_and_wrote_nothing(error: Unavailable) -> bool:
    return error.code == "store_full" or (isinstance(error, Transient) and not error.in_doubt)


async def to_the_end(writing: Awaitable[T]) -> T:
    """Wait for what is being written even when told to stop: who stops us may look at it next."""
    task = asyncio.ensure_future(writing)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    return task.result()


def ringing(callback: Callable[[], object]) -> Callable[..., None]:
    """A function that has the running loop call back, whichever thread calls it and with whatever.

    The loop may have ended between a commit and that call; then nobody waits any more, and nothing happens.
    """
    loop = asyncio.get_running_loop()

    def ring(*_: object) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(callback)

    return ring


async def rung(bell: asyncio.Event, seconds: float) -> bool:
    """Wait for a bell, so long at most; whether it rang.

    Not by `asyncio.wait_for`, which on Python 3.11 swallows a cancellation that comes as the bell rings, and
    that is what happens when everything stops.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await bell.wait()
    return bell.is_set()


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
