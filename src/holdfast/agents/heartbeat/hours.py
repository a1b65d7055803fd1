"""Active hours: whether a moment lies within them, and when they next begin. Pure; the wall clock decides.

A wall clock that skips or repeats an hour needs no rule of its own: what it shows is compared. An hour that
comes twice counts twice, and one that is skipped begins, if the window covers the time after it, at the jump.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Self
from zoneinfo import ZoneInfo

from holdfast.clock import Millis

if TYPE_CHECKING:
    from holdfast.config import ActiveHours

MINUTE: Final = 60_000
_DAY_MINUTES: Final = 24 * 60
_FURTHEST: Final = 4 * _DAY_MINUTES


@dataclass(frozen=True, slots=True)
class Hours:
    """Minutes of the day from `start` up to, and without, `end`; an end before the start is over midnight."""

    start: int
    end: int
    zone: ZoneInfo

    @classmethod
    def of(cls, config: ActiveHours, zone: ZoneInfo) -> Self:
        return cls(_minutes(config.start or "00:00"), _minutes(config.end or "24:00"), zone)

    def hold(self, at: int) -> bool:
        """Whether the wall clock shows a time within the hours."""
        shown = datetime.fromtimestamp(at // 1000, UTC).astimezone(self.zone)
        now = shown.hour * 60 + shown.minute
        if self.start < self.end:
            return self.start <= now < self.end
        return now >= self.start or now < self.end % _DAY_MINUTES

    def next(self, at: int) -> Millis:
        """The first moment from `at` on that lies within; `at` itself if it does."""
        if self.hold(at):
            return Millis(at)
        minute = at - at % MINUTE
        for later in range(1, _FURTHEST + 1):
            if self.hold(minute + later * MINUTE):
                return Millis(minute + later * MINUTE)
        raise AssertionError("hours that never come")


def _minutes(text: str) -> int:
    hour, _, minute = text.partition(":")
    return int(hour) * 60 + int(minute)
