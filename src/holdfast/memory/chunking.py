"""Cutting a file into pieces that can be found: whole lines, headings kept with what they head.

Windows of at most `tokens` tokens share about `overlap` with the one before. A window ends early where a
heading begins, once it is half full, so that a section is not torn for the sake of a full window. A line is
never cut, however long it is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.text import rough_tokens

_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*\s*$")
_FENCE = re.compile(r"\s{0,3}(```|~~~)")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Lines `start` to `end` of a file (from 1, both included), and the headings they stand under."""

    start: int
    end: int
    text: str
    headings: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.embed_text.encode("utf-8", "replace")).hexdigest()

    @property
    def embed_text(self) -> str:
        """What an embedder should read: under its headings, without front matter or comments."""
        body = _COMMENT.sub(" ", _without_front_matter(self.text) if self.start == 1 else self.text)
        trail = " › ".join(h for h in self.headings if h not in body.partition("\n")[0])
        return f"{trail}\n{body}".strip() if trail else body.strip()


def chunk(text: str, *, tokens: int = 1024, overlap: int = 128) -> list[Chunk]:
    """The chunks of a text, in order; together they cover every line that is not blank."""
    lines = text.splitlines()
    costs = [rough_tokens(line) + 1 for line in lines]
    starts = _heading_lines(lines)
    chunks = []
    for first, last in _windows(costs, frozenset(starts), tokens, overlap):
        body = "\n".join(lines[first : last + 1])
        if body.strip():
            chunks.append(Chunk(first + 1, last + 1, body, _trail(starts, first)))
    return chunks


def _windows(
    costs: Sequence[int], headings: frozenset[int], tokens: int, overlap: int
) -> Iterator[tuple[int, int]]:
    """First and last line of each window."""
    first, count = 0, len(costs)
    while first < count:
        last, used = first, costs[first]
        while last + 1 < count and used + costs[last + 1] <= tokens:
            if last + 1 in headings and used >= tokens // 2:
                break
            last += 1
            used += costs[last]
        yield first, last
        if last + 1 >= count:
            return
        first = _next_first(costs, headings, first, last, overlap)


def _next_first(costs: Sequence[int], headings: frozenset[int], first: int, last: int, overlap: int) -> int:
    """Where the next window begins: back by the overlap, but not behind a heading that begins it anew."""
    if last + 1 in headings:
        return last + 1
    begin, shared = last + 1, 0
    while begin - 1 > first and shared + costs[begin - 1] <= overlap:
        begin -= 1
        shared += costs[begin]
        if begin in headings:
            break
    return begin


def _heading_lines(lines: Sequence[str]) -> dict[int, tuple[int, str]]:
    """The level and text of each heading, by line; what stands in a code fence is no heading."""
    found: dict[int, tuple[int, str]] = {}
    fence = ""
    for number, line in enumerate(lines):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1] == fence):
            fence = "" if fence else mark[1]
        elif not fence and line.startswith("#") and (heading := _HEADING.match(line)):
            found[number] = (len(heading[1]), heading[2])
    return found


def _trail(starts: dict[int, tuple[int, str]], line: int) -> tuple[str, ...]:
    """The headings above a line, outermost first."""
    trail: list[tuple[int, str]] = []
    for number, (level, text) in starts.items():
        if number > line:
            break
        trail = [above for above in trail if above[0] < level] + [(level, text)]
    return tuple(text for _, text in trail if text)


def _without_front_matter(text: str) -> str:
    if not text.startswith("---\n"):
        return text
    _, end, rest = text[4:].partition("\n---")
    return rest.partition("\n")[2] if end else text
