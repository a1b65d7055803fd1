"""What surfaces hear of a tool call while it runs. Secrets are masked in all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEvent:
    """`text` is the arguments at the start, a line of progress, and the beginning of the result at the end.

    `ends_turn`, at the end alone, asks that the model makes no further call in this turn.
    """

    kind: Literal["start", "progress", "end"]
    call_id: str
    name: str
    text: str = ""
    is_error: bool = False
    ends_turn: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)


OnEvent: TypeAlias = Callable[[ToolEvent], None]


def nobody_listens(_: ToolEvent) -> None:
    """For callers without a surface."""
