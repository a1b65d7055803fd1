from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from builders import append, rows
from holdfast.board import (
    View,
    allowed,
    log_view,
    parse_allowed,
    resolve,
    source_space,
    spaces,
    tasks,
    topics,
)
from holdfast.board import log_view as room
from holdfast.board.tables import session_routing
from holdfast.errors import InvalidInput, NotFound
from holdfast.log import OWNER, EntryFilter, Store, entries
from plans import assert_no_scan, plan_of


@pytest.fixture
def board(store: Store) -> dict[str, str]:
    """Alpha sees Beta, not the other way round; one topic in each and one that Beta's tag brings along."""
    with store.write(OWNER) as tx:
        for name in ("Alpha", "Beta", "Gamma"):
            spaces.upsert(tx, name, default_visible=False)
        spaces.connect(tx, "space-alpha", {"space-beta": True})
        made = {
            "alpha": topics.upsert(tx, "a", space_id="space-alpha").topic.id,
            "beta": topics.upsert(tx, "b", space_id="space-beta").topic.id,
            "both": topics.upsert(tx, "both", space_id="space-gamma", tags=["space:Beta"]).topic.id,
        }
        made["task"] = tasks.upsert(tx, "t", topic_id=made["beta"]).task.id
        return made


def source(store: Store, space_id: str | None = None, session_key: str | None = None) -> str | None:
    with store.read(OWNER) as tx:
        return source_space(tx, space_id, session_key)


def test_a_given_space_wins_over_all_that_a_session_tells(store: Store, board: dict[str, str]) -> None:
    append(store, session_key="s", space_id="space-beta")
    assert source(store, "space-alpha", "s") == "space-alpha"


def test_a_given_space_that_is_not_there_is_unknown(store: Store, board: dict[str, str]) -> None:
    with pytest.raises(NotFound, match="no space 'space-nowhere'") as told:
        source(store, "space-nowhere")
    assert told.value.code == "unknown_space"


def test_recent_entries_tell_by_the_boards_scope_first_and_then_by_their_own(
    store: Store, board: dict[str, str]
) -> None:
    key = f"clawboard:topic:{board['alpha']}"
    append(store, session_key=key, space_id="space-gamma")
    assert source(store, None, key) == "space-gamma"
    append(store, session_key=key, space_id="space-gamma", source={"boardScopeSpaceId": "space-beta"})
    assert source(store, None, key) == "space-beta"
    append(store, session_key=key, source={"boardScopeSpaceId": "space-nowhere"})
    append(store, session_key=key, source={"boardScopeSpaceId": 7})
    assert source(store, None, key) == "space-beta"


def test_a_board_key_tells_by_its_task_and_topic(store: Store, board: dict[str, str]) -> None:
    assert source(store, None, f"clawboard:topic:{board['alpha']}") == "space-alpha"
    assert source(store, None, f"agent:main:clawboard:topic:{board['beta']}") == "space-beta"
    with store.write(OWNER) as tx:
        tasks.update(tx, board["task"], {"space_id": "space-gamma"})
    assert source(store, None, f"clawboard:task:{board['beta']}:{board['task']}") == "space-gamma"
    assert source(store, None, f"clawboard:task:{board['alpha']}:{board['task']}") == "space-alpha"
    assert source(store, None, "clawboard:topic:topic-nowhere") is None


def test_routing_memory_tells_last_by_its_newest_topic_that_is_there(
    store: Store, board: dict[str, str]
) -> None:
    items = [{"topicId": board["alpha"]}, {"topicId": board["beta"]}, {"topicId": "gone"}, {}]
    with store.write(OWNER) as tx:
        tx.conn.execute(sa.insert(session_routing), {"session_key": "s", "items": items, "updated_at": 0})
    assert source(store, None, "s") == "space-beta"
    append(store, session_key="s", space_id="space-alpha")
    assert source(store, None, "s") == "space-alpha"


def test_nothing_known_is_unscoped_and_a_limited_caller_sees_only_its_own(
    store: Store, board: dict[str, str]
) -> None:
    assert source(store, None, "brand:new") is None
    with store.read(OWNER) as tx:
        assert resolve(tx, session_key="brand:new") == View(None)
        limited = resolve(tx, session_key="brand:new", principal_spaces=frozenset(("space-beta",)))
        assert limited.spaces == {"space-beta"}
        names = {topic.name for topic in topics.listing(tx, limited).topics}
    assert names == {"b", "both"}


def test_limits_only_ever_narrow(store: Store, board: dict[str, str]) -> None:
    def within(source: str | None, wanted: Any = None, own: Any = None) -> Any:
        with store.read(OWNER) as tx:
            return allowed(tx, source, wanted, own)

    a, b, g = "space-alpha", "space-beta", "space-gamma"
    assert within(a) == {a, b, "space-default"}
    assert within(b) == {b, "space-default"}
    assert within(a, frozenset((b, g))) == {b}
    assert within(None, frozenset((b, g))) == {b, g}
    assert within(None, frozenset((b, g)), frozenset((g, a))) == {g}
    assert within(a, None, frozenset((g,))) == frozenset()
    assert within(None) is None


def test_a_list_of_spaces_is_read_by_comma_and_bounded() -> None:
    assert parse_allowed(" a, b,,") == {"a", "b"}
    assert parse_allowed("") == frozenset()
    assert parse_allowed(None) is None
    with pytest.raises(InvalidInput, match="at most 500"):
        parse_allowed(",".join(f"s{n}" for n in range(501)))


def test_reading_makes_no_spaces(store: Store, board: dict[str, str]) -> None:
    before = rows(store, "SELECT id FROM spaces ORDER BY id")
    with store.read(OWNER) as tx:
        view = resolve(tx, allowed_ids=frozenset(("space-new",)))
        assert topics.listing(tx, view).topics == []
    assert rows(store, "SELECT id FROM spaces ORDER BY id") == before


def test_an_entry_is_seen_by_its_space_its_topic_or_its_task(store: Store, board: dict[str, str]) -> None:
    shown = [
        append(store, "own", space_id="space-beta"),
        append(store, "by topic", topic_id=board["beta"]),
        append(store, "by tag", topic_id=board["both"], space_id="space-alpha"),
        append(store, "by task", task_id=board["task"]),
    ]
    hidden = [
        append(store, "elsewhere", space_id="space-alpha"),
        append(store, "nowhere"),
        append(store, "unknown", topic_id="topic-unknown", task_id="task-unknown"),
        append(store, "deleted", space_id="space-beta"),
    ]
    with store.write(OWNER) as tx:
        entries.delete(tx, hidden[-1].id)
    view = View(frozenset(("space-beta",)))
    with store.read(OWNER) as tx:
        page = log_view.listing(tx, view)
        assert [e.content for e in page.entries] == [e.content for e in reversed(shown)]
        assert page.next is None
        for entry in hidden:
            with pytest.raises(NotFound):
                log_view.get(tx, entry.id, view)


def test_a_filter_under_a_view_stops_at_its_bound_and_says_where_to_go_on(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MAX_SCAN", 20)
    append(sqlite_store, "old", session_key="s", space_id="space-a")
    for n in range(50):
        append(sqlite_store, str(n), session_key="s", space_id="space-b")
    view = View(frozenset(("space-a",)))
    pages, cursor, found = 0, None, []
    with sqlite_store.read(OWNER) as tx:
        while True:
            page = log_view.listing(tx, view, EntryFilter(session_key="s"), limit=5, cursor=cursor)
            found += [entry.content for entry in page.entries]
            pages, cursor = pages + 1, page.next
            if cursor is None:
                break
    assert found == ["old"]
    assert 1 < pages < 6


def test_entries_of_one_moment_come_in_the_order_of_writing_whatever_their_topics(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "GROUP", 1)
    with store.write(OWNER) as tx:
        places = [topics.upsert(tx, f"t{n}", tags=["Beta"]).topic.id for n in range(4)]
    made = [append(store, topic_id=places[n], created_at=1).id for n in (2, 0, 3, 1, 0, 2)]
    found, cursor = [], None
    with store.read(OWNER) as tx:
        for _ in made:
            page = log_view.listing(tx, View(frozenset(("space-beta",))), limit=1, cursor=cursor)
            found += [entry.id for entry in page.entries]
            cursor = page.next
    assert found == made[::-1]


def test_the_log_is_read_from_indexes_whatever_its_size(store: Store, board: dict[str, str]) -> None:
    append(store, "x", topic_id=board["beta"], space_id="space-beta")
    view = View(frozenset(("space-alpha", "space-beta")))
    plan = plan_of(store, lambda tx: log_view.listing(tx, view))
    assert_no_scan(plan, "entries")
    for index in ("entries_space", "entries_topic", "entries_task"):
        assert index in plan, plan
    inferred = plan_of(store, lambda tx: resolve(tx, session_key=f"clawboard:topic:{board['beta']}"))
    assert "entries_session" in inferred
    assert_no_scan(inferred, "topics")


def test_the_work_for_a_page_does_not_grow_with_the_log(sqlite_store: Store) -> None:
    with sqlite_store.write(OWNER) as tx:
        place = topics.upsert(tx, "x", tags=["Beta"]).topic
    append(sqlite_store, "seen", topic_id=place.id)
    steps = []
    for _ in range(2):
        for n in range(1500):
            append(sqlite_store, str(n), space_id="space-other")
        steps.append(_steps(sqlite_store, View(frozenset(("space-beta",)))))
    assert steps[1] <= steps[0] * 1.1


def _steps(store: Store, view: View) -> int:
    """How many hundreds of virtual machine instructions SQLite ran for a page."""
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    with store.read(OWNER) as tx:
        driver: Any = tx.conn.connection.driver_connection
        driver.set_progress_handler(tick, 100)
        try:
            page = log_view.listing(tx, view)
        finally:
            driver.set_progress_handler(None, 0)
    assert [entry.content for entry in page.entries] == ["seen"]
    return max(count, 10)
