"""HEARTBEAT.md as a list of things to look after, each with its own time if it says one. Pure and forgiving:
what is not understood as a schedule is a plain line, and a plain line is always due.

    - Look at the inbox                      always due
    - [ ] every 2h: check the build          when two hours have passed since it was last looked at
    - daily at 09:00: plan the day           once, at the first heartbeat from nine on
    - weekdays at 17:30: sum up the day
    - every monday at 08:00: weekly report
    - [x] anything                           done: never due

Headings, comments, rules and empty bullets are nothing. An indented line belongs to the item before it; a
line that ends with a colon and stands before a bullet introduces it, and is not due by itself.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Final
from zoneinfo import ZoneInfo

from holdfast.config.values import MS_PER_UNIT, parse_duration

MOST_ITEMS: Final = 200
_SLACK_MS: Final = 60_000

_COMMENT: Final = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_NOTHING: Final = re.compile(r"\s*(?:#{1,6}(?:\s.*)?|[-*_=]{2,}\s*|[-*+]\s*|(?:[-*+]\s+)?\[.?\]\s*)")
_BULLET: Final = re.compile(r"(?:[-*+]|\d{1,3}[.)])\s+")
_BOX: Final = re.compile(r"\[([ xX-])\]\s*")
_TIME: Final = r"(?P<hour>[01]?\d|2[0-3])[:.](?P<minute>[0-5]\d)"
_SPLIT: Final = re.compile(r"\s*(?::(?=\s|$)|\s[-–—]\s|[–—])\s*")
_EVERY: Final = re.compile(r"every\s+(?P<span>.+)", re.IGNORECASE)
_DAYS: Final = re.compile(
    r"(?:(?:every\s+|on\s+)?(?P<days>day|daily|weekdays?|weekends?"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)days?(?:\s*(?:,|and)\s*(?:mon|tues|wednes|thurs|fri|satur|sun)days?)*)"
    rf"\s*,?\s*)?(?:at\s+{_TIME})?",
    re.IGNORECASE,
)
_UNITS: Final = {"second": "s", "sec": "s", "minute": "m", "min": "m", "hour": "h", "hr": "h"} | {
    "day": "d",
    "week": "w",
}
_WORD_UNIT: Final = re.compile(r"(?P<count>\d{1,6})?\s*(?P<unit>second|sec|minute|min|hour|hr|day|week)s?")
_ALIASES: Final = {"hourly": "every 1h", "daily": "every day at 00:00", "weekly": "every 7d"}
_WEEK: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True, slots=True)
class Every:
    """Due when so much time has passed since it was last looked at."""

    ms: int

    def due(self, now: int, seen: int, ran: int | None, zone: ZoneInfo) -> bool:
        return ran is None or now - ran >= self.ms - min(_SLACK_MS, self.ms // 10)


@dataclass(frozen=True, slots=True)
class At:
    """Due once at this time of the day, on these days of the week (Monday is 0)."""

    minute: int
    days: frozenset[int]

    def due(self, now: int, seen: int, ran: int | None, zone: ZoneInfo) -> bool:
        struck = self.last(now, zone)
        return struck is not None and struck > (seen if ran is None else max(ran, seen))

    def last(self, now: int, zone: ZoneInfo) -> int | None:
        """When it last struck; a time that clocks skip strikes as long after midnight as on other days."""
        today = datetime.fromtimestamp(now // 1000, UTC).astimezone(zone).date()
        for back in range(9):
            day = today - timedelta(days=back)
            wall = datetime(day.year, day.month, day.day, *divmod(self.minute, 60), tzinfo=zone)
            at = int(wall.timestamp()) * 1000
            if day.weekday() in self.days and at <= now:
                return at
        return None


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to look after; `schedule` None is always due, `done` never."""

    text: str
    schedule: Every | At | None = None
    done: bool = False

    @property
    def id(self) -> str:
        return hashlib.sha256(" ".join(self.text.split()).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Seen:
    """When an item was first seen, and when it was last looked after."""

    at: int
    ran: int | None = None


def parse(text: str) -> tuple[Item, ...]:
    """The items of a checklist, in order, each text once."""
    blocks: list[str] = []
    for line in _COMMENT.sub("", text).splitlines():
        if not line.strip() or _NOTHING.fullmatch(line):
            continue
        if line[0] in " \t" and blocks and not _BULLET.match(line.lstrip()):
            blocks[-1] = f"{blocks[-1]} {line.strip()}"
        else:
            blocks.append(line.strip())
    pairs = zip_longest(blocks, blocks[1:], fillvalue="")
    items = [_item(block) for block, after in pairs if _counts(block, after)]
    return tuple({item.text: item for item in items}.values())[:MOST_ITEMS]


def due(items: tuple[Item, ...], seen: Mapping[str, Seen], now: int, zone: ZoneInfo) -> tuple[Item, ...]:
    """What is to be looked after now."""
    return tuple(item for item in items if not item.done and _is_due(item, seen.get(item.id), now, zone))


def noticed(items: tuple[Item, ...], seen: Mapping[str, Seen], now: int) -> dict[str, Seen]:
    """What is known of the items that are there: those that went are forgotten, new ones are seen now."""
    return {item.id: seen.get(item.id, Seen(now)) for item in items if item.schedule is not None}


def _is_due(item: Item, seen: Seen | None, now: int, zone: ZoneInfo) -> bool:
    if item.schedule is None:
        return True
    known = seen or Seen(now)
    return item.schedule.due(now, known.at, known.ran, zone)


def _counts(block: str, after: str) -> bool:
    return not (block.endswith(":") and not _BULLET.match(block) and _BULLET.match(after))


def _item(block: str) -> Item:
    text = _BULLET.sub("", block, count=1) if _BULLET.match(block) else block
    box = _BOX.match(text)
    text = text[box.end() :] if box else text
    schedule = None
    for split in _SPLIT.finditer(text):
        schedule = _schedule(text[: split.start()].strip(" *_`"))
        if schedule is not None and text[split.end() :].strip():
            break
        schedule = None
    return Item(text, schedule, done=bool(box and box[1] in "xX"))


def _schedule(text: str) -> Every | At | None:
    words = _ALIASES.get(text.lower(), text)
    every = _EVERY.fullmatch(words)
    if every is not None and (span := _span(every["span"])) is not None:
        return Every(span)
    found = _DAYS.fullmatch(words) if words else None
    if found is None or (found["days"] is None and found["hour"] is None):
        return None
    return At(int(found["hour"] or 0) * 60 + int(found["minute"] or 0), _days(found["days"]))


def _span(text: str) -> int | None:
    """`2h`, `90 minutes`, `1h 30m` or a bare unit; a day at a time of day is no span."""
    worded = _WORD_UNIT.fullmatch(text.strip().lower())
    if worded is not None and not (worded["unit"] == "day" and worded["count"] is None):
        return int(worded["count"] or 1) * MS_PER_UNIT[_UNITS[worded["unit"]]] or None
    try:
        return int(parse_duration(text)) or None
    except ValueError:
        return None


def _days(text: str | None) -> frozenset[int]:
    named = (text or "day").lower()
    if named in ("day", "daily"):
        return frozenset(range(7))
    if named.startswith("weekday"):
        return frozenset(range(5))
    if named.startswith("weekend"):
        return frozenset((5, 6))
    return frozenset(number for number, day in enumerate(_WEEK) if re.search(rf"\b{day}", named))
