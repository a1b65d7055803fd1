"""The way back: the exact words behind a summary, a stub or a gap, a search in all that was said, the tools.

Both see the session's family and nothing else: all sessions of its key, and what it was forked from as it
was then.
"""

from __future__ import annotations

import heapq
import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from holdfast.clock import iso
from holdfast.context.lossless import nodes, projections, spans
from holdfast.context.lossless.nodes import Node
from holdfast.context.lossless.settings import Settings
from holdfast.context.lossless.spans import END, Span
from holdfast.context.messages import AssistantMessage
from holdfast.context.transcript import message_of
from holdfast.effects import DeclaredTool, Effect
from holdfast.errors import InvalidInput, NotFound
from holdfast.log import Entry, EntryType, Session, Store, Tx, entries, entry_model, sessions
from holdfast.log.tables import entries as table

_PAGE_CHARS: Final = 12_000
_MOST_CHARS: Final = 40_000


class ReadInput(BaseModel):
    """Read the exact words behind a summary (sum_…), a message kept aside (log-…) or a gap (span:…)."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    id: Annotated[str, Field(min_length=1, max_length=120, description="An id from the context or a search.")]
    start: Annotated[
        str | int | None,
        Field(alias="from", description="The `next` of the page before; else the beginning."),
    ] = None
    limit: Annotated[int, Field(ge=1, le=_MOST_CHARS, description="Characters of the page.")] = _PAGE_CHARS


class SearchInput(BaseModel):
    """Find words in everything that was said and done in this session, summarised or not."""

    model_config = ConfigDict(extra="forbid")
    query: Annotated[str, Field(min_length=1, max_length=1_000, description="Words, names or paths.")]
    limit: Annotated[int, Field(ge=1, le=100, description="Hits at most.")] = 10
    offset: Annotated[int, Field(ge=0, le=10_000, description="Hits to pass over.")] = 0


TOOLS: Final[dict[str, DeclaredTool]] = {
    "context_read": DeclaredTool(input=ReadInput, effect=Effect.NONE, repeatable=True, for_others=True),
    "context_search": DeclaredTool(input=SearchInput, effect=Effect.NONE, repeatable=True, for_others=True),
}


def schemas() -> dict[str, dict[str, Any]]:
    """Name → description and JSON Schema of the input."""
    return {
        name: {"description": tool.input.__doc__, "parameters": tool.input.model_json_schema()}
        for name, tool in TOOLS.items()
    }


def answer_tool(
    store: Store,
    name: str,
    arguments: Mapping[str, Any],
    *,
    session: Session,
    most_chars: int = _MOST_CHARS,
) -> dict[str, Any]:
    """Run one of the tools for a session; it sees that session's family only, and of that what all may read
    who hear the session now. What it reads is data. A page has at most `most_chars`."""
    if name not in TOOLS:
        raise InvalidInput(f"no context tool {name[:40]!r}", hint=f"There are {', '.join(TOOLS)}.")
    given = _checked(TOOLS[name].input, arguments)
    with store.read(session.reader) as tx:
        recall = Recall(tx, session.id)
        match given:
            case ReadInput():
                limit = min(given.limit, max(1, most_chars))
                return recall.read(given.id, start=given.start, limit=limit).json()
            case SearchInput():
                return search(recall, given.query, limit=given.limit, offset=given.offset).json()
    raise AssertionError(name)


def _checked(model: type[BaseModel], arguments: Mapping[str, Any]) -> BaseModel:
    try:
        return model.model_validate(dict(arguments))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"]) or "the arguments"
        raise InvalidInput(f"{where}: {first['msg']}", hint="See the tool's schema.") from error


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


MOST_WORDS: Final = 12
MOST_PLACES: Final = 20_000
MOST_HITS: Final = 100
_RESCORED: Final = 200
_SNIPPET: Final = 320
_MOST_SUMMARIES: Final = 5
_SCANNED_SUMMARIES: Final = 500
_COMMON: Final = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be but by did do does for from had has have how i if in is it its me my no not "
        "of on or our so that the their then there they this to was we were what when where which who why "
        "will with you your",
    )
)


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry that was found; `shown_by` is the summary that stands for it, None if it is shown itself."""

    entry: Entry
    score: float
    snippet: str
    shown_by: str | None

    def json(self) -> dict[str, Any]:
        return {
            "entryId": self.entry.id,
            "at": iso(self.entry.created_at),
            "role": self.entry.role or self.entry.type.value,
            "score": round(self.score, 3),
            "snippet": self.snippet,
            "shownBy": self.shown_by,
        }


@dataclass(frozen=True, slots=True)
class Found:
    """`total` entries match; `summaries` are those whose text or kept facts do."""

    hits: list[Hit]
    total: int
    summaries: list[tuple[str, str]]
    words: list[str]

    def json(self) -> dict[str, Any]:
        return {
            "hits": [hit.json() for hit in self.hits],
            "total": self.total,
            "summaries": [{"id": id_, "snippet": text} for id_, text in self.summaries],
            "words": self.words,
        }


def search(recall: Recall, query: str, *, limit: int = 10, offset: int = 0) -> Found:
    """The entries that hold the query's words, those with the rarest first, then the newest."""
    words = words_of(query)
    if not words:
        raise InvalidInput("there is no word to search for", hint="Name what you look for.")
    places = {word: _places(recall, word) for word in words}
    total = max(1, _size(recall))
    scores: defaultdict[int, float] = defaultdict(float)
    for found in places.values():
        weight = math.log(1 + total / max(1, len(found)))
        for position in found:
            scores[position] += weight
    best = heapq.nlargest(_RESCORED + offset + limit, scores.items(), key=lambda s: (s[1], s[0]))
    hits = _ranked(recall, dict(best), words, query, places)
    limit = max(1, min(limit, MOST_HITS))
    return Found(hits[offset : offset + limit], len(scores), _summaries(recall, words, places), words)


def words_of(query: str) -> list[str]:
    """The words to look for, paths and names whole; common ones only if there are no others."""
    found = [w.strip(".,;:!?\"'`()[]{}<>«»“”‘’") for w in query.split()]
    unique = list(dict.fromkeys(w.lower() for w in found if w))
    rare = [w for w in unique if w not in _COMMON]
    return (rare or unique)[:MOST_WORDS]


def _places(recall: Recall, word: str) -> list[int]:
    c = table.c
    holds = sa.or_(c.content.icontains(word, autoescape=True), c.raw.icontains(word, autoescape=True))
    query = sa.select(c.position).where(in_spans(recall.scope), *recall.shown, _NO_ECHO, holds)
    query = query.order_by(c.position.desc()).limit(MOST_PLACES)
    return list(recall.tx.conn.execute(query).scalars())


_TOOL: Final = sa.func.coalesce(table.c.source["toolName"].as_string(), "")
# What these tools found before would match again, and outrank where it was said. A host that has them from a
# server puts its name before theirs ("mcp__holdfast__context_search").
_NO_ECHO: Final = sa.and_(
    _TOOL.not_in(list(TOOLS)), *(~_TOOL.endswith(f"__{name}", autoescape=True) for name in TOOLS)
)


def _size(recall: Recall) -> int:
    query = sa.select(sa.func.count()).where(in_spans(recall.scope), *recall.shown)
    return int(recall.tx.conn.execute(query).scalar() or 0)


def _ranked(
    recall: Recall, scores: dict[int, float], words: Sequence[str], query: str, places: dict[str, list[int]]
) -> list[Hit]:
    """The best again with their text at hand: the whole phrase, and words that stand alone, count more."""
    c = table.c
    ids: list[str] = []
    wanted = list(scores)
    for start in range(0, len(wanted), 500):
        chosen = c.position.in_(wanted[start : start + 500])
        ids += recall.tx.conn.execute(sa.select(c.id).where(chosen)).scalars()
    rarest = sorted(words, key=lambda w: len(places[w]) or MOST_PLACES)
    phrase = " ".join(query.lower().split())
    hits: list[Hit] = []
    for entry in entries.get_many(recall.tx, ids):
        said = _said(entry)
        text = said if _holds(said, rarest) else _with_calls(entry)
        if not _holds(text, words):
            continue
        low = " ".join(text.lower().split())
        score = scores[entry.position] * (1.5 if phrase in low else 1.0)
        alone = sum(bool(re.search(rf"(?<!\w){re.escape(w)}(?!\w)", low)) for w in words)
        score += alone * 0.25
        hits.append(Hit(entry, score, _snippet(text, rarest), _shown_by(recall, entry)))
    return sorted(hits, key=lambda h: (-h.score, -h.entry.position))


def _said(entry: Entry) -> str:
    """The words of an entry; those of one that only calls tools are a line for people who read the log."""
    return "" if entry.role == "assistant" and entry.type is EntryType.ACTION else entry.content


def _with_calls(entry: Entry) -> str:
    """The words of an entry and what it called, but for calls of these tools, which hold what was asked."""
    message = message_of(entry)
    if not (isinstance(message, AssistantMessage) and any(_is_ours(call.name) for call in message.calls)):
        return f"{entry.content}\n{entry.raw or ''}"
    rest = [f"{call.name} {json.dumps(call.arguments)}" for call in message.calls if not _is_ours(call.name)]
    return "\n".join((_said(entry), *rest))


def _is_ours(tool: str) -> bool:
    return tool.rpartition("__")[2] in TOOLS


def _holds(text: str, words: Sequence[str]) -> bool:
    low = text.lower()
    return any(word in low for word in words)


def _snippet(text: str, words: Sequence[str]) -> str:
    low = text.lower()
    at = next((low.find(w) for w in words if w in low), 0)
    start = max(0, at - _SNIPPET // 3)
    cut = " ".join(text[start : start + _SNIPPET].split())
    return f"{'…' if start else ''}{cut}{'…' if start + _SNIPPET < len(text) else ''}"


def _shown_by(recall: Recall, entry: Entry) -> str | None:
    for item in recall.projection.summaries:
        if item.first <= entry.position < (item.until or 0):
            return item.summary_id
    return None


def _summaries(recall: Recall, words: Sequence[str], places: dict[str, list[int]]) -> list[tuple[str, str]]:
    c = nodes.columns()
    kept = sa.cast(c.keeps, sa.Text)
    holds = [sa.or_(c.text.icontains(w, autoescape=True), kept.icontains(w, autoescape=True)) for w in words]
    query = sa.select(c.id, c.text, kept.label("kept")).where(c.session_id.in_(recall.family), sa.or_(*holds))
    rows = recall.tx.conn.execute(query.order_by(c.created_at.desc()).limit(_SCANNED_SUMMARIES)).all()
    rarest = sorted(words, key=lambda w: len(places[w]) or MOST_PLACES)
    weights = {w: 1 / (1 + len(places[w])) for w in words}

    def score(text: str) -> float:
        low = text.lower()
        return sum(weights[w] for w in words if w in low)

    best = heapq.nlargest(_MOST_SUMMARIES, rows, key=lambda r: (score(f"{r.text} {r.kept}"), r.id))
    return [(r.id, _snippet(r.text, rarest)) for r in best]
