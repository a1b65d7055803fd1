from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.board import (
    Priority,
    Task,
    TaskStatus,
    Topic,
    TopicStatus,
    View,
    rank,
    tasks,
    topics,
    working_set,
)
from holdfast.board.working_set import DUE_SOON_MS, is_live, pressure
from holdfast.clock import ManualClock, Millis
from holdfast.log import OWNER, Store
from plans import assert_no_scan, plan_of

NOW = 10_000_000_000


def topic(store: Store, name: str, **values: Any) -> Topic:
    with store.write(OWNER) as tx:
        return topics.upsert(tx, name, **values).topic


def task(store: Store, topic_id: str, title: str, **values: Any) -> Task:
    with store.write(OWNER) as tx:
        return tasks.upsert(tx, title, topic_id=topic_id, **values).task


def test_what_presses_comes_first_and_what_rests_not_at_all(store: Store, clock: ManualClock) -> None:
    now = clock.now()
    place = topic(store, "place")
    task(store, place.id, "idle")
    task(store, place.id, "high", priority=Priority.HIGH)
    task(store, place.id, "due", due_at=now + DUE_SOON_MS)
    task(store, place.id, "later", due_at=now + DUE_SOON_MS + 1)
    task(store, place.id, "overdue", due_at=now - 1)
    task(store, place.id, "moving", status=TaskStatus.DOING)
    task(store, place.id, "pinned", pinned=True)
    task(store, place.id, "done", pinned=True, status=TaskStatus.DONE)
    task(store, place.id, "snoozed", pinned=True, snoozed_until=now + 1)
    with store.read(OWNER) as tx:
        found = working_set(tx, View(), 10, now)
        few = working_set(tx, View(), 2, now)
    assert [one.title for one in found.tasks] == ["pinned", "moving", "overdue", "due", "high"]
    assert [one.title for one in few.tasks] == ["pinned", "moving"]
    assert [one.name for one in found.topics] == ["place"]


def test_archived_and_snoozed_topics_stay_out_until_they_wake(store: Store, clock: ManualClock) -> None:
    for status in ("archived", "snoozed", "done", "active", "blocked"):
        topic(store, status, status=status, pinned=True)
    topic(store, "nap", pinned=True, snoozed_until=clock.now() + 1000)
    with store.read(OWNER) as tx:
        assert {one.name for one in working_set(tx, View(), 10, clock.now()).topics} == {"active", "blocked"}
    clock.advance(ms=1000)
    with store.read(OWNER) as tx:
        names = [one.name for one in working_set(tx, View(), 10, clock.now()).topics]
    assert names[0] == "blocked"
    assert set(names) == {"active", "blocked", "nap"}


def test_only_what_the_view_shows_is_in_it(store: Store, clock: ManualClock) -> None:
    seen = topic(store, "seen", tags=["Ops", "Beta"], pinned=True)
    hidden = topic(store, "hidden", tags=["Secret"], pinned=True)
    for place in (seen, hidden):
        task(store, place.id, place.name, pinned=True)
    with store.read(OWNER) as tx:
        found = working_set(tx, View(frozenset(("space-beta",))), 10, clock.now())
        nothing = working_set(tx, View(frozenset()), 10, clock.now())
    assert ([t.name for t in found.topics], [t.title for t in found.tasks]) == (["seen"], ["seen"])
    assert (nothing.topics, nothing.tasks) == ([], [])


def test_candidates_are_read_from_small_indexes(store: Store) -> None:
    plan = plan_of(store, lambda tx: working_set(tx, View(frozenset(("space-a",))), 6, NOW))
    for index in ("topics_pinned", "topics_due", "tasks_pinned", "tasks_moving", "tasks_high", "tasks_due"):
        assert index in plan, plan
    assert "TEMP B-TREE" not in plan
    assert_no_scan(plan, "topics")
    assert_no_scan(plan, "tasks")


moments = st.none() | st.integers(NOW - 2 * DUE_SOON_MS, NOW + 2 * DUE_SOON_MS)
items = st.builds(
    Topic,
    id=st.uuids().map(str),
    space_id=st.just("s"),
    name=st.just("n"),
    priority=st.sampled_from(Priority),
    status=st.sampled_from(TopicStatus),
    snoozed_until=moments,
    due_at=moments,
    pinned=st.booleans(),
    created_at=st.just(Millis(0)),
    updated_at=st.integers(0, NOW).map(Millis),
)


@given(st.lists(items, max_size=20, unique_by=lambda item: item.id), st.integers(0, 12))
def test_ranking_is_bounded_ordered_and_does_not_depend_on_the_order_given(
    given_items: list[Topic], limit: int
) -> None:
    ranked = rank(given_items, limit, NOW)
    assert ranked == rank(given_items[::-1], limit, NOW)
    assert len(ranked) == min(limit, sum(is_live(item, NOW) for item in given_items))
    assert all(is_live(item, NOW) for item in ranked)
    weights = [pressure(item, NOW) for item in ranked]
    assert weights == sorted(weights, reverse=True)
    left_out = [pressure(i, NOW) for i in given_items if is_live(i, NOW) and i not in ranked]
    assert not left_out or not weights or max(left_out) <= weights[-1]


@pytest.mark.parametrize("status", list(TopicStatus))
def test_a_pin_always_presses_more(status: TopicStatus) -> None:
    base = {"space_id": "s", "name": "n", "created_at": Millis(0), "updated_at": Millis(0)}
    urgent = Topic(id="a", status=status, due_at=Millis(NOW - 1), priority=Priority.HIGH, **base)  # type: ignore[arg-type]
    pinned = Topic(id="b", pinned=True, **base)  # type: ignore[arg-type]
    assert pressure(pinned, NOW) > pressure(urgent, NOW)
