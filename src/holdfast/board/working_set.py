"""The working set: the few topics and tasks that matter now. Candidates come from small indexes, one for each
reason to matter; what is best among them is a pure decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from holdfast.board import tasks, topics
from holdfast.board.tables import tasks as task_table
from holdfast.board.tables import topics as topic_table
from holdfast.board.tasks import Task
from holdfast.board.topics import Topic
from holdfast.board.visibility import View
from holdfast.board.work import Priority, TaskStatus, TopicStatus, is_snoozed
from holdfast.log import Tx

DUE_SOON_MS: Final = 72 * 3_600_000
MAX_LIMIT: Final = 100
_CANDIDATES: Final = 64

Item = Topic | Task
T = TypeVar("T", Topic, Task)


@dataclass(frozen=True, slots=True)
class WorkingSet:
    topics: list[Topic]
    tasks: list[Task]


def working_set(tx: Tx, view: View, limit: int, now: int) -> WorkingSet:
    """At most `limit` topics and `limit` tasks, the most pressing first."""
    limit = max(0, min(limit, MAX_LIMIT))
    if limit == 0 or view.spaces == frozenset():
        return WorkingSet([], [])
    topic_ids = _candidates(tx, topic_table, view.topics(), now)
    task_ids = _candidates(tx, task_table, view.tasks(), now)
    # The nearest topics round off a set in which too little is pressing.
    recent = sa.select(topic_table.c.id).where(*view.topics(), _awake(topic_table, now))
    recent = recent.order_by(topic_table.c.updated_at.desc(), topic_table.c.id.desc()).limit(limit)
    topic_ids |= set(tx.conn.execute(recent).scalars())
    return WorkingSet(
        rank(topics.get_many(tx, sorted(topic_ids)), limit, now),
        rank(tasks.get_many(tx, sorted(task_ids)), limit, now),
    )


def rank(items: Iterable[T], limit: int, now: int) -> list[T]:
    """Best first: by what presses, then by the last change; what rests or is over is left out."""
    live = [item for item in items if is_live(item, now)]
    return sorted(live, key=lambda item: (*_order(item, now), item.id))[:limit]


def is_live(item: Item, now: int) -> bool:
    """Neither archived, done nor snoozed."""
    over = (TopicStatus.ARCHIVED, TopicStatus.DONE, TopicStatus.SNOOZED, TaskStatus.DONE)
    return item.status not in over and not is_snoozed(item.snoozed_until, now)


def pressure(item: Item, now: int) -> int:
    """How much a thing presses: pinned before in work, in work before urgent, each reason on its own."""
    moving = item.status in (TopicStatus.DOING, TopicStatus.BLOCKED)
    due = item.due_at is not None and item.due_at <= now + DUE_SOON_MS
    overdue = item.due_at is not None and item.due_at < now
    high = item.priority is Priority.HIGH
    return 16 * item.pinned + 8 * moving + 4 * overdue + 2 * due + 1 * high


def _order(item: Item, now: int) -> tuple[int, int, int]:
    due = item.due_at if item.due_at is not None else 1 << 62
    return (-pressure(item, now), due, -item.updated_at)


def _candidates(tx: Tx, table: sa.Table, seen: Sequence[sa.ColumnElement[bool]], now: int) -> set[str]:
    """A bounded number of ids for each reason; conditions are literal so that the partial indexes fit.

    The time is bound, not written in: a statement whose text changes is compiled anew each time.
    """
    newest = (table.c.updated_at.desc(), table.c.id.desc())
    soonest = (table.c.due_at, table.c.id)
    name = table.name
    reasons: list[tuple[str, Sequence[sa.ColumnElement[Any]]]] = [
        (f"{name}.pinned IS TRUE", newest),
        (f"{name}.status = 'doing'", newest),
        (f"{name}.status = 'blocked'", newest),
        (f"{name}.priority = 'high'", newest),
        (f"{name}.due_at IS NOT NULL AND {name}.due_at <= :soon", soonest),
    ]
    soon = {"soon": int(now) + DUE_SOON_MS}
    found: set[str] = set()
    for reason, order in reasons:
        query = sa.select(table.c.id).where(sa.text(reason), *seen, _awake(table, now))
        given = soon if ":soon" in reason else {}
        found.update(tx.conn.execute(query.order_by(*order).limit(_CANDIDATES), given).scalars())
    return found


def _awake(table: sa.Table, now: int) -> sa.ColumnElement[bool]:
    """Live, as `is_live` says, put so that no index is chosen for it."""
    asleep = sa.and_(table.c.snoozed_until.is_not(None), table.c.snoozed_until > now)
    over = sa.func.coalesce(table.c.status, "").in_(["archived", "done"])
    forever = sa.and_(sa.func.coalesce(table.c.status, "") == "snoozed", table.c.snoozed_until.is_(None))
    return sa.not_(sa.or_(sa.and_(table.c.snoozed_until.is_not(None), asleep), over, forever))
