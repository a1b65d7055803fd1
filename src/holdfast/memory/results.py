"""What a search of memory answers, in the forms of the tool, the API and the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from holdfast.config.memory import Limits
from holdfast.memory.documents import Document
from holdfast.memory.scoring import Scored
from holdfast.memory.snippets import Snippet, citation, snippet
from holdfast.records import record

if TYPE_CHECKING:
    from holdfast.memory.confidence import Answer
    from holdfast.memory.engine.protocol import View

Origin = Literal["memory", "sessions"]

SESSIONS: Final = "sessions/"
MOST_OF_A_REASON: Final = 200
_NUMBERS: Final = 16
"""The digits of what is counted and timed last."""
_LEAST_TEXT: Final = 20
"""Fewer characters than this say nothing: a citation gives way to them, or the result is left out."""


@record
class HitOut(TypedDict):
    path: Annotated[
        str, Field(description="As `GET /api/memory/get` takes it; `sessions/<entry>.md` for what was said.")
    ]
    snippet: str
    startLine: int | None
    endLine: int | None
    score: float
    source: Literal["memory", "sessions"]
    parts: NotRequired[
        Annotated[dict[str, float], Field(description="With `explain`: what the score is of.")]
    ]


@record
class DiagnosticsOut(TypedDict):
    backend: str
    mode: Literal["hybrid", "text", "refused"]
    searched: int
    behind: int
    tookMs: int
    note: str
    leftOut: int
    healing: str | None
    confidence: float | None


@record
class FoundOut(TypedDict):
    results: list[HitOut]
    provider: str
    model: str
    fallback: str | None
    citations: bool
    diagnostics: DiagnosticsOut


@dataclass(frozen=True, slots=True)
class Hit:
    """One result: where it stands, the lines that answer, and how its score came about."""

    id: str
    path: str
    snippet: str
    start: int | None
    end: int | None
    score: float
    source: Origin
    parts: Mapping[str, float] = field(default_factory=dict)
    at: int = 0
    cited: bool = False

    def json(self, *, explain: bool = False) -> HitOut:
        body: HitOut = {
            "path": self.path,
            "snippet": self.shown,
            "startLine": self.start,
            "endLine": self.end,
            "score": round(self.score, 4),
            "source": self.source,
        }
        if explain:
            body["parts"] = {name: round(value, 4) for name, value in self.parts.items()}
        return body

    @property
    def shown(self) -> str:
        """The snippet with its source, where that is told."""
        source = f"\n\n{citation(self.path, self.start, self.end)}" if self.cited else ""
        return self.snippet + source


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """Why a result is as it is: who served, over what, how fresh, and what was left out."""

    backend: str
    mode: Literal["hybrid", "text", "refused"]
    searched: int
    behind: int
    took_ms: int
    note: str = ""
    left_out: int = 0
    healing: str | None = None
    confidence: float | None = None
    """How likely it is that memory has an answer; None where nobody can say."""


@dataclass(frozen=True, slots=True)
class Found:
    hits: Sequence[Hit]
    provider: str
    model: str
    fallback: str | None
    citations: bool
    diagnostics: Diagnostics

    def json(self, *, explain: bool = False) -> FoundOut:
        told = self.diagnostics
        return {
            "results": [hit.json(explain=explain) for hit in self.hits],
            "provider": self.provider,
            "model": self.model,
            "fallback": self.fallback,
            "citations": self.citations,
            "diagnostics": {
                "backend": told.backend,
                "mode": told.mode,
                "searched": told.searched,
                "behind": told.behind,
                "tookMs": told.took_ms,
                "note": told.note,
                "leftOut": told.left_out,
                "healing": told.healing,
                "confidence": None if told.confidence is None else round(told.confidence, 4),
            },
        }


class Room:
    """How much one search may still inject: so much for a result's text with its source, so much in all.

    In all counts the whole answer as a model is given it, the names and marks of its JSON included.
    """

    def __init__(self, limits: Limits, found: Found, another_may_add: bool = False) -> None:
        """`found` is the answer without results; `another_may_add` leaves room for why this one serves."""
        self._snippet = limits.max_snippet_chars
        self._cite = found.citations
        around = len(json.dumps(found.json(), ensure_ascii=False)) + _NUMBERS
        self._left = limits.max_injected_chars - around - (MOST_OF_A_REASON if another_may_add else 0)

    def fit(self, hit: Hit, cut: Callable[[int], Snippet], *, lines: bool) -> Hit | None:
        """The result with as much of its text as there is room for; None where there is none.

        `cut` gives at most so many characters of the text, and `lines` says whether their place is told.
        """
        for cited in (True, False) if self._cite else (False,):
            most = self._snippet
            while most >= _LEAST_TEXT:
                made = _with(hit, cut(most), cited, lines)
                over = max(len(made.shown) - self._snippet, _injected(made) - self._left)
                if over <= 0:
                    self._left -= _injected(made)
                    return made
                most = min(most, len(made.snippet)) - over
        return None


def _with(hit: Hit, piece: Snippet, cited: bool, lines: bool) -> Hit:
    start, end = (piece.start, piece.end) if lines else (None, None)
    return replace(hit, snippet=piece.text, start=start, end=end, cited=cited)


def _injected(hit: Hit) -> int:
    """The characters of a result as a model reads it, with what parts it from the next."""
    return len(json.dumps(hit.json(), ensure_ascii=False)) + 2


def hits_of(scored: Sequence[Scored], view: View, terms: Sequence[str], room: Room) -> list[Hit]:
    """The results that have room, with the lines of each that hold most of the question's words."""
    import numpy as np

    documents = view.documents(np.array([one.number for one in scored], np.int64))
    made = [
        room.fit(_hit(one, document), partial(_cut, document, terms), lines=document.source == "file")
        for one, document in zip(scored, documents, strict=True)
        if document is not None
    ]
    return [hit for hit in made if hit is not None]


def _cut(document: Document, terms: Sequence[str], most: int) -> Snippet:
    return snippet(document.text, terms, first_line=document.from_line or 1, most=most)


def _hit(one: Scored, document: Document) -> Hit:
    """A result without its text, for which room has yet to be found."""
    return Hit(
        id=document.id,
        path=document.path or f"{SESSIONS}{document.id}.md",
        snippet="",
        start=None,
        end=None,
        score=one.score,
        source="memory" if document.source in ("file", "note") else "sessions",
        parts=one.parts,
        at=document.at,
    )


def refused(why: str) -> Found:
    """The answer to a chat that may not search."""
    nothing = Diagnostics(backend="builtin", mode="refused", searched=0, behind=0, took_ms=0, note=why)
    return Found((), "none", "none", None, False, nothing)


def why_empty(searched: int, behind: int, made: Answer, least: float, healing: str | None) -> str:
    """Why an answer has no results, for whoever asked; `healing` tells of an index that is being mended."""
    if made.below and made.confidence < least:
        return (
            f"nothing here fits the question: the nearest {made.below} results lie below the least score"
            f" ({made.confidence:.2f} of {least:.2f})"
        )
    if made.below or made.results:
        return f"{made.below or len(made.results)} results lie below the least score or have no room"
    if not searched and healing:
        return healing
    if not searched:
        return "nothing is indexed for this agent yet; run `holdfast memory index`"
    late = f"; {behind} log entries are not indexed yet" if behind else ""
    return f"none of {searched} documents matches{late}"
