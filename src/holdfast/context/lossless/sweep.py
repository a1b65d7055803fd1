"""One compaction: a bounded number of passes, each of which commits a summary and its place, or nothing.

A pass reads, has a text written without holding the store, and then inserts the summary, its links and the
changed projection in one transaction, if the projection is still the one that was read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from holdfast.clock import Clock
from holdfast.context.lossless import items, nodes, passes, projections
from holdfast.context.lossless.items import Item, Projection
from holdfast.context.lossless.nodes import Node
from holdfast.context.lossless.reading import Reader
from holdfast.context.lossless.rendering import position, summary_message
from holdfast.context.lossless.settings import Settings
from holdfast.context.lossless.writing import Source, Writer, Written
from holdfast.context.messages import Message
from holdfast.context.tokens import message_tokens
from holdfast.context.transcript import in_turn_order
from holdfast.errors import Conflict
from holdfast.log import Store, Threads, Tx, changes, sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is asked of a sweep. `target`: raw history is summarised while the whole is above it; None: all
    of it that is not fresh. `urgent`: room must be made, so the fresh tail is smaller."""

    session_id: str
    budget: int
    target: int | None = None
    urgent: bool = False
    may_extract: bool = True
    instructions: str | None = None


@dataclass(frozen=True, slots=True)
class LeafJob:
    known: Projection
    item: Item
    messages: tuple[Message, ...]
    until: int
    source: Source


@dataclass(frozen=True, slots=True)
class CondenseJob:
    known: Projection
    run: tuple[Item, ...]
    source: Source


@dataclass(frozen=True, slots=True)
class MendJob:
    """An extract that a model may now write again; a leaf's messages, or the nodes below."""

    known: Projection
    item: Item
    node: Node
    source: Source


Job: TypeAlias = LeafJob | CondenseJob | MendJob


@dataclass(slots=True)
class Report:
    """What came of a sweep. `more`: a bound was reached before it was done."""

    before: int = 0
    after: int = 0
    made: list[Node] = field(default_factory=list)
    fault: str | None = None
    stuck: bool = False
    more: bool = False
    stale: bool = False

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

    async def run(self, order: Order) -> Report:
        """Leaves first, then nodes above them, then extracts that can be mended; within the bounds."""
        report = Report()
        report.before = report.after = await self._threads(self._measure, order)
        started = self._clock.now()
        phases: list[Callable[[Order], Job | None]] = [self._leaf, self._condense, self._mend]
        count = 0
        while phases:
            if count >= self._settings.max_passes or self._clock.now() - started >= self._settings.sweep_ms:
                report.more = await self._threads(self._has_more, order, phases)
                break
            job = await self._threads(phases[0], order)
            if job is None or not await self._pass(order, job, report):
                phases = [] if report.fault or report.stale else phases[1:]
            count += job is not None
        report.after = await self._threads(self._measure, order)
        return report

    async def _pass(self, order: Order, job: Job, report: Report) -> bool:
        """One summary written and committed; False if this phase can get no further."""
        extract = order.may_extract and not isinstance(job, MendJob)
        written = await self._writer.write(order.session_id, job.source, may_extract=extract)
        if not written.text or (written.level == "extractive" and isinstance(job, MendJob)):
            if not isinstance(job, MendJob):
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

    def _projection(self, tx: Tx, session_id: str) -> Projection:
        return projections.of(tx, session_id, retain_depth=self._settings.retain_depth)

    def _measure(self, order: Order) -> int:
        """Tokens of the projection, counted no further than twice the budget."""
        with self._store.read() as tx:
            return self._tokens(tx, self._projection(tx, order.session_id), order)

    def _tokens(self, tx: Tx, known: Projection, order: Order) -> int:
        read = self._reader.newest(tx, known, budget=order.budget * 2)
        return known.summary_tokens + self._reader.shown_tokens(read.messages)

    def _has_more(self, order: Order, phases: Sequence[Callable[[Order], Job | None]]) -> bool:
        return any(phase(order) is not None for phase in phases if phase != self._mend)

    def _leaf(self, order: Order) -> LeafJob | None:
        """The oldest run of entries that is not fresh, about one chunk of it."""
        with self._store.read() as tx:
            known = self._projection(tx, order.session_id)
            if order.target is not None and self._tokens(tx, known, order) <= order.target:
                return None
            tail = self._settings.tail_tokens(order.budget, urgent=order.urgent)
            fresh = self._reader.tail_position(tx, known, tokens=tail, budget=order.budget)
            for item in known.raw:
                end = fresh if item.until is None else min(fresh, item.until)
                found = self._chunk(tx, item, end, order)
                if found:
                    messages, until = found
                    before = [i for i in known.summaries if i.first < item.first][-1:]
                    previous = self._reader.summaries(tx, before)
                    source = Source(
                        messages=in_turn_order(messages),
                        previous=previous[0][1].text if previous else None,
                        instructions=order.instructions,
                        tokens=self._reader.shown_tokens(messages),
                    )
                    return LeafJob(known, item, tuple(messages), until, source)
            return None

    def _chunk(self, tx: Tx, item: Item, end: int, order: Order) -> tuple[list[Message], int] | None:
        """Messages for one leaf and the position behind them. Looks further where a call's results are far."""
        most = self._settings.chunk_tokens(order.budget)
        for factor in (1, 4, 16, 64):
            found, complete = self._reader.oldest(tx, item, budget=most * factor, before=end)
            count = passes.leaf_end(found, tokens=most, complete=complete)
            if count:
                until = position(found[count]) if count < len(found) else end
                return found[:count], until
            if complete:
                return None
        return None

    def _condense(self, order: Order) -> CondenseJob | None:
        with self._store.read() as tx:
            known = self._projection(tx, order.session_id)
            limit = order.target or int(order.budget * self._settings.threshold)
            over = order.urgent and self._tokens(tx, known, order) > limit
            run = passes.condensable(known, self._settings, budget=order.budget, over=over)
            if not run:
                return None
            below = [node for _, node in self._reader.summaries(tx, run)]
            source = Source(
                nodes=below, instructions=order.instructions, tokens=sum(i.tokens for i in run)
            )
            return CondenseJob(known, run, source)

    def _mend(self, order: Order) -> MendJob | None:
        """The oldest extract that the projection shows, if there is a model to write it anew."""
        if not self._writer.has_model:
            return None
        with self._store.read() as tx:
            known = self._projection(tx, order.session_id)
            for item, node in self._reader.summaries(tx, known.summaries):
                if node.extractive:
                    return MendJob(known, item, node, self._source_of(tx, node))
        return None

    def _source_of(self, tx: Tx, node: Node) -> Source:
        if not node.is_leaf:
            below = nodes.sources(tx, [node.id]).get(node.id, [])
            known = nodes.get_many(tx, below)
            chosen = [known[one] for one in below if one in known]
            return Source(nodes=chosen, tokens=sum(n.tokens for n in chosen))
        item = replace(node.item, summary_id=None)
        found, _ = self._reader.oldest(tx, item, budget=node.source_tokens * 2 + 1000, before=node.until)
        return Source(messages=in_turn_order(found), tokens=self._reader.shown_tokens(found))

    def _commit(self, order: Order, job: Job, written: Written, *, first: bool) -> Node | None:
        """The summary, its links and the projection, in one transaction; None if it would save nothing."""
        with self._store.write() as tx:
            node = self._node(tx, order, job, written)
            if node.tokens >= job.source.tokens:
                return None
            below = [n.id for n in job.source.nodes]
            nodes.insert(tx, node, below)
            projections.save(tx, _changed(job, node))
            self._tell(tx, order, node, first=first)
            return node

    def _node(self, tx: Tx, order: Order, job: Job, written: Written) -> Node:
        fields = {
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
        node = Node(**fields)  # type: ignore[arg-type]
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
            return items.with_leaf(known, item, until, node.item)
        case CondenseJob(known=known, run=run):
            return items.with_condensed(known, run, node.item)
        case MendJob(known=known, item=item):
            return items.with_condensed(known, [item], node.item)
