from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders import append, draft, in_threads
from holdfast.clock import ManualClock
from holdfast.errors import InvalidInput, NotFound
from holdfast.log import (
    OWNER,
    Classification,
    Cursor,
    EntryFilter,
    EntryType,
    Reader,
    Store,
    changes,
    entries,
    heard_by,
)
from holdfast.log.entry_model import Entry, Page


def listed(store: Store, where: EntryFilter | None = None, **options: Any) -> Page:
    with store.read(OWNER) as tx:
        return entries.listing(tx, where or EntryFilter(), **options)


def contents(page: Page) -> list[str]:
    return [entry.content for entry in page.entries]


def change_types(store: Store) -> list[str]:
    with store.read(OWNER) as tx:
        return [change.type for change in changes.since(tx, 0)]


def test_ids_are_minted_by_the_host_in_the_order_of_writing(store: Store) -> None:
    made = [append(store, str(n)) for n in range(20)]
    assert [e.id for e in made] == sorted(e.id for e in made)
    assert [e.position for e in made] == sorted(e.position for e in made)
    assert all(e.id.startswith("log-") for e in made)


def test_what_is_read_is_what_was_written(store: Store) -> None:
    made = append(
        store,
        "text",
        type=EntryType.NOTE,
        role="user",
        session_key="agent:main:main",
        agent_id="main",
        agent_label="Main",
        summary="short",
        raw='{"a": 1}',
        space_id="s",
        topic_id="t",
        task_id="k",
        related_id="log-1",
        status=Classification.CLASSIFIED,
        code="ok",
        source={"channel": "web", "depth": {"list": [1, 2.5, None, True]}},
        idempotency_key="i",
    )
    with store.read(OWNER) as tx:
        assert entries.get(tx, made.id) == made
        assert entries.by_key(tx, "i") == made


def test_an_unknown_entry_is_not_found(store: Store) -> None:
    with store.read(OWNER) as tx, pytest.raises(NotFound) as caught:
        entries.get(tx, "log-none")
    assert caught.value.code == "unknown_entry"


def test_a_repeat_gets_the_same_entry(store: Store) -> None:
    with store.write(OWNER) as tx:
        first = entries.append(tx, draft("one", idempotency_key="k"))
        again = entries.append(tx, draft("other words", idempotency_key="k"))
    assert (first.created, again.created) == (True, False)
    assert again.entry == first.entry
    assert contents(listed(store)) == ["one"]
    assert change_types(store) == ["log.appended"]


@pytest.mark.parametrize("key", ["a\0b", "half \ud83d pair", "emoji 🌊", " blank "])
def test_a_strange_idempotency_key_is_recognised_too(store: Store, key: str) -> None:
    first = append(store, "one", idempotency_key=key)
    assert append(store, "two", idempotency_key=key) == first


def test_entries_without_a_key_are_never_repeats(store: Store) -> None:
    assert append(store, "same").id != append(store, "same").id


def test_concurrent_repeats_make_one_row(store: Store) -> None:
    made = in_threads(8, lambda n: [append(store, f"{n}", idempotency_key=f"k{i}") for i in range(5)])
    assert all(each == made[0] for each in made)
    assert len(listed(store).entries) == 5
    assert change_types(store) == ["log.appended"] * 5


def test_a_batch_finds_repeats_in_itself_and_in_the_store(store: Store) -> None:
    old = append(store, "old", idempotency_key="a")
    batch = [
        draft("again", idempotency_key="a"),
        draft("first", idempotency_key="b"),
        draft("plain"),
        draft("second", idempotency_key="b"),
        draft("plain"),
    ]
    with store.write(OWNER) as tx:
        written = entries.append_many(tx, batch)
    assert [w.created for w in written] == [False, True, True, False, True]
    assert [w.entry.content for w in written] == ["old", "first", "plain", "first", "plain"]
    assert written[0].entry == old
    made = [w.entry.position for w in written if w.created]
    assert made == sorted(made)
    assert change_types(store) == ["log.appended"] * 4


def test_an_empty_batch_writes_nothing(store: Store) -> None:
    with store.write(OWNER) as tx:
        assert entries.append_many(tx, []) == []
    assert change_types(store) == []


def test_many_entries_are_fetched_in_log_order(store: Store) -> None:
    with store.write(OWNER) as tx:
        made = [w.entry for w in entries.append_many(tx, [draft(str(n)) for n in range(1203)])]
    with store.read(OWNER) as tx:
        assert entries.get_many(tx, [e.id for e in reversed(made)]) == made


def test_a_failure_leaves_nothing_of_its_transaction(store: Store) -> None:
    def fail_half_way() -> None:
        with store.write(OWNER) as tx:
            entries.append(tx, draft("lost"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert listed(store).entries == []
    assert change_types(store) == []


def test_a_sent_time_is_kept_and_ours_is_the_default(store: Store, clock: ManualClock) -> None:
    old = append(store, "history", created_at=1_000)
    new = append(store, "now")
    assert (old.created_at, old.updated_at) == (1_000, clock.now())
    assert new.created_at == clock.now()
    assert contents(listed(store)) == ["now", "history"]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("a\0b", "a\ufffdb"),
        ("half \ud83d pair", "half \ufffd pair"),
        ("🌊 émoji 漢字 \u202e\u0301", "🌊 émoji 漢字 \u202e\u0301"),
        ("", ""),
        ("line\r\nline\ttab\x1b[0m", "line\r\nline\ttab\x1b[0m"),
    ],
)
def test_every_text_survives(store: Store, sent: str, kept: str) -> None:
    made = append(store, sent, raw=sent, summary=sent, source={"text": sent, sent: 1}, topic_id=sent)
    with store.read(OWNER) as tx:
        read = entries.get(tx, made.id)
    assert read == made
    assert (read.content, read.raw, read.summary) == (kept, kept, kept)
    assert read.source == {"text": kept, kept: 1}


def test_a_large_text_survives(store: Store) -> None:
    text = "0123456789abcdef" * 65_536
    made = append(store, text)
    with store.read(OWNER) as tx:
        assert entries.get(tx, made.id).content == text


def test_raw_payloads_are_listed_only_when_asked_for(store: Store) -> None:
    append(store, "x", raw="payload")
    assert listed(store).entries[0].raw is None
    assert listed(store, raw=True).entries[0].raw == "payload"


TOPICS = ("t1", "t2", None)
SPACES = ("s1", "s2", "s3", None)
drafts = st.builds(
    draft,
    content=st.just("x"),
    created_at=st.sampled_from([-5, 0, 1, 1, 1, 2, 1_000]),
    topic_id=st.sampled_from(TOPICS),
    space_id=st.sampled_from(SPACES),
    session_key=st.sampled_from(["k1", "k2", None]),
    type=st.sampled_from(EntryType),
    status=st.sampled_from(Classification),
)
some_spaces = st.none() | st.frozensets(st.sampled_from(["s1", "s2", "s3", "none"]), min_size=0)
filters = st.builds(
    EntryFilter,
    topic_id=st.none() | st.sampled_from(["t1", "t2"]),
    session_key=st.none() | st.sampled_from(["k1", "k2"]),
    space_ids=some_spaces,
    types=st.none() | st.frozensets(st.sampled_from(EntryType)),
    status=st.none() | st.sampled_from(Classification),
)


def wanted(entry: Entry, where: EntryFilter) -> bool:
    return all(
        (
            where.topic_id in (None, entry.topic_id),
            where.session_key in (None, entry.session_key),
            where.space_ids is None or entry.space_id in where.space_ids,
            where.types is None or entry.type in where.types,
            where.status in (None, entry.status),
        )
    )


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(batch=st.lists(drafts, max_size=25), where=filters, limit=st.integers(1, 9), hidden=st.integers(0, 3))
def test_pages_put_together_are_the_whole_listing_in_order(
    store: Store, batch: list[Any], where: EntryFilter, limit: int, hidden: int
) -> None:
    with store.write(OWNER) as tx:
        tx.conn.execute(sa.text("DELETE FROM entries"))
        made = [w.entry for w in entries.append_many(tx, batch)]
        for entry in made[:hidden]:
            entries.delete(tx, entry.id)
    expected = sorted(
        (e for e in made[hidden:] if wanted(e, where)), key=lambda e: (e.created_at, e.position), reverse=True
    )
    by_cursor: list[str] = []
    cursor: Cursor | None = None
    while True:
        page = listed(store, where, limit=limit, cursor=cursor)
        assert len(page.entries) <= limit
        by_cursor += [e.id for e in page.entries]
        if page.next is None:
            break
        cursor = Cursor.parse(str(page.next))
    by_offset = [
        e.id
        for n in range(0, len(made) + 1, limit)
        for e in listed(store, where, limit=limit, offset=n).entries
    ]
    assert by_cursor == by_offset == [e.id for e in expected]


def test_a_page_is_bounded_and_an_odd_limit_or_offset_does_no_harm(store: Store) -> None:
    with store.write(OWNER) as tx:
        entries.append_many(tx, [draft(str(n)) for n in range(entries.MAX_PAGE + 5)])
    assert len(listed(store, limit=10**9).entries) == entries.MAX_PAGE
    assert len(listed(store, limit=-3).entries) == 1
    assert len(listed(store, limit=5, offset=-7).entries) == 5


@pytest.mark.parametrize(
    "text",
    ["", "-", "1-", "-1", "a-b", "1-2-3", "1--2", "٣-٣", "9" * 30 + "-1", f"{1 << 63}-1", f"1-{1 << 63}"],
)
def test_a_bad_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Cursor.parse(text)
    assert caught.value.code == "bad_cursor"


def test_every_cursor_that_parses_can_be_used(store: Store) -> None:
    for text in (f"{(1 << 63) - 1}-{(1 << 63) - 1}", f"-{(1 << 63) - 1}-0"):
        assert listed(store, cursor=Cursor.parse(text)).entries == []


def test_a_correction_keeps_what_it_replaces(store: Store, clock: ManualClock) -> None:
    made = append(store, "one")
    clock.advance(seconds=1)
    with store.write(OWNER) as tx:
        assert entries.correct(tx, made.id, "one").revision == 0
        entries.correct(tx, made.id, "two")
        last = entries.correct(tx, made.id, "three \0")
        assert entries.correct(tx, made.id, "three \0") == last
    assert (last.content, last.revision, last.updated_at) == ("three \ufffd", 2, clock.now())
    assert (last.created_at, last.position) == (made.created_at, made.position)
    with store.read(OWNER) as tx:
        assert entries.revisions(tx, made.id) == [(0, "one"), (1, "two")]
    assert change_types(store) == ["log.appended", "log.patched", "log.patched"]


def test_an_annotation_changes_what_an_entry_is_about(store: Store) -> None:
    made = append(store, "x")
    with store.write(OWNER) as tx:
        after = entries.annotate(tx, made.id, {"topic_id": "t", "status": Classification.CLASSIFIED})
        assert entries.annotate(tx, made.id, {"topic_id": "t"}) == after
        with pytest.raises(ValueError, match="content"):
            entries.annotate(tx, made.id, {"content": "no"})
    assert (after.topic_id, after.status, after.content) == ("t", Classification.CLASSIFIED, "x")
    assert change_types(store) == ["log.appended", "log.patched"]


def test_a_deleted_entry_is_hidden_from_views_but_keeps_its_place(store: Store) -> None:
    made = append(store, "x", session_id="s", idempotency_key="k")
    with store.write(OWNER) as tx:
        entries.delete(tx, made.id)
    assert listed(store).entries == []
    with store.read(OWNER) as tx:
        assert entries.transcript(tx, "s") == []
        assert [e.id for e in entries.after(tx, 0)] == [made.id]
    with store.write(OWNER) as tx:
        for change in (
            lambda: entries.delete(tx, made.id),
            lambda: entries.correct(tx, made.id, "y"),
            lambda: entries.annotate(tx, made.id, {"topic_id": "t"}),
        ):
            with pytest.raises(NotFound):
                change()
    assert append(store, "x", idempotency_key="k").id == made.id


def test_an_index_catches_up_from_a_position_in_log_order(store: Store) -> None:
    made = [append(store, str(n), created_at=100 - n) for n in range(5)]
    with store.read(OWNER) as tx:
        assert entries.after(tx, made[1].position) == made[2:]
        assert entries.after(tx, 0, limit=2) == made[:2]
        assert entries.head(tx) == made[-1].position


def test_a_transcript_is_one_session_in_log_order_by_pages(store: Store) -> None:
    made = [append(store, str(n), session_id="s", created_at=50 - n) for n in range(6)]
    append(store, "other", session_id="o")
    with store.read(OWNER) as tx:
        assert entries.transcript(tx, "s") == made
        assert entries.transcript(tx, "s", after=made[1].position, limit=2) == made[2:4]
        assert entries.transcript(tx, "s", before=made[2].position) == made[:2]


def test_the_head_of_an_empty_log_is_zero(store: Store) -> None:
    with store.read(OWNER) as tx:
        assert entries.head(tx) == 0


def plan(store: Store, where: EntryFilter, cursor: Cursor | None, reader: Reader = OWNER) -> list[str]:
    seen: list[tuple[str, Any]] = []
    with store.read(reader) as tx:
        sa.event.listen(
            tx.conn, "before_cursor_execute", lambda c, cur, sql, params, *rest: seen.append((sql, params))
        )
        entries.listing(tx, where, cursor=cursor, limit=10)
        sql, params = seen[-1]
        return [str(row[3]) for row in tx.conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", params)]


@pytest.mark.parametrize("cursor", [None, Cursor(5, 5)])
def test_who_may_not_read_all_walks_an_index_of_their_own(sqlite_store: Store, cursor: Cursor | None) -> None:
    steps = plan(sqlite_store, EntryFilter(), cursor, heard_by("group:discord::1", frozenset({"space-a"})))
    assert [step for step in steps if "entries_audience" in step]
    assert not [step for step in steps if "SCAN entries" in step or "TEMP B-TREE" in step], steps


ONE, FEW = frozenset({"a"}), frozenset({"a", "b", "c"})


@pytest.mark.parametrize("cursor", [None, Cursor(5, 5)])
@pytest.mark.parametrize(
    ("where", "index"),
    [
        (EntryFilter(), "entries_created"),
        (EntryFilter(session_key="a"), "entries_session"),
        (EntryFilter(session_key="a", status=Classification.PENDING), "entries_session"),
        (EntryFilter(session_key="a", types=frozenset({EntryType.NOTE})), "entries_session"),
        (EntryFilter(session_key="a", space_ids=FEW), "entries_session"),
        (EntryFilter(space_ids=FEW, status=Classification.PENDING), "entries_space"),
        (EntryFilter(topic_id="a"), "entries_topic"),
        (EntryFilter(topic_id="a", space_ids=FEW), "entries_topic"),
        (EntryFilter(task_id="a"), "entries_task"),
        (EntryFilter(space_ids=ONE), "entries_space"),
        (EntryFilter(space_ids=FEW), "entries_space"),
        (EntryFilter(space_ids=FEW, types=frozenset({EntryType.NOTE})), "entries_space"),
        (EntryFilter(related_ids=ONE), "entries_related"),
        (EntryFilter(related_ids=FEW), "entries_related"),
        (EntryFilter(types=frozenset({EntryType.NOTE})), "entries_type"),
        (EntryFilter(types=frozenset({EntryType.NOTE, EntryType.ACTION})), "entries_type"),
        (EntryFilter(status=Classification.PENDING), "entries_waiting"),
        (EntryFilter(status=Classification.FAILED), "entries_failed"),
    ],
)
def test_a_listing_walks_its_index_and_sorts_nothing(
    sqlite_store: Store, where: EntryFilter, index: str, cursor: Cursor | None
) -> None:
    steps = plan(sqlite_store, where, cursor)
    reads = [step for step in steps if step.startswith(("SEARCH", "SCAN"))]
    assert reads, steps
    assert all(f"USING INDEX {index}" in step for step in reads), steps
    assert not any("TEMP B-TREE" in step for step in steps), steps


@pytest.mark.parametrize(
    ("where", "index"),
    [(EntryFilter(session_id="a"), "entries_transcript"), (EntryFilter(turn_id="a"), "entries_turn")],
)
def test_a_listing_of_one_session_or_turn_reads_no_other(
    sqlite_store: Store, where: EntryFilter, index: str
) -> None:
    assert plan(sqlite_store, where, None)[0].startswith(f"SEARCH entries USING INDEX {index} (")
