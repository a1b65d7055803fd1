"""What a sweep does next: each plan is one look at the store, and holds all that its pass needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from holdfast.context.lossless import nodes, passes, projections
from holdfast.context.lossless.nodes import Node
from holdfast.context.lossless.projections import Item, Projection
from holdfast.context.lossless.reading import Reader
from holdfast.context.lossless.rendering import position
from holdfast.context.lossless.settings import Settings
from holdfast.context.lossless.writing import Source, Writer
from holdfast.context.messages import Message
from holdfast.context.transcript import in_turn_order
from holdfast.log import SYSTEM, Store, Tx


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


Plan: TypeAlias = Callable[[Order], Job | None]


class Planner:
    def __init__(self, store: Store, reader: Reader, writer: Writer, settings: Settings) -> None:
        self._store = store
        self._reader = reader
        self._writer = writer
        self._settings = settings

    def _projection(self, tx: Tx, session_id: str) -> Projection:
        return projections.of(tx, session_id, retain_depth=self._settings.retain_depth)

    def measure(self, order: Order) -> int:
        """Tokens of the projection, counted no further than twice the budget."""
        with self._store.read(SYSTEM) as tx:
            return self._tokens(tx, self._projection(tx, order.session_id), order)

    def _tokens(self, tx: Tx, known: Projection, order: Order) -> int:
        read = self._reader.newest(tx, known, budget=order.budget * 2)
        return known.summary_tokens + self._reader.shown_tokens(read.messages)

    def has_more(self, order: Order, phases: Sequence[Plan]) -> bool:
        return any(phase(order) is not None for phase in phases if phase != self.mend)

    def leaf(self, order: Order) -> LeafJob | None:
        """The oldest run of entries that is not fresh, about one chunk of it."""
        with self._store.read(SYSTEM) as tx:
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
        """Messages for one leaf and the position behind them; looks further where results are far off."""
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

    def condense(self, order: Order) -> CondenseJob | None:
        with self._store.read(SYSTEM) as tx:
            known = self._projection(tx, order.session_id)
            limit = order.target or int(order.budget * self._settings.threshold)
            over = order.urgent and self._tokens(tx, known, order) > limit
            run = passes.condensable(known, self._settings, budget=order.budget, over=over)
            if not run:
                return None
            below = [node for _, node in self._reader.summaries(tx, run)]
            source = Source(nodes=below, instructions=order.instructions, tokens=sum(i.tokens for i in run))
            return CondenseJob(known, run, source)

    def mend(self, order: Order) -> MendJob | None:
        """The oldest extract that the projection shows, if there is a model to write it anew."""
        if not self._writer.has_model:
            return None
        with self._store.read(SYSTEM) as tx:
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
