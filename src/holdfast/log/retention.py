"""What is forgotten and when: by age, by hand, and sessions that nobody ever used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from holdfast.clock import DAY_MS
from holdfast.errors import Conflict
from holdfast.log import changes as feed
from holdfast.log import entries as live
from holdfast.log import notes, sessions
from holdfast.log.audience import SYSTEM
from holdfast.log.store import Store, Tx
from holdfast.log.tables import agenda, changes, entries, entry_revisions, leases, metadata, outbox, turns
from holdfast.log.tables import sessions as sessions_table

_BLANK: Final = {"content": "", "raw": None, "summary": None, "source": None}
_FORGOTTEN: Final = "it failed; why was not stored"
_KEPT_OF_FORGOTTEN: Final = frozenset(("entries", "turns", "sessions", "chains"))


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
    batch: int = 2_000


def prune(store: Store, policy: Retention, *, rounds: int = 50) -> dict[str, int]:
    """Prune until nothing is over its time or `rounds` batches were done; says how much went, by table."""
    removed: dict[str, int] = {}
    for name, step in _STEPS.items():
        for _ in range(rounds):
            with store.write(SYSTEM, ordered=step is _transcripts, durable=False) as tx:
                count = step(tx, policy)
            removed[name] = removed.get(name, 0) + count
            if count == 0:
                break
    return removed


def forget_entry(tx: Tx, id_: str) -> None:
    """Hide an entry as `entries.delete` does, and erase its words at once, the ones it had before too."""
    live.delete(tx, id_)
    tx.conn.execute(sa.delete(entry_revisions).where(entry_revisions.c.entry_id == id_))
    tx.conn.execute(sa.update(entries).where(entries.c.id == id_).values(**_BLANK))


def forget_session(tx: Tx, session_id: str) -> bool:
    """Erase all words of a session that was not to be stored; False while a turn of it has not ended.

    What was used stays: that there was a turn, when, by which model, how it ended, its tokens and its price.
    """
    due = sa.exists().where(agenda.c.id == turns.c.agenda_id, agenda.c.ended_at.is_(None))
    open_ = sa.or_(turns.c.ended_at.is_(None), due)
    live = sa.select(turns.c.id).where(turns.c.session_id == session_id, open_).limit(1)
    key = tx.conn.execute(sa.select(sessions_table.c.key).where(sessions_table.c.id == session_id)).scalar()
    if key is None or tx.conn.execute(live).first() is not None:
        return key is None
    own = sa.select(entries.c.id).where(entries.c.session_id == session_id, entries.c.deleted_at.is_(None))
    feed.emit_for(tx, "log.deleted", own, {})
    tx.conn.execute(sa.delete(entry_revisions).where(entry_revisions.c.entry_id.in_(own)))
    gone = {**_BLANK, "deleted_at": tx.now, "updated_at": tx.now}
    tx.conn.execute(sa.update(entries).where(entries.c.session_id == session_id).values(**gone))
    for row in tx.conn.execute(sa.select(turns).where(turns.c.session_id == session_id)).mappings().all():
        left: dict[str, Any] = {name: (row["meta"] or {}).get(name) for name in ("finish", "calls", "stored")}
        values = {"meta": left, "input_id": None, "reply_id": None, "error": row["error"] and _FORGOTTEN}
        tx.conn.execute(sa.update(turns).where(turns.c.id == row["id"]).values(**values))
        failed = agenda.c.id == row["agenda_id"], agenda.c.error.is_not(None)
        tx.conn.execute(sa.update(agenda).where(*failed).values(error=_FORGOTTEN))
    for table in metadata.tables.values():
        if table.name not in _KEPT_OF_FORGOTTEN and "session_id" in table.c:
            tx.conn.execute(sa.delete(table).where(table.c.session_id == session_id))
        elif table.name not in _KEPT_OF_FORGOTTEN and "session_key" in table.c:
            tx.conn.execute(sa.delete(table).where(table.c.session_key == key))
    return True


def _agenda(tx: Tx, policy: Retention) -> int:
    ended = sa.select(agenda.c.id).where(agenda.c.ended_at.is_not(None))
    removed = 0
    if policy.agenda_days is not None:
        aged = ended.where(agenda.c.ended_at < _ago(tx, policy.agenda_days)).limit(policy.batch)
        removed += tx.conn.execute(sa.delete(agenda).where(agenda.c.id.in_(aged))).rowcount
    if policy.agenda_rows is not None:
        newest_first = ended.order_by(agenda.c.ended_at.desc(), agenda.c.id.desc())
        excess = newest_first.offset(policy.agenda_rows).limit(policy.batch)
        removed += tx.conn.execute(sa.delete(agenda).where(agenda.c.id.in_(excess))).rowcount
    return removed


def _changes(tx: Tx, policy: Retention) -> int:
    """The newest change always stays: it tells a reader how far the feed has come."""
    newest = int(tx.conn.execute(sa.select(sa.func.max(changes.c.seq))).scalar() or 0)
    wanted = [changes.c.seq < newest]
    aged = None if policy.changes_days is None else changes.c.created_at < _ago(tx, policy.changes_days)
    excess = None if policy.changes_rows is None else changes.c.seq <= newest - policy.changes_rows
    limits = [c for c in (aged, excess) if c is not None]
    if not limits:
        return 0
    oldest = sa.select(changes.c.seq).order_by(changes.c.seq).limit(policy.batch).subquery()
    condition = sa.and_(*wanted, changes.c.seq.in_(sa.select(oldest)), sa.or_(*limits))
    return tx.conn.execute(sa.delete(changes).where(condition)).rowcount


def _outbox(tx: Tx, policy: Retention) -> int:
    if policy.outbox_days is None:
        return 0
    ended = outbox.c.status.in_(["delivered", "failed"])
    over = sa.and_(ended, outbox.c.updated_at < _ago(tx, policy.outbox_days))
    ids = sa.select(outbox.c.id).where(over).limit(policy.batch)
    return tx.conn.execute(sa.delete(outbox).where(outbox.c.id.in_(ids))).rowcount


def _deleted(tx: Tx, policy: Retention) -> int:
    """Erase the text of entries that were deleted long enough ago; the bare row keeps its place."""
    if policy.deleted_days is None:
        return 0
    over = sa.and_(
        entries.c.deleted_at < _ago(tx, policy.deleted_days),
        sa.or_(
            entries.c.content != "",
            entries.c.raw.is_not(None),
            entries.c.summary.is_not(None),
            entries.c.source.is_not(None),
            sa.exists().where(entry_revisions.c.entry_id == entries.c.id),
        ),
    )
    ids = list(tx.conn.execute(sa.select(entries.c.id).where(over).limit(policy.batch)).scalars())
    if ids:
        tx.conn.execute(sa.delete(entry_revisions).where(entry_revisions.c.entry_id.in_(ids)))
        tx.conn.execute(sa.update(entries).where(entries.c.id.in_(ids)).values(**_BLANK))
    return len(ids)


def _transcripts(tx: Tx, policy: Retention) -> int:
    """Remove a session archived long ago: its entries a batch at a time, then its turns and itself.

    The change feed tells of each entry, so that an index forgets it too. The session of the newest entry
    waits: its position must not be given a second time.
    """
    if policy.transcript_days is None:
        return 0
    over = sa.and_(
        sessions_table.c.status == "archived",
        sessions_table.c.archived_at < _ago(tx, policy.transcript_days),
        ~sa.exists().where(
            turns.c.session_id == sessions_table.c.id, turns.c.status.in_(["accepted", "running"])
        ),
        sessions_table.c.id.is_distinct_from(_newest_session()),
    )
    oldest = (
        sa.select(sessions_table.c.id)
        .where(over)
        .order_by(sessions_table.c.archived_at, sessions_table.c.id)
        .limit(1)
    )
    id_ = tx.conn.execute(oldest).scalar()
    if id_ is None:
        return 0
    batch = sa.select(entries.c.id).where(entries.c.session_id == id_).limit(policy.batch)
    ids = list(tx.conn.execute(batch).scalars())
    if ids:
        feed.emit_for(tx, "log.deleted", sa.select(entries.c.id).where(entries.c.id.in_(ids)), {})
        tx.conn.execute(sa.delete(entry_revisions).where(entry_revisions.c.entry_id.in_(ids)))
        return tx.conn.execute(sa.delete(entries).where(entries.c.id.in_(ids))).rowcount
    tx.conn.execute(sa.delete(turns).where(turns.c.session_id == id_))
    return tx.conn.execute(sa.delete(sessions_table).where(sessions_table.c.id == id_)).rowcount


def _newest_session() -> sa.ScalarSelect[str | None]:
    newest = sa.select(sa.func.max(entries.c.position)).scalar_subquery()
    return sa.select(entries.c.session_id).where(entries.c.position == newest).scalar_subquery()


def _notes(tx: Tx, policy: Retention) -> int:
    if policy.outbox_days is None:
        return 0
    return notes.prune(tx, _ago(tx, policy.outbox_days), limit=policy.batch)


def _leases(tx: Tx, policy: Retention) -> int:
    return tx.conn.execute(sa.delete(leases).where(leases.c.until < _ago(tx, 1))).rowcount


_STEPS = {
    "agenda": _agenda,
    "changes": _changes,
    "outbox": _outbox,
    "notes": _notes,
    "deleted": _deleted,
    "transcripts": _transcripts,
    "leases": _leases,
}


def _ago(tx: Tx, days: int) -> int:
    return tx.now - days * DAY_MS


BATCH: Final = 200
CAUSE: Final = "unused"


def archive_unused(store: Store, *, days: int | None, most: int) -> int:
    """Archive what was not used for `days`, and the least lately used above `most` of an agent (0: no limit).

    A session with a turn that waits or runs stays. Returns how many were archived, a bounded number.
    """
    if days is None and most <= 0:
        return 0
    done = 0
    with store.write(SYSTEM) as tx:
        for id_ in {*_aged(tx, days), *_above(tx, most)}:
            try:
                sessions.archive(tx, sessions.get(tx, id_), cause=CAUSE)
                done += 1
            except Conflict:
                continue
    return done


def _aged(tx: Tx, days: int | None) -> list[str]:
    if days is None:
        return []
    old = sessions_table.c.updated_at < tx.now - days * DAY_MS
    return list(
        tx.conn.execute(_idle().where(old).order_by(sessions_table.c.updated_at).limit(BATCH)).scalars()
    )


def _above(tx: Tx, most: int) -> list[str]:
    if most <= 0:
        return []
    newest_first = sessions_table.c.updated_at.desc(), sessions_table.c.id.desc()
    place = sa.func.row_number().over(partition_by=sessions_table.c.agent_id, order_by=newest_first)
    placed = (
        sa.select(sessions_table.c.id, place.label("place"))
        .where(sessions_table.c.status == "active")
        .subquery()
    )
    surplus = sa.select(placed.c.id).where(placed.c.place > most)
    return list(tx.conn.execute(_idle().where(sessions_table.c.id.in_(surplus)).limit(BATCH)).scalars())


def _idle() -> sa.Select[str]:
    busy = sa.exists().where(
        turns.c.session_id == sessions_table.c.id, turns.c.status.in_(["accepted", "running"])
    )
    return sa.select(sessions_table.c.id).where(sessions_table.c.status == "active", ~busy)
