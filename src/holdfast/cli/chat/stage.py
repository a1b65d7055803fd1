"""The foot of the screen while a turn runs: words that are not finished, what goes on, what is typed."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from holdfast.cli.chat.blocks import finished
from holdfast.cli.chat.rendering import Reply, line
from holdfast.cli.chat.safe import safe

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
