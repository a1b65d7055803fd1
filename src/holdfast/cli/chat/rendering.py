"""Replies as a terminal shows them."""

from __future__ import annotations

from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.segment import Segment
from rich.text import Text

from holdfast.cli.chat.safe import safe


class _Heading(Heading):
    """A heading where the text begins, not in a box in the middle."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        text.justify = "left"
        text.stylize("bold underline" if self.tag == "h1" else "bold")
        yield text


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _Heading}


class Reply:
    """Markdown without the empty space around tables and code. `most` shows its last lines alone.

    Links are shown with their address, so that none leads where it does not say.
    """

    def __init__(self, text: str, most: int | None = None) -> None:
        self._markdown = _Markdown(safe(text.strip("\n")), code_theme="ansi_dark", hyperlinks=False)
        self._most = most

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = console.render_lines(self._markdown, options.update(height=None), pad=False)
        full = [number for number, row in enumerate(rows) if any(part.text.strip() for part in row)]
        shown = rows[full[0] : full[-1] + 1] if full else []
        for row in shown if self._most is None else shown[-self._most :]:
            yield from _unpadded(row)
            yield Segment.line()


def _unpadded(row: list[Segment]) -> list[Segment]:
    """A row without the spaces at its end, which would be copied along with the text."""
    end = len(row)
    while end and not row[end - 1].text.strip():
        end -= 1
    if not end:
        return []
    text, style, control = row[end - 1]
    return [*row[: end - 1], Segment(text.rstrip(), style, control)]


def line(text: str, style: str) -> Text:
    return Text(safe(text), style=style, overflow="fold")
