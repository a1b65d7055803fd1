"""Standing tasks as they are kept: what to do, when, and how it last went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal

import sqlalchemy as sa

from holdfast.agents.cron import schedules
from holdfast.agents.cron.schedules import Once, Schedule
from holdfast.agents.cron.tables import standing_tasks as table
from holdfast.clock import Millis
from holdfast.errors import Conflict, NotFound
from holdfast.ids import uuid7
from holdfast.log import Audience, Tx, agenda, changes
from holdfast.text import clean_text

KIND: Final = "cron"
CHANGED: Final = "cron.upserted"
DELETED: Final = "cron.deleted"
MAX_PAGE: Final = 500

Where = Literal["main", "isolated"]
Status = Literal["running", "ok", "silent", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """`session` is where it runs: the agent's main session, or one of its own that begins afresh each time.

    `created_by` says who asked for it and with what rights; it runs with no more than those.
    """

    id: str
    name: str
    agent_id: str
    schedule: Schedule
    prompt: str
    created_at: Millis
    updated_at: Millis
    session: Where = "isolated"
    model: str | None = None
    timeout_seconds: int | None = None
    deliver: str = "last"
    enabled: bool = True
    next_due: Millis | None = None
    last_run: Millis | None = None
    last_status: Status | None = None
    last_error: str | None = None
    turn_id: str | None = None
    runs: int = 0
    failures: int = 0
    created_by: Mapping[str, Any] = field(default_factory=dict)
    revision: int = 0

    @property
    def session_key(self) -> str:
        return f"agent:{self.agent_id}:" + ("main" if self.session == "main" else f"cron:{self.id}")


_NAMES = tuple(f.name for f in fields(Task))


def heard(task: Task) -> Audience | None:
    """Who hears the task's own session: those who heard where an agent made it."""
    made = task.created_by.get("audience")
    return Audience(str(made)) if made is not None and task.session == "isolated" else None


def by_hand(task: Task) -> bool:
    """Whether the owner made the task, and so chose where it speaks; not an agent of theirs."""
    made_by = task.created_by
    return made_by.get("kind") != "agent" and made_by.get("owner", True) is True


def add(tx: Tx, *, name: str, agent_id: str, schedule: Schedule, prompt: str, **more: Any) -> Task:
    """Make a task and put its first run on the agenda."""
    task = Task(
        id=f"task-{uuid7()}",
        name=clean_text(name),
        agent_id=agent_id,
        schedule=schedule,
        prompt=clean_text(prompt),
        next_due=schedule.next(tx.now),
        created_at=tx.now,
        updated_at=tx.now,
        **more,
    )
    tx.conn.execute(sa.insert(table), _values(task))
    changes.emit(tx, CHANGED, task.id)
    plan(tx, task)
    return task


def get(tx: Tx, id_: str, *, lock: bool = False) -> Task:
    found = find(tx, id_, lock=lock)
    if found is None:
        raise NotFound(
            f"no standing task {id_[:80]!r}", code="unknown_task", hint="See `holdfast cron list`."
        )
    return found


def find(tx: Tx, id_: str, *, lock: bool = False) -> Task | None:
    query = sa.select(table).where(table.c.id == id_)
    row = tx.conn.execute(query.with_for_update() if lock and tx.postgres else query).mappings().first()
    return None if row is None else _task(row)


def get_many(tx: Tx, ids: Sequence[str]) -> list[Task]:
    return [_task(row) for row in tx.conn.execute(sa.select(table).where(table.c.id.in_(ids))).mappings()]


def of_turn(tx: Tx, turn_id: str) -> Task | None:
    row = tx.conn.execute(sa.select(table).where(table.c.turn_id == turn_id)).mappings().first()
    return None if row is None else _task(row)


def listing(
    tx: Tx, *, agent_ids: frozenset[str] | None = None, limit: int = MAX_PAGE, offset: int = 0
) -> list[Task]:
    """Oldest first."""
    query = sa.select(table).order_by(table.c.created_at, table.c.id)
    if agent_ids is not None:
        query = query.where(table.c.agent_id.in_(sorted(agent_ids)))
    rows = tx.conn.execute(query.limit(max(1, limit)).offset(max(0, offset))).mappings()
    return [_task(row) for row in rows]


def enabled_count(tx: Tx) -> int:
    return tx.conn.execute(sa.select(sa.func.count()).where(table.c.enabled.is_(True))).scalar() or 0


def running(tx: Tx) -> list[Task]:
    rows = tx.conn.execute(sa.select(table).where(table.c.last_status == sa.literal_column("'running'")))
    return [_task(row) for row in rows.mappings()]


def save(tx: Tx, task: Task, **values: Any) -> Task:
    """Change a task, unless someone else did since it was read (`Conflict`)."""
    after = replace(task, **values, updated_at=tx.now, revision=task.revision + 1)
    same = table.c.id == task.id, table.c.revision == task.revision
    if tx.conn.execute(sa.update(table).where(*same).values(_values(after))).rowcount != 1:
        raise Conflict("the task changed meanwhile", code="stale_task", hint="Read it again.")
    changes.emit(tx, CHANGED, task.id)
    return after


def remove(tx: Tx, task: Task) -> None:
    _unplan(tx, task)
    tx.conn.execute(sa.delete(table).where(table.c.id == task.id))
    changes.emit(tx, DELETED, task.id, {"id": task.id, "agentId": task.agent_id})


def plan(tx: Tx, task: Task) -> None:
    """Let the agenda hold the task's next run, and nothing else of it that waits."""
    if not task.enabled or task.next_due is None:
        _unplan(tx, task)
        return
    item = _put(tx, task, task.next_due)
    waits = item.status is agenda.Status.QUEUED and not item.payload.get("forced")
    if waits and item.due_at != task.next_due:
        agenda.apply(tx, item, agenda.Reschedule(task.next_due))


def run_now(tx: Tx, task: Task) -> agenda.Item:
    """A run at once, besides its schedule; while one is under way, that one."""
    _unplan(tx, task)
    return _put(tx, task, tx.now, forced=True)


def is_finished(task: Task) -> bool:
    """Whether it was to run once, and has."""
    return isinstance(task.schedule, Once) and not task.enabled and task.runs > 0


def _put(tx: Tx, task: Task, due_at: int, *, forced: bool = False) -> agenda.Item:
    key = f"{KIND}:{task.id}"
    payload = {"taskId": task.id} | ({"forced": True} if forced else {})
    return agenda.enqueue(tx, KIND, payload, lane=key, key=key, due_at=due_at, max_attempts=5)


def _unplan(tx: Tx, task: Task) -> None:
    agenda.cancel_lane(tx, f"{KIND}:{task.id}", kinds=[KIND], reason="the task changed")


def _values(task: Task) -> dict[str, Any]:
    return {name: getattr(task, name) for name in _NAMES} | {"schedule": task.schedule.json()}


def _task(row: Mapping[Any, Any]) -> Task:
    values = dict(row)
    return Task(**values | {"schedule": schedules.read(values["schedule"])})
