"""A page of a file's lines, as much as fits, and where the next one begins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Page:
    """`start` and `end` are lines from 1, both shown; the rest begins at line `on`, character `offset`."""

    text: str
    start: int
    end: int
    total: int
    on: int | None = None
    offset: int = 0

    @property
    def note(self) -> str:
        """What to call for the rest; empty if all is shown."""
        if self.on is None:
            return "" if self.start <= 1 else f"[lines {self.start} to {self.end}, the last of {self.total}]"
        more = f'"from": {self.on}' + (f', "offset": {self.offset}' if self.offset else "")
        return f"[lines {self.start} to {self.end} of {self.total}; read on with {more}]"


def page_of(lines: Iterable[str], *, start: int, count: int | None, offset: int, most: int) -> Page:
    """Whole lines from `start` on, up to `count` and `most` characters; a line that is longer is cut.

    `offset` passes over the beginning of the first line.
    """
    taken: list[str] = []
    room, total, on, cut = most, 0, None, 0
    for number, line in enumerate(lines, 1):
        total = number
        if number < start or on is not None:
            continue
        skipped = offset if number == start else 0
        piece = line[skipped:]
        if count is not None and len(taken) >= count:
            on = number
        elif len(piece) <= room:
            taken.append(piece)
            room -= len(piece)
        elif taken:
            on = number
        else:
            taken.append(piece[:room])
            on, cut = number, skipped + room
    return Page("".join(taken), start, max(start, start + len(taken) - 1), total, on, cut)
