from __future__ import annotations

from typing import Any

import pytest

from builders import rows
from holdfast.board import EVERYTHING, Keyset, Task, TaskStatus, View, spaces, tasks, topics
from holdfast.board import tasks as task_room
from holdfast.clock import ManualClock
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.log import OWNER, Store, changes
from plans import assert_no_scan, plan_of


def topic(store: Store, name: str = "Deploy", **values: Any) -> str:
    with store.write(OWNER) as tx:
        return topics.upsert(tx, name, **values).topic.id


def make(store: Store, topic_id: str, title: str = "do it", **values: Any) -> Task:
    with store.write(OWNER) as tx:
        return tasks.upsert(tx, title, topic_id=topic_id, **values).task


def titles(store: Store, view: View | None = None, **options: Any) -> list[str]:
    with store.read(OWNER) as tx:
        return [task.title for task in tasks.listing(tx, view or View(), **options).tasks]


def test_a_task_lies_in_its_own_space_and_in_all_of_its_topic(store: Store) -> None:
    place = topic(store, tags=["Beta", "Ops"])
    made = make(store, place)
    assert (made.space_id, made.status) == ("space-beta", TaskStatus.TODO)
    assert made.space_ids == {"space-beta", "space-ops"}
    with store.write(OWNER) as tx:
        spaces.upsert(tx, "Own")
    own = make(store, place, space_id="space-own", tags=["Gamma"])
    assert own.space_ids == {"space-own", "space-beta", "space-ops"}
    with store.read(OWNER) as tx:
        assert tasks.get(tx, own.id, EVERYTHING) == own
        assert not spaces.known(tx, ["space-gamma"])


def test_tasks_follow_their_topic_from_space_to_space(store: Store) -> None:
    place = topic(store, tags=["Beta"])
    follows = make(store, place, "follows")
    with store.write(OWNER) as tx:
        spaces.upsert(tx, "Own")
    stays = make(store, place, "stays", space_id="space-own")
    with store.write(OWNER) as tx:
        topics.update(tx, place, {"tags": ["Gamma", "Delta"]})
    with store.read(OWNER) as tx:
        assert tasks.get(tx, follows.id, EVERYTHING).space_id == "space-gamma"
        assert tasks.get(tx, follows.id, EVERYTHING).space_ids == {"space-gamma", "space-delta"}
        assert tasks.get(tx, stays.id, EVERYTHING).space_ids == {"space-own", "space-gamma", "space-delta"}


def test_a_task_in_another_topic_takes_on_its_space(store: Store) -> None:
    made = make(store, topic(store, tags=["Beta"]))
    other = topic(store, "Other", tags=["Gamma"])
    with store.write(OWNER) as tx:
        moved = tasks.update(tx, made.id, {"topic_id": other})
    assert (moved.topic_id, moved.space_id, moved.space_ids) == (other, "space-gamma", {"space-gamma"})


def test_a_digest_alone_moves_nothing(store: Store, clock: ManualClock) -> None:
    place = topic(store)
    first, second = make(store, place, "first"), make(store, place, "second")
    clock.advance(hours=1)
    with store.write(OWNER) as tx:
        told = tasks.set_digest(tx, first.id, "short")
    assert told.updated_at == first.updated_at
    assert titles(store) == ["second", "first"]
    with store.write(OWNER) as tx:
        tasks.update(tx, first.id, {"status": "doing"})
    assert titles(store) == ["first", "second"]
    assert second.updated_at < clock.now()


def test_an_upsert_by_id_changes_that_task(store: Store) -> None:
    made = make(store, topic(store), id_="task-1")
    with store.write(OWNER) as tx:
        done = tasks.upsert(tx, "renamed", id_="task-1", status="done")
    assert (done.created, done.task.id, done.task.title) == (False, made.id, "renamed")
    assert done.task.status is TaskStatus.DONE


def test_a_task_needs_a_topic_that_is_there(store: Store) -> None:
    with store.write(OWNER) as tx, pytest.raises(InvalidInput, match="topicId"):
        tasks.upsert(tx, "x")
    with store.write(OWNER) as tx, pytest.raises(NotFound, match="no topic"):
        tasks.upsert(tx, "x", topic_id="topic-nowhere")
    with store.write(OWNER) as tx, pytest.raises(NotFound, match="no space"):
        tasks.upsert(tx, "x", topic_id=_topic(tx), space_id="space-nowhere")


def _topic(tx: Any) -> str:
    return topics.upsert(tx, "t").topic.id


def test_filters_and_pages(store: Store, clock: ManualClock) -> None:
    one, two = topic(store, "one"), topic(store, "two")
    for n in range(5):
        clock.advance(ms=1)
        make(store, one if n % 2 else two, f"t{n}", status="doing" if n < 2 else "todo")
    assert titles(store, topic_id=one) == ["t3", "t1"]
    assert titles(store, status=TaskStatus.DOING) == ["t1", "t0"]
    with store.read(OWNER) as tx:
        page = tasks.listing(tx, EVERYTHING, limit=3)
        rest = tasks.listing(tx, EVERYTHING, limit=3, cursor=Keyset.parse(str(page.next)))
    assert [t.title for t in page.tasks + rest.tasks] == ["t4", "t3", "t2", "t1", "t0"]
    assert rest.next is None


def test_a_topic_has_an_end_to_its_tasks(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_room, "MAX_PER_TOPIC", 2)
    place = topic(sqlite_store)
    for n in range(2):
        make(sqlite_store, place, f"t{n}")
    with pytest.raises(Conflict, match="2 tasks already"):
        make(sqlite_store, place)


def test_each_change_of_a_task_is_told(store: Store) -> None:
    made = make(store, topic(store, tags=["Beta"]))
    with store.write(OWNER) as tx:
        tasks.update(tx, made.id, {"title": made.title})
        tasks.update(tx, made.id, {"title": "other"})
        tasks.delete(tx, made.id)
    with store.read(OWNER) as tx:
        told = [(c.type, c.payload) for c in changes.since(tx, 0) if c.type.startswith("task.")]
    assert [type_ for type_, _ in told] == ["task.upserted", "task.upserted", "task.deleted"]
    assert told[-1][1] is not None
    assert told[-1][1]["spaceIds"] == ["space-beta"]
    assert rows(store, "SELECT count(*) FROM task_spaces") == [(0,)]


def test_listings_are_read_from_their_indexes(store: Store) -> None:
    view = View(frozenset(("space-a",)))
    for index, options in (
        ("tasks_updated", {}),
        ("tasks_topic", {"topic_id": "t"}),
        ("tasks_moving", {"status": TaskStatus.DOING}),
    ):
        plan = plan_of(store, lambda tx, given=options: tasks.listing(tx, view, **given))
        assert index in plan, plan
        assert_no_scan(plan, "tasks")
        assert "TEMP B-TREE" not in plan
