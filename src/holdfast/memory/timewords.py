"""Time words in a question ("last Tuesday", "in May 2023", "vor zwei Wochen") as ranges of time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from holdfast.clock import Millis
from holdfast.memory.folding import fold

Span = tuple[date, date]
"""First day, and the day after the last."""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From `start` up to but not including `end`; `words` is what was said, folded."""

    start: Millis
    end: Millis
    words: str


def resolve(question: str, now: Millis, zone: tzinfo = UTC) -> list[TimeRange]:
    """Every stretch of time that the question names, in the order of the words, without overlaps.

    Relative words count from `now`; a month or a day without a year is the latest one not after it.
    """
    text = fold(question)
    if not may_name_time(_WORD.findall(text), text):
        return []
    today = datetime.fromtimestamp(now / 1000, zone).date()
    taken: list[tuple[int, int, TimeRange]] = []
    for start, end, span in _spans(text, today):
        if all(end <= a or start >= b for a, b, _ in taken):
            words = text[start:end].strip()
            taken.append((start, end, TimeRange(_at(span[0], zone), _at(span[1], zone), words)))
    return [found for _, _, found in sorted(taken, key=lambda item: item[0])]


def asks_for_time(question: str) -> bool:
    """Whether the answer is a time, so that texts which name one are likelier to hold it."""
    return _ASKS.search(fold(question)) is not None


def names_time(text: str) -> bool:
    """Whether a text says when something happens or happened."""
    return _NAMES.search(fold(text)) is not None


def may_name_time(words: Iterable[str], folded: str) -> bool:
    """Whether `names_time` or `resolve` need to look: each of their patterns holds one of these words, or a
    digit."""
    return not _HINTS.isdisjoint(words) or _DIGIT.search(folded) is not None


def _spans(text: str, today: date) -> Iterator[tuple[int, int, Span]]:
    """Readings of the text, the most specific patterns first; what cannot be a date is passed over."""
    for pattern, read in _READERS:
        for match in pattern.finditer(text):
            try:
                span = read(match, today)
            except (ValueError, OverflowError):
                continue
            if span is not None:
                yield match.start(), match.end(), span


def _at(day: date, zone: tzinfo) -> Millis:
    return Millis(int(datetime.combine(day, time(), zone).timestamp() * 1000))


def _numbered(*rows: str) -> dict[str, int]:
    return {word: number for number, row in enumerate(rows) for word in row.split()}


_MONTHS = _numbered(
    "", "january jan januar janner", "february feb februar", "march mar marz", "april apr", "may mai",
    "june jun juni", "july jul juli", "august aug", "september sep sept", "october oct oktober okt",
    "november nov", "december dec dezember dez",
)  # fmt: skip
_DAYS = _numbered(
    "monday montag", "tuesday dienstag", "wednesday mittwoch", "thursday donnerstag",
    "friday freitag", "saturday samstag sonnabend", "sunday sonntag",
)  # fmt: skip
CALENDAR = frozenset(_MONTHS) | frozenset(_DAYS)
"""Names of months and days, which are not names of people."""
_COUNTS = _numbered(
    "", "a an one ein eine einem einen einer", "two zwei couple paar", "three drei few einigen",
    "four vier", "five funf", "six sechs", "seven sieben", "eight acht", "nine neun", "ten zehn",
    "eleven elf", "twelve zwolf",
)  # fmt: skip
_UNITS = {
    word: unit
    for unit, row in {
        "day": "day days tag tage tagen",
        "week": "week weeks woche wochen",
        "weekend": "weekend wochenende",
        "month": "month months monat monate monaten",
        "year": "year years jahr jahre jahren",
    }.items()
    for word in row.split()
}
_SHIFTS = {
    word: shift
    for shift, row in {
        -1: "last previous past letzte letzten letzter letztes letztem vorige vorigen voriges "
        "vergangene vergangenen vergangenes",
        0: "this current diese diesen dieser dieses diesem",
        1: "next coming nachste nachsten nachster nachstes kommende kommenden",
    }.items()
    for word in row.split()
}
_SINGLE = {
    "the day before yesterday": -2,
    "day before yesterday": -2,
    "vorgestern": -2,
    "yesterday": -1,
    "gestern": -1,
    "today": 0,
    "tonight": 0,
    "heute": 0,
    "tomorrow": 1,
    "the day after tomorrow": 2,
    "day after tomorrow": 2,
    "ubermorgen": 2,
}


def _any(words: dict[str, int] | dict[str, str]) -> str:
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True))


_MONTH, _COUNT, _UNIT, _SHIFT = _any(_MONTHS), _any(_COUNTS), _any(_UNITS), _any(_SHIFTS)
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th|\.)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"


def _day_of(match: re.Match[str], today: date) -> Span:
    parts = match.groupdict()
    named = parts.get("month") or ""
    month = _MONTHS[named] if named in _MONTHS else int(named)
    if parts.get("year"):
        return _one(date(int(parts["year"]), month, int(parts["day"])))
    for year in range(today.year, today.year - 9, -1):
        try:
            day = date(year, month, int(parts["day"]))
        except ValueError:
            continue
        if day <= today:
            return _one(day)
    raise ValueError("no such day")


def _month_of(match: re.Match[str], today: date) -> Span:
    month = _MONTHS[match["month"]]
    year = match.groupdict().get("year")
    if year:
        return _month(int(year), month)
    return _month(today.year if month <= today.month else today.year - 1, month)


def _year_of(match: re.Match[str], _: date) -> Span:
    return date(int(match["year"]), 1, 1), date(int(match["year"]) + 1, 1, 1)


def _ago(match: re.Match[str], today: date) -> Span:
    """The unit that lay so long ago: a day for days, the seven days around for weeks, and so on."""
    count, unit = _count(match["count"]), _UNITS[match["unit"]]
    if unit == "day":
        return _one(today - timedelta(days=count))
    if unit == "month":
        return _month(*_month_back(today, count))
    if unit == "year":
        return date(today.year - count, 1, 1), date(today.year - count + 1, 1, 1)
    day = today - timedelta(weeks=count)
    return day - timedelta(days=3), day + timedelta(days=4)


def _past(match: re.Match[str], today: date) -> Span:
    days = {"day": 1, "week": 7, "weekend": 7, "month": 30, "year": 365}[_UNITS[match["unit"]]]
    return today - timedelta(days=days * _count(match["count"])), today + timedelta(days=1)


def _shifted(match: re.Match[str], today: date) -> Span:
    shift, unit = _SHIFTS[match["shift"]], _UNITS[match["unit"]]
    monday = today - timedelta(days=today.weekday())
    if unit == "day":
        return _one(today + timedelta(days=shift))
    if unit == "week":
        return monday + timedelta(weeks=shift), monday + timedelta(weeks=shift + 1)
    if unit == "weekend":
        saturday = monday + timedelta(weeks=shift, days=5)
        return saturday, saturday + timedelta(days=2)
    if unit == "month":
        return _month(*_month_back(today, -shift))
    return date(today.year + shift, 1, 1), date(today.year + shift + 1, 1, 1)


def _weekday(match: re.Match[str], today: date) -> Span:
    """The last such day before today, or the next one after it where the words look forward."""
    day, forward = _DAYS[match["weekday"]], _SHIFTS.get(match["shift"] or "", -1) > 0
    if forward:
        return _one(today + timedelta(days=(day - today.weekday() - 1) % 7 + 1))
    return _one(today - timedelta(days=(today.weekday() - day - 1) % 7 + 1))


def _single(match: re.Match[str], today: date) -> Span:
    return _one(today + timedelta(days=_SINGLE[match["word"]]))


def _one(day: date) -> Span:
    return day, day + timedelta(days=1)


def _month(year: int, month: int) -> Span:
    return date(year, month, 1), date(year + month // 12, month % 12 + 1, 1)


def _month_back(today: date, count: int) -> tuple[int, int]:
    year, month = divmod(today.year * 12 + today.month - 1 - count, 12)
    return year, month + 1


def _count(word: str) -> int:
    return int(word) if word.isdigit() else _COUNTS[word.split()[-1]]


_N = rf"(?P<count>\d{{1,3}}|(?:a )?(?:{_COUNT}))(?: of)?"
_READERS: list[tuple[re.Pattern[str], Callable[[re.Match[str], date], Span | None]]] = [
    (re.compile(pattern), reader)
    for pattern, reader in (
        (rf"\b{_YEAR}-(?P<month>\d\d)-(?P<day>\d\d)\b", _day_of),
        (rf"\b(?P<day>\d{{1,2}})\.\s?(?P<month>\d{{1,2}})\.\s?{_YEAR}\b", _day_of),
        (rf"\b{_DAY}(?: of)? (?P<month>{_MONTH})\.?,? {_YEAR}\b", _day_of),
        (rf"\b(?P<month>{_MONTH})\.? {_DAY},? {_YEAR}\b", _day_of),
        (rf"\b(?P<month>{_MONTH})\.?,?(?: of)? {_YEAR}\b", _month_of),
        (rf"\b{_DAY}(?: of)? (?P<month>{_MONTH})\b", _day_of),
        (rf"\b(?P<month>{_MONTH})\.? {_DAY}(?!\d)", _day_of),
        (rf"\b{_N} (?P<unit>{_UNIT}) ago\b", _ago),
        (rf"\bvor {_N} (?P<unit>{_UNIT})\b", _ago),
        (rf"\b(?:last|past|previous|letzten|vergangenen) {_N} (?P<unit>{_UNIT})\b", _past),
        (rf"\b(?P<shift>{_SHIFT}) (?P<unit>{_UNIT})\b", _shifted),
        (rf"\b(?:(?P<shift>{_SHIFT}) |(?:on|am) )(?P<weekday>{_any(_DAYS)})\b", _weekday),
        (rf"\b(?P<word>{_any(_SINGLE)})\b", _single),
        (rf"\b(?:in|during|of|since|im|seit|last|this|letzten) (?P<month>{_MONTH})\b", _month_of),
        (rf"\b(?:in|during|of|since|seit|by|jahr) {_YEAR}\b", _year_of),
    )
]
_ASKS = re.compile(
    r"^\W*(?:and |so |und )?(?:when|how long|since when|wann|seit wann|wie lange)\b"
    r"|\b(?:what|which|at what|on what|in which|welche[mnrs]?) "
    r"(?:date|day|week|weekend|month|year|time|datum|tag|woche|monat|jahr|uhrzeit)\b"
)
_NAMES = re.compile(
    rf"\b(?:{_any(_SINGLE)}|ago|recently|lately|neulich|kurzlich|weekend|wochenende"
    rf"|(?:{_SHIFT}|every|since|vor|for|in) (?:\w+ )?(?:{_UNIT}|night|summer|winter|spring|fall|sommer)"
    rf"|(?:{_SHIFT}|on|am) (?:{_any(_DAYS)})|(?:{_SHIFT}|in|on|since|im|seit) (?:{_MONTH})"
    rf"|{_DAY} (?:{_MONTH})|(?:in|since|seit) (?:19|20)\d\d|\d{{1,2}}(?::\d\d)? ?(?:am|pm|uhr))\b"
)
_HINTS = (
    frozenset(_MONTHS)
    | frozenset(_DAYS)
    | frozenset(_UNITS)
    | frozenset(words.split()[-1] for words in _SINGLE)
    | {"ago", "recently", "lately", "neulich", "kurzlich"}
    | {"night", "summer", "winter", "spring", "fall", "sommer"}
)
_DIGIT = re.compile(r"\d")
_WORD = re.compile(r"[^\W_]+")
