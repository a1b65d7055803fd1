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


def remember(tx: Tx, session_key: str, item: Routed, options: RoutingMemory, audience: Audience) -> None:
    """Note that the session is now about this topic; `audience` may read the words that led there."""
    items, before = _row(tx, session_key)
    links = [one for one in items if LINK in one][:1]
    fresh = [one for one in _kept(items, tx.now, options) if one.get("topicId") != item.topic_id]
    clipped = item.plain() | {"anchor": clip(item.anchor, options.anchor_max_chars)}
    readers = meet((audience, before if fresh else FOR_ANYONE))
    _write(tx, session_key, [*links, *[*fresh, clipped][-options.max_items :]], readers)


def recall(tx: Tx, session_key: str, options: RoutingMemory, view: View) -> list[Routed]:
    """What the session has been about, newest last, if the reader may read that; topics that are gone, not
    the reader's or out of sight are left out.

    Whose words led to a topic is not known: who may read only some agents' is told the topic alone.
    """
    found, audience = _row(tx, session_key)
    if not found or not tx.reader.may_read(audience):
        return []
    items = [_routed(one) for one in _kept(found, tx.now, options)]
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


def read_link(tx: Tx, session_key: str) -> dict[str, Any] | None:
    """The link of a session, if it has one."""
    return next((one for one in _row(tx, session_key)[0] if LINK in one), None)


def write_link(tx: Tx, session_key: str, link: Mapping[str, Any]) -> None:
    """Put a link before what is remembered, in place of one that was there."""
    items, audience = _row(tx, session_key)
    _write(tx, session_key, [link, *(one for one in items if LINK not in one)], audience)


def _row(tx: Tx, session_key: str) -> tuple[list[dict[str, Any]], Audience]:
    row = _ITEMS.first(tx, key=session_key)
    if row is None:
        return [], FOR_OWNER
    return [dict(one) for one in plain(row[0]) or () if isinstance(one, Mapping)], Audience(row[1])


def _write(tx: Tx, session_key: str, items: Sequence[Mapping[str, Any]], audience: Audience) -> None:
    row = {"session_key": session_key, "audience": audience, "items": clean_json(list(items))}
    _PUT.one(tx, row | {"updated_at": tx.now})


def _kept(items: Sequence[Mapping[str, Any]], now: int, options: RoutingMemory) -> list[dict[str, Any]]:
    oldest = now - options.ttl_days * DAY_MS
    return [
        dict(one)
        for one in items
        if LINK not in one and isinstance(one.get("topicId"), str) and _ts(one) >= oldest
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
