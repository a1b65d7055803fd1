"""What surfaces hear of a tool call while it runs. Secrets are masked in all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from holdfast.clock import iso


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedApproval:
    """A call that waits for a person, or what they decided: enough to ask them without looking it up."""

    id: str
    tool: str
    command: str
    reason: str
    why_not_always: str | None = None
    status: str
    expires_at: int

    def json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "tool": self.tool,
            "command": self.command,
            "reason": self.reason,
            "whyNotAlways": self.why_not_always,
            "status": self.status,
            "expiresAt": iso(self.expires_at),
        }


class Progress(Protocol):
    """How a tool says how far it is, and that a person has to decide."""

    def __call__(self, text: str, approval: AskedApproval | None = None, /) -> None: ...


def nobody_follows(text: str, approval: AskedApproval | None = None, /) -> None:
    """For callers without a surface."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEvent:
    """`text` is the arguments at the start, a line of progress, and the beginning of the result at the end.

    `ends_turn`, at the end alone, asks that the model makes no further call in this turn. `approval` is there
    when a person has to decide, and once they did.
    """

    kind: Literal["start", "progress", "end"]
    call_id: str
    name: str
    text: str = ""
    is_error: bool = False
    ends_turn: bool = False
    approval: AskedApproval | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


OnEvent: TypeAlias = Callable[[ToolEvent], None]


def nobody_listens(_: ToolEvent) -> None:
    """For callers without a surface."""
