"""May this command run now, must a person be asked, or is it refused. Pure.

A last word `*` stands for one word or more; any other `*` stays within its word and does not cross `/`
(`**` does), nor does it begin a word that begins with a dash.

Understood are words, single and double quotes, and `|` between commands. Everything by which a shell does
more (substitution, redirection, lists, globs, assignments, escapes) is refused, so that the words that were
judged are the words that run.

Whoever may change one of these may have commands run by programs that look harmless, when nobody looks.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final, Literal

from holdfast.agents.policy.safe_bins import Inside, unsafe
from holdfast.errors import InvalidInput

MAX_PATTERN: Final = 500
_REST: Final = "*"


def check_pattern(pattern: str) -> str:
    """The pattern in its one form, or `InvalidInput` if it would allow any program at all."""
    words = pattern.split()
    if not words or len(pattern) > MAX_PATTERN or not pattern.isprintable():
        raise InvalidInput(
            f"a command pattern has 1 to {MAX_PATTERN} printable characters", hint="For example: git diff *"
        )
    if any(mark in words[0] for mark in "*?["):
        raise InvalidInput(
            "a command pattern must name its program",
            hint="Begin with the program, such as `git diff *`; for every command use security `full`.",
        )
    return " ".join(words)


def matching(words: tuple[str, ...], patterns: tuple[str, ...]) -> str | None:
    """The first pattern that the words fit."""
    return next((pattern for pattern in patterns if matches(words, pattern)), None)


def matches(words: tuple[str, ...], pattern: str) -> bool:
    wanted = tuple(pattern.split())
    if not wanted or any(mark in wanted[0] for mark in "*?["):
        return False
    if wanted[-1] == _REST and len(wanted) > 1:
        wanted = wanted[:-1]
        if len(words) <= len(wanted):
            return False
        words = words[: len(wanted)]
    return len(words) == len(wanted) and all(
        _word_fits(word, glob) for word, glob in zip(words, wanted, strict=True)
    )


def _word_fits(word: str, glob: str) -> bool:
    if glob == _REST:
        return True
    if word.startswith("-") and glob[0] in "*?[":
        return False
    if ".." in word.split("/") and ".." not in glob.split("/"):
        return False
    return _compiled(glob).fullmatch(word) is not None


@lru_cache(maxsize=1024)
def _compiled(glob: str) -> re.Pattern[str]:
    parts: list[str] = []
    at = 0
    while at < len(glob):
        if glob.startswith("**", at):
            parts.append(".*")
            at += 2
            continue
        char = glob[at]
        parts.append({"*": "[^/]*", "?": "[^/]"}.get(char, re.escape(char)))
        at += 1
    return re.compile("".join(parts), re.DOTALL)


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


Security = Literal["deny", "allowlist", "full"]
Ask = Literal["off", "on-miss", "always"]
Verdict = Literal["run", "ask", "block"]
Rule = Literal["deny", "full", "safe-bins", "allowlist", "miss", "always"]


@dataclass(frozen=True, slots=True)
class ExecPolicy:
    """How commands are judged. `allowlist` are patterns that were approved before."""

    security: Security = "allowlist"
    ask: Ask = "on-miss"
    safe_bins: frozenset[str] = frozenset()
    allowlist: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExecDecision:
    """`pipeline` is there when the command was understood: run that, not the text, where it is.

    `patterns` are those of the allowlist that were needed, to be stamped with their use.
    """

    verdict: Verdict
    rule: Rule
    reason: str
    pipeline: Pipeline | None = None
    patterns: tuple[str, ...] = ()


def judge(command: str, policy: ExecPolicy, inside: Inside) -> ExecDecision:
    """The flow of the exec tool: deny, full, safe programs, allowlist, then ask or refuse.

    `inside` says whether a path lies within the workspace, links followed. `always` asks even for what
    would run; nothing turns a refusal by `deny` into a question.
    """
    if policy.security == "deny":
        return ExecDecision("block", "deny", "commands are switched off (tools.exec.security is deny)")
    if not command.strip():
        return ExecDecision("block", "miss", "the command is empty")
    found = _judged(command, policy, inside)
    if found.verdict == "run" and policy.ask == "always":
        return ExecDecision("ask", "always", f"every command is asked for; {found.reason}", found.pipeline)
    return found


def _judged(command: str, policy: ExecPolicy, inside: Inside) -> ExecDecision:
    if policy.security == "full":
        return ExecDecision("run", "full", "every command may run (tools.exec.security is full)")
    parsed = parse(command)
    if isinstance(parsed, Refusal):
        return _missed(policy, f"the command {parsed.reason}", None)
    if not inside("."):
        return _missed(policy, "the working folder is outside the workspace", parsed)
    used: list[str] = []
    for words in parsed.commands:
        why = unsafe(words, policy.safe_bins, inside)
        if why is None:
            continue
        pattern = matching(words, policy.allowlist)
        if pattern is None:
            return _missed(policy, f"no pattern of the allowlist fits, and {why}", parsed)
        used.append(pattern)
    if used:
        return ExecDecision("run", "allowlist", f"the allowlist has {used[0]!r}", parsed, tuple(used))
    return ExecDecision("run", "safe-bins", "it only reads, and within the workspace", parsed)


def _missed(policy: ExecPolicy, reason: str, pipeline: Pipeline | None) -> ExecDecision:
    verdict: Verdict = "block" if policy.ask == "off" else "ask"
    return ExecDecision(verdict, "miss", reason, pipeline)


def inside_folder(root: str, cwd: str, private: str | None = None) -> Inside:
    """Whether a path, seen from `cwd`, lies in `root` once every link is followed.

    Where `private`, the home of Holdfast, lies in `root` too, it and what leads down to it are out of bounds.
    """
    home, sealed = os.path.realpath(root), None if private is None else os.path.realpath(private)
    if sealed is not None and not _below(sealed, home):
        sealed = None

    def inside(path: str, *, deep: bool = False) -> bool:
        if path.startswith("~") or "\0" in path:
            return False
        found = os.path.realpath(os.path.join(cwd, path))
        if sealed is not None and (_below(found, sealed) or (deep and _below(sealed, found))):
            return False
        return _below(found, home)

    return inside


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


FOLDERS: Final = {
    ".git": "it is git's own",
    ".hg": "it is Mercurial's own",
    ".svn": "it is Subversion's own",
    ".husky": "git runs what lies there",
    ".githooks": "git runs what lies there",
    ".git-hooks": "git runs what lies there",
    ".direnv": "direnv runs what lies there",
    ".mvn": "Maven takes its settings there",
    ".bundle": "Bundler takes its settings there",
    ".yarn": "Yarn runs what lies there",
}
FILES: Final = {
    ".gitattributes": "it says which programs git runs on files",
    ".gitmodules": "it says where git gets other repositories",
    ".gitconfig": "it says which programs git runs",
    ".config/git/*": "it says which programs git runs",
    ".lfsconfig": "it says where git gets files",
    ".envrc": "direnv runs it",
    ".npmrc": "npm takes its settings there",
    ".yarnrc": "Yarn takes its settings there",
    ".yarnrc.yml": "Yarn takes its settings there",
    ".pnpmfile.cjs": "pnpm runs it",
    ".pre-commit-config.yaml": "pre-commit runs what it says",
    ".pre-commit-hooks.yaml": "pre-commit runs what it says",
    "lefthook.yml": "git runs what it says",
    ".lefthook.yml": "git runs what it says",
    ".vscode/tasks.json": "an editor runs what it says",
    ".vscode/settings.json": "an editor takes its settings there",
    ".vscode/launch.json": "an editor runs what it says",
    ".idea/*": "an editor takes its settings there",
    ".devcontainer/*": "an editor runs what it says",
    ".devcontainer.json": "an editor runs what it says",
    "pip.conf": "pip takes its settings there",
    "pip.ini": "pip takes its settings there",
    ".pypirc": "it says where packages go",
    ".cargo/config": "cargo takes its settings there",
    ".cargo/config.toml": "cargo takes its settings there",
    ".bazelrc": "Bazel takes its settings there",
    ".mise.toml": "mise runs what it says",
    "mise.toml": "mise runs what it says",
    ".bashrc": "shells run it",
    ".bash_profile": "shells run it",
    ".bash_login": "shells run it",
    ".profile": "shells run it",
    ".zshrc": "shells run it",
    ".zshenv": "shells run it",
    ".zprofile": "shells run it",
    "sitecustomize.py": "every Python runs it",
    "usercustomize.py": "every Python runs it",
    "*.pth": "every Python may run it",
}


@dataclass(frozen=True, slots=True)
class WriteDecision:
    verdict: Verdict
    reason: str = ""
    protected: bool = True


def protected(steps: Sequence[str]) -> str | None:
    """Why a path may not be written unasked; None where it may. Case does not count, as on some disks."""
    parts = [step.casefold() for step in steps]
    for part in parts:
        if part in FOLDERS:
            return FOLDERS[part]
    for name, why in FILES.items():
        wanted = name.split("/")
        if len(parts) >= len(wanted) and all(map(fnmatchcase, parts[-len(wanted) :], wanted)):
            return why
    return None


def judge_write(steps: Sequence[str], security: Security, ask: Ask) -> WriteDecision:
    """As for a command that is on no list: who may run anything may write anything."""
    why = protected(steps)
    if why is None:
        return WriteDecision("run", protected=False)
    reason = f"{'/'.join(steps)[:200]} is protected: {why}"
    if security == "full" and ask != "always":
        return WriteDecision("run", reason)
    return WriteDecision("block" if security == "deny" or ask == "off" else "ask", reason)
