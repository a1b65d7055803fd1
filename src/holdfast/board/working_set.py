"""The working set: the few topics and tasks that matter now. Candidates come from small indexes, one for each
reason to matter; what is best among them is a pure decision.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from holdfast.board import tasks, topics
from holdfast.board.reads import ReadableRows
from holdfast.board.tasks import Task
from holdfast.board.topics import Topic
from holdfast.board.visibility import View
from holdfast.board.work import Priority, TaskStatus, TopicStatus, is_snoozed
from holdfast.log import Tx

DUE_SOON_MS: Final = 72 * 3_600_000
MAX_LIMIT: Final = 100
_CANDIDATES: Final = 64


class Candidate(NamedTuple):
    """What decides whether a topic or a task is in the set; a snooze that is over is none."""

    id: str
    status: str
    priority: str
    pinned: bool
    due_at: int | None
    snoozed_until: int | None
    updated_at: int


Item = Topic | Task | Candidate
T = TypeVar("T", Topic, Task, Candidate)


@dataclass(frozen=True, slots=True)
class WorkingSet:
    topics: list[Topic]
    tasks: list[Task]


def working_set(tx: Tx, view: View, limit: int, now: int) -> WorkingSet:
    """At most `limit` topics and `limit` tasks that may be read, the most pressing first."""
    limit = max(0, min(limit, MAX_LIMIT))
    if limit == 0 or view.spaces == frozenset():
        return WorkingSet([], [])
    topic_ids = [one.id for one in rank(_candidates(tx, "topics", view, limit, now), limit, now)]
    task_ids = [one.id for one in rank(_candidates(tx, "tasks", view, 0, now), limit, now)]
    of_topics = {one.id: one for one in topics.get_many(tx, topic_ids)}
    of_tasks = {one.id: one for one in tasks.get_many(tx, task_ids)}
    return WorkingSet([of_topics[id_] for id_ in topic_ids], [of_tasks[id_] for id_ in task_ids])


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
    high = item.priority == Priority.HIGH
    return 16 * item.pinned + 8 * moving + 4 * overdue + 2 * due + 1 * high


def _order(item: Item, now: int) -> tuple[int, int, int]:
    due = item.due_at if item.due_at is not None else 1 << 62
    return (-pressure(item, now), due, -item.updated_at)


def _candidates(tx: Tx, table: str, view: View, recent: int, now: int) -> list[Candidate]:
    """A bounded number for each reason; the `recent` last changed round off a set in which little presses."""
    given = {"now": int(now), "soon": int(now) + DUE_SOON_MS, "recent": recent}
    if view.spaces is None:
        rows = _EVERYWHERE[table].rows(tx, **given)
    else:
        rows = _WITHIN[table].rows(tx, **given, spaces=sorted(view.spaces))
    return [Candidate(*row) for row in {row[0]: row for row in rows}.values()]


def _query(table: str, within: str) -> ReadableRows:
    """Reasons are written out, so that each is read from its own index in the order of that index."""
    newest, soonest = "updated_at DESC, id DESC", "due_at, id"
    reasons = [
        ("pinned IS TRUE", newest, str(_CANDIDATES)),
        ("status = 'doing'", newest, str(_CANDIDATES)),
        ("status = 'blocked'", newest, str(_CANDIDATES)),
        ("priority = 'high'", newest, str(_CANDIDATES)),
        ("due_at IS NOT NULL AND due_at <= :soon", soonest, str(_CANDIDATES)),
        ("updated_at IS NOT NULL", newest, ":recent"),
    ]
    parts = [
        f"""SELECT * FROM (SELECT id, CASE WHEN status = 'snoozed' THEN 'active' ELSE status END, priority,
        pinned, due_at, CASE WHEN snoozed_until > :now THEN snoozed_until END, updated_at FROM {table}
        WHERE {reason} AND {_AWAKE} {within} {{reach}} ORDER BY {order} LIMIT {most}) AS reason{at}"""
        for at, (reason, order, most) in enumerate(reasons)
    ]
    return ReadableRows(" UNION ALL ".join(parts), agent="agent_id" if table == "topics" else None)


_AWAKE: Final = """(snoozed_until IS NULL OR snoozed_until <= :now)
    AND NOT coalesce(status, '') IN ('archived', 'done')
    AND NOT (coalesce(status, '') = 'snoozed' AND snoozed_until IS NULL)"""
_MEMBER: Final = """AND EXISTS (SELECT 1 FROM {one}_spaces AS m
    WHERE m.{one}_id = {one}s.id AND m.space_id IN :spaces)"""
_EVERYWHERE: Final = {table: _query(table, "") for table in ("topics", "tasks")}
_WITHIN: Final = {f"{one}s": _query(f"{one}s", _MEMBER.format(one=one)) for one in ("topic", "task")}
