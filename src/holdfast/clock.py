"""Time as milliseconds since the epoch, and a clock that tests can turn by hand."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NewType, Protocol

from holdfast.errors import InvalidInput

Millis = NewType("Millis", int)
DAY_MS: Final = 86_400_000


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
