"""How the board reads in a terminal: what a thing is comes first, its id stands below, no line is too wide.

In a pipe (`width` None) each thing is one line, and nothing of it is cut. Pure: what to print, not where.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.cli.output import cell

LEAST_WIDTH: Final = 40
MOST_WIDTH: Final = 120
TEXT_LINES: Final = 4
_INDENT: Final = "  "


@dataclass(frozen=True, slots=True)
class Item:
    """One thing of a list: its name, what is told of it at the right, its id, and what stands beside that."""

    name: str
    id: str
    right: str = ""
    beside: str = ""


def listed(items: Iterable[Item], width: int) -> Iterator[str]:
    """Two lines for each: name and state, then the id that other commands take."""
    room = _room(width)
    for one in items:
        yield _spread(cell(one.name), one.right, room)
        yield _clip(f"{_INDENT}{one.id}{_INDENT}{one.beside}".rstrip(), room)


def hits(found: Sequence[Mapping[str, Any]], width: int | None, *, explain: bool = False) -> Iterator[str]:
    """What a search found, best first: the score, what it says, and the id."""
    for hit in found:
        text = _flat(hit.get("name") or hit.get("title") or hit.get("content") or "")
        parts = _INDENT.join(f"{name} {value:.2f}" for name, value in hit["parts"].items())
        if width is None:
            yield f"{hit['score']:.2f}  {hit['id']}  {text}"
        else:
            room = _room(width)
            yield from _wrapped(text, room, f"  {hit['score']:.2f}  ", " " * 8, most=2)
            yield _clip(f"        {hit['id']}", room)
        if explain:
            yield from textwrap.wrap(parts, _room(width or MOST_WIDTH) - 8, initial_indent=" " * 8,
                                     subsequent_indent=" " * 8)  # fmt: skip


def thread(found: Sequence[Mapping[str, Any]], width: int | None) -> Iterator[str]:
    """Who said what and when: a line for the speaker, the words below it."""
    for one in found:
        who = cell(one["agentLabel"] or one["agentId"] or "-")
        at = moment(one["createdAt"])
        if width is None:
            yield f"{at}  {one['id']}  {who}: {_flat(one['content'])}"
        else:
            room = _room(width)
            yield _spread(f"{at}  {who}", one["id"], room)
            yield from _wrapped(_flat(one["content"]), room, _INDENT, _INDENT, most=TEXT_LINES)


def moment(text: str | None) -> str | None:
    """A time to the minute, in UTC."""
    return None if text is None else text[:16].replace("T", " ")


def _room(width: int) -> int:
    return max(LEAST_WIDTH, min(width, MOST_WIDTH))


def _spread(left: str, right: str, room: int) -> str:
    """Left and right on one line; the left gives way."""
    right = _clip(right, room // 2 if len(right) + 8 > room else len(right))
    left = _clip(left, room - len(right) - 2)
    return f"{left}{' ' * (room - len(left) - len(right))}{right}".rstrip()


def _wrapped(text: str, room: int, first: str, others: str, *, most: int) -> list[str]:
    return textwrap.wrap(
        text, room, initial_indent=first, subsequent_indent=others, max_lines=most, placeholder=" …"
    ) or [first.rstrip()]


def _clip(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: max(0, most - 1)].rstrip()}…"


def _flat(text: str) -> str:
    return cell(" ".join(text.split()))
