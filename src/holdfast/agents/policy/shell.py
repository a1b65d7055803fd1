"""Which programs a command line starts, followed through everything that starts others; pure.

Unlike `words`, which refuses what is more than words, this reads what a person may be asked for: lists,
pipelines, subshells, substitutions, here-documents, `cd`, `sh -c`, `env`, `sudo`, `xargs` and their like.
Where a shell would put in something that is not written there, or where the reading ends, there is a `doubt`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.agents.policy.shell_lines import SimpleCommand, Unreadable, Word, read_line

MOST_CALLS: Final = 64
MOST_FOLDERS: Final = 8
MOST_DEPTH: Final = 8

SHELLS: Final = frozenset(("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish"))
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_KEYWORDS: Final = frozenset(("if", "then", "else", "elif", "while", "until", "do", "!", "{", "coproc"))
_CLOSERS: Final = frozenset(("fi", "done", "}", "esac"))
_STEERS: Final = re.compile(
    r"(GIT|LD|DYLD|PYTHON|NODE|PERL5?|RUBY|MAKE|NPM|npm)_?[A-Za-z0-9_]*|IFS|ENV|BASH_ENV|SHELL|EDITOR|PAGER|HOME"
    r"|\w*(PATH|OPTIONS|OPTS|FLAGS|CONFIG|COMMAND|PRELOAD|STARTUP)"
)
_GOING: Final = frozenset(("cd", "pushd", "chdir"))


@dataclass(frozen=True, slots=True)
class ShellCall:
    """One program with its words. `folders` are those it may run in, seen from where the command began.

    `inputs` are files that are put in by the shell: redirected, or in a variable that is set for it alone.
    `fed`: something else writes what it reads.
    """

    words: tuple[Word, ...]
    folders: tuple[str, ...] = ("",)
    inputs: tuple[Word, ...] = ()
    fed: bool = False

    @property
    def program(self) -> str:
        return posixpath.basename(self.words[0].text) if self.words else ""


@dataclass(frozen=True, slots=True)
class Followed:
    """The programs that a command starts; `doubt` says what could not be told from its words."""

    calls: tuple[ShellCall, ...]
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A program that starts another: its options with and without a value, and its own operands before that.

    `adds`: it gives the other words that are not written here. `text` and `folder` are the options whose
    values are a command line and where to go.
    """

    flags: str = ""
    valued: str = ""
    long_valued: frozenset[str] = frozenset()
    operands: int = 0
    adds: bool = False
    text: str = ""
    folder: str = ""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


WRAPPERS: Final[Mapping[str, Wrapper]] = {
    "builtin": Wrapper(),
    "busybox": Wrapper(),
    "chroot": Wrapper(operands=1),
    "chrt": Wrapper(flags="abefimoprv", operands=1),
    "command": Wrapper(flags="p"),
    "doas": Wrapper(flags="Lns", valued="uC"),
    "env": Wrapper(
        flags="i0v",
        valued="uCS",
        long_valued=_names("--unset --chdir --split-string"),
        text="S",
        folder="C",
    ),
    "exec": Wrapper(flags="cl", valued="a"),
    "flock": Wrapper(flags="sxunoF", valued="wEc", long_valued=_names("--timeout"), operands=1, text="c"),
    "ionice": Wrapper(flags="t", valued="cn", long_valued=_names("--class --classdata")),
    "nice": Wrapper(valued="n", long_valued=_names("--adjustment")),
    "nohup": Wrapper(),
    "parallel": Wrapper(valued="jnNI", adds=True),
    "setsid": Wrapper(flags="cfw"),
    "stdbuf": Wrapper(valued="ioe", long_valued=_names("--input --output --error")),
    "sudo": Wrapper(
        flags="AbEeHiKklnPSsVv",
        valued="CDghprRTtUu",
        long_valued=_names("--user --group --chdir --host --prompt"),
        folder="D",
    ),
    "taskset": Wrapper(flags="ac", operands=1),
    "time": Wrapper(flags="pvaq", valued="fo", long_valued=_names("--format --output")),
    "timeout": Wrapper(flags="v", valued="ks", long_valued=_names("--kill-after --signal"), operands=1),
    "watch": Wrapper(flags="bcdegptwxC", valued="n", long_valued=_names("--interval")),
    "xargs": Wrapper(
        flags="0oprtx",
        valued="aEIdLnPs",
        long_valued=_names("--arg-file --delimiter --max-args --max-procs --max-lines"),
        adds=True,
    ),
}


def follow(command: str) -> Followed:
    """Every program that this command would start, as far as its words say."""
    reader = _Follower()
    try:
        reader.text(command, ("",), 0)
    except Unreadable as odd:
        reader.doubt(str(odd))
        loose = tuple(Word(part.strip("'\"`();&|<>{}")) for part in command.split())
        reader.calls.append(ShellCall(loose))
    return Followed(tuple(reader.calls), reader.doubts[0] if reader.doubts else "")


class _Follower:
    def __init__(self) -> None:
        self.calls: list[ShellCall] = []
        self.doubts: list[str] = []

    def doubt(self, why: str) -> None:
        self.doubts.append(why)

    def text(self, text: str, folders: tuple[str, ...], depth: int) -> tuple[str, ...]:
        """Follow a command line; gives the folders in which what comes behind it may run."""
        if depth > MOST_DEPTH:
            raise Unreadable("it is nested too deeply")
        for simple in read_line(text):
            for inner in simple.inner:
                self.text(inner, folders, depth + 1)
            folders = self._simple(simple, folders, depth)
        return folders

    def _simple(self, simple: SimpleCommand, folders: tuple[str, ...], depth: int) -> tuple[str, ...]:
        words = list(simple.words)
        while words and words[0].fixed and words[0].text in _KEYWORDS:
            words.pop(0)
        if words and words[0].text in _CLOSERS:
            words.clear()
        if words and words[0].text in ("for", "select"):
            return folders
        if words and words[0].text in ("case", "function"):
            self.doubt(f"it holds a {words[0].text}")
            return folders
        inputs = list(simple.inputs)
        while words and _ASSIGNMENT.match(words[0].text):
            given = words.pop(0)
            self._set(given.text.split("=", 1)[0])
            inputs.append(Word(given.text.split("=", 1)[1], given.fixed))
        call = ShellCall(tuple(words), folders, tuple(inputs), simple.fed or bool(simple.here))
        if not words:
            return folders
        folders = self._call(call, depth)
        if call.program in SHELLS:
            for body in simple.here:
                self.text(body, folders, depth + 1)
        return folders

    def _set(self, name: str) -> None:
        if _STEERS.fullmatch(name.rstrip("+")):
            self.doubt(f"it sets {name[:40]}, which says what programs run")

    def _call(self, call: ShellCall, depth: int) -> tuple[str, ...]:
        if len(self.calls) >= MOST_CALLS or depth > MOST_DEPTH:
            raise Unreadable("it starts too many programs")
        first = call.words[0]
        if not first.fixed:
            self.doubt("the name of a program is put in by the shell")
        if first.text in _GOING:
            return self._gone(call)
        self.calls.append(call)
        self._started(call, depth)
        return call.folders

    def _started(self, call: ShellCall, depth: int) -> None:
        """What a program starts in its turn."""
        name, rest = call.program, call.words[1:]
        if name in SHELLS:
            self._shell(call, depth)
        elif name in ("eval", "trap"):
            self._texts(rest if name == "eval" else rest[:1], call, depth)
        elif name == "find":
            for inner in _executed(rest):
                self._inner(call, inner, depth)
        elif name in WRAPPERS:
            self._wrapped(call, WRAPPERS[name], depth)

    def _shell(self, call: ShellCall, depth: int) -> None:
        rest = list(call.words[1:])
        while rest and rest[0].text.startswith(("-", "+")) and rest[0].text not in ("-", "--"):
            option = rest.pop(0)
            if not option.text.startswith("--") and "c" in option.text:
                operands = [word for word in rest if not word.text.startswith("-")]
                self._texts(tuple(operands[:1]), call, depth)
                return
            if option.text in ("-o", "+o", "-O", "+O") and rest:
                rest.pop(0)

    def _texts(self, words: tuple[Word, ...], call: ShellCall, depth: int) -> None:
        if not all(word.fixed for word in words):
            self.doubt("the shell puts a part of what is run into it")
        self.text(" ".join(word.text for word in words), call.folders, depth + 1)

    def _wrapped(self, call: ShellCall, wrapper: Wrapper, depth: int) -> None:
        rest, folders = list(call.words[1:]), call.folders
        while rest and rest[0].text.startswith("-") and rest[0].text != "-":
            option = rest.pop(0).text
            if option == "--":
                break
            letter, value = self._option(option, wrapper, rest)
            if value is not None and letter == wrapper.text:
                self._texts((value,), call, depth)
                return
            if value is not None and letter == wrapper.folder:
                folders = self._into(folders, value)
        while rest and _ASSIGNMENT.match(rest[0].text):
            self._set(rest.pop(0).text.split("=", 1)[0])
        inner = rest[wrapper.operands :] + ([Word("", fixed=False)] if wrapper.adds else [])
        if rest[wrapper.operands :]:
            self._inner(ShellCall(call.words, folders, call.inputs, call.fed), tuple(inner), depth)

    def _option(self, option: str, wrapper: Wrapper, rest: list[Word]) -> tuple[str, Word | None]:
        """The letter of an option and its value; an unknown one may hide where the program begins."""
        if option.startswith("--"):
            name, equals, value = option.partition("=")
            if equals:
                return _LETTERS.get(name, ""), Word(value)
            if name in wrapper.long_valued:
                return _LETTERS.get(name, ""), rest.pop(0) if rest else None
            return "", None
        for at, letter in enumerate(option[1:], 1):
            if letter in wrapper.valued:
                attached = option[at + 1 :]
                return letter, Word(attached) if attached else (rest.pop(0) if rest else None)
            if letter not in wrapper.flags and not letter.isdigit():
                self.doubt(f"the option {option[:20]} is not known")
        return "", None

    def _inner(self, call: ShellCall, words: tuple[Word, ...], depth: int) -> None:
        self._call(ShellCall(words, call.folders, call.inputs, call.fed), depth + 1)

    def _gone(self, call: ShellCall) -> tuple[str, ...]:
        operands = [word for word in call.words[1:] if word.text not in ("-L", "-P", "--", "-e")]
        if not operands or operands[0].text == "-":
            self.doubt("it goes to a folder that is not named")
            return call.folders
        return self._into(call.folders, operands[0])

    def _into(self, folders: tuple[str, ...], target: Word) -> tuple[str, ...]:
        """Where it may be after a `cd`, which may have failed: where it was, and there."""
        if not target.fixed:
            self.doubt("it goes to a folder whose name is put in by the shell")
            return folders
        found = [posixpath.normpath(posixpath.join(folder, target.text)) for folder in folders]
        every = tuple(dict.fromkeys((*folders, *found)))
        if len(every) > MOST_FOLDERS:
            raise Unreadable("it goes through too many folders")
        return every


_LETTERS: Final = {"--split-string": "S", "--chdir": "C", "--command": "c"}


def _executed(words: tuple[Word, ...]) -> list[tuple[Word, ...]]:
    """What `find` runs: behind `-exec` up to its end, with each `{}` a name that is not written here."""
    found: list[tuple[Word, ...]] = []
    for at, word in enumerate(words):
        if word.text in ("-exec", "-execdir", "-ok", "-okdir"):
            inner: list[Word] = []
            for part in words[at + 1 :]:
                if part.text in (";", "+"):
                    break
                inner.append(Word(part.text, part.fixed and "{}" not in part.text))
            if inner:
                found.append(tuple(inner))
    return found
