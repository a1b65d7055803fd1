"""Compaction on the agenda: the handler that pays what sessions owe, off the turn's path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from holdfast.context.engine import CompactOutcome, ContextEngine
from holdfast.context.lossless.engine import LosslessEngine
from holdfast.errors import NotFound
from holdfast.log import SYSTEM, SessionStatus, Store, Threads, agenda, sessions


def compaction_kind(
    store: Store,
    threads: Threads,
    engine: Callable[[str | None], ContextEngine],
    *,
    limit: int = 2,
    compacted: Callable[[sessions.Session], Awaitable[None]] | None = None,
) -> agenda.Kind:
    """How items of kind `context.compact` are run. `engine` gives the engine of an agent, as a room does;
    a session whose slot has changed meanwhile, or that has ended, owes nothing any more."""

    def active(session_id: str) -> sessions.Session | None:
        with store.read(SYSTEM) as tx:
            try:
                found = sessions.get(tx, session_id)
            except NotFound:
                return None
        return found if found.status is SessionStatus.ACTIVE else None

    async def handle(job: agenda.Job) -> None:
        session = await threads(active, str(job.item.payload["sessionId"]))
        if session is None:
            return
        slot = engine(session.agent_id)
        if not isinstance(slot, LosslessEngine):
            return
        debt = await slot.drain(session.id)
        if compacted is not None and debt is not None and debt.outcome == CompactOutcome.COMPACTED:
            await compacted(session)
        if debt is not None and debt.pending:
            raise agenda.PostponeJob(debt.next_attempt_at, debt.reason)

    return agenda.Kind(handle, relative=True, limit=limit)
