"""Standing tasks that are due take their turn; the sessions of isolated runs are put away in their time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from holdfast.agents.cron import tasks
from holdfast.agents.cron.tasks import Task
from holdfast.agents.heartbeat.state import LAST, HeardAt, last_surface, nobody_knows
from holdfast.agents.loop.asks import Accepted, Ask, Deliver
from holdfast.config import Config
from holdfast.context import Trust
from holdfast.errors import HoldfastError
from holdfast.log import SYSTEM, Session, SessionStatus, Store, Threads, Tx, agenda, sessions, turns

log = logging.getLogger(__name__)

TRIGGER: Final = "cron"
RETRY_MS: Final = 15_000

Accept = Callable[[Tx, Ask], Accepted]


@dataclass(frozen=True, slots=True, kw_only=True)
class CronParts:
    """The config is asked for every time anew; `patch` merges into its file, where that is allowed."""

    store: Store
    threads: Threads
    config: Callable[[], Config]
    patch: Callable[[dict[str, Any]], object] | None = None
    heard_at: HeardAt = nobody_knows


class Firer:
    """Handles the agenda's `cron` items; each enabled task has one."""

    def __init__(self, parts: CronParts, accept: Accept) -> None:
        self._parts = parts
        self._accept = accept

    def kind(self) -> agenda.Kind:
        return agenda.Kind(self.handle, limit=2, halts=True)

    async def handle(self, job: agenda.Job) -> None:
        await self._parts.threads(self._parts.store.run, SYSTEM, lambda tx: self._fire(tx, job))

    def _fire(self, tx: Tx, job: agenda.Job) -> None:
        task = tasks.find(tx, str(job.item.payload["taskId"]), lock=True)
        forced = job.item.payload.get("forced") is True
        if task is None or not (forced or (task.enabled and self._parts.config().cron.enabled)):
            job.settle(tx)
            return
        if not forced and task.next_due is not None and task.next_due > tx.now:
            job.settle(tx)
            tasks.plan(tx, task)
            return
        if _under_way(tx, task):
            self._go_on(tx, job, task, last_error="a run was left out: the one before it was not over")
        elif self._full(tx):
            assert job.item.owner is not None
            job.settle(tx, agenda.Postpone(job.item.owner, tx.now + RETRY_MS, "other tasks run"))
        else:
            self._run(tx, job, task)

    def _run(self, tx: Tx, job: agenda.Job, task: Task) -> None:
        try:
            accepted = self._accept(tx, self._ask(tx, job, task))
        except HoldfastError as error:
            log.warning("standing task %s cannot run: %s", task.id, error.message)
            self._go_on(
                tx, job, task, last_status="failed", last_error=error.message, failures=task.failures + 1
            )
            return
        ran = {"last_run": tx.now, "turn_id": accepted.run_id, "runs": task.runs + 1}
        self._go_on(tx, job, task, last_status="running", last_error=None, **ran)

    def _ask(self, tx: Tx, job: agenda.Job, task: Task) -> Ask:
        made_by = task.created_by
        session = sessions.active(tx, task.session_key)
        if task.session == "isolated" and session is not None and session.turn_count:
            sessions.reset(tx, session, cause=TRIGGER)
        spoken_in = str(made_by.get("sessionKey") or f"agent:{task.agent_id}:main")
        return Ask(
            text=f"[cron:{task.name}] {task.prompt}",
            session_key=task.session_key,
            agent_id=task.agent_id,
            model=task.model,
            timeout_seconds=task.timeout_seconds,
            sender=made_by.get("sender"),
            owner=made_by.get("owner", True) is True,
            deliver=self._place(tx, task, spoken_in),
            heard=tasks.heard(task),
            owner_sent=tasks.by_hand(task),
            limited_to=None if (agents := made_by.get("limitedTo")) is None else tuple(agents),
            trigger=TRIGGER,
            trust=Trust.USER,
            mode="queue",
            source={"channel": TRIGGER, "taskId": task.id},
            key=f"{TRIGGER}:{job.item.id}",
            commands=False,
        )

    def _place(self, tx: Tx, task: Task, spoken_in: str) -> Deliver | None:
        """Where the task speaks; one that was made in a chat that others hear, in that chat."""
        own = task.created_by.get("deliver")
        if task.deliver == LAST and own is not None:
            return Deliver(**own)
        return last_surface(tx, task.deliver, spoken_in, task.agent_id, self._parts.heard_at)

    def _go_on(self, tx: Tx, job: agenda.Job, task: Task, **values: Any) -> None:
        """On to the next time; a task that has none is over."""
        job.settle(tx)
        comes = task.schedule.next(tx.now) if task.enabled else None
        after = tasks.save(tx, task, **values, next_due=comes, enabled=task.enabled and comes is not None)
        tasks.plan(tx, after)

    def _full(self, tx: Tx) -> bool:
        under_way = [task for task in tasks.running(tx) if _under_way(tx, task)]
        return len(under_way) >= self._parts.config().cron.max_concurrent_runs


def _under_way(tx: Tx, task: Task) -> bool:
    """Whether the task's last turn still waits or runs; one that the log no longer has does not."""
    if task.last_status != "running" or task.turn_id is None:
        return False
    found = turns.get_many(tx, [task.turn_id])
    return bool(found) and not turns.has_ended(tx, found[0])


ARCHIVE: Final = "cron.archive"


def plan_archiving(tx: Tx, session: Session, retention_ms: int) -> None:
    key = f"{ARCHIVE}:{session.id}"
    agenda.enqueue(
        tx,
        ARCHIVE,
        {"sessionId": session.id},
        lane=key,
        key=key,
        due_at=tx.now + retention_ms,
        max_attempts=3,
    )


class Archiver:
    def __init__(self, parts: CronParts) -> None:
        self._parts = parts

    def kind(self) -> agenda.Kind:
        return agenda.Kind(self.handle, limit=1)

    async def handle(self, job: agenda.Job) -> None:
        await self._parts.threads(self._parts.store.run, SYSTEM, lambda tx: self._archive(tx, job))

    def _archive(self, tx: Tx, job: agenda.Job) -> None:
        """A session that someone talks in is theirs and stays."""
        job.settle(tx)
        session = sessions.get(tx, str(job.item.payload["sessionId"]))
        unused = session.last_external_at <= session.created_at and not agenda.listing(tx, lane=session.key)
        if session.status is SessionStatus.ACTIVE and unused:
            sessions.archive(tx, session, cause=TRIGGER)
