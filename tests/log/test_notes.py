"""Notes wait for a session's next turn and are taken with its commit, once."""

from __future__ import annotations

from dataclasses import replace

from holdfast.clock import ManualClock
from holdfast.log import FOR_OWNER, OWNER, NoteDraft, Store, notes

KEY = "agent:main:main"
DRAFT = NoteDraft(
    key="k1",
    session_key=KEY,
    audience=FOR_OWNER,
    kind="return",
    text="the tide is out",
    trust="model",
    source="child",
)


def post(store: Store, draft: NoteDraft = DRAFT) -> notes.Note:
    with store.write(OWNER) as tx:
        return notes.post(tx, draft)


def waiting(store: Store, key: str = KEY) -> list[str]:
    with store.read(OWNER) as tx:
        return [note.text for note in notes.waiting(tx, key)]


def test_a_repeat_finds_the_note_that_is_there_even_when_it_was_taken(store: Store) -> None:
    first = post(store)
    with store.write(OWNER) as tx:
        assert notes.take(tx, [first.id], "turn-1") == 1
    again = post(store)
    assert (again.id, again.turn_id) == (first.id, "turn-1")
    assert waiting(store) == []


def test_notes_wait_in_order_and_only_for_their_session(store: Store, clock: ManualClock) -> None:
    for n in (1, 2, 3):
        post(store, replace(DRAFT, key=f"k{n}", text=f"note {n}"))
        clock.advance(ms=1)
    post(store, replace(DRAFT, key="other", session_key="agent:main:subagent:x"))
    assert waiting(store) == ["note 1", "note 2", "note 3"]


def test_a_note_is_taken_once_whoever_tries_again(store: Store) -> None:
    note = post(store)
    with store.write(OWNER) as tx:
        assert notes.take(tx, [note.id], "turn-1") == 1
        assert notes.take(tx, [note.id], "turn-2") == 0


def test_a_turn_that_is_not_committed_takes_nothing(store: Store) -> None:
    note = post(store)
    try:
        with store.write(OWNER) as tx:
            notes.take(tx, [note.id], "turn-1")
            raise RuntimeError("the turn failed")
    except RuntimeError:
        pass
    assert waiting(store) == ["the tide is out"]


def test_what_has_expired_is_not_shown_and_goes_with_time(store: Store, clock: ManualClock) -> None:
    post(store, replace(DRAFT, expires_at=clock.now() + 1_000))
    assert waiting(store) == ["the tide is out"]
    clock.advance(ms=1_000)
    assert waiting(store) == []
    clock.advance(ms=1)
    with store.write(OWNER) as tx:
        assert notes.prune(tx, tx.now) == 1


def test_a_reset_drops_waiting_notes_of_the_kinds_it_names(store: Store) -> None:
    post(store)
    post(store, replace(DRAFT, key="k2", kind="notice", text="stays"))
    with store.write(OWNER) as tx:
        assert notes.drop(tx, KEY, ["return"]) == 1
    assert waiting(store) == ["stays"]
