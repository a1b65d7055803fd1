"""The keyboard while a turn runs: what is typed is gathered here, and shown by whoever draws the screen."""

from __future__ import annotations

import codecs
import os
import re
import sys
import termios
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final

_SEQUENCE: Final = re.compile("\x1b(?:\\[[0-9;?]*[ -/]*[@-~]|O.|[^\\[O])|\x1b$")
_END: Final = "\x04"
_RUB: Final = ("\x7f", "\x08")
_CLEAR: Final = "\x15"
_RUB_WORD: Final = "\x17"


class TypedLine:
    """A line being typed. Pure: text goes in, whole lines come out; `ended` is Ctrl-D on an empty line."""

    def __init__(self, begun: str = "") -> None:
        self.text = begun
        self.ended = False

    def feed(self, typed: str) -> Iterator[str]:
        """Newlines within one piece were pasted, and belong to the line; one at its end is Enter."""
        keys = _SEQUENCE.sub("", typed).replace("\r", "\n")
        entered = keys.endswith("\n")
        for key in keys.removesuffix("\n"):
            self._key(key)
        if entered:
            line, self.text = self.text, ""
            yield line

    def _key(self, key: str) -> None:
        if key in _RUB:
            self.text = self.text[:-1]
        elif key == _CLEAR:
            self.text = ""
        elif key == _RUB_WORD:
            self.text = self.text.rstrip().rpartition(" ")[0]
        elif key == _END:
            self.ended = self.ended or not self.text
        elif key == "\n" or key.isprintable():
            self.text += key


class Keys:
    """While it is entered, keys come one by one and are not echoed; Ctrl-C is a signal as always."""

    def __init__(self, begun: str = "") -> None:
        self.line = TypedLine(begun)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._fd = sys.stdin.fileno()
        self._before: list[Any] = []

    def fileno(self) -> int:
        return self._fd

    def read(self) -> list[str]:
        """Lines that were entered; called when there is something to read."""
        typed = os.read(self._fd, 65536)
        if not typed:
            self.line.ended = True
        return list(self.line.feed(self._decoder.decode(typed)))

    def __enter__(self) -> Keys:
        self._before = termios.tcgetattr(self._fd)
        mode = termios.tcgetattr(self._fd)
        mode[3] &= ~(termios.ICANON | termios.ECHO)
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._fd, termios.TCSADRAIN, mode)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)
