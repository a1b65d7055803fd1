"""Retention: what is over is pruned by age and by count, a bounded batch at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from holdfast.log.store import Store, Tx
from holdfast.log.tables import agenda, changes, entries, entry_revisions, leases, outbox, sessions, turns

DAY_MS: Final = 86_400_000
BATCH: Final = 2_000


@dataclass(frozen=True, slots=True)
class Retention:
    """How long and how much is kept; None keeps for good. Live work and live text are never touched."""

    agenda_days: int | None = 7
    agenda_rows: int | None = 50_000
    changes_days: int | None = 7
    changes_rows: int | None = 200_000
    outbox_days: int | None = 30
    deleted_days: int | None = 30
    transcript_days: int | None = None


def prune(store: Store, policy: Retention, *, rounds: int = 50) -> dict[str, int]:
    """Prune until nothing is over its time or `rounds` batches were done; says how much went, by table."""
    removed: dict[str, int] = {}
    for name, step in _STEPS.items():
        for _ in range(rounds):
            with store.write(ordered=False) as tx:
                count = step(tx, policy)
            removed[name] = removed.get(name, 0) + count
            if count == 0:
                break
    return removed


def _agenda(tx: Tx, policy: Retention) -> int:
    ended = agenda.c.ended_at
    cutoff = _cutoff(tx, policy.agenda_days, ended.is_not(None), ended, policy.agenda_rows)
    if cutoff is None:
        return 0
    return _delete(tx, agenda, agenda.c.id, sa.and_(ended.is_not(None), ended < cutoff))


def _changes(tx: Tx, policy: Retention) -> int:
    """The newest change always stays: it tells a reader how far the feed has come."""
    newest = int(tx.conn.execute(sa.select(sa.func.max(changes.c.seq))).scalar() or 0)
    wanted = [changes.c.seq < newest]
    aged = None if policy.changes_days is None else changes.c.created_at < _ago(tx, policy.changes_days)
    excess = None if policy.changes_rows is None else changes.c.seq <= newest - policy.changes_rows
    limits = [c for c in (aged, excess) if c is not None]
    if not limits:
        return 0
    oldest = sa.select(changes.c.seq).order_by(changes.c.seq).limit(BATCH).subquery()
    condition = sa.and_(*wanted, changes.c.seq.in_(sa.select(oldest)), sa.or_(*limits))
    return tx.conn.execute(sa.delete(changes).where(condition)).rowcount


def _outbox(tx: Tx, policy: Retention) -> int:
    if policy.outbox_days is None:
        return 0
    over = sa.and_(outbox.c.status != "pending", outbox.c.updated_at < _ago(tx, policy.outbox_days))
    return _delete(tx, outbox, outbox.c.id, over)


def _deleted(tx: Tx, policy: Retention) -> int:
    """Erase the text of entries that were deleted long enough ago; the bare row keeps its place."""
    if policy.deleted_days is None:
        return 0
    over = sa.and_(
        entries.c.deleted_at < _ago(tx, policy.deleted_days),
        sa.or_(entries.c.content != "", entries.c.raw.is_not(None)),
    )
    ids = list(tx.conn.execute(sa.select(entries.c.id).where(over).limit(BATCH)).scalars())
    if ids:
        tx.conn.execute(sa.delete(entry_revisions).where(entry_revisions.c.entry_id.in_(ids)))
        blank = {"content": "", "raw": None, "summary": None, "source": None}
        tx.conn.execute(sa.update(entries).where(entries.c.id.in_(ids)).values(**blank))
    return len(ids)


def _transcripts(tx: Tx, policy: Retention) -> int:
    """Remove sessions archived long ago, with their entries and turns, one session a batch."""
    if policy.transcript_days is None:
        return 0
    over = sa.and_(sessions.c.status == "archived", sessions.c.archived_at < _ago(tx, policy.transcript_days))
    id_ = tx.conn.execute(sa.select(sessions.c.id).where(over).limit(1)).scalar()
    if id_ is None:
        return 0
    ids = sa.select(entries.c.id).where(entries.c.session_id == id_)
    tx.conn.execute(sa.delete(entry_revisions).where(entry_revisions.c.entry_id.in_(ids)))
    tx.conn.execute(sa.delete(entries).where(entries.c.session_id == id_))
    tx.conn.execute(sa.delete(turns).where(turns.c.session_id == id_))
    tx.conn.execute(sa.delete(sessions).where(sessions.c.id == id_))
    return 1


def _leases(tx: Tx, policy: Retention) -> int:
    return tx.conn.execute(sa.delete(leases).where(leases.c.until < _ago(tx, 1))).rowcount


_STEPS = {
    "agenda": _agenda,
    "changes": _changes,
    "outbox": _outbox,
    "deleted": _deleted,
    "transcripts": _transcripts,
    "leases": _leases,
}


def _ago(tx: Tx, days: int) -> int:
    return tx.now - days * DAY_MS


def _cutoff(
    tx: Tx,
    days: int | None,
    over: sa.ColumnElement[bool],
    column: sa.ColumnElement[int],
    rows: int | None,
) -> int | None:
    """The moment before which rows go: by age, or later if there are still too many."""
    by_age = None if days is None else _ago(tx, days)
    by_count: int | None = None
    if rows is not None:
        query = sa.select(column).where(over).order_by(column.desc()).offset(rows).limit(1)
        by_count = tx.conn.execute(query).scalar()
    return max((c for c in (by_age, by_count) if c is not None), default=None)


def _delete(tx: Tx, table: sa.Table, key: sa.ColumnElement[str], over: sa.ColumnElement[bool]) -> int:
    ids = sa.select(key).where(over).limit(BATCH)
    return tx.conn.execute(sa.delete(table).where(key.in_(ids))).rowcount
