"""When a standing task comes: in every zone, over every change of the clocks, never twice for one time."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents.cron.schedules import Cron, Every, Once, read, schedule_of
from holdfast.errors import InvalidInput

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")
MINUTE = 60_000
NOW = 1_767_225_600_000

moments = st.integers(1_600_000_000_000, 1_900_000_000_000)


def at(zone: str, text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 1000


@given(st.sampled_from(ZONES), st.integers(0, 59), st.integers(0, 23), moments)
def test_a_daily_time_comes_once_a_day_and_always_later_than_now(
    zone: str, minute: int, hour: int, moment: int
) -> None:
    schedule = Cron(f"{minute} {hour} * * *", zone)
    first = schedule.next(moment)
    assert first is not None
    second = schedule.next(first)
    assert second is not None
    assert moment < first < second
    days = [
        datetime.fromtimestamp(ms / 1000, UTC).astimezone(ZoneInfo(zone)).date() for ms in (first, second)
    ]
    assert (days[1] - days[0]).days == 1


@given(st.sampled_from(ZONES), st.sampled_from((5, 10, 15, 30)), moments)
def test_a_time_by_the_minute_follows_real_time_through_every_change(
    zone: str, step: int, moment: int
) -> None:
    found = Cron(f"*/{step} * * * *", zone).next(moment)
    assert found is not None
    assert found - moment <= step * MINUTE
    assert datetime.fromtimestamp(found / 1000, ZoneInfo(zone)).minute % step == 0


def test_a_skipped_time_comes_at_the_jump_and_a_doubled_one_once() -> None:
    schedule = Cron("30 2 * * *", "Europe/Berlin")
    assert schedule.next(at("Europe/Berlin", "2026-03-29T00:00")) == at("Europe/Berlin", "2026-03-29T03:00")
    first = schedule.next(at("Europe/Berlin", "2026-10-25T00:00"))
    assert first == at("Europe/Berlin", "2026-10-25T02:30")
    assert schedule.next(first) == at("Europe/Berlin", "2026-10-26T02:30")


@given(moments, st.integers(1, 10**10), st.integers(MINUTE, 10**10))
def test_every_so_often_keeps_its_steps_and_skips_what_was_missed(anchor: int, late: int, every: int) -> None:
    comes = Every(every, anchor).next(anchor + late)
    assert comes is not None
    assert anchor + late < comes <= anchor + late + every
    assert (comes - anchor) % every == 0


@given(
    st.one_of(
        st.builds(Every, st.integers(MINUTE, 10**10), moments),
        st.builds(Once, moments),
        st.builds(Cron, st.just("0 9 * * 1-5"), st.sampled_from(ZONES)),
    )
)
def test_a_schedule_is_kept_as_it_was(schedule: Cron | Every | Once) -> None:
    assert read(schedule.json()) == schedule


def test_a_schedule_is_given_in_one_of_three_ways() -> None:
    berlin = "Europe/Berlin"
    assert schedule_of(NOW, berlin, cron=" 0  9 * * 1-5 ") == Cron("0 9 * * 1-5", berlin)
    assert schedule_of(NOW, berlin, cron="@daily", tz="UTC") == Cron("0 0 * * *", "UTC")
    assert schedule_of(NOW, berlin, every="2h") == Every(7_200_000, NOW)
    assert schedule_of(NOW, berlin, at="20m") == Once(NOW + 20 * MINUTE)
    assert schedule_of(NOW, berlin, at="2026-06-01T09:00") == Once(at(berlin, "2026-06-01T09:00"))


@pytest.mark.parametrize(
    "given_",
    [
        {},
        {"cron": "0 9 * * *", "every": "2h"},
        {"cron": "0 9 * *"},
        {"cron": "* * * * * *"},
        {"cron": "61 9 * * *"},
        {"cron": "0 0 30 2 *"},
        {"cron": "L/2 * * * *"},
        {"cron": "0 9 * * *", "tz": "Mars/Olympus"},
        {"every": "30s"},
        {"every": "soon"},
        {"at": "2020-01-01T00:00"},
        {"at": "tomorrow"},
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(given_: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        schedule_of(NOW, "UTC", **given_)


@given(st.text("0123456789*/,-LW# @?", max_size=30))
def test_any_expression_is_taken_or_refused_and_never_worse(text: str) -> None:
    try:
        made = schedule_of(NOW, "UTC", cron=text or "x")
    except InvalidInput:
        return
    comes = made.next(NOW)
    assert comes is not None
    assert comes > NOW
