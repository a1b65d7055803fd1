"""Supervision of delegated runs: looked after at growing intervals, and never silent for long.

A run is checked 1, 3, 10, 15, 30 and then every 60 minutes after the check before (as configured). While it
runs for longer than five minutes, the user is told: once at that moment, and at every check from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, Protocol

import sqlalchemy as sa

from holdfast.board.tables import supervised_runs as table
from holdfast.clock import Millis
from holdfast.config.board import BoardConfig, Supervision
from holdfast.errors import NotFound
from holdfast.log import (
    SYSTEM,
    Classification,
    EntryDraft,
    EntryType,
    Store,
    Threads,
    Tx,
    agenda,
    entries,
    sessions,
)
from holdfast.text import clean_json, clip

KIND: Final = "board.supervise"
MINUTE_MS: Final = 60_000
MAX_OPEN: Final = 500


class RunStatus(StrEnum):
    RUNNING = "running"
    STALLED = "stalled"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self not in (RunStatus.RUNNING, RunStatus.STALLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A delegated run under supervision; `step` counts its checks."""

    run_id: str
    session_key: str
    status: RunStatus
    started_at: Millis
    topic_id: str | None = None
    next_check_at: Millis | None = None
    step: int = 0
    last_update_at: Millis | None = None
    meta: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """What the agents room knows of a run now."""

    status: RunStatus
    last_activity_at: int | None = None


class Runs(Protocol):
    """What supervision asks of the room that runs agents."""

    def observe(self, tx: Tx, run: Run) -> Observed | None:
        """How the run is; None when nobody knows it any more."""
        ...

    def nudge(self, tx: Tx, run: Run) -> None:
        """Ask a silent run for a sign of life, within the transaction."""
        ...


Tell = Callable[[Tx, Run, str], None]
"""Tells the user of a run's progress, within the transaction."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to happen at a check, and when the next one is."""

    tell: bool
    step: int
    next_at: int


def check_at(started_at: int, step: int, ladder: Sequence[int]) -> int:
    """When check number `step` (from 0) falls due; beyond the ladder its last interval repeats."""
    climbed = ladder[: step + 1]
    return started_at + sum(climbed) + ladder[-1] * (step + 1 - len(climbed))


def plan(run: Run, now: int, options: Supervision) -> Plan:
    """The pure schedule. Checks that were missed are made up for by one, not by a burst."""
    late = run.started_at + options.progress_after_minutes * MINUTE_MS
    step = run.step
    while check_at(run.started_at, step, options.ladder) <= now:
        step += 1
    following = check_at(run.started_at, step, options.ladder)
    tell = now >= late and (run.last_update_at is None or step > run.step)
    told = tell or run.last_update_at is not None
    return Plan(tell, step, following if told else min(following, max(late, now + 1)))


def watch(
    tx: Tx,
    run_id: str,
    session_key: str,
    options: Supervision,
    *,
    topic_id: str | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Run:
    """Take a run under supervision; `session_key` is where the user hears of it. A repeat changes nothing."""
    known = find(tx, run_id)
    if known is not None:
        return known
    first = plan(_begun(run_id, session_key, tx.now), tx.now, options)
    run = replace(
        _begun(run_id, session_key, tx.now),
        topic_id=topic_id,
        next_check_at=Millis(first.next_at),
        meta=clean_json(meta),
    )
    tx.conn.execute(sa.insert(table), _values(run))
    _enqueue(tx, run)
    return run


def ended(tx: Tx, run_id: str, status: RunStatus) -> Run:
    """A run came to its end: nothing more is asked about it."""
    return _save(tx, replace(get(tx, run_id), status=status, next_check_at=None))


def get(tx: Tx, run_id: str) -> Run:
    found = find(tx, run_id)
    if found is None:
        raise NotFound(f"no supervised run {run_id[:80]!r}", code="unknown_run")
    return found


def find(tx: Tx, run_id: str) -> Run | None:
    row = tx.conn.execute(sa.select(table).where(table.c.run_id == run_id)).mappings().first()
    return None if row is None else _run(row)


def open_runs(tx: Tx, *, since: int = 0, limit: int = MAX_OPEN) -> list[Run]:
    """Runs that still have a check before them, the next one first."""
    query = sa.select(table).where(table.c.next_check_at.is_not(None), table.c.started_at >= since)
    rows = tx.conn.execute(query.order_by(table.c.next_check_at).limit(min(limit, MAX_OPEN))).mappings()
    return [_run(row) for row in rows]


def recover(tx: Tx, options: Supervision) -> int:
    """At start-up: see that every open run of the last while has its check on the agenda."""
    found = open_runs(tx, since=int(tx.now) - options.recovery_lookback_hours * 60 * MINUTE_MS)
    for run in found:
        _enqueue(tx, run)
    return len(found)


def tell_in_log(tx: Tx, run: Run, text: str) -> None:
    """The plain way to tell: an entry in the session that delegated. Told once for each check."""
    entries.append(
        tx,
        EntryDraft(
            content=text,
            type=EntryType.SYSTEM,
            audience=sessions.heard_in(tx, run.session_key),
            session_key=run.session_key,
            topic_id=run.topic_id,
            status=Classification.CLASSIFIED,
            code="filtered_non_semantic",
            source={"channel": "supervision", "runId": run.run_id, "sessionKey": run.session_key},
            idempotency_key=f"{KIND}:{run.run_id}:{run.last_update_at}",
        ),
    )


class Supervisor:
    """Handles agenda items of kind `board.supervise`."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        options: Callable[[], BoardConfig],
        *,
        runs: Runs,
        tell: Tell = tell_in_log,
    ) -> None:
        self._store = store
        self._threads = threads
        self._options = options
        self._runs = runs
        self._tell = tell

    def kind(self) -> agenda.Kind:
        return agenda.Kind(self.handle, limit=4)

    async def handle(self, job: agenda.Job) -> None:
        await self._threads(self._store.run, SYSTEM, lambda tx: self._check(tx, job))

    def _check(self, tx: Tx, job: agenda.Job) -> None:
        """One check: what was found, what is told, and the next check are one transaction."""
        job.settle(tx)
        run = find(tx, str(job.item.payload["runId"]))
        if run is None or run.status.ended:
            return
        seen = self._runs.observe(tx, run)
        if seen is None or seen.status.ended:
            ended(tx, run.run_id, RunStatus.FAILED if seen is None else seen.status)
            return
        options = self._options().supervision
        silent = 0 if seen.last_activity_at is None else int(tx.now) - seen.last_activity_at
        status = RunStatus.STALLED if silent > options.stall_seconds * 1000 else RunStatus.RUNNING
        planned = plan(run, tx.now, options)
        told = tx.now if planned.tell else run.last_update_at
        after = replace(
            run, status=status, step=planned.step, next_check_at=Millis(planned.next_at), last_update_at=told
        )
        _save(tx, after)
        if planned.tell:
            self._tell(tx, after, progress(after, tx.now))
        if silent > options.nudge_seconds * 1000:
            self._runs.nudge(tx, after)
        _enqueue(tx, after)


def progress(run: Run, now: int) -> str:
    """One honest line for the user."""
    label = clip(str((run.meta or {}).get("label") or run.run_id), 120)
    minutes = (now - run.started_at) // MINUTE_MS
    state = "is silent" if run.status is RunStatus.STALLED else "is still running"
    after = max(1, ((run.next_check_at or now) - now) // MINUTE_MS)
    return f"{label} {state} after {minutes} min; the next look is in {after} min."


def _enqueue(tx: Tx, run: Run) -> None:
    lane = f"{KIND}:{run.run_id}"
    agenda.enqueue(
        tx, KIND, {"runId": run.run_id}, lane=lane, key=lane, due_at=run.next_check_at, max_attempts=5
    )


def _begun(run_id: str, session_key: str, now: Millis) -> Run:
    return Run(run_id=run_id, session_key=session_key, status=RunStatus.RUNNING, started_at=now)


def _save(tx: Tx, run: Run) -> Run:
    tx.conn.execute(sa.update(table).where(table.c.run_id == run.run_id).values(_values(run)))
    return run


def _values(run: Run) -> dict[str, Any]:
    return {name: getattr(run, name) for name in Run.__slots__}


def _run(row: Mapping[Any, Any]) -> Run:
    return Run(**dict(row) | {"status": RunStatus(row["status"])})
