"""What a sweep does next: each plan is one look at the store, and holds all that its pass needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from holdfast.context.compaction import boundaries
from holdfast.context.lossless import nodes, projections
from holdfast.context.lossless.items import Item, Projection
from holdfast.context.lossless.nodes import Node
from holdfast.context.lossless.reading import Reader
from holdfast.context.lossless.rendering import position
from holdfast.context.lossless.settings import Settings
from holdfast.context.lossless.writing import Source, Writer
from holdfast.context.messages import AssistantMessage, Message, ToolResult, UserMessage
from holdfast.context.tokens import message_tokens
from holdfast.context.transcript import in_turn_order
from holdfast.log import SYSTEM, Store, Tx


def tail_start(messages: Sequence[Message], *, most: int, tokens: int) -> int:
    """The index where the fresh tail begins, in messages in log order.

    The last `most` messages within `tokens`, but always back to the newest user message, never between a
    call and its result, and never behind a recent call whose result is still to come.
    """
    start = len(messages)
    used = 0
    while start > 0 and len(messages) - start < most:
        used += message_tokens(messages[start - 1])
        if used > tokens:
            break
        start -= 1
    users = [i for i, m in enumerate(messages) if isinstance(m, UserMessage)]
    start = min([start, *users[-1:], *_waiting(messages, since=len(messages) - most)])
    return max((i for i in boundaries(messages) if i <= start), default=0)


def leaf_end(messages: Sequence[Message], *, tokens: int, complete: bool) -> int:
    """How many of these messages one leaf takes: about `tokens`, at least one whole exchange; 0 if the end
    of the first exchange is not in sight. `complete` says that nothing more follows."""
    open_from = len(messages) if complete else min(_waiting(messages, since=0), default=len(messages))
    allowed = [i for i in boundaries(messages) if 0 < i <= open_from]
    if not complete:
        allowed = [i for i in allowed if i < len(messages)]
    used = 0
    within = 0
    for index, message in enumerate(messages):
        used += message_tokens(message)
        if used <= tokens:
            within = index + 1
    fitting = [i for i in allowed if i <= within]
    return fitting[-1] if fitting else (allowed[0] if allowed else 0)


def condensable(known: Projection, settings: Settings, *, budget: int, over: bool) -> tuple[Item, ...]:
    """The run of summaries to be condensed next, if any: the shallowest depth first, the oldest run of it.

    Only while summaries take more than their share, or the whole is over its target (`over`).
    """
    if known.summary_tokens <= settings.prefix_target(budget) and not over:
        return ()
    runs = _runs(known)
    least = max(settings.condensed_target_tokens, settings.leaf_chunk_tokens // 10)
    for hard in (False, True):
        for depth in sorted({run[0].depth for run in runs}):
            fanout = settings.leaf_fanout if depth == 0 else settings.condensed_fanout
            fanout = settings.hard_fanout if hard else fanout
            for run in runs:
                chosen = _capped(run, settings.leaf_chunk_tokens)
                enough = hard or sum(i.tokens for i in chosen) >= least
                if run[0].depth == depth and len(chosen) >= fanout and enough:
                    return chosen
    return ()


def _runs(known: Projection) -> list[tuple[Item, ...]]:
    runs: list[list[Item]] = []
    before: Item | None = None
    for item in known.items:
        if not item.is_summary:
            before = None
            continue
        if before is not None and before.depth == item.depth:
            runs[-1].append(item)
        else:
            runs.append([item])
        before = item
    return [tuple(run) for run in runs]


def _capped(run: Sequence[Item], tokens: int) -> tuple[Item, ...]:
    """The head of a run that a summariser can take at once; two at least, or none could ever be joined."""
    used = 0
    for index, item in enumerate(run):
        used += item.tokens
        if used > tokens and index >= 2:
            return tuple(run[:index])
    return tuple(run)


def _waiting(messages: Sequence[Message], *, since: int) -> list[int]:
    """Where calls stand that have no result among these messages."""
    waiting: dict[str, int] = {}
    for index, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            waiting |= {call.id: index for call in message.calls}
        elif isinstance(message, ToolResult):
            waiting.pop(message.call_id, None)
    return [index for index in waiting.values() if index >= since]


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
            count = leaf_end(found, tokens=most, complete=complete)
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
            run = condensable(known, self._settings, budget=order.budget, over=over)
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
