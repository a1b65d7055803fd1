"""Sessions that nobody uses any more are archived: what was said stays, the next message begins anew."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from holdfast.clock import DAY_MS
from holdfast.errors import Conflict
from holdfast.log import sessions
from holdfast.log.audience import SYSTEM
from holdfast.log.store import Store, Tx
from holdfast.log.tables import sessions as table
from holdfast.log.tables import turns

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
    old = table.c.updated_at < tx.now - days * DAY_MS
    return list(tx.conn.execute(_idle().where(old).order_by(table.c.updated_at).limit(BATCH)).scalars())


def _above(tx: Tx, most: int) -> list[str]:
    if most <= 0:
        return []
    newest_first = table.c.updated_at.desc(), table.c.id.desc()
    place = sa.func.row_number().over(partition_by=table.c.agent_id, order_by=newest_first)
    placed = sa.select(table.c.id, place.label("place")).where(table.c.status == "active").subquery()
    surplus = sa.select(placed.c.id).where(placed.c.place > most)
    return list(tx.conn.execute(_idle().where(table.c.id.in_(surplus)).limit(BATCH)).scalars())


def _idle() -> sa.Select[str]:
    busy = sa.exists().where(turns.c.session_id == table.c.id, turns.c.status.in_(["accepted", "running"]))
    return sa.select(table.c.id).where(table.c.status == "active", ~busy)
