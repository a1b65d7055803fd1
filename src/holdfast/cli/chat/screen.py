"""Replies as a terminal shows them, and the foot of the screen while a turn runs."""

from __future__ import annotations

import re
import time
from types import TracebackType
from typing import ClassVar, Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.segment import Segment
from rich.text import Text

from holdfast.cli.output import safe

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_GOES_ON: Final = re.compile(r"\s|[-*+] |\d{1,9}[.)] ")


def finished(text: str) -> tuple[str, str]:
    """The blocks that nothing which follows can change, and the rest; together they are the text.

    A block ends at a blank line outside of a fence, once the next line begins something of its own: a line
    set in, or the next item of a list, still belongs to what stands before.
    """
    end = 0
    at = 0
    fence = ""
    blank = False
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        if not fence and blank and line.strip() and not _GOES_ON.match(line):
            end = at
        mark = _FENCE.match(line)
        if mark is not None and not fence:
            fence = mark[1]
        elif fence and mark is not None and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""
        blank = not fence and not line.strip()
        at += len(line)
    return text[:end], text[end:]


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


_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_DRAW_SECONDS: Final = 0.08


class Stage:
    """Finished blocks are printed for good above it; only the foot is ever drawn again."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.doing = ""
        self.prompt = ""
        self.typed = ""
        self._rest = ""
        self._apart = False
        self._drawn = 0.0
        self._begun = time.monotonic()
        self._live = Live(
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )

    def say(self, text: str) -> None:
        """More words; blocks that they finish are printed."""
        done, self._rest = finished(self._rest + text)
        self._print_block(done)

    def end_words(self) -> None:
        done, self._rest = self._rest, ""
        self._print_block(done)

    def drop_words(self) -> None:
        """What was not printed yet goes; what was, stays, and whoever reads is told."""
        self._rest = ""

    def print(self, text: str, style: str = "dim") -> None:
        """A line for good, above the words that are not finished: it does not tear them apart."""
        self.console.print(line(text, style))
        self._apart = True

    def draw(self, *, now: bool = False) -> None:
        """At most a dozen times a second: a terminal shows no more."""
        at = time.monotonic()
        if now or at - self._drawn >= _DRAW_SECONDS:
            self._drawn = at
            self._live.update(self._foot(at), refresh=True)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    def __enter__(self) -> Stage:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_words()
        self._live.update("")
        self._live.stop()

    def _print_block(self, text: str) -> None:
        if text.strip():
            if self._apart:
                self.console.print()
            self.console.print(Reply(text))
            self._apart = True

    def _foot(self, at: float) -> RenderableType:
        frame = _FRAMES[int(at * 10) % len(_FRAMES)]
        seconds = int(at - self._begun)
        doing = f"{frame} {self.doing}" + (f"  {seconds} s" if seconds > 1 else "")
        status = Text(safe(doing), style="dim", no_wrap=True, overflow="ellipsis")
        if self.prompt:
            status = Text(safe(self.prompt), style="bold yellow", no_wrap=True, overflow="ellipsis")
        typed = Text(f"› {safe(self.typed)}▏", style="cyan", overflow="fold")
        return _Foot(self._rest, status, typed if self.typed or self.prompt else None)


class _Foot:
    """The end of the words, as much as there is room for, above the other lines."""

    def __init__(self, words: str, status: Text, typed: Text | None) -> None:
        self._words = words
        self._below = [one for one in (status, typed) if one is not None]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        free = options.update(height=None)
        below = [row for one in self._below for row in console.render_lines(one, free, pad=False)]
        below = below[-(console.height // 2) :]
        if self._words.strip():
            yield Reply(self._words, max(1, console.height - len(below) - 1))
        for row in below:
            yield from row
            yield Segment.line()
