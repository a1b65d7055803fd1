"""Waiting no longer than there is time for, for work that cannot be broken off."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from holdfast.errors import Unavailable

T = TypeVar("T")

Stop = Callable[[], bool]
"""Whether the process was asked to stop; long work asks between its pieces."""

_LOOK_SECONDS: Final = 0.05
_LAST_WAIT_SECONDS: Final = 1.5

_PAUSE_SECONDS: Final = 30.0
_MOST_WAITING: Final = 4


class TooSlow(Unavailable):
    """There was no answer in time."""

    code = "too_slow"


class _Errand(Generic[T]):
    """Work on a thread of its own, which may outlive whoever waited for it, but not the process."""

    def __init__(self, work: Callable[[], T], gone: Callable[[], None]) -> None:
        self._work = work
        self._gone = gone
        self._done = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="holdfast-errand", daemon=True).start()

    def result(self, seconds: float) -> T:
        if not self._done.wait(max(0.0, seconds)):
            raise TooSlow(f"no answer within {round(seconds * 1000)} ms")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits for the result
            self._error = error
        finally:
            self._gone()
            self._done.set()


def unless_stopped(work: Callable[[], T], stop: Stop) -> T | None:
    """The result of work that cannot be broken off; None when a stop came and it did not end soon after."""
    errand = _Errand(work, lambda: None)
    until: float | None = None
    while True:
        try:
            return errand.result(_LOOK_SECONDS)
        except TooSlow:
            if not stop():
                continue
            until = until or time.monotonic() + _LAST_WAIT_SECONDS
            if time.monotonic() >= until:
                return None


class Deadlines:
    """Runs work by name within a time. What was too slow is refused for a while, and never piles up."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic, pause: float = _PAUSE_SECONDS) -> None:
        self._now = now
        self._pause = pause
        self._lock = threading.Lock()
        self._running: dict[str, int] = {}
        self._until: dict[str, float] = {}

    def within(self, name: str, seconds: float, work: Callable[[], T]) -> T:
        """The result of the work; `TooSlow` when the time is up, or was up a moment ago already."""
        self._enter(name)
        try:
            return _Errand(work, lambda: self._leave(name)).result(seconds)
        except TooSlow:
            with self._lock:
                self._until[name] = self._now() + self._pause
            raise

    def _enter(self, name: str) -> None:
        with self._lock:
            if self._until.get(name, 0.0) > self._now():
                raise TooSlow("it was too slow a moment ago")
            if self._running.get(name, 0) >= _MOST_WAITING:
                raise TooSlow("too many questions wait for it")
            self._running[name] = self._running.get(name, 0) + 1

    def _leave(self, name: str) -> None:
        with self._lock:
            self._running[name] -= 1
