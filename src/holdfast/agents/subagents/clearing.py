"""Stopping runs and clearing up behind them: time limits, the engine's word, the archive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from holdfast.agents.subagents import ending, registry
from holdfast.agents.subagents.registry import Run
from holdfast.agents.subagents.spawning import Parts, abandon
from holdfast.context import SubagentEndedParams
from holdfast.log import SYSTEM, SessionStatus, TurnStatus, Tx, agenda, sessions
from holdfast.log.agenda import PostponeJob

Cancel = Callable[[str, str], Awaitable[Any]]
"""Stops a turn by its id, for a reason."""

MINUTE_MS = 60_000


class Stopper:
    """Handles `subagent.stop`: asked for by someone, or due because the time is over."""

    def __init__(self, parts: Parts, cancel: Cancel) -> None:
        self._parts = parts
        self._cancel = cancel

    def kind(self) -> agenda.Kind:
        return agenda.Kind(self.handle, relative=True, limit=4)

    async def handle(self, job: agenda.Job) -> None:
        run = await self._parts.threads(self._parts.store.run, SYSTEM, lambda tx: _marked(tx, job))
        if run is None:
            return
        if run.run_id is not None:
            await self._cancel(run.run_id, run.stop_reason or "stopped")
        await self._parts.threads(self._parts.store.run, SYSTEM, lambda tx: _over(tx, job, run.id))


class Sweeper:
    """Handles `subagent.sweep`: once when the run has ended, and again when its session is to be archived."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def kind(self) -> agenda.Kind:
        return agenda.Kind(self.handle, relative=True, limit=2)

    async def handle(self, job: agenda.Job) -> None:
        parts = self._parts
        run = await parts.threads(self._found, str(job.item.payload["id"]))
        if run.round != job.item.payload["round"] or run.archived_at is not None:
            return
        if job.item.error is None:
            await self._tell(run, "completed")
        at = self.archive_at(run)
        if at is None:
            return
        if at > parts.store.clock.now():
            raise PostponeJob(at, "kept for a while")
        if await parts.threads(parts.store.run, SYSTEM, lambda tx: _archived(tx, run)):
            await self._tell(run, "deleted" if run.cleanup == "delete" else "swept")

    def archive_at(self, run: Run) -> int | None:
        """When the child's session goes: at once, after a while, or never for one that stays for more."""
        if run.ended_at is None:
            return None
        if run.cleanup == "delete":
            return int(run.ended_at)
        minutes = self._parts.config().agent(run.requester_agent).subagents.archive_after_minutes
        return None if run.mode == "session" or not minutes else int(run.ended_at) + minutes * MINUTE_MS

    def _found(self, id_: str) -> Run:
        with self._parts.store.read(SYSTEM) as tx:
            return registry.get(tx, id_)

    async def _tell(self, run: Run, reason: Literal["completed", "deleted", "swept"]) -> None:
        params = SubagentEndedParams(
            child_session_id=run.child_session_id, child_session_key=run.child_key, reason=reason
        )
        await self._parts.context().on_subagent_ended(params)


def _marked(tx: Tx, job: agenda.Job) -> Run | None:
    """The run with the reason written down; None if there is nothing to stop any more."""
    run = registry.get(tx, str(job.item.payload["id"]))
    if not run.live or run.round != job.item.payload["round"]:
        job.settle(tx)
        return None
    reason = run.stop_reason or str(job.item.payload["reason"])
    return registry.save(tx, run, stop_reason=reason)


def _over(tx: Tx, job: agenda.Job, id_: str) -> None:
    """End what no turn ends: a run that was never launched, or that waited for its own children alone."""
    job.settle(tx)
    run = registry.get(tx, id_)
    if abandon(tx, id_, run.stop_reason or "stopped") or not run.live:
        return
    turn = ending.turn_of(tx, run)
    if turn is None or turn.status is TurnStatus.COMMITTED:
        ending.close(tx, run, ending.verdict(TurnStatus.CANCELLED, run.said, run))


def _archived(tx: Tx, run: Run) -> bool:
    """Archive the child's session unless it works on; its transcript stays in the log."""
    if registry.live_of_child(tx, run.child_key) is not None:
        return False
    session = sessions.get(tx, run.child_session_id)
    if session.status is SessionStatus.ACTIVE:
        sessions.archive(tx, session, cause=f"subagent_{run.cleanup}")
    registry.save(tx, registry.get(tx, run.id), archived_at=tx.now)
    return True
