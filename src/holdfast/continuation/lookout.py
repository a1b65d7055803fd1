"""The one agenda item of a session with elections: due when the earliest of them is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.continuation import records
from holdfast.continuation.record import Record
from holdfast.log import Tx, agenda

KIND: Final = "continuation.due"
_ATTEMPTS: Final = 1_000_000


def key_of(owner: str) -> str:
    return f"{KIND}:{owner}"


def arm(tx: Tx, owner: str, due_at: int) -> None:
    """See to it that the session is looked at then, or before."""
    agenda.enqueue(
        tx,
        KIND,
        {"sessionKey": owner},
        lane=f"continuation:{owner}",
        key=key_of(owner),
        due_at=due_at,
        max_attempts=_ATTEMPTS,
    )


def arm_for(tx: Tx, owner: str, found: Sequence[Record] | None = None) -> None:
    """The same by what the session has now."""
    due = records.next_due(records.live(tx, owner) if found is None else found)
    if due is not None:
        arm(tx, owner, due)
