"""The few lines of a document that answer, with their exact place."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from holdfast.memory.text import terms as terms_of
from holdfast.text import clip


@dataclass(frozen=True, slots=True)
class Snippet:
    text: str
    start: int
    end: int


def snippet(text: str, query: Collection[str], *, first_line: int = 1, most: int = 700) -> Snippet:
    """The window of whole lines, at most `most` characters, that holds most of the query's words.

    Where two windows hold as many, the earlier wins. A single line that is too long is clipped.
    """
    lines = text.splitlines() or [""]
    begin, end = _best_window(lines, frozenset(query), most)
    while begin < end and not lines[begin].strip():
        begin += 1
    while end > begin and not lines[end].strip():
        end -= 1
    body = clip("\n".join(lines[begin : end + 1]), most)
    return Snippet(body, first_line + begin, first_line + end)


def citation(path: str, start: int | None, end: int | None) -> str:
    """`Source: path#L3-L9`, or `#L3` for one line."""
    if start is None:
        return f"Source: {path}"
    return f"Source: {path}#L{start}" + (f"-L{end}" if end is not None and end != start else "")


def _best_window(lines: Sequence[str], query: frozenset[str], most: int) -> tuple[int, int]:
    if sum(len(line) + 1 for line in lines) - 1 <= most:
        return 0, len(lines) - 1
    found = [query.intersection(terms_of(line)) for line in lines]
    best, choice = (-1, 0), (0, 0)
    end, length = -1, 0
    for begin in range(len(lines)):
        if end < begin:
            end, length = begin, len(lines[begin])
        while end + 1 < len(lines) and length + 1 + len(lines[end + 1]) <= most:
            end += 1
            length += 1 + len(lines[end])
        hits = found[begin : end + 1]
        score = (len(frozenset().union(*hits)), sum(map(len, hits)))
        if score > best:
            best, choice = score, (begin, end)
        length -= len(lines[begin]) + 1
    return choice
