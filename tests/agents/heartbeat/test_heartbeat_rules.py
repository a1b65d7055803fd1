"""What a checklist asks for, and what a reply means: both without any model."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents.heartbeat import checklist
from holdfast.agents.heartbeat.checklist import At, Every, Seen
from holdfast.agents.heartbeat.rules import Defer, Facts, Run, Skip, decide, digest, next_beat, understood
from holdfast.agents.heartbeat.state import State
from holdfast.config import Heartbeat
from holdfast.templates import template

HOUR = 3_600_000
BERLIN = ZoneInfo("Europe/Berlin")
ALL = frozenset(range(7))


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp()) * 1000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# Heartbeat\n\n## Later\n",
        "<!-- nothing\nyet -->\n- \n* [ ]\n---\n",
        template("HEARTBEAT.md").decode(),
    ],
)
def test_headings_comments_and_empty_bullets_ask_for_nothing(text: str) -> None:
    assert checklist.parse(text) == ()


@pytest.mark.parametrize(
    ("line", "schedule"),
    [
        ("- [ ] every 2h: check the build", Every(2 * HOUR)),
        ("* every 90 minutes — stretch", Every(90 * 60_000)),
        ("hourly: look", Every(HOUR)),
        ("- **every 1h 30m**: look", Every(90 * 60_000)),
        ("- daily at 09:00: plan", At(540, ALL)),
        ("- at 9:05 - plan", At(545, ALL)),
        ("- weekdays at 17:30: sum up", At(1050, frozenset(range(5)))),
        ("- every monday and friday at 08:00: report", At(480, frozenset((0, 4)))),
        ("- Look at the inbox", None),
        ("- every now and then: look", None),
        ("- every 2h:", None),
        ("- 10:30 is when the train leaves", None),
        ("- every 0m: look", None),
    ],
)
def test_a_line_says_when_it_is_due_or_is_always_due(line: str, schedule: object) -> None:
    (item,) = checklist.parse(line)
    assert item.schedule == schedule


def test_lines_belong_together_as_a_reader_takes_them() -> None:
    items = checklist.parse("Look after these:\n- one\n  and its rest\n- [x] two\n\nAlways do this: now\n")
    assert [(item.text, item.done) for item in items] == [
        *(("one and its rest", False), ("two", True), ("Always do this: now", False)),
    ]
    now = checklist.due(items, {}, 0, BERLIN)
    assert [item.text for item in now] == ["one and its rest", "Always do this: now"]


@given(st.text(max_size=400))
def test_any_text_can_be_read_and_takes_no_plain_line_away(text: str) -> None:
    checklist.parse(text)
    first = checklist.parse(f"look here\n# x\n{text}")[0]
    assert (first.text.startswith("look here"), first.schedule, first.done) == (True, None, False)


def test_a_daily_item_is_due_once_from_its_time_on_even_where_the_clocks_change() -> None:
    (item,) = checklist.parse("- daily at 02:30: look")
    seen = {item.id: Seen(ms("2026-03-28T12:00"))}

    def is_due(at: str) -> bool:
        return bool(checklist.due((item,), seen, ms(at), BERLIN))

    assert not is_due("2026-03-29T01:59")
    assert is_due("2026-03-29T04:00")
    seen[item.id] = Seen(seen[item.id].at, ms("2026-03-29T04:00"))
    assert not is_due("2026-03-29T23:00")
    assert is_due("2026-03-30T02:30")


def test_an_item_whose_time_had_passed_before_it_was_written_waits_for_the_next() -> None:
    (item,) = checklist.parse("- daily at 09:00: look")
    seen = {item.id: Seen(ms("2026-06-01T12:00"))}
    assert not checklist.due((item,), seen, ms("2026-06-01T12:30"), BERLIN)
    assert checklist.due((item,), seen, ms("2026-06-02T09:00"), BERLIN)


@pytest.mark.parametrize(
    ("said", "report"),
    [
        ("HEARTBEAT_OK", ""),
        ("**HEARTBEAT_OK**", ""),
        ("_HEARTBEAT_OK_.", ""),
        ("HEARTBEAT_OK all is well", ""),
        ("Nothing new. NO_REPLY", ""),
        ("", ""),
        ("Disk full!", "Disk full!"),
        ("HEARTBEAT_OKAY then", "HEARTBEAT_OKAY then"),
        (
            "HEARTBEAT_OK\n\nThe build of the main branch is broken.",
            "The build of the main branch is broken.",
        ),
        ("**Alert:** the main branch does not build. NO_REPLY", "**Alert:** the main branch does not build."),
    ],
)
def test_only_an_acknowledgement_with_the_word_and_little_else_is_no_report(said: str, report: str) -> None:
    assert understood(said, 30).text == report


@given(st.text(max_size=80), st.integers(0, 60))
def test_a_reply_without_the_word_is_always_a_report(said: str, most: int) -> None:
    bare = said.replace("HEARTBEAT_OK", "").replace("NO_REPLY", "")
    if any(ch.isalnum() for ch in bare):
        assert understood(bare, most).text == bare.strip()
    assert understood(f"HEARTBEAT_OK {bare}", 10_000).is_ack


def test_the_same_report_is_the_same_whatever_its_dress() -> None:
    assert digest("**The build** is broken!") == digest("the build is broken")
    assert digest("91 % full") != digest("92 % full")


def facts(**changed: object) -> Facts:
    known = {
        "now": 1_000 * HOUR,
        "due_at": 1_000 * HOUR,
        "settings": Heartbeat(),
        "zone": BERLIN,
        "hours": None,
        "state": State(agent_id="main"),
        "items": checklist.parse("- look"),
    }
    return Facts(**known | changed)  # type: ignore[arg-type]


def test_a_busy_session_is_asked_again_soon_but_only_if_there_is_something_to_do() -> None:
    assert isinstance(decide(facts()), Run)
    assert isinstance(decide(facts(busy=True)), Defer)
    assert decide(facts(busy=True, items=())) == Skip(1_000 * HOUR + HOUR // 2, "empty")


def test_a_flood_and_a_spent_day_are_stopped() -> None:
    flood = State(agent_id="main", ran_at=tuple(range(1_000 * HOUR - 5, 1_000 * HOUR)))
    spent = State(agent_id="main", day="1970-02-11", day_tokens=500)
    capped = Heartbeat(max_tokens_per_day=500)
    assert getattr(decide(facts(state=flood)), "reason", None) == "flood"
    assert getattr(decide(facts(state=flood, forced=True)), "reason", None) == "flood"
    assert getattr(decide(facts(state=spent, settings=capped)), "reason", None) == "spend_cap"
    assert isinstance(decide(facts(state=spent, settings=capped, forced=True)), Run)
    assert isinstance(decide(facts(state=spent)), Run)


def test_a_prompt_of_ones_own_is_a_task_where_there_is_no_checklist_and_obeys_one_that_is_there() -> None:
    own = Heartbeat(prompt="Look at the garden.")
    assert isinstance(decide(facts(settings=own, items=None)), Run)
    assert isinstance(decide(facts(settings=own, items=())), Skip)
    assert isinstance(decide(facts(items=None)), Skip)


@given(st.integers(0, 10**13), st.integers(0, 10**9), st.integers(1, 10**9))
def test_the_rhythm_is_kept_and_what_was_missed_is_not_made_up_for(due: int, late: int, every: int) -> None:
    comes = next_beat(due, due + late, every)
    assert due + late < comes <= due + late + every
