"""Time as milliseconds since the epoch, and a clock that tests can turn by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NewType, Protocol

from holdfast.errors import InvalidInput

Millis = NewType("Millis", int)
DAY_MS: Final = 86_400_000
JUMP_MS: Final = 2_000
"""What a clock is off by more than this was set; less is drift."""


class Clock(Protocol):
    """`now` is what the clock on the wall shows; `monotonic` are milliseconds that nobody can set."""

    def now(self) -> Millis: ...

    def monotonic(self) -> int: ...


class SystemClock:
    def now(self) -> Millis:
        return Millis(time.time_ns() // 1_000_000)

    def monotonic(self) -> int:
        return time.monotonic_ns() // 1_000_000


class ManualClock:
    """A clock that stands still until it is told to move: time passes with `advance`, not with `set`."""

    def __init__(self, start: int = 1_767_225_600_000) -> None:
        self._now = start
        self._passed = 0

    def now(self) -> Millis:
        return Millis(self._now)

    def advance(self, *, ms: int = 0, seconds: float = 0, minutes: float = 0, hours: float = 0) -> None:
        passed = ms + int((seconds + minutes * 60 + hours * 3600) * 1000)
        self._now += passed
        self._passed += passed

    def monotonic(self) -> int:
        return self._passed

    def set(self, now: int) -> None:
        self._now = now


class StoreClock:
    """The time of a store: it flows by the monotonic clock and is set, from time to time, by a reference.

    That is the database's clock where several machines share one, so that all of them agree, and the clock on
    the wall where there is no other. Small corrections never make it run backwards; a reference that was set
    back by more does, as soon as it is read, and who counts on delays compares `now` with `monotonic`.
    """

    def __init__(
        self, wall: Clock | None = None, *, fresh_ms: int = 15_000, most_doubt_ms: int = 1_000
    ) -> None:
        self._wall = wall or SystemClock()
        self._fresh_ms = fresh_ms
        self._most_doubt_ms = most_doubt_ms
        self._lock = threading.Lock()
        self._offset = self._wall.now() - self._wall.monotonic()
        self._shown = 0
        self._set_at: int | None = None

    def now(self) -> Millis:
        with self._lock:
            self._shown = max(self._shown, self._wall.monotonic() + self._offset)
            return Millis(self._shown)

    def monotonic(self) -> int:
        return self._wall.monotonic()

    @property
    def skew_ms(self) -> int:
        """By how much this machine's clock on the wall is ahead of the reference."""
        return self._wall.now() - self._wall.monotonic() - self._offset

    @property
    def is_stale(self) -> bool:
        """Whether the reference is to be read again."""
        return self._set_at is None or self._wall.monotonic() - self._set_at >= self._fresh_ms

    def set_by_wall(self) -> None:
        self._set(self._wall.now() - self._wall.monotonic())

    def set_by(self, reference: Callable[[], int]) -> None:
        """Ask a reference. One that took long to answer may be off by half of that: it is asked again later,
        unless nothing better is known."""
        asked = self._wall.monotonic()
        told = reference()
        doubt = (self._wall.monotonic() - asked) // 2
        if doubt <= self._most_doubt_ms or self._set_at is None:
            self._set(told - asked - doubt)

    def _set(self, offset: int) -> None:
        with self._lock:
            if abs(offset - self._offset) > JUMP_MS:
                self._shown = 0
            self._offset = offset
            self._set_at = self._wall.monotonic()


def iso(at: int) -> str:
    """ISO 8601 in UTC with milliseconds, the one form of a timestamp on every wire."""
    seconds, ms = divmod(at, 1000)
    return f"{_to_the_second(seconds)}.{ms:03d}Z"


@lru_cache(maxsize=4_096)
def _to_the_second(seconds: int) -> str:
    """Kept, since what is written together is shown together."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def parse_iso(text: str) -> Millis:
    """Read any ISO 8601 timestamp; one without a zone is taken as UTC."""
    try:
        when = datetime.fromisoformat(text)
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        return Millis(round(when.timestamp() * 1000))
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            f"not a timestamp: {text[:64]!r}", hint="Use ISO 8601, for example 2026-01-31T09:30:00.000Z."
        ) from error
