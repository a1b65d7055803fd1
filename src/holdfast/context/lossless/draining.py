"""Compaction on the agenda: the handler that pays what sessions owe, off the turn's path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from holdfast.context.engine import CompactOutcome, ContextEngine
from holdfast.context.lossless import debts
from holdfast.context.lossless.engine import LosslessEngine
from holdfast.errors import NotFound
from holdfast.log import SYSTEM, SessionStatus, Store, Threads, Tx, agenda, sessions


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
        session_id = str(job.item.payload["sessionId"])
        session = await threads(active, session_id)
        slot = None if session is None else engine(session.agent_id)
        if session is not None and isinstance(slot, LosslessEngine):
            debt = await slot.drain(session.id)
            if compacted is not None and debt is not None and debt.outcome == CompactOutcome.COMPACTED:
                await compacted(session)
        owes = isinstance(slot, LosslessEngine)
        await threads(store.run, SYSTEM, partial(_ends, job=job, session_id=session_id, owes=owes))

    return agenda.Kind(handle, relative=True, limit=limit)


def _ends(tx: Tx, job: agenda.Job, session_id: str, *, owes: bool) -> None:
    """End the item in one step with the look at what is owed: while it runs it stands for all that is noted,
    so what was noted since it was paid brings it back."""
    debt = debts.find(tx, session_id, lock=True)
    if owes and debt is not None and debt.pending:
        raise agenda.PostponeJob(debt.next_attempt_at, debt.reason)
    if not owes:
        debts.forgive(tx, session_id)
    job.settle(tx)
