"""What a search of memory answers, in the forms of the tool, the API and the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast.memory.snippets import citation

Origin = Literal["memory", "sessions"]


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

    def json(self, *, cite: bool, explain: bool = False) -> dict[str, Any]:
        where = f"\n\n{citation(self.path, self.start, self.end)}" if cite else ""
        body: dict[str, Any] = {
            "path": self.path,
            "snippet": self.snippet + where,
            "startLine": self.start,
            "endLine": self.end,
            "score": round(self.score, 4),
            "source": self.source,
        }
        if explain:
            body["parts"] = {name: round(value, 4) for name, value in self.parts.items()}
        return body


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


@dataclass(frozen=True, slots=True)
class Found:
    hits: Sequence[Hit]
    provider: str
    model: str
    fallback: str | None
    citations: bool
    diagnostics: Diagnostics

    def json(self, *, explain: bool = False) -> dict[str, Any]:
        told = self.diagnostics
        return {
            "results": [hit.json(cite=self.citations, explain=explain) for hit in self.hits],
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
            },
        }
