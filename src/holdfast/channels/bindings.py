"""Which session has a surface, where its key does not tell: a child in a thread of its own."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from holdfast.channels.surface import Surface
from holdfast.channels.tables import surface_bindings as table
from holdfast.log import Tx, sessions


def bind(tx: Tx, surface: Surface, session_key: str) -> None:
    """Give a surface to a session; a surface has one at a time, so that the one before loses it."""
    values = {"surface": surface.address, "session_key": session_key, "bound_at": tx.now}
    insert = postgresql.insert(table) if tx.postgres else sqlite.insert(table)
    changed = {"session_key": session_key, "bound_at": tx.now}
    tx.conn.execute(insert.values(values).on_conflict_do_update(index_elements=["surface"], set_=changed))


def bound(tx: Tx, surface: Surface) -> str | None:
    """The session that has a surface, while that session is there."""
    query = sa.select(table.c.session_key).where(table.c.surface == surface.address)
    key: str | None = tx.conn.execute(query).scalar()
    return key if key is not None and sessions.active(tx, key) is not None else None


def release(tx: Tx, surface: Surface) -> None:
    tx.conn.execute(sa.delete(table).where(table.c.surface == surface.address))


def prune(tx: Tx, before: int, *, limit: int = 500) -> int:
    """Forget old bindings whose sessions are archived."""
    query = sa.select(table.c.surface, table.c.session_key).where(table.c.bound_at < before).limit(limit)
    over = [row.surface for row in tx.conn.execute(query) if sessions.active(tx, row.session_key) is None]
    return tx.conn.execute(sa.delete(table).where(table.c.surface.in_(over))).rowcount if over else 0
