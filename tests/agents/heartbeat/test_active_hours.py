"""Active hours: what the wall clock shows decides, in every zone and over every change of the clocks."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents.heartbeat.rules import MINUTE, Hours
from holdfast.config import ActiveHours

# Ordinary ones, an hour and half an hour of daylight saving, one that skipped a whole day, one far from both.
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu")
DAY = 24 * 60

zones = st.sampled_from(ZONES).map(ZoneInfo)
moments = st.integers(1_293_000_000_000, 1_900_000_000_000)


@st.composite
def windows(draw: st.DrawFn) -> Hours:
    start = draw(st.integers(0, DAY - 1))
    end = draw(st.integers(0, DAY).filter(lambda minute: minute != start))
    return Hours(start, end, draw(zones))


def at(zone: str, text: str, fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()) * 1000


def hours(start: str, end: str, zone: str) -> Hours:
    return Hours.of(ActiveHours(start=start, end=end), ZoneInfo(zone))


def shown(moment: int, zone: ZoneInfo) -> int:
    wall = datetime.fromtimestamp(moment / 1000, UTC).astimezone(zone)
    return wall.hour * 60 + wall.minute


@given(windows(), moments)
def test_a_moment_is_active_when_the_clock_on_the_wall_says_so(window: Hours, moment: int) -> None:
    minutes = {minute % DAY for minute in range(window.start, window.end + (window.end < window.start) * DAY)}
    assert window.hold(moment) == (shown(moment, window.zone) in minutes)


@given(windows(), moments)
def test_the_next_active_moment_is_the_first_one(window: Hours, moment: int) -> None:
    found = window.next(moment)
    assert found >= moment
    assert window.hold(found)
    between = range(moment, found, MINUTE)
    assert not any(window.hold(earlier) for earlier in between)
    assert found == moment or not window.hold(found - 1)


@given(windows(), zones, moments)
def test_a_window_and_its_complement_divide_the_day(window: Hours, zone: ZoneInfo, moment: int) -> None:
    if window.end % DAY != window.start:
        other = Hours(window.end % DAY, window.start or DAY, window.zone)
        assert window.hold(moment) != other.hold(moment)


@pytest.mark.parametrize(
    ("window", "moment", "opens"),
    [
        # The clocks skip from two to three: a window that begins in the gap begins at the jump.
        (hours("02:30", "06:00", "Europe/Berlin"), "2026-03-29T01:10", "2026-03-29T03:00"),
        # A window that lies within the gap does not come that day.
        (hours("02:15", "02:45", "Europe/Berlin"), "2026-03-29T01:10", "2026-03-30T02:15"),
        # Over midnight, and an end at midnight.
        (hours("22:00", "02:00", "Europe/Berlin"), "2026-06-01T12:00", "2026-06-01T22:00"),
        (hours("09:00", "24:00", "Europe/Berlin"), "2026-06-01T00:00", "2026-06-01T09:00"),
    ],
)
def test_hours_open_when_expected(window: Hours, moment: str, opens: str) -> None:
    assert window.next(at("Europe/Berlin", moment)) == at("Europe/Berlin", opens)


def test_an_hour_that_comes_twice_is_active_twice() -> None:
    window = hours("02:30", "03:00", "Europe/Berlin")
    first, second = (at("Europe/Berlin", "2026-10-25T02:30", fold) for fold in (0, 1))
    assert second - first == 60 * MINUTE
    assert window.hold(first)
    assert window.hold(second)
    assert window.next(first + 30 * MINUTE) == second


def test_open_ends_reach_to_the_ends_of_the_day() -> None:
    until_noon = Hours.of(ActiveHours(end="12:00"), ZoneInfo("UTC"))
    from_noon = Hours.of(ActiveHours(start="12:00"), ZoneInfo("UTC"))
    for text, early in (("00:00", True), ("11:59", True), ("12:00", False), ("23:59", False)):
        moment = at("UTC", f"2026-06-01T{text}")
        assert (until_noon.hold(moment), from_noon.hold(moment)) == (early, not early)
