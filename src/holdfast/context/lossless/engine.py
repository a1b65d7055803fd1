"""The `lossless` engine: the log is kept whole, what is old is shown by summaries that lead back to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from weakref import WeakValueDictionary

from holdfast.context.engine import (
    AfterTurnParams,
    AssembleParams,
    AssembleResult,
    BaseEngine,
    CompactOutcome,
    CompactParams,
    CompactResult,
    ContextEngine,
    EngineContext,
    EngineInfo,
    Rollback,
    SpawnParams,
    SubagentEndedParams,
)
from holdfast.context.lossless import debts, projections
from holdfast.context.lossless.debts import Debt
from holdfast.context.lossless.planning import Order
from holdfast.context.lossless.projections import Item, Projection, as_json, from_json
from holdfast.context.lossless.reading import Reader
from holdfast.context.lossless.rendering import GUIDE, Chosen, choose, known_summary
from holdfast.context.lossless.settings import parse
from holdfast.context.lossless.sweep import Report, Sweeper, left_of, result_of
from holdfast.context.lossless.writing import Guard, Writer
from holdfast.context.messages import Message, SummaryMessage
from holdfast.context.transcript import whole_pairs
from holdfast.errors import NotFound
from holdfast.log import SYSTEM, SessionStatus, Store, Threads, Tx, agenda, changes, sessions

log = logging.getLogger(__name__)

# After so many tries an extract waits for the next compaction of its session.
_MOST_REPAIRS = 6
_TOOLS = frozenset(("context_read", "context_search"))


@dataclass(frozen=True, slots=True)
class View:
    """All that one look at the store found for a prompt."""

    known: Projection
    summaries: list[tuple[Item, SummaryMessage]]
    raw: list[Message]
    whole: bool
    debt: Debt | None
    now: int

    @property
    def floor(self) -> int:
        """Where the raw entries begin that were not even read for want of room; 0 if all were."""
        return 0 if self.whole else max(1, min((i.first for i in self.known.raw), default=1))


class LosslessEngine(BaseEngine):
    """Reads the log itself; owns its compaction, which runs off the turn's path unless nothing else fits."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._settings = parse(context.config)
        self._info = EngineInfo(
            id="lossless",
            name="Lossless",
            version="1",
            owns_compaction=True,
            wants_messages=False,
            recall_tools=True,
        )
        self._guard = Guard(context.clock, self._settings)
        self._reader = Reader(self._settings)
        self._writer = Writer(context.summariser, self._guard, self._settings)
        self._sweeper = Sweeper(
            context.store, context.threads, context.clock, self._reader, self._writer, self._settings
        )
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def info(self) -> EngineInfo:
        return self._info

    async def assemble(self, params: AssembleParams) -> AssembleResult:
        """Summaries, then the log's tail, within the budget; the same state gives the same bytes."""
        view, chosen = await self._context.threads(self._choose, params)
        if chosen.left_out and params.past is None and _may_compact(view):
            order = self._order(params.session_id, params.token_budget, urgent=True)
            async with self._alone(params.session_id):
                report = await self._sweeper.run(order)
                await self._context.threads(self._settle, params.session_id, order, report, over=True)
            view, chosen = await self._context.threads(self._choose, params)
        guided = params.available_tools >= _TOOLS
        return AssembleResult(
            messages=chosen.messages,
            estimated_tokens=chosen.tokens,
            system_prompt_addition=GUIDE if guided else None,
            notes={
                "projectionRevision": view.known.revision,
                "summaries": len(view.summaries),
                "leftOut": chosen.left_out,
            },
            state={"items": as_json(view.known.items), "revision": view.known.revision},
        )

    async def compact(self, params: CompactParams) -> CompactResult:
        """Compact now. Asked for by a person or after an overflow it always gets somewhere if it can."""
        urgent = params.force or params.reason == "overflow"
        if params.force or params.reason == "manual":
            self._guard.clear(params.session_id)
        may_extract = urgent or params.reason != "threshold" or await self._patience_over(params.session_id)
        order = self._order(
            params.session_id,
            params.token_budget,
            urgent=urgent,
            everything=True,
            may_extract=may_extract,
            instructions=params.instructions,
        )
        async with self._alone(params.session_id):
            report = await self._sweeper.run(order)
            await self._context.threads(self._settle, params.session_id, order, report)
        return result_of(report)

    async def drain(self, session_id: str) -> Debt | None:
        """Pay what a session owes, if it is time; gives the debt as it then stands."""
        debt = await self._context.threads(self._debt, session_id)
        if debt is None or not debt.pending or debt.next_attempt_at > self._context.clock.now():
            return debt
        order = self._order(
            session_id,
            debt.token_budget,
            everything=True,
            may_extract=debt.attempts >= self._settings.patience,
        )
        async with self._alone(session_id):
            report = await self._sweeper.run(order)
            return await self._context.threads(self._settle, session_id, order, report)

    async def after_turn(self, params: AfterTurnParams) -> None:
        """Note a debt when the prompt passed the threshold; nothing is summarised here."""
        budget, used = params.token_budget, params.prompt_tokens
        if budget and used and used > self._settings.threshold * budget:
            await self._context.threads(self._owe, params.session_id, budget, used)

    async def prepare_subagent_spawn(self, params: SpawnParams) -> Rollback | None:
        """A fork begins with its parent's projection as it is now and can change only its own."""
        if params.context_mode != "fork":
            return None
        await self._context.threads(self._fork, params)

        async def rollback() -> None:
            await self._context.threads(self._drop, params.child_session_id)

        return rollback

    async def on_subagent_ended(self, params: SubagentEndedParams) -> None:
        if params.reason == "deleted":
            await self._context.threads(self._drop, params.child_session_id)

    def _view(self, params: AssembleParams) -> View:
        with self._context.store.read(SYSTEM) as tx:
            known = self._then(params) or self._projection(tx, params.session_id)
            read = self._reader.newest(
                tx, known, budget=params.token_budget * 2, skip=params.skip, past=params.past
            )
            found = self._reader.summaries(tx, known.summaries)
            return View(
                known=known,
                summaries=[(item, known_summary(node)) for item, node in found],
                raw=whole_pairs(read.messages),
                whole=read.whole,
                debt=debts.find(tx, params.session_id),
                now=tx.now,
            )

    def _then(self, params: AssembleParams) -> Projection | None:
        """The projection of an old context, as this engine gave it away with it."""
        kept = params.state
        if params.past is None or not isinstance(kept, dict):
            return None
        return Projection(
            session_id=params.session_id, items=from_json(kept["items"]), revision=kept["revision"]
        )

    def _choose(self, params: AssembleParams) -> tuple[View, Chosen]:
        view = self._view(params)
        raw = [self._reader.shown(m) for m in view.raw]
        budget = params.token_budget
        return view, choose(view.summaries, raw, params.estimate, budget=budget, floor=view.floor)

    def _order(
        self,
        session_id: str,
        budget: int,
        *,
        urgent: bool = False,
        everything: bool = False,
        may_extract: bool = True,
        instructions: str | None = None,
    ) -> Order:
        """A sweep in the way of a turn stops as soon as there is room; one in the background goes on."""
        return Order(
            session_id=session_id,
            budget=max(budget, 1),
            target=None if everything else int(self._settings.threshold * budget),
            urgent=urgent,
            may_extract=may_extract,
            instructions=instructions,
        )

    def _projection(self, tx: Tx, session_id: str) -> Projection:
        return projections.of(tx, session_id, retain_depth=self._settings.retain_depth)

    def _debt(self, session_id: str) -> Debt | None:
        with self._context.store.read(SYSTEM) as tx:
            return debts.find(tx, session_id)

    def _owe(self, session_id: str, budget: int, used: int) -> None:
        with self._context.store.write(SYSTEM) as tx:
            debts.enqueue(
                tx, debts.owe(tx, session_id, "threshold", token_budget=budget, current_tokens=used)
            )

    def _settle(self, session_id: str, order: Order, report: Report, *, over: bool = False) -> Debt | None:
        """Write how a sweep ended: nothing owed, or what is left and when it is tried again."""
        left = left_of(report, has_model=self._writer.has_model)
        with self._context.store.write(SYSTEM) as tx:
            known = debts.find(tx, session_id)
            if left == "repair" and known is not None and known.attempts >= _MOST_REPAIRS:
                left = None
            if left is None and known is None and not (over and not report.made):
                return None
            owed = known or debts.owe(
                tx, session_id, left or "threshold", token_budget=order.budget, current_tokens=report.after
            )
            debt = debts.settle(
                tx,
                owed,
                result_of(report).outcome,
                left=left,
                settings=self._settings,
                idle=over and not report.made,
            )
            if debt.pending:
                debts.enqueue(tx, debt)
            if report.fault is not None and not report.made:
                session = sessions.get(tx, session_id)
                payload = {"sessionKey": session.key, "agentId": session.agent_id, "fault": report.fault}
                changes.emit(tx, "context.compaction_failed", session.id, payload)
            return debt

    async def _patience_over(self, session_id: str) -> bool:
        debt = await self._context.threads(self._debt, session_id)
        return debt is not None and debt.attempts >= self._settings.patience

    def _fork(self, params: SpawnParams) -> None:
        family = params.parent_session_id, params.child_session_id
        with self._context.store.write(SYSTEM) as tx:
            projections.fork(tx, *family, before=params.before, retain_depth=self._settings.retain_depth)

    def _drop(self, session_id: str) -> None:
        with self._context.store.write(SYSTEM, ordered=False) as tx:
            projections.drop(tx, session_id)

    @asynccontextmanager
    async def _alone(self, session_id: str) -> AsyncIterator[None]:
        """One sweep of a session at a time in this process; between processes the revision decides."""
        lock = self._locks.get(session_id)
        if lock is None:
            lock = self._locks[session_id] = asyncio.Lock()
        async with lock:
            yield


def _may_compact(view: View) -> bool:
    """Not again while a failed attempt waits for its time, nor while a backlog is being paid."""
    debt = view.debt
    if debt is None:
        return True
    return debt.next_attempt_at <= view.now and not (debt.pending and debt.reason == "backlog")


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
