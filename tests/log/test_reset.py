from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidInput
from holdfast.log.reset import (
    ResetPolicy,
    expiry,
    is_stale,
    policy_for,
    reset_command,
    with_trigger,
    zone,
)

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")
DAILY = ResetPolicy()
NEVER = ResetPolicy("none")


def at(text: str, tz: ZoneInfo = BERLIN, *, fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=tz, fold=fold).timestamp() * 1000)


def test_a_session_goes_stale_at_four_in_the_morning_local_time() -> None:
    last = at("2026-01-10T23:00")
    assert is_stale(last, at("2026-01-11T04:00") - 1, DAILY, BERLIN) is None
    assert is_stale(last, at("2026-01-11T04:00"), DAILY, BERLIN) == "daily"
    assert is_stale(last, at("2026-01-11T04:00"), DAILY, NEW_YORK) is None


def test_activity_at_the_very_hour_belongs_to_the_new_day() -> None:
    last = at("2026-01-11T04:00")
    assert is_stale(last, at("2026-01-12T03:59"), DAILY, BERLIN) is None
    assert is_stale(last, at("2026-01-12T04:00"), DAILY, BERLIN) == "daily"


def test_idle_minutes_are_counted_from_the_last_activity() -> None:
    policy = ResetPolicy("idle", idle_minutes=60)
    assert is_stale(0, 3_599_999, policy, BERLIN) is None
    assert is_stale(0, 3_600_000, policy, BERLIN) == "idle"


def test_of_a_daily_and_an_idle_limit_the_earlier_one_counts() -> None:
    both = ResetPolicy("daily", at_hour=4, idle_minutes=120)
    assert is_stale(at("2026-01-11T01:00"), at("2026-01-11T03:30"), both, BERLIN) == "idle"
    assert is_stale(at("2026-01-11T03:00"), at("2026-01-11T04:30"), both, BERLIN) == "daily"
    assert is_stale(at("2026-01-11T03:00"), at("2026-01-13T00:00"), both, BERLIN) == "daily"


def test_no_policy_means_never() -> None:
    assert is_stale(0, 10**13, NEVER, BERLIN) is None
    assert is_stale(0, 10**13, ResetPolicy("none", idle_minutes=5), BERLIN) is None


def test_a_clock_that_went_back_makes_nothing_stale() -> None:
    assert is_stale(at("2026-01-11T12:00"), at("2026-01-10T12:00"), DAILY, BERLIN) is None


@pytest.mark.parametrize(
    ("tz", "spring", "autumn"),
    [(BERLIN, "2026-03-29", "2026-10-25"), (NEW_YORK, "2026-03-08", "2026-11-01")],
)
def test_days_of_23_and_25_hours_end_at_the_same_wall_clock_hour(
    tz: ZoneInfo, spring: str, autumn: str
) -> None:
    for day, hours in ((spring, 23), (autumn, 25)):
        eve = datetime.fromisoformat(day) - timedelta(days=1)
        last = at(f"{eve:%Y-%m-%d}T04:00", tz)
        end = expiry(last, DAILY, tz)
        assert end is not None
        assert end.at == at(f"{day}T04:00", tz)
        assert end.at - last == hours * 3_600_000


def test_an_hour_that_is_skipped_strikes_when_the_clocks_jump() -> None:
    end = expiry(at("2026-03-28T12:00"), ResetPolicy(at_hour=2), BERLIN)
    assert end is not None
    assert end.at == at("2026-03-29T03:00")


def test_an_hour_that_comes_twice_strikes_once() -> None:
    policy = ResetPolicy(at_hour=2)
    first = at("2026-10-25T02:00")
    second = at("2026-10-25T02:00", fold=1)
    assert is_stale(first - 1, first, policy, BERLIN) == "daily"
    assert is_stale(first, second, policy, BERLIN) is None
    assert is_stale(second, at("2026-10-26T02:00") - 1, policy, BERLIN) is None


zones = st.sampled_from([BERLIN, NEW_YORK, ZoneInfo("Pacific/Apia"), ZoneInfo("Asia/Kathmandu")])
moments = st.integers(at("2005-01-01T00:00"), at("2035-01-01T00:00"))
policies = st.one_of(
    st.builds(
        ResetPolicy,
        st.just("daily"),
        st.integers(0, 23),
        st.none() | st.integers(1, 20_000),
    ),
    st.builds(ResetPolicy, st.just("idle"), idle_minutes=st.integers(1, 20_000)),
    st.just(NEVER),
)


@given(moments, st.integers(0, 4 * 86_400_000), st.integers(0, 10**10), policies, zones)
def test_what_is_stale_stays_stale_for_the_same_reason(
    last: int, wait: int, more: int, policy: ResetPolicy, tz: ZoneInfo
) -> None:
    reason = is_stale(last, last + wait, policy, tz)
    if reason is not None:
        assert is_stale(last, last + wait + more, policy, tz) == reason


@given(moments, st.integers(0, 3 * 86_400_000), policies, zones)
def test_later_activity_never_ends_a_session_sooner(
    last: int, later: int, policy: ResetPolicy, tz: ZoneInfo
) -> None:
    one, two = expiry(last, policy, tz), expiry(last + later, policy, tz)
    assert (one is None) == (two is None)
    if one is not None and two is not None:
        assert one.at <= two.at
        assert one.at > last


@given(moments, st.integers(4, 23), st.sampled_from([BERLIN, NEW_YORK]))
def test_a_daily_end_is_at_the_hour_and_within_25_hours(last: int, hour: int, tz: ZoneInfo) -> None:
    end = expiry(last, ResetPolicy("daily", hour), tz)
    assert end is not None
    local = datetime.fromtimestamp(end.at / 1000, tz)
    assert (local.hour, local.minute, local.second) == (hour, 0, 0)
    assert 0 < end.at - last <= 25 * 3_600_000


def test_the_channel_beats_the_type_and_the_type_beats_the_default() -> None:
    dm, group, discord = (ResetPolicy("idle", idle_minutes=n) for n in (240, 120, 10_080))

    def choose(chat_type: str | None, channel: str | None) -> ResetPolicy:
        by_type = {"dm": dm, "group": group}
        return policy_for(chat_type, channel, reset=DAILY, by_type=by_type, by_channel={"discord": discord})

    assert choose("direct", "discord") is discord
    assert choose("direct", "telegram") is dm
    assert choose("dm", None) is dm
    assert choose("group", None) is group
    assert choose("room", "slack") is group
    assert choose("thread", "slack") is DAILY
    assert choose(None, None) is DAILY


@pytest.mark.parametrize(
    "wrong",
    [{"at_hour": 24}, {"at_hour": -1}, {"mode": "idle"}, {"mode": "idle", "idle_minutes": 0}],
)
def test_a_policy_that_makes_no_sense_cannot_be_built(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput) as refused:
        ResetPolicy(**wrong)  # type: ignore[arg-type]
    assert refused.value.hint


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../etc/passwd", "a\x00b"])
def test_an_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        zone(name)


def test_a_known_zone_is_found() -> None:
    assert zone("Europe/Berlin") == BERLIN


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("/new", "new", ""),
        ("  /RESET \n", "reset", ""),
        ("/new what is\nthe time?", "new", "what is\nthe time?"),
        ("/reset\nhello", "reset", "hello"),
    ],
)
def test_a_manual_reset_keeps_what_stands_behind_it(text: str, name: str, message: str) -> None:
    command = reset_command(text)
    assert command is not None
    assert (command.name, command.message) == (name, message)
    assert reset_command(text) is not None


@pytest.mark.parametrize("text", ["", "new", "/newer", "say /new", "/resetall", "//new", "/ new"])
def test_other_words_are_no_reset(text: str) -> None:
    assert reset_command(text) is None


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("start over", "/reset"),
        ("  Start Over with the list", "/reset with the list"),
        ("start overs", "start overs"),
        ("please start over", "please start over"),
        ("/new list", "/new list"),
        ("/clear", "/clear"),
    ],
)
def test_a_configured_trigger_resets_only_as_the_first_words(text: str, becomes: str) -> None:
    assert with_trigger(text, ("/new", "start over", "")) == becomes
