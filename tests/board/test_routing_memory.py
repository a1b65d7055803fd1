"""Routing memory: few topics, each once, newest last, forgotten in time, unseen where they must be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.board import routing, topics
from holdfast.board.routing import Routed
from holdfast.board.visibility import View
from holdfast.clock import ManualClock
from holdfast.config.board import RoutingMemory
from holdfast.log import FOR_OWNER, OWNER, Store

KEY = "agent:main:main"
OPTIONS = RoutingMemory()


def topic(store: Store, name: str, **values: object) -> str:
    with store.write(OWNER) as tx:
        return topics.upsert(tx, name, **values).topic.id


def remember(store: Store, topic_id: str, anchor: str = "") -> None:
    with store.write(OWNER) as tx:
        routing.remember(tx, KEY, Routed(tx.now, topic_id, topic_id, anchor), OPTIONS, FOR_OWNER)


def recall(store: Store, view: View | None = None) -> list[str]:
    with store.read(OWNER) as tx:
        return [one.topic_id for one in routing.recall(tx, KEY, OPTIONS, view or View())]


def test_the_newest_comes_last_and_each_topic_once(store: Store) -> None:
    a, b = topic(store, "A"), topic(store, "B")
    for one in (a, b, a):
        remember(store, one)
    assert recall(store) == [b, a]


def test_at_most_so_many_are_kept(store: Store) -> None:
    made = [topic(store, f"T{n}") for n in range(15)]
    for one in made:
        remember(store, one)
    assert recall(store) == made[-12:]


def test_what_is_old_is_forgotten_and_swept(store: Store, clock: ManualClock) -> None:
    old = topic(store, "Old")
    remember(store, old)
    clock.advance(hours=24 * 60)
    new = topic(store, "New")
    remember(store, new)
    clock.advance(hours=24 * 31)
    assert recall(store) == [new]
    with store.write(OWNER) as tx:
        assert routing.sweep(tx, OPTIONS) == 0
    clock.advance(hours=24 * 90)
    with store.write(OWNER) as tx:
        assert routing.sweep(tx, OPTIONS) == 1
    assert recall(store) == []


def test_topics_out_of_sight_or_deleted_are_left_out(store: Store) -> None:
    seen = topic(store, "Seen", tags=["space:alpha"])
    hidden = topic(store, "Hidden", tags=["space:beta"])
    gone = topic(store, "Gone")
    for one in (seen, hidden, gone):
        remember(store, one)
    with store.write(OWNER) as tx:
        topics.delete(tx, gone)
    assert recall(store) == [seen, hidden]
    assert recall(store, View(frozenset(("space-alpha",)))) == [seen]


def test_a_long_anchor_is_clipped(store: Store) -> None:
    remember(store, topic(store, "A"), "x" * 5000)
    with store.read(OWNER) as tx:
        assert len(routing.recall(tx, KEY, OPTIONS, View())[0].anchor) == OPTIONS.anchor_max_chars


@given(st.lists(st.tuples(st.sampled_from("abcdefghijklmnop"), st.integers(0, 200)), max_size=40))
def test_memory_never_grows_beyond_its_bounds(steps: list[tuple[str, int]]) -> None:
    """The pure part: what is kept of any history."""
    now, items = 0, []
    for name, days in steps:
        now += days * routing.DAY_MS
        kept = routing._kept(items, now, OPTIONS)
        items = [one for one in kept if one["topicId"] != name] + [Routed(now, name, name).plain()]
    kept = routing._kept(items, now, OPTIONS)
    assert len(kept) <= OPTIONS.max_items
    assert all(one["ts"] >= now - OPTIONS.ttl_days * routing.DAY_MS for one in kept)
    assert not steps or kept[-1]["topicId"] == steps[-1][0]
