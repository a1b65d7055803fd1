"""What is told of messages that were left out of the queue: how many, and how the last of them began."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.context import Trust, UserMessage, draft_of
from holdfast.log import Classification, EntryDraft

LEFT: Final = "left"
_MOST_TOLD: Final = 12
_EXCERPT: Final = 160


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Kept with the turn that will be told, until it begins."""

    count: int = 0
    said: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> LeftOut:
        flat = " ".join(text.split())
        return cls(1, (flat if len(flat) <= _EXCERPT else f"{flat[: _EXCERPT - 1]}…",))

    def and_then(self, later: LeftOut) -> LeftOut:
        return LeftOut(self.count + later.count, (*self.said, *later.said)[-_MOST_TOLD:])

    def json(self) -> dict[str, Any]:
        return {"count": self.count, "said": list(self.said)}

    @classmethod
    def read(cls, kept: Mapping[str, Any] | None) -> LeftOut:
        return cls() if not kept else cls(int(kept["count"]), tuple(map(str, kept["said"])))

    def line(self) -> str:
        what = "message was" if self.count == 1 else "messages were"
        more = "the last of them: " if self.count > len(self.said) else ""
        told = " · ".join(f"“{text}”" for text in self.said)
        return f"{self.count} earlier {what} left out, since too many waited; {more}{told}"


def left_draft(left: LeftOut) -> EntryDraft:
    """The line that the turn's model reads: others' words, so it stands in a fence."""
    draft = draft_of(UserMessage(text=left.line(), trust=Trust.OUTSIDE))
    source = {"channel": "queue", "note": "left_out", **(draft.source or {})}
    return replace(draft, source=source, status=Classification.CLASSIFIED, code="filtered_non_semantic")
