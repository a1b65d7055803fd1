"""A command line as a POSIX shell reads it: simple commands, each with its words; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_HERE: Final = re.compile(r"<<-?")
_REDIRECT: Final = re.compile(r"[0-9]*(<<<|<<-?|<>|<&|>&|>>|>\||<|>)|&>>?")
_OPERATOR: Final = re.compile(r"&&|\|\||;;|\|&|[;&|()\n]")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")


@dataclass(frozen=True, slots=True)
class Word:
    """A word as it is written; not `fixed`, the shell puts something else in its place."""

    text: str
    fixed: bool = True


class Unreadable(Exception):
    """What cannot be read any further."""


@dataclass(slots=True)
class SimpleCommand:
    """One program with its words. `inputs` are redirected into it, `here` are its here-documents, `inner` the
    command lines that stand in its substitutions; `fed` says that another program writes what it reads."""

    words: list[Word] = field(default_factory=list)
    inputs: list[Word] = field(default_factory=list)
    here: list[str] = field(default_factory=list)
    inner: list[str] = field(default_factory=list)
    fed: bool = False


def read_line(text: str) -> list[SimpleCommand]:
    """Its simple commands in order; `Unreadable` where they cannot be told."""
    return _Lexer(text).commands()


class _Lexer:
    """Reads simple commands one by one; what stands in substitutions is laid aside as `inner`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._inner: list[str] = []
        self._pending: list[tuple[str, bool, SimpleCommand]] = []

    def take_inner(self) -> list[str]:
        inner, self._inner = self._inner, []
        return inner

    def commands(self) -> list[SimpleCommand]:
        done: list[SimpleCommand] = []
        now = SimpleCommand()
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in " \t\r" or self._text.startswith("\\\n", self._at):
                self._at += 1 if char != "\\" else 2
            elif char == "#":
                self._at = self._line_end()
            elif redirect := self._redirect_here():
                self._redirected(redirect, now)
            elif operator := _OPERATOR.match(self._text, self._at):
                self._at = operator.end()
                done.append(now)
                now = SimpleCommand(fed=operator[0] in ("|", "|&"))
                if operator[0] == "\n":
                    self._bodies()
            else:
                now.words.append(self._word())
            now.inner += self.take_inner()
        done.append(now)
        self._bodies()
        return done

    def _redirect_here(self) -> re.Match[str] | None:
        found = _REDIRECT.match(self._text, self._at)
        is_process = found is not None and self._text.startswith("(", found.end()) and found[0] in ("<", ">")
        return None if is_process else found

    def _redirected(self, found: re.Match[str], now: SimpleCommand) -> None:
        self._at = found.end()
        while self._text[self._at : self._at + 1] in (" ", "\t"):
            self._at += 1
        start = self._at
        target = self._word()
        if found[1] is not None and _HERE.fullmatch(found[1]):
            quoted = self._text[start : self._at] != target.text
            self._pending.append((target.text, quoted, now))
            now.fed = True
        elif found[1] == "<<<":
            now.here.append(target.text)
            now.fed = True
        elif found[1] in ("<", "<>"):
            now.inputs.append(target)

    def _bodies(self) -> None:
        """The here-documents that were announced on the line that has ended."""
        for end, quoted, simple in self._pending:
            body: list[str] = []
            while True:
                if self._at >= len(self._text):
                    break
                stop = self._line_end()
                line, self._at = self._text[self._at : stop], min(stop + 1, len(self._text))
                if line.strip("\t") == end:
                    break
                body.append(line)
            simple.here.append("\n".join(body))
            if not quoted:
                simple.inner += _Lexer("\n".join(body)).substitutions()
        self._pending = []

    def substitutions(self) -> list[str]:
        """Those of a text in which nothing else is active."""
        self._double(end="")
        return self.take_inner()

    def _line_end(self) -> int:
        found = self._text.find("\n", self._at)
        return len(self._text) if found < 0 else found

    def _word(self) -> Word:
        parts: list[str] = []
        fixed = True
        start = self._at
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in " \t\r\n;&|)" or (char in "<>(" and not self._process_here()):
                break
            self._at += 1
            if char == "'":
                parts.append(self._until("'"))
            elif char == '"':
                text, plain = self._double(end='"')
                parts.append(text)
                fixed = fixed and plain
            elif char == "\\":
                parts.append(self._text[self._at : self._at + 1].replace("\n", ""))
                self._at += 1
            elif char in "$`<>":
                parts.append(self._expansion(char))
                fixed = False
            else:
                fixed = fixed and not (char in "*?[" or (char == "~" and self._at == start + 1))
                parts.append(char)
        if self._at == start:
            raise Unreadable("its words cannot be told apart")
        text = "".join(parts)
        if text in ("[", "[["):
            return Word(text)
        braces = "{" in text and ("," in text or ".." in text) and self._text[start] not in "'\""
        return Word(text, fixed and not braces)

    def _process_here(self) -> bool:
        return self._text.startswith(("<(", ">("), self._at)

    def _until(self, end: str) -> str:
        found = self._text.find(end, self._at)
        if found < 0:
            raise Unreadable("a quote is not closed")
        inner, self._at = self._text[self._at : found], found + 1
        return inner

    def _double(self, end: str) -> tuple[str, bool]:
        parts: list[str] = []
        fixed = True
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            if char == end:
                return "".join(parts), fixed
            if char == "\\":
                following = self._text[self._at : self._at + 1]
                parts.append(following.replace("\n", "") if following in '$`"\\\n' else char + following)
                self._at += 1
            elif char in "$`":
                parts.append(self._expansion(char))
                fixed = False
            else:
                parts.append(char)
        if end:
            raise Unreadable("a quote is not closed")
        return "".join(parts), fixed

    def _expansion(self, char: str) -> str:
        """Passes over `$name`, `${…}`, `$(…)`, `` `…` `` and `<(…)`; commands in it are laid aside."""
        if char == "`":
            self._inner.append(self._until("`").replace("\\", ""))
            return ""
        if self._text.startswith("(", self._at):
            self._inner.append(self._balanced("(", ")"))
            return ""
        if self._text.startswith("{", self._at):
            self._inner += _Lexer(self._balanced("{", "}")).substitutions()
            return ""
        if self._text.startswith("'", self._at):
            self._at += 1
            return self._until("'")
        found = _VARIABLE.match(self._text, self._at)
        self._at = self._at if found is None else found.end()
        return "" if found is not None else char

    def _balanced(self, opening: str, closing: str) -> str:
        """What stands between the bracket here and the one that closes it, quotes minded."""
        start, depth = self._at + 1, 0
        at = self._at
        while at < len(self._text):
            char = self._text[at]
            if char == "\\":
                at += 1
            elif char == "'":
                at = self._text.find("'", at + 1)
                if at < 0:
                    break
            elif char == '"':
                at = self._past_double(at + 1)
            elif char == opening:
                depth += 1
            elif char == closing:
                depth -= 1
                if depth == 0:
                    self._at = at + 1
                    return self._text[start:at]
            at += 1
        raise Unreadable("a bracket is not closed")

    def _past_double(self, at: int) -> int:
        """Where the double quotes end that began before `at`; substitutions in it may hold quotes."""
        while at < len(self._text) and self._text[at] != '"':
            if self._text[at] == "\\":
                at += 1
            elif self._text.startswith("$(", at):
                inner = _Lexer(self._text)
                inner._at = at + 1
                inner._balanced("(", ")")
                at = inner._at - 1
            at += 1
        return at
