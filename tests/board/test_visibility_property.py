"""Whatever the board looks like, and however it was sorted, every way of reading it shows the same, and to
nobody what is hidden or not theirs."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from board_world import OPTIONS, PEOPLE, SESSIONS, World, asks, build, people, plans
from builders import examples
from holdfast.board import log_view, resolve, routing, stats, tasks, topics
from holdfast.board.timeline import timeline
from holdfast.board.working_set import working_set
from holdfast.errors import NotFound
from holdfast.log import Cursor, EntryFilter, EntryType, Store, Tx, sqlite_url


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that even these boards are merged in several steps."""
    monkeypatch.setattr(log_view, "GROUP", 2)


@given(plan=plans, questions=st.lists(st.tuples(asks, people), min_size=1, max_size=4))
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_reading_agrees_with_the_model_on_sqlite(
    sqlite_template: Path, plan: dict[str, Any], questions: list[Any]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(sqlite_url(shutil.copy(sqlite_template, Path(folder) / "x.db")))
        world = World()
        build(store, world, plan, "topic")
        agree(store, world, questions)
        store.close()


def test_every_reading_agrees_with_the_model_on_both_engines(store: Store) -> None:
    """The examples share one database, so that the board grows from one to the next."""
    world = World()
    count = 0

    @given(plan=plans, questions=st.lists(st.tuples(asks, people), min_size=1, max_size=3))
    @settings(max_examples=8)
    def grow(plan: dict[str, Any], questions: list[Any]) -> None:
        nonlocal count
        count += 1
        build(store, world, plan, f"board {count}")
        agree(store, world, questions)

    grow()


def agree(store: Store, world: World, questions: list[Any]) -> None:
    for (source, wanted, own), who in questions:
        with store.read(PEOPLE[who][0]) as tx:
            ask = {"space_id": source, "allowed_ids": wanted, "principal_spaces": own}
            if own is not None and source is not None and source not in own:
                with pytest.raises(NotFound, match="no space"):
                    resolve(tx, **ask)
                continue
            view = resolve(tx, **ask)
            assert view.spaces == world.allowed(source, wanted, own)
            _agrees(tx, world, view, who)


def _agrees(tx: Tx, world: World, view: Any, who: str) -> None:
    shown = {kind: world.seen(kind, view.spaces, who) for kind in ("topic", "task", "entry")}
    assert {topic.id for topic in topics.listing(tx, view, limit=500).topics} == shown["topic"]
    assert {task.id for task in tasks.listing(tx, view, limit=500).tasks} == shown["task"]
    assert _paged(tx, view, None) == _newest_first(tx, shown["entry"])
    assert _paged(tx, view, EntryFilter(types=frozenset(EntryType))) == _newest_first(tx, shown["entry"])
    for read, kind, ids in (
        (topics.get, "topic", world.topics),
        (tasks.get, "task", world.tasks),
        (log_view.get, "entry", world.entries),
    ):
        assert {id_ for id_ in ids if _is_shown(tx, read, id_, view)} == shown[kind]
    _threads_agree(tx, world, view, shown["entry"], who)
    for session in SESSIONS:
        about = [one.topic_id for one in routing.recall(tx, session, OPTIONS, view)]
        assert about == world.about(who, session, view.spaces)
    working = working_set(tx, view, 100, tx.now)
    assert {one.id for one in working.topics} <= shown["topic"]
    assert {one.id for one in working.tasks} <= shown["task"]
    assert stats.figures(tx)["pending"] == len(world.seen("entry", None, who))


def _threads_agree(tx: Tx, world: World, view: Any, shown: set[str], who: str) -> None:
    """Of a topic and of a session everyone gets the last lines that are theirs; in a session, with what waits
    there to be sorted."""
    for number, column in ((0, "session_key"), (1, "topic_id")):
        for value in sorted({key for _, key, _ in world.said} if number == 0 else world.topics)[:3]:
            of = {id_ for _, key, id_ in world.said if id_ in shown and _in(world, id_, key, column, value)}
            said = timeline(tx, view, (column, value), limit=3)
            spoken = of if number else of | world.waiting_in(who, value, view.spaces)
            newest = _newest_first(tx, spoken)[:3]
            assert [one.entry.id for one in said] == newest[::-1]
            assert _paged(tx, view, EntryFilter(**{column: value})) == _newest_first(tx, of)


def _in(world: World, id_: str, key: str, column: str, value: str) -> bool:
    return (key if column == "session_key" else world.entries[id_][1]) == value


def _paged(tx: Tx, view: Any, where: EntryFilter | None) -> list[str]:
    found: list[str] = []
    cursor: Cursor | None = None
    while True:
        page = log_view.listing(tx, view, where, limit=3, cursor=cursor)
        assert len(page.entries) <= 3
        found += [entry.id for entry in page.entries]
        cursor = page.next
        if cursor is None:
            return found


def _newest_first(tx: Tx, ids: set[str]) -> list[str]:
    from holdfast.log import entries

    rows = entries.get_many(tx, sorted(ids))
    return [row.id for row in sorted(rows, key=lambda row: (-row.created_at, -row.position))]


def _is_shown(tx: Tx, read: Any, id_: str, view: Any) -> bool:
    try:
        return bool(read(tx, id_, view))
    except NotFound:
        return False
