"""Cutting a text into messages. Pure.

A cut is best between paragraphs, then after a line, a sentence, a word. One within a code fence closes it and
opens it again in the next message. No message is longer than allowed, and nothing of the text is lost.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

BreakAt = Literal["paragraph", "newline", "sentence", "whitespace"]

_PREFERENCES: Final[tuple[BreakAt, ...]] = get_args(BreakAt)
_BREAKS: Final[dict[BreakAt, re.Pattern[str]]] = {
    "paragraph": re.compile(r"\n[ \t]*\n+"),
    "newline": re.compile(r"\n"),
    "sentence": re.compile(r"[.!?…][\"')\]»”]*\s|[。！？]"),
    "whitespace": re.compile(r"\s"),
}
_FENCE: Final = re.compile(r"^ {0,3}(`{3,16}|~{3,16})([^`\n]*)$", re.MULTILINE)
_MOST_MARKS: Final = 16
_MOST_INFO: Final = 24
_LOOKS: Final = 12
_JOINERS: Final = frozenset("\u200d\ufe0e\ufe0f\u20e3")


@dataclass(frozen=True, slots=True)
class Fence:
    """A code fence that is open, and how it is opened again."""

    marks: str
    info: str = ""

    @property
    def opening(self) -> str:
        return f"{self.marks}{self.info}\n"

    def json(self) -> dict[str, str]:
        return {"marks": self.marks, "info": self.info}

    @classmethod
    def read(cls, kept: Any) -> Fence | None:
        return None if not kept else cls(str(kept["marks"]), str(kept["info"]))


@dataclass(frozen=True, slots=True)
class Limits:
    """`least` is for cuts that nothing forces: a paragraph that is shorter waits for the next one."""

    most: int
    least: int = 0
    prefer: BreakAt = "paragraph"


@dataclass(frozen=True, slots=True)
class Chunk:
    """`raw` is the piece of the text, `text` the message made of it, `fence` what the next one reopens."""

    raw: str
    text: str
    fence: Fence | None = None


def chunks(text: str, limits: Limits, fence: Fence | None = None) -> Iterator[Chunk]:
    """The whole text, in as many messages as it takes; those without a word in them have no text."""
    while text:
        chunk = next_chunk(text, limits, fence, final=True)
        assert chunk is not None
        yield chunk
        text, fence = text[len(chunk.raw) :], chunk.fence


def next_chunk(
    text: str, limits: Limits, fence: Fence | None = None, *, final: bool = False, idle: bool = False
) -> Chunk | None:
    """The first message of a text to which more may be added, unless it is `final`; None: wait for more.

    On its own a cut is made only after finished paragraphs; a text that has become too long is cut where it
    can be, and one that pauses (`idle`) after its last sentence, or after a word where it is long enough.
    """
    room = _room(text, limits, fence)
    if len(text) > room:
        at = _forced(text, room, limits, fence)
    elif final:
        at = len(text)
    elif idle:
        at = _pausing(text, limits)
    else:
        at = _paragraph(text, max(1, limits.least), len(text), fence) or 0
    return _rendered(text[:at], fence) if at else None


def open_fence(text: str) -> Fence | None:
    """The code fence that is open at the end of a text."""
    found: Fence | None = None
    for line in _FENCE.finditer(text):
        marks, info = line[1], line[2].strip()
        if found is None:
            found = Fence(marks, info.split()[0][:_MOST_INFO] if info else "")
        elif marks[0] == found.marks[0] and len(marks) >= len(found.marks) and not info:
            found = None
    return found


def _room(text: str, limits: Limits, fence: Fence | None) -> int:
    """How much of a text fits beside what opening and closing fences takes."""
    fenced = fence is not None or "```" in text[: limits.most] or "~~~" in text[: limits.most]
    opening = 0 if fence is None else len(fence.opening)
    return max(1, limits.most - opening - (_MOST_MARKS + 1 if fenced else 0))


def _forced(text: str, room: int, limits: Limits, fence: Fence | None) -> int:
    """The best place for a cut that must be made: the last of the best kind that leaves enough before it."""
    least = max(1, min(limits.least, room // 2) or room // 4)
    for kind in _PREFERENCES[_PREFERENCES.index(limits.prefer) :]:
        found = (
            _paragraph(text[:room], least, room, fence)
            if kind == "paragraph"
            else _last(_BREAKS[kind], text, least, room)
        )
        if found is not None:
            return found
    return _whole_character(text, room)


def _pausing(text: str, limits: Limits) -> int:
    ends = [_last(_BREAKS[kind], text, 1, len(text)) or 0 for kind in ("newline", "sentence")]
    words = (_last(_BREAKS["whitespace"], text, 1, len(text)) or 0) if len(text) >= limits.least else 0
    return max(ends) or words


def _paragraph(text: str, least: int, most: int, fence: Fence | None) -> int | None:
    """The end of the last paragraph that no fence is open behind."""
    opening = "" if fence is None else fence.opening
    ends = [m.end() for m in _BREAKS["paragraph"].finditer(text) if least <= m.end() <= most]
    looked = reversed(ends[-_LOOKS:])
    return next((end for end in looked if open_fence(opening + text[:end]) is None), None)


def _last(pattern: re.Pattern[str], text: str, least: int, most: int) -> int | None:
    ends = [m.end() for m in pattern.finditer(text, 0, most) if m.end() >= least]
    return ends[-1] if ends else None


def _whole_character(text: str, at: int) -> int:
    """The place, or one a little before it at which no character is taken from its marks."""
    for place in range(at, max(0, at - _LOOKS), -1):
        if not _joined(text[place - 1], text[place : place + 1]):
            return place
    return at


def _joined(before: str, after: str) -> bool:
    if not after:
        return False
    both_flags = "\U0001f1e6" <= before <= "\U0001f1ff" and "\U0001f1e6" <= after <= "\U0001f1ff"
    tone = "\U0001f3fb" <= after <= "\U0001f3ff"
    return before == "\u200d" or after in _JOINERS or tone or both_flags or bool(unicodedata.combining(after))


def _rendered(raw: str, fence: Fence | None) -> Chunk:
    """A piece as a message of its own; a fence that it begins by closing is not opened for that."""
    body = raw.strip("\n") if fence is None else raw.rstrip("\n")
    if fence is not None:
        first, _, rest = body.lstrip("\n").partition("\n")
        closes = open_fence(fence.opening + first) is None
        body = rest.strip("\n") if closes else fence.opening + body
    left = open_fence(body)
    if left is not None:
        before, _, last = body.rpartition("\n")
        just_opened = open_fence(before) is None and _FENCE.match(last) is not None
        body = before.rstrip("\n") if just_opened else f"{body}\n{left.marks}"
    bare = not raw.strip() or not body.strip()
    return Chunk(raw, "" if bare else body, left)
