"""The way back: the exact words behind a summary, a stub or a gap, and a search in everything said.

Both see the session's family and nothing else: all sessions of its key, and what it was forked from as it
was then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa

from holdfast.clock import iso
from holdfast.context.lossless import nodes, projections, spans
from holdfast.context.lossless.nodes import Node
from holdfast.context.lossless.settings import Settings
from holdfast.context.lossless.spans import END, Span
from holdfast.context.messages import AssistantMessage
from holdfast.context.transcript import message_of
from holdfast.errors import InvalidInput, NotFound
from holdfast.log import Entry, Tx, entries, entry_model, sessions
from holdfast.log.tables import entries as table

PAGE_CHARS: Final = 12_000
MOST_CHARS: Final = 40_000
_ROWS: Final = 100
_SPAN: Final = re.compile(r"span:(\d{1,18})-(\d{1,18})")
_CURSOR: Final = re.compile(r"(?:(log-[\w-]+):)?(\d{1,12})")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an entry's exact text, from a character on."""

    entry: Entry
    offset: int
    text: str

    def json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "entryId": self.entry.id,
            "at": iso(self.entry.created_at),
            "role": self.entry.role or self.entry.type.value,
            "offset": self.offset,
            "chars": len(self.entry.content),
            "text": self.text,
        }
        message = message_of(self.entry) if self.offset == 0 else None
        if isinstance(message, AssistantMessage) and message.calls:
            body["calls"] = [{"name": c.name, "arguments": c.arguments} for c in message.calls]
        return body


@dataclass(frozen=True, slots=True)
class Page:
    id: str
    pieces: list[Piece] = field(default_factory=list)
    next: str | None = None
    node: Node | None = None

    def json(self) -> dict[str, Any]:
        body: dict[str, Any] = {"id": self.id, "entries": [p.json() for p in self.pieces], "next": self.next}
        if self.node is not None:
            body["summary"] = {
                "depth": self.node.depth,
                "entries": self.node.entry_count,
                "from": iso(self.node.earliest_at),
                "to": iso(self.node.latest_at),
                "keeps": {kind: list(words)[:200] for kind, words in self.node.keeps.items() if words},
            }
        return body


class Recall:
    """Reads for one session, in the caller's transaction; `shown` is which entries, by who reads."""

    def __init__(self, tx: Tx, session_id: str, *, retain_depth: int = Settings().retain_depth) -> None:
        self.tx = tx
        session = sessions.get(tx, session_id)
        self.family = [s.id for s in sessions.history(tx, session.key)] or [session.id]
        self.projection = projections.of(tx, session_id, retain_depth=retain_depth)
        own = [Span(one, 0, END) for one in self.family]
        given = [s for s in _behind(tx, self.projection.base) if s.session_id not in self.family]
        self.scope = [*own, *given]
        self.shown = (table.c.deleted_at.is_(None), *entry_model.within_reach(tx.reader))

    def read(self, id_: str, *, start: str | int | None = None, limit: int = PAGE_CHARS) -> Page:
        """A page of the exact text behind an id; `start` is the `next` of the page before."""
        node, where = self._place(id_)
        match = _CURSOR.fullmatch(str(start or 0))
        if match is None:
            raise InvalidInput(f"not a place to read from: {str(start)[:60]!r}", hint="Send back `next`.")
        after, offset = -1, int(match[2])
        if match[1] is not None:
            entry = entries.get(self.tx, match[1])
            after = entry.position - 1
        pieces, following = self._pieces(where, after, offset, max(1, min(limit, MOST_CHARS)))
        return Page(id_, pieces, following, node)

    def _place(self, id_: str) -> tuple[Node | None, list[Span]]:
        """The spans that an id names; one outside the family is as good as none."""
        span = _SPAN.fullmatch(id_)
        if span is not None:
            first, until = int(span[1]), int(span[2])
            found = [s._replace(first=max(s.first, first), until=min(s.until, until)) for s in self.scope]
            return None, [s for s in found if s.first < s.until]
        if id_.startswith("sum_"):
            below = [spans.of_leaf(leaf) for leaf in nodes.leaves(self.tx, id_)]
            if spans.within(below, self.scope):
                return nodes.get(self.tx, id_), below
        elif id_.startswith("log-"):
            entry = entries.get(self.tx, id_)
            hidden = entry.deleted_at is not None
            if not hidden and any(s.holds(entry.session_id, entry.position) for s in self.scope):
                return None, [Span(entry.session_id or "", entry.position, entry.position + 1)]
        raise NotFound(
            f"nothing here has the id {id_[:60]!r}", code="unknown_context", hint="Use sum_…, log-… or span:…"
        )

    def _pieces(
        self, where: Sequence[Span], after: int, offset: int, room: int
    ) -> tuple[list[Piece], str | None]:
        found: list[Piece] = []
        while True:
            rows = self._entries(where, after)
            for entry in rows:
                if room <= 0:
                    return found, f"{entry.id}:{offset}"
                text = entry.content[offset : offset + room]
                found.append(Piece(entry, offset, text))
                room -= max(len(text), 1)
                if offset + len(text) < len(entry.content):
                    return found, f"{entry.id}:{offset + len(text)}"
                offset = 0
                after = entry.position
            if len(rows) < _ROWS:
                return found, None

    def _entries(self, where: Sequence[Span], after: int) -> list[Entry]:
        c = table.c
        query = sa.select(c.id).where(in_spans(where), c.position > after, *self.shown)
        ids = list(self.tx.conn.execute(query.order_by(c.position).limit(_ROWS)).scalars())
        return entries.get_many(self.tx, ids)


def in_spans(where: Sequence[Span]) -> sa.ColumnElement[bool]:
    """A condition on entries: whole sessions as one list, the rest span by span."""
    c = table.c
    whole = [s.session_id for s in where if s.first == 0 and s.until == END]
    parts = [s for s in spans.joined(where) if not (s.first == 0 and s.until == END)]
    terms: list[sa.ColumnElement[bool]] = [c.session_id.in_(whole)] if whole else []
    terms += [
        sa.and_(c.session_id == s.session_id, c.position >= s.first, c.position < s.until) for s in parts
    ]
    return sa.or_(sa.false(), *terms)


def _behind(tx: Tx, base: Sequence[Any]) -> list[Span]:
    """Damage to what was given narrows the scope; it does not break the tools."""
    found: list[Span] = []
    for item in base:
        try:
            found += spans.behind(tx, [item])
        except NotFound:
            continue
    return found
