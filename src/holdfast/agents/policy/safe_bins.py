"""Programs that may run unasked because they only read: each by the arguments that are known to be harmless.

A flag that is not listed is refused, and so is every abbreviation of one. Every path must lie within the
workspace. A program that is configured as safe but has no rule here is not safe.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

Kind = Literal["text", "number", "path", "program"]


class Inside(Protocol):
    """Whether a path lies within bounds; `deep`: and all below it does."""

    def __call__(self, path: str, *, deep: bool = False) -> bool: ...


_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}[bkKMGTPEZY]?B?")
_BARE_NUMBER: Final = re.compile(r"-[0-9]{1,9}")
_JQ_REACHES_OUT: Final = re.compile(
    r"env|ENV|import|include|modulemeta|get_search_list|input_filename|input_line|\$__|debug|stderr|halt|@sh"
)


@dataclass(frozen=True, slots=True)
class BinRule:
    """What a program may be given: letters and long words, without and with a value, and its operands.

    `first` is the kind of the first operand, where it is not a path; `most` bounds the operands. With one of
    `deep` all that lies below its operands is read.
    """

    flags: str = ""
    valued: Mapping[str, Kind] = field(default_factory=dict)
    longs: str = ""
    long_valued: Mapping[str, Kind] = field(default_factory=dict)
    first: Kind = "path"
    rest: Kind = "path"
    most: int = 64
    least: int = 0
    bare_number: bool = False
    instead_of_first: frozenset[str] = frozenset()
    deep: frozenset[str] = frozenset()


_GREP: Final = BinRule(
    flags="EFGPivwxcloqsnhHrazL",
    valued={"e": "text", "f": "path", "m": "number", "A": "number", "B": "number", "C": "number"},
    longs=(
        "extended-regexp fixed-strings basic-regexp perl-regexp ignore-case no-ignore-case invert-match "
        "word-regexp line-regexp count files-with-matches files-without-match only-matching quiet silent "
        "no-messages line-number no-filename with-filename recursive text null-data color colour"
    ),
    long_valued={
        "regexp": "text",
        "file": "path",
        "max-count": "number",
        "after-context": "number",
        "before-context": "number",
        "context": "number",
        "include": "text",
        "exclude": "text",
        "exclude-dir": "text",
        "color": "text",
        "colour": "text",
    },
    first="text",
    least=1,
    bare_number=True,
    instead_of_first=frozenset(("e", "f", "regexp", "file")),
    deep=frozenset(("r", "recursive")),
)
_JQ: Final = BinRule(
    flags="nrjascSeCM",
    longs=(
        "null-input raw-output join-output ascii-output slurp compact-output sort-keys exit-status "
        "color-output monochrome-output tab raw-input stream seq"
    ),
    long_valued={"indent": "number"},
    first="program",
    least=1,
)
_SORT: Final = BinRule(
    flags="bdfgiMhnRrVcCmsuz",
    valued={"k": "text", "t": "text"},
    longs=(
        "ignore-leading-blanks dictionary-order ignore-case general-numeric-sort ignore-nonprinting "
        "month-sort human-numeric-sort numeric-sort random-sort reverse version-sort check merge stable "
        "unique zero-terminated"
    ),
    long_valued={"key": "text", "field-separator": "text"},
)

RULES: Final[Mapping[str, BinRule]] = {
    "cat": BinRule(
        flags="AbeEnstTuv",
        longs="show-all number-nonblank show-ends number squeeze-blank show-tabs",
    ),
    "cut": BinRule(
        flags="nsz",
        valued={"b": "text", "c": "text", "d": "text", "f": "text"},
        longs="complement only-delimited zero-terminated",
        long_valued={
            "bytes": "text",
            "characters": "text",
            "delimiter": "text",
            "fields": "text",
            "output-delimiter": "text",
        },
    ),
    "grep": _GREP,
    "head": BinRule(
        flags="qvz",
        valued={"n": "number", "c": "number"},
        longs="quiet silent verbose zero-terminated",
        long_valued={"lines": "number", "bytes": "number"},
        bare_number=True,
    ),
    "jq": _JQ,
    "ls": BinRule(
        flags="aAbBcCdFghiklmnNopqQrRsStuUvxX1",
        longs=(
            "all almost-all directory human-readable inode no-group numeric-uid-gid recursive reverse "
            "size full-time group-directories-first si color"
        ),
        long_valued={"sort": "text", "time": "text", "color": "text", "time-style": "text", "format": "text"},
        deep=frozenset(("R", "recursive")),
    ),
    "pwd": BinRule(flags="LP", most=0),
    "sort": _SORT,
    "tail": BinRule(
        flags="qvz",
        valued={"n": "number", "c": "number"},
        longs="quiet silent verbose zero-terminated",
        long_valued={"lines": "number", "bytes": "number"},
        bare_number=True,
    ),
    "tr": BinRule(
        flags="cCdst",
        longs="complement delete squeeze-repeats truncate-set1",
        first="text",
        rest="text",
        most=2,
        least=1,
    ),
    "uniq": BinRule(
        flags="cdDuiz",
        valued={"f": "number", "s": "number", "w": "number"},
        longs="count repeated unique ignore-case zero-terminated",
        long_valued={"skip-fields": "number", "skip-chars": "number", "check-chars": "number"},
        most=1,
    ),
    "wc": BinRule(flags="clmLw", longs="bytes chars lines max-line-length words"),
}


def unsafe(words: tuple[str, ...], names: frozenset[str], inside: Inside) -> str | None:
    """Why the words are not provably a harmless call of a safe program; None when they are.

    That the working folder lies within the workspace is the caller's to know.
    """
    name = words[0]
    if name not in names:
        return f"{name} is not a safe program"
    rule = RULES.get(name)
    if rule is None:
        return f"there is no rule that says how {name} may be called"
    try:
        _Call(rule, inside).check(words[1:])
    except _Unsafe as error:
        return f"{name}: {error}"
    return None


class _Unsafe(Exception):
    pass


class _Call:
    """Reads the arguments as GNU programs do: options anywhere up to `--`, values attached or behind."""

    def __init__(self, rule: BinRule, inside: Inside) -> None:
        self._rule = rule
        self._inside = inside
        self._operands: list[str] = []
        self._given: set[str] = set()

    def check(self, words: tuple[str, ...]) -> None:
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word == "--":
                self._operands += rest
                break
            if word.startswith("--"):
                self._long(word[2:], rest)
            elif word.startswith("-") and word != "-":
                self._short(word, rest)
            else:
                self._operands.append(word)
        self._check_operands()

    def _long(self, text: str, rest: list[str]) -> None:
        name, equals, value = text.partition("=")
        kind = self._rule.long_valued.get(name)
        if not equals and name in self._rule.longs.split():
            self._given.add(name)
            return
        if kind is None:
            raise _Unsafe(f"--{name} is not known to be harmless")
        self._given.add(name)
        self._value(kind, value if equals else self._next(name, rest))

    def _short(self, word: str, rest: list[str]) -> None:
        if self._rule.bare_number and _BARE_NUMBER.fullmatch(word):
            return
        for at, letter in enumerate(word[1:], 1):
            kind = self._rule.valued.get(letter)
            if kind is not None:
                self._given.add(letter)
                self._value(kind, word[at + 1 :] or self._next(letter, rest))
                return
            if letter not in self._rule.flags:
                raise _Unsafe(f"-{letter} is not known to be harmless")
            self._given.add(letter)

    def _next(self, name: str, rest: list[str]) -> str:
        if not rest:
            raise _Unsafe(f"{name} lacks its value")
        return rest.pop(0)

    def _value(self, kind: Kind, value: str) -> None:
        if kind == "number" and not _NUMBER.fullmatch(value):
            raise _Unsafe(f"{value[:40]!r} is not a number")
        if kind == "program" and _JQ_REACHES_OUT.search(value):
            raise _Unsafe("the program may reach beyond its input")
        if kind == "path" and value != "-" and not self._inside(value):
            raise _Unsafe(f"{value[:80]!r} is outside the workspace")

    def _check_operands(self) -> None:
        rule = self._rule
        replaced = bool(self._given & rule.instead_of_first)
        if len(self._operands) > rule.most:
            raise _Unsafe(f"more than {rule.most} operands")
        if len(self._operands) < rule.least and not replaced:
            raise _Unsafe("an operand is missing")
        for at, operand in enumerate(self._operands):
            self._value(rule.first if at == 0 and not replaced else rule.rest, operand)
        if self._given & rule.deep:
            self._check_depth(self._operands if replaced or rule.first == "path" else self._operands[1:])

    def _check_depth(self, paths: list[str]) -> None:
        for path in paths or ["."]:
            if path != "-" and not self._inside(path, deep=True):
                raise _Unsafe(f"not all below {path[:80]!r} is the agent's to read")
