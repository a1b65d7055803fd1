"""Lines typed before, kept in the home for their owner alone, and the prompt that gives them back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

MOST: Final = 1_000
_MOST_CHARS: Final = 10_000


class History:
    """A file with an entry on each line. One that begins with a space is not kept, as in a shell."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> list[str]:
        """The newest entries, oldest first; a file that has grown long is cut to them."""
        try:
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        kept = lines[-MOST:]
        if len(lines) > 2 * MOST:
            with contextlib.suppress(OSError):
                self._write(kept, os.O_TRUNC)
        return [_read(line) for line in kept if line]

    def add(self, entry: str) -> bool:
        """Keep an entry; a history that cannot be written is no reason to end a conversation."""
        if not entry.strip() or entry.startswith(" ") or len(entry) > _MOST_CHARS:
            return False
        with contextlib.suppress(OSError):
            self._write([_written(entry)], os.O_APPEND)
        return True

    def _write(self, lines: list[str], how: int) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | how, 0o600)
        with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
            os.fchmod(descriptor, 0o600)
            file.writelines(f"{line}\n" for line in lines)


class Prompt:
    """The line editor while nothing runs."""

    def __init__(self, history: History) -> None:
        import readline

        self._history = history
        self._readline = readline
        readline.set_auto_history(False)
        readline.parse_and_bind("set enable-bracketed-paste on")
        readline.clear_history()
        for entry in history.load():
            readline.add_history(entry)

    def ask(self, prompt: str, more: str, begun: str = "") -> str | None:
        """What is typed, of several lines where each but the last ends with a backslash; None at the end."""
        self._begin_with(begun)
        try:
            text = gathered(lambda first: input(prompt if first else more))
        finally:
            self._readline.set_startup_hook(None)
        if text is not None and self._history.add(text):
            self._readline.add_history(text)
        return text

    def _begin_with(self, text: str) -> None:
        def insert() -> None:
            self._readline.insert_text(text)
            self._readline.redisplay()
            self._readline.set_startup_hook(None)

        self._readline.set_startup_hook(insert if text else None)


def gathered(read: Callable[[bool], str]) -> str | None:
    """Lines until one does not end with a backslash; None if there are no more."""
    lines: list[str] = []
    try:
        while True:
            line = read(not lines)
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line[:-1])
    except EOFError:
        return "\n".join(lines) if lines else None


def _written(entry: str) -> str:
    return entry.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "")


def _read(line: str) -> str:
    return "\\".join(part.replace("\\n", "\n") for part in line.split("\\\\"))
