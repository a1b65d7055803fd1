"""The board in figures, for a page and for whoever watches over it."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from holdfast.board.tables import spaces, tasks, topics
from holdfast.board.work import TaskStatus, TopicStatus
from holdfast.log import Tx
from holdfast.log.tables import entries

MOST: Final = 10_000


def figures(tx: Tx) -> dict[str, Any]:
    """Counts by status. A snooze that is over still counts as one until its topic is next written."""
    return {
        "spaces": tx.conn.execute(sa.select(sa.func.count()).select_from(spaces)).scalar() or 0,
        "topics": _by_status(tx, topics, list(TopicStatus)),
        "tasks": _by_status(tx, tasks, list(TaskStatus)),
        "pending": _waiting(tx, "pending"),
        "failed": _waiting(tx, "failed"),
    }


def _by_status(tx: Tx, table: sa.Table, known: list[Any]) -> dict[str, int]:
    query = sa.select(table.c.status, sa.func.count().label("most")).group_by(table.c.status)
    found = {row.status: row.most for row in tx.conn.execute(query)}
    return {str(status): found.get(str(status), 0) for status in known}


def _waiting(tx: Tx, status: str) -> int:
    """Counted up to a bound, in the partial index of those that wait."""
    here = sa.select(sa.literal(1)).where(
        entries.c.status == sa.literal_column(f"'{status}'"), entries.c.deleted_at.is_(None)
    )
    return tx.conn.execute(sa.select(sa.func.count()).select_from(here.limit(MOST).subquery())).scalar() or 0
