"""A transcript as people read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from holdfast.clock import iso
from holdfast.log.transcripts.lines import Line, MessageLine, line_content, line_time
from holdfast.log.transcripts.record import storable

_HEADINGS: Final = {"user": "### User", "assistant": "### Assistant"}


def to_markdown(lines: Iterable[Line]) -> str:
    """Who said what, under a heading for each message; tool traces and summaries are left out.

    Text that looks like one of our headings is escaped, so that nobody speaks for another.
    """
    return "\n".join(markdown_parts(lines))


def markdown_parts(lines: Iterable[Line]) -> Iterator[str]:
    """The same message by message, to be joined by newlines."""
    for line in lines:
        heading = _HEADINGS.get(line.role or "") if isinstance(line, MessageLine) else None
        text = storable(line_content(line)).strip() if heading else ""
        if heading and text:
            at = line_time(line)
            yield f"{heading}{'' if at is None else f' · {iso(at)}'}\n\n{_unheaded(text)}\n"


def _unheaded(text: str) -> str:
    headings = tuple(_HEADINGS.values())
    return "\n".join(f"\\{row}" if row.lstrip().startswith(headings) else row for row in text.split("\n"))
