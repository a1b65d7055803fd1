"""Standing tasks: their tables, what somebody asks for when they make or change one, and how it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Final, Literal

import sqlalchemy as sa
from pydantic import Field
from typing_extensions import TypedDict

from holdfast.agents.cron import schedules, tasks
from holdfast.agents.cron.schedules import Cron, Once, Schedule, schedule_of
from holdfast.agents.heartbeat.rules import zone_of
from holdfast.clock import Millis, iso
from holdfast.config import Config
from holdfast.errors import Busy, Conflict, InvalidInput, NotFound
from holdfast.ids import uuid7
from holdfast.log import Audience, Tx, agenda, changes
from holdfast.log.tables import Json, metadata, outbox
from holdfast.records import Iso, record
from holdfast.text import clean_text

standing_tasks = sa.Table(
    "standing_tasks",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("agent_id", sa.Text, nullable=False),
    sa.Column("session", sa.Text, nullable=False),
    sa.Column("schedule", Json, nullable=False),
    sa.Column("prompt", sa.Text, nullable=False),
    sa.Column("model", sa.Text),
    sa.Column("timeout_seconds", sa.Integer),
    sa.Column("deliver", sa.Text, nullable=False),
    sa.Column("enabled", sa.Boolean, nullable=False),
    sa.Column("next_due", sa.BigInteger),
    sa.Column("last_run", sa.BigInteger),
    sa.Column("last_status", sa.Text),
    sa.Column("last_error", sa.Text),
    sa.Column("turn_id", sa.Text),
    sa.Column("runs", sa.Integer, nullable=False),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("created_by", Json, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
)

hook_calls = sa.Table(
    "hook_calls",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("turn_id", sa.Text, nullable=False),
    sa.Column("received_at", sa.BigInteger, nullable=False),
)


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
    tx.conn.execute(sa.insert(standing_tasks), _values(task))
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
    query = sa.select(standing_tasks).where(standing_tasks.c.id == id_)
    row = tx.conn.execute(query.with_for_update() if lock and tx.postgres else query).mappings().first()
    return None if row is None else _task(row)


def get_many(tx: Tx, ids: Sequence[str]) -> list[Task]:
    return [
        _task(row)
        for row in tx.conn.execute(sa.select(standing_tasks).where(standing_tasks.c.id.in_(ids))).mappings()
    ]


def of_turn(tx: Tx, turn_id: str) -> Task | None:
    row = (
        tx.conn.execute(sa.select(standing_tasks).where(standing_tasks.c.turn_id == turn_id))
        .mappings()
        .first()
    )
    return None if row is None else _task(row)


def listing(
    tx: Tx, *, agent_ids: frozenset[str] | None = None, limit: int = MAX_PAGE, offset: int = 0
) -> list[Task]:
    """Oldest first."""
    query = sa.select(standing_tasks).order_by(standing_tasks.c.created_at, standing_tasks.c.id)
    if agent_ids is not None:
        query = query.where(standing_tasks.c.agent_id.in_(sorted(agent_ids)))
    rows = tx.conn.execute(query.limit(max(1, limit)).offset(max(0, offset))).mappings()
    return [_task(row) for row in rows]


def enabled_count(tx: Tx) -> int:
    return tx.conn.execute(sa.select(sa.func.count()).where(standing_tasks.c.enabled.is_(True))).scalar() or 0


def running(tx: Tx) -> list[Task]:
    rows = tx.conn.execute(
        sa.select(standing_tasks).where(standing_tasks.c.last_status == sa.literal_column("'running'"))
    )
    return [_task(row) for row in rows.mappings()]


def save(tx: Tx, task: Task, **values: Any) -> Task:
    """Change a task, unless someone else did since it was read (`Conflict`)."""
    after = replace(task, **values, updated_at=tx.now, revision=task.revision + 1)
    same = standing_tasks.c.id == task.id, standing_tasks.c.revision == task.revision
    if tx.conn.execute(sa.update(standing_tasks).where(*same).values(_values(after))).rowcount != 1:
        raise Conflict("the task changed meanwhile", code="stale_task", hint="Read it again.")
    changes.emit(tx, CHANGED, task.id)
    return after


def remove(tx: Tx, task: Task) -> None:
    _unplan(tx, task)
    tx.conn.execute(sa.delete(standing_tasks).where(standing_tasks.c.id == task.id))
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


MOST_PROMPT: Final = 32_000
MOST_NAME: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A task as it is asked for; one of `cron`, `every` and `at` says when."""

    prompt: str
    name: str = ""
    agent_id: str | None = None
    cron: str | None = None
    every: str | None = None
    at: str | None = None
    tz: str | None = None
    session: Where = "isolated"
    model: str | None = None
    timeout_seconds: int | None = None
    deliver: str = "last"
    enabled: bool = True


def make_task(tx: Tx, config: Config, wish: Wish, created_by: Mapping[str, Any]) -> Task:
    """A new task; `Busy` when there are as many as there may be."""
    agent_id = config.agent(wish.agent_id or config.default_agent_id).id
    _check_text(wish.prompt, wish.name)
    if tasks.enabled_count(tx) >= config.cron.max_jobs:
        raise Busy(
            f"there are {config.cron.max_jobs} standing tasks already",
            code="too_many_tasks",
            hint="Remove some, or raise cron.maxJobs.",
        )
    return tasks.add(
        tx,
        name=_name(wish),
        agent_id=agent_id,
        schedule=_schedule(wish, config, agent_id, tx.now),
        prompt=wish.prompt.strip(),
        session=wish.session,
        model=wish.model,
        timeout_seconds=wish.timeout_seconds,
        deliver=wish.deliver,
        enabled=wish.enabled,
        created_by=dict(created_by),
    )


def change_task(
    tx: Tx, config: Config, task: Task, sent: Mapping[str, Any], revision: int | None = None
) -> Task:
    """Change what was sent; a new schedule or being switched on counts from now."""
    if revision is not None and revision != task.revision:
        raise Conflict("the task changed meanwhile", code="stale_task", hint="Read it again.")
    values = {name: sent[name] for name in _CHANGEABLE if name in sent}
    _check_text(str(values.get("prompt", task.prompt)), str(values.get("name", task.name)))
    when = {name: sent[name] for name in ("cron", "every", "at", "tz") if sent.get(name)}
    if when:
        same = {"cron": task.schedule.expr} if isinstance(task.schedule, Cron) and set(when) == {"tz"} else {}
        wish = Wish(prompt=task.prompt, **when | same)
        values["schedule"] = _schedule(wish, config, task.agent_id, tx.now)
    schedule: Schedule = values.get("schedule", task.schedule)
    enabled = bool(values.get("enabled", task.enabled or bool(when)))
    comes = schedule.next(tx.now) if enabled else None
    if enabled and comes is None:
        raise InvalidInput("its time has passed", code="bad_schedule", hint="Give it a new schedule.")
    saved = tasks.save(tx, task, **values | {"enabled": enabled, "next_due": comes})
    tasks.plan(tx, saved)
    return saved


_CHANGEABLE: Final = ("name", "prompt", "session", "model", "timeout_seconds", "deliver", "enabled")


def _schedule(wish: Wish, config: Config, agent_id: str, now: int) -> Schedule:
    default = str(zone_of(config.cron.timezone, config.agent(agent_id)))
    return schedule_of(now, default, cron=wish.cron, every=wish.every, at=wish.at, tz=wish.tz)


def _name(wish: Wish) -> str:
    words = wish.name.strip() or wish.prompt.strip().splitlines()[0][:MOST_NAME].strip()
    return "".join(ch if ch.isprintable() else " " for ch in words)


def _check_text(prompt: str, name: str) -> None:
    if not prompt.strip() or len(prompt) > MOST_PROMPT:
        raise InvalidInput(f"a standing task needs a prompt of at most {MOST_PROMPT:,} characters")
    if len(name) > MOST_NAME:
        raise InvalidInput(f"a standing task's name has at most {MOST_NAME} characters")


@record
class StandingTaskOut(TypedDict):
    id: str
    name: str
    agentId: str
    session: Where
    sessionKey: str
    schedule: Annotated[dict[str, str], Field(description="`kind` is cron, every or at.")]
    prompt: str
    model: str | None
    timeoutSeconds: int | None
    deliver: str
    enabled: bool
    nextDue: Iso | None
    lastRun: Iso | None
    lastStatus: Literal["running", "ok", "silent", "failed"] | None
    lastError: str | None
    lastTurnId: str | None
    lastDelivery: Annotated[str | None, Field(description="How the delivery of the last reply stands.")]
    runs: int
    failures: Annotated[int, Field(description="In a row.")]
    createdBy: dict[str, Any]
    createdAt: Iso
    updatedAt: Iso
    revision: int


def task_json(tx: Tx, task: Task) -> StandingTaskOut:
    return tasks_json(tx, [task])[0]


def tasks_json(tx: Tx, found: Sequence[Task]) -> list[StandingTaskOut]:
    states = _deliveries(tx, found)
    return [_told(task, states.get(task.id)) for task in found]


def tasks_by_id(tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """What a change of kind `cron` is about."""
    return {told["id"]: told for told in tasks_json(tx, tasks.get_many(tx, ids))}


def _told(task: Task, delivery: str | None) -> StandingTaskOut:
    """`lastDelivery` is a state of its own: that a run went well does not say that its reply arrived."""
    return {
        "id": task.id,
        "name": task.name,
        "agentId": task.agent_id,
        "session": task.session,
        "sessionKey": task.session_key,
        "schedule": task.schedule.json(),
        "prompt": task.prompt,
        "model": task.model,
        "timeoutSeconds": task.timeout_seconds,
        "deliver": task.deliver,
        "enabled": task.enabled,
        "nextDue": _time(task.next_due),
        "lastRun": _time(task.last_run),
        "lastStatus": task.last_status,
        "lastError": task.last_error,
        "lastTurnId": task.turn_id,
        "lastDelivery": delivery,
        "runs": task.runs,
        "failures": task.failures,
        "createdBy": dict(task.created_by),
        "createdAt": iso(task.created_at),
        "updatedAt": iso(task.updated_at),
        "revision": task.revision,
    }


def _deliveries(tx: Tx, found: Sequence[Task]) -> dict[str, str]:
    keys = {f"reply:{task.turn_id}": task.id for task in found if task.turn_id is not None}
    query = sa.select(outbox.c.key, outbox.c.status).where(outbox.c.key.in_(sorted(keys)))
    return {keys[row.key]: row.status for row in tx.conn.execute(query)} if keys else {}


def _time(at: int | None) -> str | None:
    return None if at is None else iso(at)
