"""Leases: the right to do one named thing, held for a while. They run out by themselves; no lock files."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from holdfast.log import owner as owners
from holdfast.log.store import Tx
from holdfast.log.tables import leases as table


@dataclass(frozen=True, slots=True)
class Lease:
    name: str
    owner: str
    until: int
    revision: int


def acquire(tx: Tx, name: str, *, owner: str, for_ms: int) -> Lease | None:
    """Take or renew a lease; None while another owner holds it and may still live."""
    held = current(tx, name)
    taken = held is not None and held.owner != owner and held.until > tx.now
    if held is not None and taken and not owners.is_dead(held.owner):
        return None
    revision = 1 if held is None else held.revision + 1
    values = {"name": name, "owner": owner, "until": tx.now + for_ms, "revision": revision}
    insert = postgresql.insert(table) if tx.postgres else sqlite.insert(table)
    statement = insert.values(values).on_conflict_do_update(
        index_elements=["name"],
        set_={k: values[k] for k in ("owner", "until", "revision")},
        where=table.c.revision == revision - 1,
    )
    if tx.conn.execute(statement.returning(table.c.name)).scalar() is None:
        return None
    return Lease(name, owner, tx.now + for_ms, revision)


def release(tx: Tx, lease: Lease) -> bool:
    """Give a lease back; False if it was taken over meanwhile."""
    statement = sa.delete(table).where(
        table.c.name == lease.name, table.c.owner == lease.owner, table.c.revision == lease.revision
    )
    return tx.conn.execute(statement).rowcount == 1


def current(tx: Tx, name: str) -> Lease | None:
    row = tx.conn.execute(sa.select(table).where(table.c.name == name)).first()
    return None if row is None else Lease(row.name, row.owner, row.until, row.revision)
