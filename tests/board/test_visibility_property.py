"""Whatever the board looks like, every way of reading it shows the same, and never what is hidden."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from board_world import World, asks, build, plans
from holdfast.board import log_view, resolve, tasks, topics
from holdfast.errors import NotFound
from holdfast.log import OWNER, Cursor, EntryFilter, EntryType, Store, Tx, sqlite_url


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that even these boards are merged in several steps."""
    monkeypatch.setattr(log_view, "GROUP", 2)


@given(plan=plans, questions=st.lists(asks, min_size=1, max_size=4))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
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

    @given(plan=plans, questions=st.lists(asks, min_size=1, max_size=3))
    @settings(max_examples=8)
    def grow(plan: dict[str, Any], questions: list[Any]) -> None:
        nonlocal count
        count += 1
        build(store, world, plan, f"board {count}")
        agree(store, world, questions)

    grow()


def agree(store: Store, world: World, questions: list[Any]) -> None:
    with store.read(OWNER) as tx:
        for source, wanted, own in questions:
            ask = {"space_id": source, "allowed_ids": wanted, "principal_spaces": own}
            if own is not None and source is not None and source not in own:
                with pytest.raises(NotFound, match="no space"):
                    resolve(tx, **ask)
                continue
            view = resolve(tx, **ask)
            assert view.spaces == world.allowed(source, wanted, own)
            _agrees(tx, world, view)


def _agrees(tx: Tx, world: World, view: Any) -> None:
    shown = {kind: world.seen(kind, view.spaces) for kind in ("topic", "task", "entry")}
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
    limits = view.index_filter(tx)
    if limits.space_ids is not None:
        assert (limits.topic_ids, limits.task_ids) == (shown["topic"], shown["task"])


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
