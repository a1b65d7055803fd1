"""Plain talk for OpenAI's chat API: what was merely said needs no library to say it again.

The client library makes objects of every message and maps each back to a mapping of two fields. With a long
history that was a third of a call's processor time. So the run of plain messages after the system prompt goes
around it, and only what is more than text, and what is new, goes through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.agents.models.wire import BEGINS, EMPTY
from holdfast.context import AssistantMessage, Message, SystemMessage, UserMessage

# Under this name the run travels through the library, among what it hands on unread.
TALK: Final = "holdfast_talk"
_ENOUGH: Final = 4


@dataclass(frozen=True, slots=True)
class Talk:
    """Messages as the API takes them, and how many of the system prompt's stand before them."""

    after: int
    said: Sequence[Mapping[str, str]]


def parted(messages: Sequence[Message]) -> tuple[Talk | None, Sequence[Message]]:
    """The plain run after the system prompt, and all the rest in order; None if it is not worth it."""
    start = next((at for at, one in enumerate(messages) if not isinstance(one, SystemMessage)), 0)
    end = start
    while end < len(messages) - 1 and _is_plain(messages[end]):
        end += 1
    said = [one for message in messages[start:end] if (one := _said(message)) is not None]
    if len(said) < _ENOUGH:
        return None, messages
    if said[0]["role"] == "assistant":
        said.insert(0, {"role": "user", "content": BEGINS})
    before = sum(isinstance(one, SystemMessage) and bool(one.text) for one in messages[:start])
    return Talk(before, said), [*messages[:start], *messages[end:]]


def joined(messages: Sequence[Any], talk: Talk | None) -> list[Any]:
    """The whole conversation, from what the library made of the rest."""
    if talk is None:
        return list(messages)
    return [*messages[: talk.after], *talk.said, *messages[talk.after :]]


def _is_plain(message: Message) -> bool:
    if isinstance(message, AssistantMessage):
        return not message.calls
    return isinstance(message, UserMessage) and not message.images


def _said(message: Message) -> dict[str, str] | None:
    """None for an answer with nothing in it, which no provider takes."""
    blank = not message.text.strip()
    if isinstance(message, AssistantMessage):
        return None if blank else {"role": "assistant", "content": message.text}
    return {"role": "user", "content": EMPTY if blank else message.text}
