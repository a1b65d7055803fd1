"""Time words: what people say about when, as ranges of time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.clock import Millis, iso, parse_iso
from holdfast.memory.timewords import asks_for_time, names_time, resolve

WEDNESDAY = parse_iso("2023-06-14T12:00:00Z")


def days(question: str, now: Millis = WEDNESDAY) -> list[tuple[str, str]]:
    return [(iso(found.start)[:10], iso(found.end)[:10]) for found in resolve(question, now)]


@pytest.mark.parametrize(
    ("question", "first", "end"),
    [
        ("What did we eat yesterday?", "2023-06-13", "2023-06-14"),
        ("the day before yesterday", "2023-06-12", "2023-06-13"),
        ("What happened last Tuesday?", "2023-06-13", "2023-06-14"),
        ("What happened last Wednesday?", "2023-06-07", "2023-06-08"),
        ("who calls next Friday", "2023-06-16", "2023-06-17"),
        ("what did I say on Friday", "2023-06-09", "2023-06-10"),
        ("two weeks ago", "2023-05-28", "2023-06-04"),
        ("a couple of days ago", "2023-06-12", "2023-06-13"),
        ("three months ago", "2023-03-01", "2023-04-01"),
        ("in May 2023", "2023-05-01", "2023-06-01"),
        ("in December 2022", "2022-12-01", "2023-01-01"),
        ("in July", "2022-07-01", "2022-08-01"),
        ("on 8 May, 2023", "2023-05-08", "2023-05-09"),
        ("on May 8th", "2023-05-08", "2023-05-09"),
        ("December 24, 2022", "2022-12-24", "2022-12-25"),
        ("29 February", "2020-02-29", "2020-03-01"),
        ("2023-05-08", "2023-05-08", "2023-05-09"),
        ("last week", "2023-06-05", "2023-06-12"),
        ("last weekend", "2023-06-10", "2023-06-12"),
        ("this month", "2023-06-01", "2023-07-01"),
        ("last year", "2022-01-01", "2023-01-01"),
        ("in the past 3 days", "2023-06-11", "2023-06-15"),
        ("in 2021", "2021-01-01", "2022-01-01"),
        ("Was war gestern?", "2023-06-13", "2023-06-14"),
        ("vor zwei Wochen", "2023-05-28", "2023-06-04"),
        ("letzten Montag", "2023-06-12", "2023-06-13"),
        ("letzte Woche", "2023-06-05", "2023-06-12"),
        ("im März 2022", "2022-03-01", "2022-04-01"),
        ("am 8. Mai 2023", "2023-05-08", "2023-05-09"),
        ("am 8.5.2023", "2023-05-08", "2023-05-09"),
        ("in den letzten drei Tagen", "2023-06-11", "2023-06-15"),
        ("nächsten Monat", "2023-07-01", "2023-08-01"),
    ],
)
def test_a_time_is_read(question: str, first: str, end: str) -> None:
    assert days(question) == [(first, end)]


@pytest.mark.parametrize(
    "question", ["May I ask you something?", "the second one", "99 bottles", "march on", "30. 99. 2023"]
)
def test_what_is_no_time_is_left_alone(question: str) -> None:
    assert days(question) == []


def test_several_times_come_in_the_order_of_the_words() -> None:
    assert days("yesterday or on 2023-05-08") == [
        ("2023-06-13", "2023-06-14"),
        ("2023-05-08", "2023-05-09"),
    ]


def test_the_day_is_that_of_the_given_zone() -> None:
    late = parse_iso("2023-06-14T23:30:00Z")
    east = timezone(timedelta(hours=2))
    assert resolve("today", late, east)[0].start == parse_iso("2023-06-15T00:00:00+02:00")


@pytest.mark.parametrize("question", ["When did they meet?", "What year was it?", "Seit wann?", "how long"])
def test_a_question_for_a_time_is_known(question: str) -> None:
    assert asks_for_time(question)


def test_other_questions_do_not_ask_for_a_time() -> None:
    assert not asks_for_time("What did she paint when she was sad?")


def test_a_text_that_names_a_time_is_known() -> None:
    assert names_time("We went hiking two weeks ago")
    assert names_time("Wir waren letzten Montag dort")
    assert not names_time("We like hiking")


MOMENTS = st.datetimes(datetime(1975, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC)).map(
    lambda moment: Millis(int(moment.timestamp() * 1000))
)


@given(st.text(), MOMENTS)
def test_any_text_gives_ranges_that_run_forward_and_do_not_share_words(text: str, now: Millis) -> None:
    for found in resolve(text, now):
        assert found.start < found.end


@given(MOMENTS, st.integers(1, 300))
def test_so_many_days_ago_is_the_day_that_many_days_back(now: Millis, count: int) -> None:
    (found,) = resolve(f"what happened {count} days ago?", now)
    then = now - count * 86_400_000
    assert found.start <= then < found.end
    assert found.end - found.start == 86_400_000


@given(MOMENTS, st.sampled_from(["monday", "tuesday", "wednesday", "friday", "sunday"]))
def test_the_last_weekday_lies_within_the_week_before_today(now: Millis, weekday: str) -> None:
    (found,) = resolve(f"last {weekday}", now)
    today = now - now % 86_400_000
    assert today - 7 * 86_400_000 <= found.start < today
    assert datetime.fromtimestamp(found.start / 1000, UTC).strftime("%A").lower() == weekday


@given(st.dates(datetime(1950, 1, 1).date(), datetime(2090, 1, 1).date()), MOMENTS)
def test_a_full_date_means_itself_whenever_it_is_asked(day: datetime, now: Millis) -> None:
    for written in (f"{day:%Y-%m-%d}", f"{day.day} {day:%B} {day:%Y}", f"{day.day}.{day.month}.{day:%Y}"):
        (found,) = resolve(f"what was on {written}?", now)
        assert iso(found.start)[:10] == f"{day:%Y-%m-%d}"
