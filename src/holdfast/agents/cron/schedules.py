"""When a standing task is due: by a cron expression in a zone, every so often, or once. Pure.

A cron time that the clocks skip comes when they jump, and one that comes twice is taken once; expressions
with a star for the hour or the minute follow real time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from holdfast.clock import Millis, iso, parse_iso
from holdfast.config import parse_duration
from holdfast.config.values import Duration
from holdfast.errors import InvalidInput
from holdfast.log.reset import zone as named_zone

SHORTEST_MS: Final = 60_000
_FIELDS: Final = 5
_NICKNAMES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


@dataclass(frozen=True, slots=True)
class Cron:
    """Five fields, read by a wall clock in `zone`."""

    expr: str
    zone: str

    def next(self, after: int) -> Millis | None:
        from cronsim import CronSim

        moment = datetime.fromtimestamp(after // 1000, UTC)
        where = named_zone(self.zone)
        for found in CronSim(self.expr, moment.astimezone(where)):
            at = int(found.timestamp()) * 1000
            if at > after:
                return Millis(at)
        return None

    def json(self) -> dict[str, Any]:
        return {"kind": "cron", "expr": self.expr, "tz": self.zone}

    def __str__(self) -> str:
        return f"{self.expr} ({self.zone})"


@dataclass(frozen=True, slots=True)
class Every:
    """In steps from `anchor` on."""

    ms: int
    anchor: int

    def next(self, after: int) -> Millis | None:
        steps = (after - self.anchor) // self.ms + 1
        return Millis(self.anchor + max(1, steps) * self.ms)

    def json(self) -> dict[str, Any]:
        return {"kind": "every", "every": str(Duration(self.ms)), "anchor": iso(self.anchor)}

    def __str__(self) -> str:
        return f"every {Duration(self.ms)}"


@dataclass(frozen=True, slots=True)
class Once:
    at: int

    def next(self, after: int) -> Millis | None:
        return Millis(self.at) if self.at > after else None

    def json(self) -> dict[str, Any]:
        return {"kind": "at", "at": iso(self.at)}

    def __str__(self) -> str:
        return f"at {iso(self.at)}"


Schedule = Cron | Every | Once


def schedule_of(
    now: int,
    default_zone: str,
    *,
    cron: str | None = None,
    every: str | None = None,
    at: str | None = None,
    tz: str | None = None,
) -> Schedule:
    """The one schedule that somebody gave, checked: it must come, and at most once a minute."""
    given = [name for name, value in (("cron", cron), ("every", every), ("at", at)) if value]
    if len(given) != 1:
        raise InvalidInput(
            "a standing task needs one schedule",
            code="bad_schedule",
            hint='Give one of cron ("0 9 * * 1-5"), every ("2h") or at ("2026-01-31T09:30:00Z" or "20m").',
        )
    if cron:
        return _cron(cron, str(named_zone(tz or default_zone)), now)
    return Every(_span(every), now) if every else _once(str(at), tz or default_zone, now)


def read(kept: Mapping[str, Any]) -> Schedule:
    """A schedule as it is kept with its task."""
    match kept["kind"]:
        case "cron":
            return Cron(str(kept["expr"]), str(kept["tz"]))
        case "every":
            return Every(int(parse_duration(str(kept["every"]))), parse_iso(str(kept["anchor"])))
        case _:
            return Once(parse_iso(str(kept["at"])))


def _cron(expr: str, zone: str, now: int) -> Cron:
    from cronsim import CronSimError

    text = _NICKNAMES.get(expr.strip().lower(), " ".join(expr.split()))
    try:
        if len(text) > 200 or len(text.split()) != _FIELDS:
            raise CronSimError("it does not have five fields")
        made = Cron(text, zone)
        comes = made.next(now)
    except (CronSimError, ValueError, AssertionError) as error:
        raise _refused(f"not a cron expression: {expr[:80]!r}: {error}") from error
    if comes is None:
        raise _refused(f"the cron expression {expr[:80]!r} never comes")
    return made


def _span(text: str) -> int:
    try:
        span = int(parse_duration(text))
    except ValueError as error:
        raise _refused(f"not a duration: {text[:80]!r}") from error
    if span < SHORTEST_MS:
        raise _refused("a standing task runs at most once a minute")
    return span


def _once(text: str, zone: str, now: int) -> Once:
    """A moment, a wall-clock time in the zone, or so long from now."""
    try:
        return Once(now + int(parse_duration(text)))
    except ValueError:
        pass
    try:
        when = datetime.fromisoformat(text)
        when = when if when.tzinfo is not None else when.replace(tzinfo=named_zone(zone))
        at = round(when.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise _refused(f"not a time: {text[:80]!r}") from error
    if at <= now:
        raise _refused(f"{text[:80]!r} has passed")
    return Once(at)


def _refused(message: str) -> InvalidInput:
    return InvalidInput(
        message,
        code="bad_schedule",
        hint='For example cron "0 9 * * 1-5", every "2h", at "2026-01-31T09:30" or "20m".',
    )
