"""Projections in the store: read as they stand or as they begin, written only at the revision read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sqlalchemy as sa

from holdfast.context.blobs import insert_new
from holdfast.context.history import require_unsummarised, settled_until
from holdfast.context.lossless.items import Item, Projection, as_json, closed, fresh, from_json, retained
from holdfast.context.lossless.tables import debts
from holdfast.context.lossless.tables import projections as table
from holdfast.errors import Conflict
from holdfast.log import Tx, entries
from holdfast.log.tables import entries as entry_table
from holdfast.log.tables import sessions as session_table

NEW = "new"


def find(tx: Tx, session_id: str) -> Projection | None:
    row = tx.conn.execute(sa.select(table).where(table.c.session_id == session_id)).mappings().first()
    if row is None:
        return None
    return Projection(
        session_id=session_id,
        items=from_json(row["items"]),
        base=from_json(row["base"]),
        revision=row["revision"],
        stored=True,
    )


def of(tx: Tx, session_id: str, *, retain_depth: int) -> Projection:
    """The projection as it stands, or as it will begin; nothing is written.

    After `/new` it begins with the deep summaries of the session before, after `/reset` with nothing.
    """
    known = find(tx, session_id)
    if known is not None:
        return known
    before = _before(tx, session_id)
    if before is None:
        return fresh(session_id)
    earlier = of(tx, before, retain_depth=retain_depth)
    return fresh(session_id, retained(earlier, retain_depth, entries.head(tx) + 1))


def save(tx: Tx, known: Projection) -> Projection:
    """Write a changed projection as the next revision; `Conflict` if another writer was faster."""
    new = replace(known, revision=known.revision + 1, stored=True)
    row = {
        "session_id": new.session_id,
        "revision": new.revision,
        "items": as_json(new.items),
        "base": as_json(new.base),
        "updated_at": tx.now,
    }
    if known.stored:
        where = (table.c.session_id == known.session_id, table.c.revision == known.revision)
        done = tx.conn.execute(sa.update(table).where(*where).values(**row)).rowcount == 1
    else:
        done = tx.conn.execute(insert_new(tx, table).returning(table.c.revision), row).first() is not None
    if not done:
        raise Conflict("the projection changed meanwhile", code="stale_context", hint="Read it again.")
    return new


def fork(
    tx: Tx, parent_id: str, child_id: str, *, before: int | None = None, retain_depth: int
) -> Projection:
    """The child begins with the parent's projection as it is now, or as it was when the child began, or with
    what was said before a position; it cannot change the parent's."""
    parent = of(tx, parent_id, retain_depth=retain_depth)
    column = entry_table.c.position
    own = tx.conn.execute(sa.select(sa.func.min(column)).where(entry_table.c.session_id == child_id)).scalar()
    until = settled_until(tx, parent_id) + 1
    if before is not None:
        summed = [item.until for item in parent.summaries if item.until is not None]
        require_unsummarised(max(summed, default=0), before)
        until = min(until, before)
    return begin(tx, child_id, closed(parent, until if own is None else min(own, until)))


def begin(tx: Tx, session_id: str, base: Sequence[Item]) -> Projection:
    return save(tx, fresh(session_id, base))


def drop(tx: Tx, session_id: str) -> None:
    """Forget a projection and what it owes; the log and the summaries stay."""
    for one in (table, debts):
        tx.conn.execute(sa.delete(one).where(one.c.session_id == session_id))


def _before(tx: Tx, session_id: str) -> str | None:
    """The session that `/new` ended in favour of this one."""
    own = sa.select(session_table.c.key).where(session_table.c.id == session_id).scalar_subquery()
    query = sa.select(session_table.c.id).where(
        session_table.c.key == own,
        session_table.c.successor_id == session_id,
        session_table.c.archive_cause == NEW,
    )
    return tx.conn.execute(query.limit(1)).scalar()
