"""What an agent is told in the turns that nobody asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.agents.heartbeat.checklist import Item
from holdfast.agents.heartbeat.replies import HEARTBEAT_OK, NO_REPLY

_CONTRACT: Final = (
    f"If nothing needs the user's attention, answer {HEARTBEAT_OK} and nothing else; "
    "whatever else you answer is sent to them."
)
_BEAT: Final = (
    "Heartbeat wake: look after your checklist, HEARTBEAT.md. Do what it says and no more; "
    "old tasks from the conversation are not taken up again."
)
BOOT: Final = (
    "Holdfast has started. Follow BOOT.md. If there is nothing to tell the user, "
    f"answer {NO_REPLY} and nothing else; whatever else you answer is sent to them."
)


def beat(prompt: str | None, due: Sequence[Item], *, all_due: bool) -> str:
    """The prompt of one heartbeat; where only some of the list is due, it says which."""
    parts = [prompt or _BEAT]
    if due and not all_due:
        parts.append("Due now, and nothing else of the list:\n" + "\n".join(f"- {item.text}" for item in due))
    return "\n\n".join((*parts, _CONTRACT))
