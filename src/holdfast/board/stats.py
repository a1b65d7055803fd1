"""The board in figures, for a page and for whoever watches over it."""

from __future__ import annotations

from typing import Annotated, Any, Final

import sqlalchemy as sa
from pydantic import Field
from typing_extensions import TypedDict

from holdfast.board import tasks as task_room
from holdfast.board import topics as topic_room
from holdfast.board.tables import spaces, tasks, topics
from holdfast.board.work import TaskStatus, TopicStatus
from holdfast.log import Tx, entry_model, space_of
from holdfast.log.tables import entries
from holdfast.records import record

MOST: Final = 10_000


@record
class BoardMetricsOut(TypedDict):
    spaces: int
    topics: Annotated[dict[str, int], Field(description="By status.")]
    tasks: Annotated[dict[str, int], Field(description="By status.")]
    pending: Annotated[int, Field(description="Entries not yet sorted; counted up to 10,000.")]
    failed: Annotated[int, Field(description="Entries that could not be sorted; counted up to 10,000.")]


def figures(tx: Tx) -> BoardMetricsOut:
    """Counts by status, of what may be read. A snooze that is over counts until its topic is written."""
    return {
        "spaces": _spaces(tx),
        "topics": _by_status(tx, topics, topic_room.within_reach(tx.reader), list(TopicStatus)),
        "tasks": _by_status(tx, tasks, task_room.within_reach(tx.reader), list(TaskStatus)),
        "pending": _waiting(tx, "pending"),
        "failed": _waiting(tx, "failed"),
    }


def _spaces(tx: Tx) -> int:
    query = sa.select(sa.func.count()).select_from(spaces)
    if tx.reader.audiences is not None:
        query = query.where(spaces.c.id.in_([space_of(one) for one in tx.reader.audiences]))
    return tx.conn.execute(query).scalar() or 0


def _by_status(
    tx: Tx, table: sa.Table, reach: list[sa.ColumnElement[bool]], known: list[Any]
) -> dict[str, int]:
    query = sa.select(table.c.status, sa.func.count().label("most")).where(*reach).group_by(table.c.status)
    found = {row.status: row.most for row in tx.conn.execute(query)}
    return {str(status): found.get(str(status), 0) for status in known}


def _waiting(tx: Tx, status: str) -> int:
    """Counted up to a bound, in the partial index of those that wait."""
    here = sa.select(sa.literal(1)).where(
        entries.c.status == sa.literal_column(f"'{status}'"),
        entries.c.deleted_at.is_(None),
        *entry_model.within_reach(tx.reader),
    )
    return tx.conn.execute(sa.select(sa.func.count()).select_from(here.limit(MOST).subquery())).scalar() or 0
