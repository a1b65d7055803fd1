"""How much there is: the figures that `status` shows."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from holdfast.log import entries
from holdfast.log.store import Tx
from holdfast.log.tables import agenda, sessions, turns


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts by status, the newest position of the log, and the size of the database in bytes."""

    head: int
    sessions: dict[str, int]
    agenda: dict[str, int]
    turns: dict[str, int]
    size: int


def stats(tx: Tx) -> Stats:
    return Stats(
        head=entries.head(tx),
        sessions=_by_status(tx, sessions),
        agenda=_by_status(tx, agenda),
        turns=_by_status(tx, turns),
        size=int(tx.conn.exec_driver_sql(_SIZE_POSTGRES if tx.postgres else _SIZE_SQLITE).scalar() or 0),
    )


def _by_status(tx: Tx, table: sa.Table) -> dict[str, int]:
    query = sa.select(table.c.status, sa.func.count()).group_by(table.c.status).order_by(table.c.status)
    return {str(row[0]): int(row[1]) for row in tx.conn.execute(query)}


_SIZE_POSTGRES = "SELECT pg_database_size(current_database())"
_SIZE_SQLITE = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
