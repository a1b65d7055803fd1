"""What a conversation here adds to what the runtime says: its greeting, and the commands that leave it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.cli.chat.safe import safe

if TYPE_CHECKING:
    from holdfast.cli.chat.line import About, Told

LEAVE: Final = ("/exit", "/quit")


def reply_of(text: str, told: Told) -> str:
    """A command's answer; the list of commands names those of the terminal too."""
    listed = text.strip().lower() in ("/help", "/commands")
    return str(told["reply"]) + ("\n/exit — Leave." if listed else "")


def greeting(about: About) -> tuple[str, str, str]:
    """To whom one speaks, who answers, and how to connect a model where none is."""
    hint = ""
    if about.builtin:
        from holdfast.agents.models.recall_model import HOW_TO_CONNECT

        hint = HOW_TO_CONNECT
    agent = f"agent {about.agent_id}"
    if about.name is not None:  # a file of the workspace says it
        agent = f"{safe(about.name)} ({agent})"
    whom = f"{agent} · session {about.session_key}"
    return whom, f"model {about.model} · {about.where}", hint
