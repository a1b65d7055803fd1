"""Command patterns of an allowlist: globs word by word, so that `git diff *` is never `git diff; rm`.

A last word `*` stands for one word or more; any other `*` stays within its word and does not cross `/`
(`**` does), nor does it begin a word that begins with a dash.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

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
