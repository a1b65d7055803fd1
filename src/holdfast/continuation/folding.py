"""Telling a turn that runs of elections that fell due, instead of giving each a turn of its own.

A folded election is done when a turn that wrote the note into its transcript is committed, and not before.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.continuation import notices, records
from holdfast.continuation.delays import FOLD_CHECK_MS
from holdfast.continuation.record import Phase, Record
from holdfast.continuation.state import Deliver, Fold, Keep, Unfold
from holdfast.errors import NotFound
from holdfast.log import Turn, TurnStatus, Tx, turns


def fold(tx: Tx, found: Sequence[Record]) -> None:
    """One note for all of them."""
    first = found[0]
    key = f"continuation-fold:{first.id}:{first.revision}"
    notices.tell(tx, first.owner, notices.FOLD, key, notices.folded(found))
    for record in found:
        records.apply(tx, record, Fold(key, int(tx.now) + FOLD_CHECK_MS))


def after_turn(tx: Tx, found: Sequence[Record], turn: Turn) -> None:
    """A turn of the session has ended: what it was told is delivered with it, the rest comes back."""
    for record in (r for r in found if r.phase is Phase.FOLDED):
        _settle(tx, record, ended=turn)


def check(tx: Tx, record: Record, *, busy: bool) -> None:
    """By the clock, for a turn whose end was not told here."""
    _settle(tx, record, ended=None, busy=busy)


def _settle(tx: Tx, record: Record, *, ended: Turn | None, busy: bool = False) -> None:
    assert record.note_key is not None
    taken = notices.look(tx, record.note_key)
    turn = None if taken is None or taken.turn_id is None else _turn(tx, taken.turn_id, ended)
    if turn is not None and turn.status is TurnStatus.COMMITTED:
        records.apply(tx, record, Deliver())
    elif (turn is not None and not turns.has_ended(tx, turn)) or (
        turn is None and busy and taken is not None
    ):
        records.apply(tx, record, Keep(int(tx.now) + FOLD_CHECK_MS))
    else:
        notices.withdraw(tx, record.note_key)
        records.apply(tx, record, Unfold())


def _turn(tx: Tx, id_: str, ended: Turn | None) -> Turn | None:
    if ended is not None and ended.id == id_:
        return ended
    try:
        return turns.get(tx, id_)
    except NotFound:
        return None
