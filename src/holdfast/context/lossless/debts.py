"""Compaction that is owed: one row for a session, however often it is noted, paid off the turn's path."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.context.blobs import insert_new
from holdfast.context.lossless.settings import Settings
from holdfast.context.lossless.tables import debts as table
from holdfast.log import Tx, agenda

KIND: Final = "context.compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class Debt:
    """`reason` is "threshold", "backlog" (more than one sweep could do) or "repair" (extracts to mend)."""

    session_id: str
    pending: bool
    reason: str
    token_budget: int
    current_tokens: int
    attempts: int
    next_attempt_at: int
    outcome: str | None = None
    updated_at: Millis


_NAMES = tuple(f.name for f in fields(Debt))


def find(tx: Tx, session_id: str, *, lock: bool = False) -> Debt | None:
    query = sa.select(table).where(table.c.session_id == session_id)
    row = tx.conn.execute(query.with_for_update() if lock else query).mappings().first()
    return None if row is None else Debt(**row)


def forgive(tx: Tx, session_id: str) -> None:
    """Nothing is owed any more: the session has ended, or another engine builds its context."""
    tx.conn.execute(sa.update(table).where(table.c.session_id == session_id).values(pending=False))


def pending(tx: Tx, *, limit: int = 500) -> list[Debt]:
    query = sa.select(table).where(table.c.pending).order_by(table.c.next_attempt_at).limit(limit)
    return [Debt(**row) for row in tx.conn.execute(query).mappings()]


def owe(tx: Tx, session_id: str, reason: str, *, token_budget: int, current_tokens: int) -> Debt:
    """Note that a session should be compacted. A debt that waits for its next attempt keeps its patience."""
    known = find(tx, session_id)
    waits = known is not None and known.pending
    debt = Debt(
        session_id=session_id,
        pending=True,
        reason=reason,
        token_budget=token_budget,
        current_tokens=current_tokens,
        attempts=known.attempts if known is not None and waits else 0,
        next_attempt_at=known.next_attempt_at if known is not None and waits else tx.now,
        outcome=None if known is None else known.outcome,
        updated_at=tx.now,
    )
    return _put(tx, debt)


def settle(
    tx: Tx, debt: Debt, outcome: str, *, left: str | None, settings: Settings, idle: bool = False
) -> Debt:
    """Note how an attempt ended. What is `left` is tried again: a backlog at once, the rest after a pause
    that doubles. `idle` has a turn wait as long before it tries by itself, even if nothing is left."""
    again = left is not None
    backlog = left == "backlog"
    attempts = debt.attempts + 1 if again and not backlog else 0
    pause = backoff(settings, attempts) if (again and not backlog) or (idle and not again) else 0
    return _put(
        tx,
        Debt(
            session_id=debt.session_id,
            pending=again,
            reason=left or debt.reason,
            token_budget=debt.token_budget,
            current_tokens=debt.current_tokens,
            attempts=attempts,
            next_attempt_at=tx.now + pause,
            outcome=outcome,
            updated_at=tx.now,
        ),
    )


def backoff(settings: Settings, attempts: int) -> int:
    return int(min(settings.retry_ms * 2 ** min(max(0, attempts - 1), 20), settings.retry_ceiling_ms))


def enqueue(tx: Tx, debt: Debt) -> None:
    """Have the debt paid by the agenda; one item for a session however often this is called."""
    name = f"{KIND}:{debt.session_id}"
    agenda.enqueue(tx, KIND, {"sessionId": debt.session_id}, lane=name, key=name, due_at=debt.next_attempt_at)


def _put(tx: Tx, debt: Debt) -> Debt:
    row: dict[str, Any] = {name: getattr(debt, name) for name in _NAMES}
    done = tx.conn.execute(sa.update(table).where(table.c.session_id == debt.session_id).values(**row))
    if not done.rowcount:
        tx.conn.execute(insert_new(tx, table), row)
    return debt
