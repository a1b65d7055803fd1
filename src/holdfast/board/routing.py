"""Session routing memory: which topics a session has lately been about, so that terse words find their place.

One row for each session: at most so many topics, each once, newest last, forgotten after a while. The first
item may be a link (see `lineage`), which is no memory and is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa

from holdfast.board import visibility
from holdfast.board.reads import Query, plain
from holdfast.board.tables import session_routing as table
from holdfast.board.visibility import EVERYTHING, View
from holdfast.clock import DAY_MS
from holdfast.config.board import RoutingMemory
from holdfast.log import Tx
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

    def seen_by(self, agents: frozenset[str] | None) -> Routed:
        """Whose words led there is not known: who may see only some writers' is told the topic alone."""
        return self if agents is None else replace(self, anchor="")


def remember(tx: Tx, session_key: str, item: Routed, options: RoutingMemory) -> None:
    """Note that the session is now about this topic."""
    items = read_items(tx, session_key)
    links = [one for one in items if LINK in one][:1]
    fresh = [one for one in _kept(items, tx.now, options) if one.get("topicId") != item.topic_id]
    clipped = item.plain() | {"anchor": clip(item.anchor, options.anchor_max_chars)}
    write_items(tx, session_key, [*links, *[*fresh, clipped][-options.max_items :]])


def recall(tx: Tx, session_key: str, options: RoutingMemory, view: View = EVERYTHING) -> list[Routed]:
    """What the session has been about, newest last; topics that are gone or out of sight are left out."""
    items = [_routed(one) for one in _kept(read_items(tx, session_key), tx.now, options)]
    spaces = visibility.spaces_of_topics(tx, [one.topic_id for one in items]) if items else {}
    return [one for one in items if one.topic_id in spaces and view.sees(spaces[one.topic_id])]


def sweep(tx: Tx, options: RoutingMemory, *, limit: int = SWEEP_LIMIT) -> int:
    """Drop sessions in which nothing was sorted for as long as items are kept, links with them."""
    old = sa.select(table.c.session_key).where(table.c.updated_at < tx.now - options.ttl_days * DAY_MS)
    keys = tx.conn.execute(old.order_by(table.c.updated_at).limit(limit)).scalars().all()
    if keys:
        tx.conn.execute(sa.delete(table).where(table.c.session_key.in_(keys)))
    return len(keys)


def read_items(tx: Tx, session_key: str) -> list[dict[str, Any]]:
    row = _ITEMS.first(tx, key=session_key)
    found: Sequence[Any] = () if row is None else plain(row[0]) or ()
    return [dict(one) for one in found if isinstance(one, Mapping)]


def write_items(tx: Tx, session_key: str, items: Sequence[Mapping[str, Any]]) -> None:
    row = {"session_key": session_key, "items": clean_json(list(items)), "updated_at": tx.now}
    _PUT.one(tx, row)


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


_ITEMS: Final = Query("SELECT items FROM session_routing WHERE session_key = :key")
_PUT: Final = Insert(table, replace=["session_key"])
