"""The forms in which an entry may be shown: whole, trimmed to head and tail, or cleared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

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
