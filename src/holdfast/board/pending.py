"""What waits to be sorted: one agenda item for each session that has pending entries, and the backlog."""

from __future__ import annotations

from typing import Final

from holdfast.config.board import Classifier
from holdfast.log import Classification, Entry, EntryFilter, Tx, agenda, entries

KIND: Final = "board.classify"
SETTLE_MS: Final = 1_000
"""A moment for the rest of an exchange to arrive before it is sorted."""
MAX_PENDING: Final = 1_000


def enqueue(
    tx: Tx, session_key: str | None, options: Classifier, *, due_at: int | None = None
) -> agenda.Item:
    """Ask that a session's pending entries are sorted; asked again before it has begun, it is once."""
    lane = lane_of(session_key)
    return agenda.enqueue(
        tx,
        KIND,
        {"sessionKey": session_key},
        lane=lane,
        key=lane,
        due_at=int(tx.now) + SETTLE_MS if due_at is None else due_at,
        max_attempts=options.max_attempts,
    )


def lane_of(session_key: str | None) -> str:
    return f"{KIND}:{session_key or ''}"


def listing(tx: Tx, *, limit: int = 100) -> list[Entry]:
    """Entries that wait to be sorted, newest first."""
    where = EntryFilter(status=Classification.PENDING)
    return entries.listing(tx, where, limit=min(limit, MAX_PENDING)).entries


def backlog(tx: Tx, options: Classifier, *, limit: int = MAX_PENDING) -> int:
    """Put every session among the newest pending entries on the agenda; for start-up and old data."""
    keys = {entry.session_key for entry in listing(tx, limit=limit)}
    for key in sorted(keys, key=lambda one: one or ""):
        enqueue(tx, key, options, due_at=int(tx.now))
    return len(keys)
