from __future__ import annotations

from typing import Any

import pytest

from builders import rows
from holdfast.board import (
    EVERYTHING,
    CreatedBy,
    Keyset,
    Priority,
    Topic,
    TopicStatus,
    View,
    spaces,
    tasks,
    topics,
)
from holdfast.clock import ManualClock
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.log import OWNER, Store, changes
from plans import assert_no_scan, plan_of


def make(store: Store, name: str = "Deploy", **values: Any) -> Topic:
    with store.write(OWNER) as tx:
        return topics.upsert(tx, name, **values).topic


def change(store: Store, topic: Topic, **values: Any) -> Topic:
    with store.write(OWNER) as tx:
        return topics.update(tx, topic.id, values)


def names(store: Store, view: View | None = None, **options: Any) -> list[str]:
    with store.read(OWNER) as tx:
        return [topic.name for topic in topics.listing(tx, view or View(), **options).topics]


def test_a_new_topic_has_the_defaults_and_reads_back_as_made(store: Store) -> None:
    made = make(store, "  Deploy   plan ", due_at=5, tags=["Ops"], pinned=True, priority=Priority.HIGH)
    assert made.id.startswith("topic-")
    assert (made.name, made.space_id, made.status) == ("Deploy plan", "space-ops", TopicStatus.ACTIVE)
    assert (made.created_by, made.pinned, made.due_at) == (CreatedBy.USER, True, 5)
    with store.read(OWNER) as tx:
        assert topics.get(tx, made.id, EVERYTHING) == made


def test_distinct_names_are_distinct_topics_however_alike(store: Store) -> None:
    made = {make(store, f"Topic number {n}").id for n in range(120)}
    assert len(made) == 120
    assert rows(store, "SELECT count(*) FROM topics") == [(120,)]


def test_the_same_name_in_the_same_space_is_the_same_topic(store: Store) -> None:
    first = make(store, "Deploy Plan")
    with store.write(OWNER) as tx:
        again = topics.upsert(tx, " deploy  PLAN", description="new")
    assert not again.created
    assert (again.topic.id, again.topic.name, again.topic.description) == (first.id, "Deploy Plan", "new")
    assert make(store, "Deploy Plan", tags=["space:Beta"]).id != first.id


def test_merging_never_takes_tags_away(store: Store) -> None:
    first = make(store, tags=["space:Beta", "ops"])
    for sent in ([], None, ["OPS", "new"]):
        with store.write(OWNER) as tx:
            topics.upsert(tx, "deploy", space_id="space-beta", tags=sent)
    with store.read(OWNER) as tx:
        assert topics.get(tx, first.id, EVERYTHING).tags == ("space:Beta", "ops", "new")


def test_an_upsert_by_id_changes_that_topic(store: Store) -> None:
    made = make(store, id_="topic-1")
    with store.write(OWNER) as tx:
        done = topics.upsert(tx, "Renamed", id_="topic-1")
    assert (done.created, done.topic.id, done.topic.name) == (False, made.id, "Renamed")


def test_new_tags_without_a_space_move_a_topic_and_make_the_space(store: Store) -> None:
    made = make(store)
    assert made.space_id == "space-default"
    moved = change(store, made, tags=["system:x", "Beta", "space:Gamma"])
    assert (moved.space_id, moved.space_ids) == ("space-beta", {"space-beta", "space-gamma"})
    with store.read(OWNER) as tx:
        assert spaces.known(tx, ["space-beta", "space-gamma"]) == {"space-beta", "space-gamma"}
    kept = change(store, moved, tags=[], space_id="space-gamma")
    assert kept.space_ids == {"space-gamma"}
    assert rows(store, "SELECT space_id FROM topic_spaces") == [("space-gamma",)]


def test_a_space_given_by_id_must_be_there(store: Store) -> None:
    with store.write(OWNER) as tx, pytest.raises(NotFound, match="space-nowhere"):
        topics.upsert(tx, "x", space_id="space-nowhere")
    made = make(store)
    with store.write(OWNER) as tx, pytest.raises(NotFound, match="space-nowhere"):
        topics.update(tx, made.id, {"space_id": "space-nowhere"})
    assert names(store) == ["Deploy"]


def test_a_name_that_is_taken_there_is_refused(store: Store) -> None:
    make(store, "One")
    two = make(store, "Two")
    with pytest.raises(Conflict, match="has a topic 'one' already"):
        change(store, two, name="one")
    make(store, "One", tags=["Beta"])
    with pytest.raises(Conflict):
        change(store, make(store, "One"), tags=["Beta"])


def test_a_digest_alone_moves_nothing(store: Store, clock: ManualClock) -> None:
    made = make(store)
    clock.advance(hours=1)
    with store.write(OWNER) as tx:
        told = topics.set_digest(tx, made.id, "short")
    assert (told.digest, told.digest_updated_at, told.updated_at) == ("short", clock.now(), made.updated_at)
    assert change(store, made, digest="other", description="d").updated_at == clock.now()


def test_what_does_not_change_is_not_told(store: Store, clock: ManualClock) -> None:
    made = make(store)
    clock.advance(hours=1)
    assert change(store, made, name="Deploy").updated_at == made.updated_at
    with store.read(OWNER) as tx:
        told = [c.type for c in changes.since(tx, 0)]
    assert told == ["space.upserted", "topic.upserted"]


def test_a_snooze_ends_by_itself(store: Store, clock: ManualClock) -> None:
    made = make(store)
    asleep = change(store, made, snoozed_until=clock.now() + 1000)
    assert asleep.status is TopicStatus.SNOOZED
    assert names(store, status=TopicStatus.SNOOZED) == ["Deploy"]
    assert names(store, status=TopicStatus.ACTIVE) == []
    clock.advance(ms=1000)
    with store.read(OWNER) as tx:
        awake = topics.get(tx, made.id, EVERYTHING)
    assert (awake.status, awake.snoozed_until) == (TopicStatus.ACTIVE, None)
    assert names(store, status=TopicStatus.ACTIVE) == ["Deploy"]
    assert names(store, status=TopicStatus.SNOOZED) == []


def test_another_status_ends_a_snooze(store: Store, clock: ManualClock) -> None:
    made = make(store, snoozed_until=clock.now() + 1000)
    assert made.status is TopicStatus.SNOOZED
    assert change(store, made, status="doing").snoozed_until is None
    again = change(store, made, status="snoozed")
    clock.advance(hours=1000)
    with store.read(OWNER) as tx:
        assert topics.get(tx, again.id, EVERYTHING).status is TopicStatus.SNOOZED
    assert change(store, again, snoozed_until=None).status is TopicStatus.ACTIVE


def test_a_new_topic_comes_first_and_pages_meet(store: Store) -> None:
    for n in range(7):
        make(store, f"t{n}")
    assert names(store) == [f"t{n}" for n in (6, 5, 4, 3, 2, 1, 0)]
    seen: list[str] = []
    cursor: Keyset | None = None
    with store.read(OWNER) as tx:
        for _ in range(4):
            page = topics.listing(tx, EVERYTHING, limit=2, cursor=cursor)
            seen += [topic.name for topic in page.topics]
            cursor = page.next and Keyset.parse(str(page.next))
    assert cursor is None
    assert seen == names(store)
    assert names(store, offset=5) == ["t1", "t0"]


def test_reordering_permutes_only_what_is_named(store: Store) -> None:
    ids = {name: make(store, name).id for name in ("d", "c", "b", "a")}
    with store.write(OWNER) as tx:
        topics.reorder(tx, [ids["d"], ids["b"]], EVERYTHING)
    assert names(store) == ["a", "d", "c", "b"]
    with store.write(OWNER) as tx, pytest.raises(NotFound, match="nowhere"):
        topics.reorder(tx, [ids["a"], "nowhere"], EVERYTHING)
    with store.write(OWNER) as tx, pytest.raises(InvalidInput):
        topics.reorder(tx, [ids["a"], ids["a"]], EVERYTHING)


def test_a_deleted_topic_takes_its_tasks_along_and_says_where_it_was(store: Store) -> None:
    made = make(store, tags=["Beta"])
    with store.write(OWNER) as tx:
        task = tasks.upsert(tx, "do", topic_id=made.id).task
        topics.delete(tx, made.id)
    with store.read(OWNER) as tx:
        for look in (lambda: topics.get(tx, made.id, EVERYTHING), lambda: tasks.get(tx, task.id, EVERYTHING)):
            with pytest.raises(NotFound):
                look()
        told = {c.type: c.payload for c in changes.since(tx, 0) if c.type.endswith("deleted")}
    readers = {"audience": "owner", "agentId": None}
    place = {"spaceId": "space-beta", "spaceIds": ["space-beta"]}
    assert told["topic.deleted"] == {"id": made.id, **place, **readers}
    assert (told["task.deleted"] or {})["topicId"] == made.id


@pytest.mark.parametrize(
    "values",
    [
        {"name": " "},
        {"name": "x" * 201},
        {"status": "sleeping"},
        {"priority": "urgent"},
        {"color": "#12"},
        {"due_at": -1},
        {"description": "x" * 20_001},
        {"space_id": None},
    ],
)
def test_what_cannot_be_used_is_refused(store: Store, values: dict[str, Any]) -> None:
    made = make(store)
    with pytest.raises(InvalidInput):
        change(store, made, **values)


def test_listings_are_read_from_their_indexes(store: Store) -> None:
    plan = plan_of(store, lambda tx: topics.listing(tx, View(frozenset(("space-a",)))))
    assert "topics_order" in plan
    assert_no_scan(plan, "topics")
    assert_no_scan(plan, "topic_spaces")
    assert "TEMP B-TREE" not in plan
    named = plan_of(store, lambda tx: topics.find(tx, "x", space_id="space-a"))
    assert "topics_name" in named
