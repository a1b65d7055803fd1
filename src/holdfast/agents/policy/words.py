"""A command line as plain words, or a refusal: what a shell could read in another way is not guessed at.

Understood are words, single and double quotes, and `|` between commands. Everything by which a shell does
more (substitution, redirection, lists, globs, assignments, escapes) is refused, so that the words that were
judged are the words that run.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Final

MAX_COMMAND: Final = 8_000
MAX_COMMANDS: Final = 8
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:,@%+=-^")
_ACTIVE_IN_DOUBLE: Final = frozenset("$`!")
_ESCAPED_IN_DOUBLE: Final = frozenset('$`"\\!')
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a command is not understood."""

    reason: str


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One command, or several of which each reads what the one before it writes."""

    commands: tuple[tuple[str, ...], ...]

    def text(self) -> str:
        """The same pipeline for a POSIX shell, every word quoted where it must be."""
        return " | ".join(shlex.join(words) for words in self.commands)


def parse(command: str) -> Pipeline | Refusal:
    """The words of a command, or the first thing in it that is more than words."""
    if len(command) > MAX_COMMAND:
        return Refusal(f"longer than {MAX_COMMAND} characters")
    odd = next((char for char in command if not char.isprintable() and char != "\t"), None)
    if odd is not None:
        return Refusal(f"holds the character U+{ord(odd):04X}")
    try:
        commands = tuple(_Reader(command).commands())
    except _Refused as refused:
        return Refusal(str(refused))
    return _checked(commands)


def _checked(commands: tuple[tuple[str, ...], ...]) -> Pipeline | Refusal:
    if not all(commands):
        return Refusal("a command is empty")
    if len(commands) > MAX_COMMANDS:
        return Refusal(f"more than {MAX_COMMANDS} commands")
    if any(_ASSIGNMENT.match(words[0]) for words in commands):
        return Refusal("sets a variable")
    if not all(words[0] for words in commands):
        return Refusal("the program has no name")
    return Pipeline(commands)


class _Refused(Exception):
    pass


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def commands(self) -> list[tuple[str, ...]]:
        found: list[list[str]] = [[]]
        while (char := self._peek()) is not None:
            if char in " \t":
                self._at += 1
            elif char == "|":
                self._at += 1
                if self._peek() in ("|", "&"):
                    raise _Refused(f"holds |{self._peek()}")
                found.append([])
            else:
                found[-1].append(self._word())
        return [tuple(words) for words in found]

    def _word(self) -> str:
        parts: list[str] = []
        while (char := self._peek()) is not None and char not in " \t|":
            self._at += 1
            if char == "'":
                parts.append(self._single())
            elif char == '"':
                parts.append(self._double())
            elif char in _PLAIN or (not char.isascii() and char.isalnum()):
                parts.append(char)
            else:
                raise _Refused(f"holds {char} outside quotes")
        return "".join(parts)

    def _single(self) -> str:
        end = self._text.find("'", self._at)
        if end < 0:
            raise _Refused("a quote is not closed")
        inner, self._at = self._text[self._at : end], end + 1
        return inner

    def _double(self) -> str:
        start = self._at
        while (char := self._peek()) is not None:
            self._at += 1
            if char == '"':
                return self._text[start : self._at - 1]
            if char in _ACTIVE_IN_DOUBLE:
                raise _Refused(f"holds {char} inside double quotes")
            if char == "\\" and (self._peek() or '"') in _ESCAPED_IN_DOUBLE:
                raise _Refused("escapes a character inside double quotes")
        raise _Refused("a quote is not closed")

    def _peek(self) -> str | None:
        return self._text[self._at] if self._at < len(self._text) else None
