"""Reads of a projection that cost what a window holds, however long the session is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.context.history import MOST_MESSAGES, History, Past
from holdfast.context.lossless import nodes, passes
from holdfast.context.lossless.nodes import Node
from holdfast.context.lossless.projections import Item, Projection
from holdfast.context.lossless.rendering import position, shown
from holdfast.context.lossless.settings import Settings
from holdfast.context.messages import Message
from holdfast.context.states import State
from holdfast.context.tokens import message_tokens
from holdfast.context.transcript import in_turn_order
from holdfast.errors import NotFound
from holdfast.log import Tx
from holdfast.log.tables import entries as entry_table


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest raw messages of a projection in turn order, as they are; `whole` if there are no older."""

    messages: list[Message]
    whole: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """What a leaf says of the entries that it covers."""

    count: int
    earliest_at: Millis
    latest_at: Millis


class Reader:
    """Messages of raw ranges, large ones as stubs; summaries by id. Holds only caches."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._history = History()

    def newest(
        self,
        tx: Tx,
        known: Projection,
        *,
        budget: int,
        skip: frozenset[str] = frozenset(),
        past: Past | None = None,
    ) -> Newest:
        """The newest that come just past a budget, large ones counted as their stubs."""
        found: list[Message] = []
        used = 0
        for item in reversed(known.raw):
            before = item.until
            while used <= budget:
                room = budget - used
                page = self._history.newest(
                    tx, _state(item), {}, budget=room, skip=skip, before=before, past=past
                )
                found = in_turn_order([*page, *found])
                used += self.shown_tokens(page)
                if len(page) < MOST_MESSAGES and sum(map(message_tokens, page)) <= room:
                    break
                before = min(map(position, page))
        return Newest(found, whole=used <= budget)

    def oldest(self, tx: Tx, item: Item, *, budget: int, before: int) -> tuple[list[Message], bool]:
        """The first messages of a range, just past a budget, in log order; and whether that is all."""
        found = self._history.oldest(tx, _state(item), {}, budget=budget)
        within = sorted((m for m in found if position(m) < before), key=position)
        truncated = len(within) == len(found) and sum(map(message_tokens, found)) > budget
        return within, not truncated

    def tail_position(self, tx: Tx, known: Projection, *, tokens: int, budget: int) -> int:
        """The position from which on history is fresh and stays as it is."""
        read = self.newest(tx, known, budget=max(budget, tokens)).messages
        ordered = sorted(read, key=position)
        if not ordered:
            return 0
        start = passes.tail_start(ordered, most=self._settings.fresh_tail_messages, tokens=tokens)
        fresh = position(ordered[start]) if start < len(ordered) else position(ordered[-1]) + 1
        return min(fresh, _newest_user(tx, known))

    def shown_tokens(self, messages: Sequence[Message]) -> int:
        return sum(message_tokens(self.shown(m)) for m in messages)

    def summaries(self, tx: Tx, items: Sequence[Item]) -> list[tuple[Item, Node]]:
        """The nodes of these items in order. Raises `NotFound` if one is missing: doctor can mend that."""
        found = nodes.get_many(tx, [i.summary_id for i in items if i.summary_id is not None])
        lost = [i.summary_id for i in items if i.summary_id not in found]
        if lost:
            raise NotFound(
                f"summary {lost[0]} is gone", code="unknown_summary", hint="Run `holdfast doctor --fix`."
            )
        return [(i, found[i.summary_id]) for i in items if i.summary_id is not None]

    def facts(self, tx: Tx, item: Item, until: int) -> Facts:
        """Count and dates of the entries in the head of a range."""
        c = entry_table.c
        query = sa.select(sa.func.count(), sa.func.min(c.created_at), sa.func.max(c.created_at)).where(
            c.session_id == item.session_id,
            c.position >= item.first,
            c.position < until,
            c.deleted_at.is_(None),
        )
        count, first, last = tx.conn.execute(query).one()
        return Facts(count, Millis(first or 0), Millis(last or 0))

    def shown(self, message: Message) -> Message:
        return shown(message, most_tokens=self._settings.large_payload_tokens)


def _state(item: Item) -> State:
    return State(
        session_id=item.session_id, agent_id=None, engine="lossless", floor=item.first, updated_at=Millis(0)
    )


def _newest_user(tx: Tx, known: Projection) -> int:
    """Where the newest user message stands that is still shown as it was said."""
    c = entry_table.c
    for item in reversed(known.raw):
        query = sa.select(c.position).where(
            c.session_id == item.session_id,
            c.position >= item.first,
            c.deleted_at.is_(None),
            sa.or_(
                c.role == "user",
                sa.and_(c.role.is_(None), c.agent_id == "user", c.type == "conversation"),
            ),
        )
        if item.until is not None:
            query = query.where(c.position < item.until)
        found = tx.conn.execute(query.order_by(c.position.desc()).limit(1)).scalar()
        if found is not None:
            return int(found)
    return 1 << 62
