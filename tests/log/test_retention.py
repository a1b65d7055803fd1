from __future__ import annotations

import pytest

from builders import KEY, accept, append, claim, enqueue, outcome, rows, session
from holdfast.clock import ManualClock
from holdfast.errors import NotFound
from holdfast.log import (
    OWNER,
    Retention,
    Store,
    agenda,
    changes,
    check,
    entries,
    leases,
    outbox,
    prune,
    sessions,
    turns,
)
from holdfast.log.agenda import Finish
from holdfast.log.retention import forget_session

NOTHING = Retention(None, None, None, None, None, None, None)


def finish_all(store: Store) -> None:
    for held in claim(store):
        with store.write(OWNER) as tx:
            agenda.apply(tx, held, Finish("a"))


def test_nothing_goes_unless_a_limit_says_so(store: Store, clock: ManualClock) -> None:
    gone = append(store)
    with store.write(OWNER) as tx:
        entries.delete(tx, gone.id)
        sessions.archive(tx, sessions.ensure(tx, KEY), cause="x")
    enqueue(store)
    finish_all(store)
    clock.advance(hours=24 * 1_000)
    assert sum(prune(store, NOTHING).values()) == 0


def test_ended_agenda_items_go_by_age_and_live_ones_never(store: Store, clock: ManualClock) -> None:
    for _ in range(3):
        enqueue(store)
    finish_all(store)
    enqueue(store, lane="l")
    claim(store)
    waiting = enqueue(store, lane="l")
    clock.advance(hours=24 * 7)
    assert prune(store, Retention())["agenda"] == 0
    clock.advance(ms=1)
    assert prune(store, Retention())["agenda"] == 3
    assert rows(store, "SELECT count(*) FROM agenda") == [(2,)]
    assert waiting.id in {r[0] for r in rows(store, "SELECT id FROM agenda")}


def test_of_ended_agenda_items_exactly_the_newest_are_kept_by_count(store: Store, clock: ManualClock) -> None:
    made = []
    for n in range(10):
        made.append(enqueue(store).id)
        finish_all(store)
        clock.advance(ms=n % 2)
    policy = Retention(agenda_days=None, agenda_rows=4)
    assert prune(store, policy)["agenda"] == 6
    assert sorted(r[0] for r in rows(store, "SELECT id FROM agenda")) == made[-4:]
    assert prune(store, policy)["agenda"] == 0


def test_changes_go_by_age_and_count_but_the_newest_stays(store: Store, clock: ManualClock) -> None:
    for n in range(10):
        append(store, str(n))
    assert prune(store, Retention(changes_rows=4))["changes"] == 6
    with store.read(OWNER) as tx:
        assert changes.bounds(tx) == (7, 10)
    clock.advance(hours=24 * 8)
    assert prune(store, Retention())["changes"] == 3
    with store.read(OWNER) as tx:
        assert changes.bounds(tx) == (10, 10)
    assert prune(store, Retention(changes_rows=0, changes_days=0))["changes"] == 0
    append(store)
    with store.read(OWNER) as tx:
        assert changes.bounds(tx) == (10, 11)


def test_a_batch_is_bounded_and_rounds_go_on(store: Store) -> None:
    for n in range(12):
        append(store, str(n))
    policy = Retention(changes_rows=1, changes_days=None, batch=3)
    assert prune(store, policy, rounds=2)["changes"] == 6
    assert prune(store, policy)["changes"] == 5


def test_deliveries_that_are_over_go_and_pending_ones_stay(store: Store, clock: ManualClock) -> None:
    with store.write(OWNER) as tx:
        made = [
            outbox.post(tx, outbox.Parcel(key=str(n), kind="c", target="t", payload={})) for n in range(3)
        ]
        outbox.delivered(tx, made[0].id)
        outbox.attempt_failed(tx, made[1].id, "x", final=True)
    clock.advance(hours=24 * 31)
    assert prune(store, Retention())["outbox"] == 2
    with store.read(OWNER) as tx:
        assert [d.id for d in outbox.listing(tx)] == [made[2].id]


def test_deleted_text_is_erased_for_good_and_live_text_never(store: Store, clock: ManualClock) -> None:
    kept = append(store, "kept", raw="r")
    gone = append(store, "secret", raw="secret", summary="secret", source={"a": "secret"})
    emptied = append(store, "was secret")
    with store.write(OWNER) as tx:
        entries.correct(tx, gone.id, "still secret")
        entries.correct(tx, emptied.id, "")
        entries.delete(tx, gone.id)
        entries.delete(tx, emptied.id)
    clock.advance(hours=24 * 30)
    assert prune(store, Retention())["deleted"] == 0
    clock.advance(ms=1)
    assert prune(store, Retention())["deleted"] == 2
    assert prune(store, Retention())["deleted"] == 0
    with store.read(OWNER) as tx:
        bare = entries.get(tx, gone.id)
        assert (bare.content, bare.raw, bare.summary, bare.source) == ("", None, None, None)
        assert bare.position == gone.position
        assert entries.revisions(tx, gone.id) == entries.revisions(tx, emptied.id) == []
        assert entries.get(tx, kept.id) == kept


def test_old_transcripts_go_whole_with_their_turns(store: Store, clock: ManualClock) -> None:
    for n in range(4):
        turn = accept(store, key=f"k{n}")
        (held,) = claim(store)
        with store.write(OWNER) as tx:
            turns.start(tx, turns.get(tx, turn.id))
        with store.write(OWNER) as tx:
            done = turns.commit(tx, f"k{n}", outcome(), agenda.Job(held))
            entries.correct(tx, done.entries[0].id, "corrected")
    first = session(store)
    with store.write(OWNER) as tx:
        second = sessions.reset(tx, first, cause="daily")
    clock.advance(hours=24 * 10)
    with store.write(OWNER) as tx:
        third = sessions.reset(tx, second, cause="daily")
    clock.advance(hours=24)
    append(store, "newest")
    prune(store, Retention(batch=2, transcript_days=5))
    with store.read(OWNER) as tx:
        with pytest.raises(NotFound):
            sessions.get(tx, first.id)
        assert [s.id for s in sessions.history(tx, KEY)] == [second.id, third.id]
        assert entries.transcript(tx, first.id) == []
        assert turns.listing(tx, first.id) == []
    assert check(store) == []


def test_an_archived_session_with_work_still_due_is_kept(store: Store, clock: ManualClock) -> None:
    turn = accept(store, due_at=clock.now() + 10**10)
    with store.write(OWNER) as tx:
        sessions.archive(tx, sessions.ensure(tx, KEY), cause="x")
    clock.advance(hours=24 * 30)
    prune(store, Retention(transcript_days=1))
    with store.read(OWNER) as tx:
        assert turns.get(tx, turn.id) == turn


def test_the_newest_position_is_never_given_twice(store: Store, clock: ManualClock) -> None:
    accept(store)
    with store.write(OWNER) as tx:
        tx.conn.exec_driver_sql("DELETE FROM turns")
        sessions.archive(tx, sessions.ensure(tx, KEY), cause="x")
    clock.advance(hours=24 * 30)
    prune(store, Retention(transcript_days=1))
    assert append(store, "later").position == 2


def test_leases_that_ran_out_long_ago_go(store: Store, clock: ManualClock) -> None:
    with store.write(OWNER) as tx:
        leases.acquire(tx, "old", owner="a", for_ms=1)
    clock.advance(hours=25)
    with store.write(OWNER) as tx:
        leases.acquire(tx, "new", owner="a", for_ms=1)
    assert prune(store, NOTHING)["leases"] == 1


def test_of_a_session_that_was_not_to_be_stored_only_what_it_cost_is_left(
    store: Store, clock: ManualClock
) -> None:
    import holdfast.runtime.rooms
    import holdfast.services  # noqa: F401 - so that every room's tables are known

    made = session(store, KEY)
    kept = append(store, "a plover of another session")
    append(store, "brought plover", session_key=KEY, session_id=made.id)
    turn = accept(store, "said plover", key="t-1")
    with store.write(OWNER) as tx:
        assert not forget_session(tx, turn.session_id), "it has not ended"
        turns.start(tx, turn)
        done = turns.commit(tx, "t-1", outcome("answered plover", usage={"inputTokens": 7}))
        turns.note(tx, done.turn, {"handed": ["plover"]})
        tx.conn.exec_driver_sql("UPDATE agenda SET status = 'done', ended_at = 1, error = 'plover'")
    with store.write(OWNER) as tx:
        assert forget_session(tx, turn.session_id)
        assert forget_session(tx, turn.session_id), "once more changes nothing"
        assert forget_session(tx, "session-none"), "there is nothing of it"
    for table in ("entries", "turns", "agenda"):
        left = str(rows(store, f"SELECT * FROM {table}")).replace(kept.content, "")
        assert "plover" not in left, table
    with store.read(OWNER) as tx:
        left_turn = turns.get(tx, turn.id)
        assert (left_turn.status, dict(left_turn.usage or {})) == ("committed", {"inputTokens": 7})
        assert check(store) == []
