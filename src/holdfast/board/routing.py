"""Session routing memory: which topics a session has lately been about, so that terse words find their place.

One row for each session: at most so many topics, each once, newest last, forgotten after a while. The first
item may be a link (see `lineage`), which is no memory and is not counted. Who may read a row may read all
the words that led to its topics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa

from holdfast.board import topics, visibility
from holdfast.board.reads import Query, plain
from holdfast.board.tables import session_routing as table
from holdfast.board.visibility import View
from holdfast.clock import DAY_MS
from holdfast.config.board import RoutingMemory
from holdfast.log import FOR_ANYONE, FOR_OWNER, Audience, Tx, meet
from holdfast.log.statements import Insert
from holdfast.text import clean_json, clip

SWEEP_LIMIT: Final = 500
LINK: Final = "linkedFrom"


@dataclass(frozen=True, slots=True)
class Routed:
    """A topic that a session was about, when, and the words that led there."""

    ts: int
    topic_id: str
    topic_name: str
    anchor: str = ""
    task_id: str | None = None

    def plain(self) -> dict[str, Any]:
        task = {} if self.task_id is None else {"taskId": self.task_id}
        return {
            "ts": self.ts,
            "topicId": self.topic_id,
            "topicName": self.topic_name,
            "anchor": self.anchor,
        } | task


@dataclass(frozen=True, slots=True)
class Memory:
    """What a session remembers, as it is kept, and who may read it."""

    items: tuple[Mapping[str, Any], ...] = ()
    audience: Audience = FOR_OWNER

    def remembering(self, item: Routed, now: int, options: RoutingMemory, audience: Audience) -> Memory:
        """That the session is about this topic, in the order of when it was said; `audience` may read the
        words that led there."""
        links = [one for one in self.items if LINK in one][:1]
        kept = [one for one in _kept(self.items, now, options) if one.get("topicId") != item.topic_id]
        clipped = item.plain() | {"anchor": clip(item.anchor, options.anchor_max_chars)}
        readers = meet((audience, self.audience if kept else FOR_ANYONE))
        held = sorted([*kept, clipped], key=_ts)  # stable: what is said at the same time stays in order
        return Memory((*links, *held[-options.max_items :]), readers)

    def routed(self, now: int, options: RoutingMemory) -> list[Routed]:
        """The topics that are not forgotten yet, newest last."""
        return [_routed(one) for one in _kept(self.items, now, options)]


def read(tx: Tx, session_key: str) -> Memory:
    row = _ITEMS.first(tx, key=session_key)
    if row is None:
        return Memory()
    items = [dict(one) for one in plain(row[0]) or () if isinstance(one, Mapping)]
    return Memory(tuple(items), Audience(row[1]))


def write(tx: Tx, session_key: str, memory: Memory) -> None:
    row = {"session_key": session_key, "audience": memory.audience, "items": clean_json(list(memory.items))}
    _PUT.one(tx, row | {"updated_at": tx.now})


def remember(tx: Tx, session_key: str, item: Routed, options: RoutingMemory, audience: Audience) -> None:
    """Note that the session is now about this topic; `audience` may read the words that led there."""
    write(tx, session_key, read(tx, session_key).remembering(item, tx.now, options, audience))


def recall(tx: Tx, session_key: str, options: RoutingMemory, view: View) -> list[Routed]:
    """The session's topics that are there, may be read and lie within sight, newest last.

    Who wrote the words behind a topic is not known: who may read only some agents' is told the topic alone.
    """
    memory = read(tx, session_key)
    if not memory.items or not tx.reader.may_read(memory.audience):
        return []
    items = memory.routed(tx.now, options)
    spaces = _readable_topics(tx, [one.topic_id for one in items]) if items else {}
    shown = [one for one in items if one.topic_id in spaces and view.sees(spaces[one.topic_id])]
    return shown if tx.reader.agents is None else [replace(one, anchor="") for one in shown]


def _readable_topics(tx: Tx, ids: Sequence[str]) -> Mapping[str, frozenset[str]]:
    """The spaces of those topics that may be read."""
    if tx.reader.reads_all:
        return visibility.spaces_of_topics(tx, ids)
    return {topic.id: topic.space_ids for topic in topics.get_many(tx, ids)}


def sweep(tx: Tx, options: RoutingMemory, *, limit: int = SWEEP_LIMIT) -> int:
    """Drop sessions in which nothing was sorted for as long as items are kept, links with them."""
    old = sa.select(table.c.session_key).where(table.c.updated_at < tx.now - options.ttl_days * DAY_MS)
    keys = tx.conn.execute(old.order_by(table.c.updated_at).limit(limit)).scalars().all()
    if keys:
        tx.conn.execute(sa.delete(table).where(table.c.session_key.in_(keys)))
    return len(keys)


def read_link(tx: Tx, session_key: str) -> Mapping[str, Any] | None:
    """The link of a session, if it has one."""
    return next((one for one in read(tx, session_key).items if LINK in one), None)


def write_link(tx: Tx, session_key: str, link: Mapping[str, Any]) -> None:
    """Put a link before what is remembered, in place of one that was there."""
    memory = read(tx, session_key)
    held = (link, *(one for one in memory.items if LINK not in one))
    write(tx, session_key, replace(memory, items=held))


def _kept(items: Sequence[Mapping[str, Any]], now: int, options: RoutingMemory) -> list[Mapping[str, Any]]:
    oldest = now - options.ttl_days * DAY_MS
    return [
        one for one in items if LINK not in one and isinstance(one.get("topicId"), str) and _ts(one) >= oldest
    ][-options.max_items :]


def _ts(item: Mapping[str, Any]) -> int:
    value = item.get("ts")
    return value if isinstance(value, int) else 0


def _routed(item: Mapping[str, Any]) -> Routed:
    task = item.get("taskId")
    return Routed(
        _ts(item),
        item["topicId"],
        str(item.get("topicName") or ""),
        str(item.get("anchor") or ""),
        task if isinstance(task, str) else None,
    )


_ITEMS: Final = Query("SELECT items, audience FROM session_routing WHERE session_key = :key")
_PUT: Final = Insert(table, replace=["session_key"])
