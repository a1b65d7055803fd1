"""What `qmd` answers, read strictly: a list of results, or no answer at all."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.plugins_bundled.qmd.program import QmdFailed

_PLACE: Final = re.compile(r"qmd://([^/]+)/(.+)", re.DOTALL)
_HEADER: Final = re.compile(r"@@ -(\d{1,9}),(\d{1,9})(?: @@)?[^\n]*(?:\n|$)")
_LISTED: Final = re.compile(r"^(\S+) \(qmd://", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class QmdHit:
    """One result as `qmd` tells it: a file of a collection, and the lines around what matched."""

    docid: str
    collection: str
    path: str
    score: float
    snippet: str
    body: str = ""

    def words(self) -> tuple[str, int | None]:
        """What to show, and the line that it begins with; none where `qmd` did not tell it."""
        header = _HEADER.match(self.snippet)
        if header is not None:
            return self.snippet[header.end() :], max(int(header[1]), 1)
        return (self.body, 1) if self.body else (self.snippet.strip(), None)


def hits_from(output: str) -> list[QmdHit]:
    """The results in what `qmd query --json` printed."""
    try:
        rows = json.loads(output)
    except ValueError as error:
        raise QmdFailed(f"qmd query printed no JSON: {output.strip()[:80]!r}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise QmdFailed("qmd query printed something other than a list of results")
    return [_hit(row) for row in rows]


def collections_from(output: str) -> frozenset[str]:
    """The names in what `qmd collection list` printed."""
    return frozenset(_LISTED.findall(output))


def _hit(row: Mapping[str, Any]) -> QmdHit:
    place = _PLACE.fullmatch(_text(row, "file", needed=True))
    score = row.get("score")
    if (
        place is None
        or isinstance(score, bool)
        or not isinstance(score, int | float)
        or not math.isfinite(score)
    ):
        raise QmdFailed(f"qmd query printed a result without its file or score: {str(dict(row))[:80]}")
    return QmdHit(
        docid=_text(row, "docid"),
        collection=place[1],
        path=place[2],
        score=min(max(float(score), 0.0), 1.0),
        snippet=_text(row, "snippet"),
        body=_text(row, "body"),
    )


def _text(row: Mapping[str, Any], name: str, *, needed: bool = False) -> str:
    value = row.get(name, None if needed else "")
    if not isinstance(value, str):
        raise QmdFailed(f"qmd query printed a result whose {name} is no text")
    return value
