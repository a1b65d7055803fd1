from __future__ import annotations

import pytest

from builders import KEY, accept, append, claim, draft, in_threads, item, outcome, rows, session
from holdfast.clock import ManualClock
from holdfast.errors import Busy, Conflict, NotFound
from holdfast.log import (
    OWNER,
    EntryFilter,
    Outcome,
    Store,
    Turn,
    TurnStatus,
    agenda,
    check,
    entries,
    outbox,
    sessions,
    turns,
)


def read(store: Store, id_: str) -> Turn:
    with store.read(OWNER) as tx:
        return turns.get(tx, id_)


def running(store: Store, key: str = "k1", *, owner: str = "a") -> agenda.Job:
    """An accepted turn that `owner` has begun."""
    turn = accept(store, key=key)
    (held,) = [i for i in claim(store, owner=owner) if i.id == turn.agenda_id]
    with store.write(OWNER) as tx:
        turns.start(tx, turns.get(tx, turn.id))
    return agenda.Job(held)


def said(store: Store) -> list[str]:
    with store.read(OWNER) as tx:
        return [e.content for e in reversed(entries.listing(tx, EntryFilter()).entries)]


def test_a_message_its_turn_and_its_agenda_item_are_written_together(store: Store) -> None:
    turn = accept(store, "hello", key="c-1", payload={"model": "m"}, meta={"a": 1})
    assert (turn.status, turn.number, turn.attempt, turn.meta) == (TurnStatus.ACCEPTED, 1, 0, {"a": 1})
    assert read(store, turn.id) == turn
    due = item(store, turn.agenda_id or "")
    assert (due.lane, due.payload) == (KEY, {"turnId": turn.id, "model": "m"})
    with store.read(OWNER) as tx:
        message = entries.get(tx, turn.input_id or "")
        assert turns.by_number(tx, turn.session_id, 1) == turn
    assert (message.content, message.turn_id, message.session_id) == ("hello", turn.id, turn.session_id)
    assert check(store) == []


def test_a_repeat_of_the_key_finds_the_same_turn(store: Store) -> None:
    first = accept(store, "hello", key="c-1")
    with store.write(OWNER) as tx:
        again = turns.accept(tx, sessions.ensure(tx, KEY), draft("changed"), key="c-1")
    assert (again.created, again.turn) == (False, first)
    assert again.input is not None
    assert again.input.content == "hello"
    assert said(store) == ["hello"]
    assert rows(store, "SELECT count(*) FROM agenda") == [(1,)]


def test_concurrent_repeats_make_one_turn(store: Store) -> None:
    made = in_threads(8, lambda n: accept(store, "hello", key=f"c-{n % 2}\0"))
    assert len({t.id for t in made}) == 2
    assert sorted({t.number for t in made}) == [1, 2]
    assert len(said(store)) == 2


def test_a_full_lane_refuses_the_message_whole(store: Store) -> None:
    for n in range(2):
        accept(store, key=f"c-{n}", most_waiting=2)
    with pytest.raises(Busy) as caught:
        accept(store, "one too many", key="c-2", most_waiting=2)
    assert caught.value.code == "queue_full"
    assert len(said(store)) == 2
    assert rows(store, "SELECT turn_count FROM sessions") == [(2,)]
    assert rows(store, "SELECT count(*) FROM turns") == [(2,)]


def test_a_turn_without_a_message_is_possible(store: Store) -> None:
    with store.write(OWNER) as tx:
        made = turns.accept(tx, sessions.ensure(tx, KEY), None, key="beat", trigger="heartbeat")
        again = turns.accept(tx, sessions.ensure(tx, KEY), None, key="beat")
    assert (made.input, made.turn.input_id, again.input) == (None, None, None)
    assert again.turn == made.turn


def test_a_commit_writes_all_results_and_ends_the_agenda_item(store: Store, clock: ManualClock) -> None:
    job = running(store)
    clock.advance(seconds=3)
    parcel = outbox.Parcel(key="p", kind="chat", target="web", payload={"text": "hi"})
    result = outcome(
        "hi",
        model="m",
        usage={"inputTokens": 10, "outputTokens": 5},
        context_tokens=7,
        meta={"b": 2},
        parcels=[parcel],
    )
    with store.write(OWNER) as tx:
        done = turns.commit(tx, "k1", result, job)
    assert job.settled
    turn = read(store, done.turn.id)
    assert turn == done.turn
    assert (turn.status, turn.model, turn.ended_at) == (TurnStatus.COMMITTED, "m", clock.now())
    assert turn.reply_id == done.entries[0].id
    assert item(store, job.item.id).status is agenda.Status.DONE
    with store.read(OWNER) as tx:
        now = sessions.get(tx, turn.session_id)
        assert len(outbox.listing(tx, target="web")) == 1
    assert (now.input_tokens, now.output_tokens, now.total_tokens, now.context_tokens) == (10, 5, 15, 7)
    assert said(store) == ["hello", "hi"]
    assert check(store) == []


def test_usage_adds_up_over_turns(store: Store) -> None:
    for key in ("k1", "k2", "k3"):
        job = running(store, key)
        with store.write(OWNER) as tx:
            turns.commit(tx, key, outcome(usage={"inputTokens": 2, "outputTokens": 1}), job)
    now = session(store)
    assert (now.input_tokens, now.output_tokens, now.total_tokens) == (6, 3, 9)


def test_a_second_commit_is_a_duplicate_and_writes_nothing(store: Store) -> None:
    job = running(store)
    with store.write(OWNER) as tx:
        first = turns.commit(tx, "k1", outcome("hi"), job)
    with store.write(OWNER) as tx:
        again = turns.commit(tx, "k1", outcome("hi again"), job)
    assert (first.duplicate, again.duplicate) == (False, True)
    assert (again.turn, again.entries) == (first.turn, first.entries)
    assert said(store) == ["hello", "hi"]


def test_concurrent_commits_write_one_result(store: Store) -> None:
    job = running(store)

    def commit(n: int) -> bool:
        with store.write(OWNER) as tx:
            return turns.commit(tx, "k1", outcome(str(n)), agenda.Job(job.item)).duplicate

    assert sorted(in_threads(6, commit)) == [False, True, True, True, True, True]
    assert len(said(store)) == 2


def test_who_has_lost_the_lease_cannot_commit_anything(store: Store, clock: ManualClock) -> None:
    job = running(store, owner="a")
    clock.advance(minutes=2)
    with store.write(OWNER) as tx:
        (back,) = agenda.expire(tx)
        turns.interrupted(tx, back)
    clock.advance(minutes=2)
    (taken,) = claim(store, owner="b")
    with store.write(OWNER) as tx:
        turns.start(tx, turns.get(tx, taken.payload["turnId"]))
    before = said(store)
    parcel = outbox.Parcel(key="p", kind="chat", target="web", payload={})
    with pytest.raises(agenda.IllegalTransition), store.write(OWNER) as tx:
        turns.commit(tx, "k1", outcome("stale", usage={"inputTokens": 9}, parcels=[parcel]), job)
    assert said(store) == before
    assert session(store).input_tokens == 0
    assert rows(store, "SELECT count(*) FROM outbox") == [(0,)]
    assert not job.settled
    with store.write(OWNER) as tx:
        assert not turns.commit(tx, "k1", outcome("fresh"), agenda.Job(taken)).duplicate


def test_a_claim_lost_and_won_again_by_the_same_owner_is_another_claim(
    store: Store, clock: ManualClock
) -> None:
    job = running(store, owner="a")
    clock.advance(minutes=2)
    with store.write(OWNER) as tx:
        agenda.expire(tx)
    clock.advance(minutes=2)
    (again,) = claim(store, owner="a")
    with store.write(OWNER) as tx, pytest.raises(agenda.IllegalTransition):
        job.settle(tx)
    assert item(store, again.id) == again


def test_a_renewal_meanwhile_does_not_hinder_a_commit(store: Store) -> None:
    job = running(store, owner="a")
    stale = agenda.Job(job.item)
    with store.write(OWNER, ordered=False) as tx:
        assert len(agenda.renew(tx, [job.item], owner="a", lease_ms=99_000)) == 1
    with store.write(OWNER) as tx:
        assert not turns.commit(tx, "k1", outcome(), stale).duplicate
    assert stale.settled


def test_a_commit_that_is_rolled_back_leaves_its_job_unsettled(store: Store) -> None:
    job = running(store)

    def fail_at_the_end() -> None:
        with store.write(OWNER) as tx:
            turns.commit(tx, "k1", outcome(), job)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_at_the_end()
    assert not job.settled
    assert said(store) == ["hello"]
    assert item(store, job.item.id) == job.item
    with store.write(OWNER) as tx:
        assert not turns.commit(tx, "k1", outcome(), job).duplicate


def test_only_a_running_turn_can_be_committed(store: Store) -> None:
    accept(store)
    with store.write(OWNER) as tx:
        with pytest.raises(Conflict) as caught:
            turns.commit(tx, "k1", outcome())
        with pytest.raises(NotFound):
            turns.commit(tx, "unknown", outcome())
    assert caught.value.code == "turn_not_running"


def test_a_turn_cut_off_is_visible_and_its_second_beginning_stands_in_the_log(
    store: Store, clock: ManualClock
) -> None:
    job = running(store)
    with store.write(OWNER) as tx:
        (back,) = agenda.expire(tx, dead=lambda owner: owner == "a")
        turns.interrupted(tx, back)
    turn = read(store, job.item.payload["turnId"])
    assert (turn.status, turn.ended_at) == (TurnStatus.INTERRUPTED, clock.now())
    assert turn.error
    clock.advance(minutes=1)
    (taken,) = claim(store, owner="b")
    with store.write(OWNER) as tx:
        again = turns.start(tx, turn)
    assert (again.status, again.attempt, again.ended_at, again.error) == (TurnStatus.RUNNING, 2, None, None)
    assert said(store) == ["hello", "Turn 1 was interrupted and begins again."]
    with store.write(OWNER) as tx:
        turns.commit(tx, "k1", outcome(), agenda.Job(taken))
    assert check(store) == []


def test_a_turn_goes_on_however_many_processes_are_lost_with_it(store: Store, clock: ManualClock) -> None:
    job = running(store)
    id_ = job.item.payload["turnId"]
    for n in range(12):
        with store.write(OWNER) as tx:
            (back,) = agenda.expire(tx, dead=lambda owner: True)
            turns.interrupted(tx, back)
            assert not turns.has_ended(tx, turns.get(tx, id_))
        (held,) = claim(store, owner=f"o{n}")
        with store.write(OWNER) as tx:
            assert turns.start(tx, turns.get(tx, id_)).attempt == n + 2
    assert (held.id, held.attempts) == (job.item.id, 1)
    assert check(store) == []


def test_a_turn_that_ends_every_process_is_left_to_the_user_even_if_it_never_began(store: Store) -> None:
    turn = accept(store, max_attempts=1)
    for _ in range(agenda.MOST_LOSSES):
        assert read(store, turn.id).status is TurnStatus.ACCEPTED
        claim(store)
        with store.write(OWNER) as tx:
            (back,) = agenda.expire(tx, dead=lambda owner: owner == "a")
            turns.interrupted(tx, back)
    assert read(store, turn.id).status is TurnStatus.INTERRUPTED
    with store.write(OWNER) as tx:
        assert turns.has_ended(tx, turns.get(tx, turn.id))
        assert turns.start(tx, turns.resume(tx, turns.get(tx, turn.id))).attempt == 1
    assert check(store) == []


def test_a_turn_that_brings_no_result_ends_once(store: Store) -> None:
    job = running(store)
    with store.write(OWNER) as tx:
        turn = turns.get(tx, job.item.payload["turnId"])
        failed = turns.end(tx, turn, TurnStatus.FAILED, "no model \0")
        with pytest.raises(Conflict):
            turns.end(tx, failed, TurnStatus.CANCELLED, "x")
        with pytest.raises(Conflict):
            turns.start(tx, failed)
    assert read(store, turn.id).error == "no model \ufffd"


def test_a_stale_copy_of_a_turn_cannot_be_moved_on(store: Store) -> None:
    turn = accept(store)
    with store.write(OWNER) as tx:
        turns.start(tx, turn)
    with store.write(OWNER) as tx, pytest.raises(Conflict) as caught:
        turns.start(tx, turn)
    assert caught.value.code == "stale_turn"


def test_turns_are_numbered_and_listed_newest_first(store: Store) -> None:
    made = [accept(store, key=f"c-{n}") for n in range(5)]
    with store.read(OWNER) as tx:
        assert turns.listing(tx, made[0].session_id) == made[::-1]
        assert [t.number for t in turns.listing(tx, made[0].session_id, before=4, limit=2)] == [3, 2]
        with pytest.raises(NotFound):
            turns.by_number(tx, made[0].session_id, 99)


def test_the_entries_of_a_turn_belong_to_its_session_whatever_their_draft_says(store: Store) -> None:
    job = running(store)
    strange = Outcome(entries=[draft("x", session_key="other", session_id="other", role="tool")])
    with store.write(OWNER) as tx:
        done = turns.commit(tx, "k1", strange, job)
    assert (done.entries[0].session_key, done.entries[0].turn_id) == (KEY, done.turn.id)
    assert done.turn.reply_id is None


def test_a_message_that_was_in_the_log_already_is_not_written_twice(store: Store) -> None:
    old = append(store, "hello", idempotency_key="m-1")
    with store.write(OWNER) as tx:
        made = turns.accept(tx, sessions.ensure(tx, KEY), draft("hello", idempotency_key="m-1"), key="c")
    assert made.input == old
