"""The forms in which an old tool result is shown (whole, head and tail, cleared), and which is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from holdfast.config import ContextPruning
from holdfast.context.messages import AssistantMessage, Message, ToolResult, UserMessage
from holdfast.context.tokens import message_tokens, raw_tokens

WHOLE: Final = ""


@dataclass(frozen=True, slots=True)
class Trim:
    """The first and the last characters of a text, with a note of how many are left out."""

    head: int
    tail: int

    def __str__(self) -> str:
        return f"trim:{self.head}:{self.tail}"


@dataclass(frozen=True, slots=True)
class Clear:
    """A placeholder instead of the text."""

    placeholder: str

    def __str__(self) -> str:
        return f"clear:{self.placeholder}"


def apply(form: str, text: str) -> str:
    """The text in a form that was recorded; the recorded form alone decides, so replay is exact."""
    kind, _, rest = form.partition(":")
    if kind == "clear":
        return rest
    if kind == "trim":
        head, tail = map(int, rest.split(":"))
        return head_and_tail(text, head, tail, f"\n[… {len(text) - head - tail} characters left out …]\n")
    return text


def head_and_tail(text: str, head: int, tail: int, marker: str) -> str:
    if len(text) <= head + tail:
        return text
    return text[:head] + marker + (text[-tail:] if tail else "")


def is_cold(settings: ContextPruning, *, now: int, called_at: int | None) -> bool:
    """Whether pruning costs no cached prefix: the last call is older than the cache's time to live."""
    return settings.mode != "off" and called_at is not None and now - called_at >= int(settings.ttl)


def plan(
    messages: Sequence[Message], settings: ContextPruning, *, used: int, window: int
) -> Mapping[str, str]:
    """New forms by entry: long old tool results trimmed, and the oldest cleared while usage stays high.

    Only tool results; never those behind the last assistant messages, nor before the first user's.
    """
    old = _prunable(messages, settings)
    if not old or used < window * settings.soft_trim_ratio:
        return {}
    found: dict[str, str] = {}
    trim = Trim(settings.soft_trim.head_chars, settings.soft_trim.tail_chars)
    for message in old:
        if len(message.text) > settings.soft_trim.max_chars and _form(message) == WHOLE:
            found[_id(message)] = str(trim)
            used -= message_tokens(message) - raw_tokens(apply(str(trim), message.text))
    return found | _cleared(old, found, settings, used, window)


def _cleared(
    old: Sequence[ToolResult], trimmed: Mapping[str, str], settings: ContextPruning, used: int, window: int
) -> dict[str, str]:
    """Clear from the oldest on, if that is allowed, needed and worth it."""
    clear = str(Clear(settings.hard_clear.placeholder))
    texts = {_id(m): apply(trimmed.get(_id(m), ""), m.text) for m in old if not _form(m).startswith("clear")}
    limit = window * settings.hard_clear_ratio
    enough = sum(map(len, texts.values())) >= settings.min_prunable_tool_chars
    found: dict[str, str] = {}
    if not (settings.hard_clear.enabled and enough):
        return found
    for entry_id, text in texts.items():
        if used < limit:
            break
        if len(text) > len(settings.hard_clear.placeholder):
            found[entry_id] = clear
            used -= raw_tokens(text) - raw_tokens(settings.hard_clear.placeholder)
    return found


def _prunable(messages: Sequence[Message], settings: ContextPruning) -> list[ToolResult]:
    first = next((i for i, m in enumerate(messages) if isinstance(m, UserMessage)), len(messages))
    spoken = [i for i, m in enumerate(messages) if isinstance(m, AssistantMessage)]
    keep = settings.keep_last_assistants
    if len(spoken) < keep:
        return []
    end = spoken[-keep] if keep else len(messages)
    return [
        m
        for m in messages[first:end]
        if isinstance(m, ToolResult) and m.mark is not None and not m.images and _allowed(m.name, settings)
    ]


def _allowed(name: str, settings: ContextPruning) -> bool:
    name = name.lower()
    if any(fnmatchcase(name, pattern.lower()) for pattern in settings.tools.deny):
        return False
    allow = settings.tools.allow
    return not allow or any(fnmatchcase(name, pattern.lower()) for pattern in allow)


def _id(message: ToolResult) -> str:
    return message.mark.entry_id if message.mark is not None else ""


def _form(message: ToolResult) -> str:
    return message.mark.form if message.mark is not None else WHOLE
