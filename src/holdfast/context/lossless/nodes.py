"""Summaries as nodes of a DAG over the log: leaves over runs of entries, others over summaries one level
below. A node is written once, with its links, and never changed; a better one is another node.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.context.lossless.projections import Item
from holdfast.context.lossless.tables import links
from holdfast.context.lossless.tables import summaries as table
from holdfast.errors import NotFound
from holdfast.ids import uuid7
from holdfast.log import Tx

Level = Literal["normal", "aggressive", "extractive"]

_CHUNK = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """`source_session_id` is set for leaves: the entries of that session from `first` up to `until`.

    `keeps` is what the audit found in the source, by kind; `replaces` is the extract that this one mends.
    """

    id: str
    session_id: str
    source_session_id: str | None
    depth: int
    first: int
    until: int
    text: str
    keeps: Mapping[str, Sequence[str]]
    tokens: int
    source_tokens: int
    entry_count: int
    earliest_at: Millis
    latest_at: Millis
    level: Level
    fault: str | None = None
    replaces: str | None = None
    created_at: Millis

    @property
    def is_leaf(self) -> bool:
        return self.source_session_id is not None

    @property
    def extractive(self) -> bool:
        return self.level == "extractive"

    @property
    def item(self) -> Item:
        return Item(
            session_id=self.source_session_id or self.session_id,
            first=self.first,
            until=self.until,
            summary_id=self.id,
            depth=self.depth,
            tokens=self.tokens,
        )


_NAMES = tuple(f.name for f in fields(Node))


def mint() -> str:
    """A short id that a model can repeat without mistakes."""
    return "sum_" + hashlib.sha256(uuid7().encode()).hexdigest()[:16]


def insert(tx: Tx, node: Node, sources: Sequence[str] = ()) -> None:
    """The node and, for one over summaries, the links to them."""
    tx.conn.execute(sa.insert(table), {name: getattr(node, name) for name in _NAMES})
    if sources:
        rows = [{"summary_id": node.id, "ordinal": n, "source_id": s} for n, s in enumerate(sources)]
        tx.conn.execute(sa.insert(links), rows)


def get(tx: Tx, id_: str) -> Node:
    found = get_many(tx, [id_])
    if not found:
        raise NotFound(f"no summary {id_[:40]!r}", code="unknown_summary")
    return found[id_]


def get_many(tx: Tx, ids: Iterable[str]) -> dict[str, Node]:
    """The nodes of these ids that exist."""
    wanted = list(dict.fromkeys(ids))
    found: dict[str, Node] = {}
    for start in range(0, len(wanted), _CHUNK):
        query = sa.select(table).where(table.c.id.in_(wanted[start : start + _CHUNK]))
        found |= {row["id"]: Node(**row) for row in tx.conn.execute(query).mappings()}
    return found


def of_session(tx: Tx, session_id: str) -> list[Node]:
    query = sa.select(table).where(table.c.session_id == session_id).order_by(table.c.first, table.c.depth)
    return [Node(**row) for row in tx.conn.execute(query).mappings()]


def sources(tx: Tx, ids: Iterable[str]) -> dict[str, list[str]]:
    """The sources of nodes over summaries, in order."""
    found: dict[str, list[str]] = {}
    wanted = list(dict.fromkeys(ids))
    for start in range(0, len(wanted), _CHUNK):
        query = sa.select(links.c.summary_id, links.c.source_id)
        query = query.where(links.c.summary_id.in_(wanted[start : start + _CHUNK]))
        for row in tx.conn.execute(query.order_by(links.c.summary_id, links.c.ordinal)):
            found.setdefault(row.summary_id, []).append(row.source_id)
    return found


def leaves(tx: Tx, id_: str) -> list[Node]:
    """The leaves behind a node in log order, read level by level. Raises `NotFound` if one is missing."""
    level = [id_]
    found: dict[str, Node] = {}
    seen: set[str] = set()
    while level:
        known = get_many(tx, level)
        missing = [one for one in level if one not in known]
        if missing:
            raise NotFound(
                f"summary {missing[0]} is gone", code="unknown_summary", hint="Run `holdfast doctor --fix`."
            )
        seen |= known.keys()
        found |= {one: node for one, node in known.items() if node.is_leaf}
        below = sources(tx, [one for one, node in known.items() if not node.is_leaf])
        level = [s for many in below.values() for s in many if s not in seen]
    return sorted(found.values(), key=lambda node: node.first)


def columns() -> Any:
    return table.c
