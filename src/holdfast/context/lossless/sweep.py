"""One compaction: a bounded number of passes, each of which commits a summary and its place, or nothing.

A pass reads, has a text written without holding the store, and then inserts the summary, its links and the
changed projection in one transaction, if the projection is still the one that was read.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.clock import Clock
from holdfast.context.engine import CompactOutcome, CompactResult
from holdfast.context.lossless import nodes, projections
from holdfast.context.lossless.nodes import Node
from holdfast.context.lossless.planning import CondenseJob, Job, LeafJob, MendJob, Order, Plan, Planner
from holdfast.context.lossless.projections import Projection
from holdfast.context.lossless.reading import Reader
from holdfast.context.lossless.rendering import summary_message
from holdfast.context.lossless.settings import Settings
from holdfast.context.lossless.writing import Writer, Written
from holdfast.context.tokens import message_tokens
from holdfast.errors import Conflict
from holdfast.log import SYSTEM, Store, Threads, Tx, changes, sessions


@dataclass(slots=True)
class Report:
    """What came of a sweep. `more`: a bound was reached before it was done; `unmended`: an
    extract is still one, because the model did not answer."""

    before: int = 0
    after: int = 0
    made: list[Node] = field(default_factory=list)
    fault: str | None = None
    stuck: bool = False
    more: bool = False
    stale: bool = False
    unmended: bool = False

    @property
    def extracts(self) -> bool:
        return any(node.extractive for node in self.made)


class Sweeper:
    def __init__(
        self,
        store: Store,
        threads: Threads,
        clock: Clock,
        reader: Reader,
        writer: Writer,
        settings: Settings,
    ) -> None:
        self._store = store
        self._threads = threads
        self._clock = clock
        self._reader = reader
        self._writer = writer
        self._settings = settings
        self._planner = Planner(store, reader, writer, settings)

    async def run(self, order: Order) -> Report:
        """Leaves first, then nodes above them, then extracts that can be mended; within the bounds."""
        report = Report()
        report.before = report.after = await self._threads(self._planner.measure, order)
        started = self._clock.now()
        plan = self._planner
        phases: list[Plan] = [plan.leaf, plan.condense, plan.mend]
        count = 0
        while phases:
            if count >= self._settings.max_passes or self._clock.now() - started >= self._settings.sweep_ms:
                report.more = await self._threads(self._planner.has_more, order, phases)
                break
            job = await self._threads(phases[0], order)
            if job is None or not await self._pass(order, job, report):
                phases = [] if report.fault or report.stale else phases[1:]
            count += job is not None
        report.after = await self._threads(self._planner.measure, order)
        return report

    async def _pass(self, order: Order, job: Job, report: Report) -> bool:
        """One summary written and committed; False if this phase can get no further."""
        extract = order.may_extract and not isinstance(job, MendJob)
        written = await self._writer.write(order.session_id, job.source, may_extract=extract)
        if not written.text or (written.level == "extractive" and isinstance(job, MendJob)):
            if isinstance(job, MendJob):
                report.unmended = True
            else:
                report.fault = written.fault
            return False
        try:
            node = await self._threads(self._commit, order, job, written, first=not report.made)
        except Conflict:
            report.stale = True
            return False
        if node is None:
            report.stuck = True
            return False
        report.made.append(node)
        return True

    def _commit(self, order: Order, job: Job, written: Written, *, first: bool) -> Node | None:
        """The summary, its links and the projection, in one transaction; None if it would save nothing."""
        with self._store.write(SYSTEM) as tx:
            node = self._node(tx, order, job, written)
            if node.tokens >= job.source.tokens:
                return None
            below = [n.id for n in job.source.nodes]
            nodes.insert(tx, node, below)
            projections.save(tx, _changed(job, node))
            self._tell(tx, order, node, first=first)
            return node

    def _node(self, tx: Tx, order: Order, job: Job, written: Written) -> Node:
        fields: dict[str, Any] = {
            "id": nodes.mint(),
            "session_id": order.session_id,
            "text": written.text,
            "keeps": written.keeps,
            "tokens": 0,
            "source_tokens": job.source.tokens,
            "level": written.level,
            "fault": written.fault,
            "created_at": tx.now,
        }
        match job:
            case LeafJob(item=item, until=until):
                facts = self._reader.facts(tx, item, until)
                span = {"source_session_id": item.session_id, "first": item.first, "until": until, "depth": 0}
                dates = {"entry_count": facts.count}
                dates |= {"earliest_at": facts.earliest_at, "latest_at": facts.latest_at}
                fields |= span | dates
            case CondenseJob(source=source):
                below = source.nodes
                fields |= {
                    "source_session_id": None,
                    "first": below[0].first,
                    "until": below[-1].until,
                    "depth": below[0].depth + 1,
                    "entry_count": sum(n.entry_count for n in below),
                    "earliest_at": min(n.earliest_at for n in below),
                    "latest_at": max(n.latest_at for n in below),
                }
            case MendJob(node=old):
                same = ("source_session_id", "first", "until", "depth", "entry_count")
                fields |= {name: getattr(old, name) for name in (*same, "earliest_at", "latest_at")}
                fields |= {"replaces": old.id}
        node = Node(**fields)
        return replace(node, tokens=message_tokens(summary_message(node)))

    def _tell(self, tx: Tx, order: Order, node: Node, *, first: bool) -> None:
        """The session counts one compaction for a sweep; the feed tells of every summary."""
        session = sessions.get(tx, order.session_id)
        if first:
            session = sessions.update(tx, session, compaction_count=session.compaction_count + 1)
        payload = {
            "sessionKey": session.key,
            "agentId": session.agent_id,
            "outcome": "compacted",
            "extractive": node.extractive,
            "depth": node.depth,
            "tokensBefore": node.source_tokens,
            "tokensAfter": node.tokens,
            "summaryId": node.id,
        }
        changes.emit(tx, "context.compacted", session.id, payload)


def _changed(job: Job, node: Node) -> Projection:
    match job:
        case LeafJob(known=known, item=item, until=until):
            return projections.with_leaf(known, item, until, node.item)
        case CondenseJob(known=known, run=run):
            return projections.with_condensed(known, run, node.item)
        case MendJob(known=known, item=item):
            return projections.with_condensed(known, [item], node.item)


def result_of(report: Report) -> CompactResult:
    """The outcome of a sweep in the protocol's words."""
    if report.made:
        outcome, reason = CompactOutcome.COMPACTED, report.fault or report.made[-1].fault or ""
    elif report.fault is not None:
        outcome = CompactOutcome.FAILED
        reason = f"the summary could not be had ({report.fault}); history is kept as it was"
    elif report.stale:
        outcome, reason = CompactOutcome.NO_PROGRESS, "the session changed meanwhile; nothing was done"
    elif report.stuck:
        outcome, reason = CompactOutcome.NO_PROGRESS, "a summary would be no shorter than what it replaces"
    else:
        outcome, reason = CompactOutcome.NOTHING_TO_DO, "no history older than what is kept"
    return CompactResult(
        outcome=outcome,
        reason=reason,
        tokens_before=report.before,
        tokens_after=report.after,
        summary_id=report.made[-1].id if report.made else None,
        extractive=report.extracts,
    )


def left_of(report: Report, *, has_model: bool) -> str | None:
    """The reason for which a session still owes something after a sweep, if it does."""
    if report.more or report.stale:
        return "backlog"
    if report.fault is not None:
        return "threshold"
    return "repair" if (report.extracts or report.unmended) and has_model else None
