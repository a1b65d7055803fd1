"""What is wrong in a config, said in one line: where, what was expected, what was found."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from holdfast.config.root import NO_EFFECT, SHORTCUTS, Config
from holdfast.config.secret import Secret, is_secret_name, without_password
from holdfast.config.section import Loc, at, dotted, fields, is_section
from holdfast.errors import ConfigError

HIDDEN = "a value that is not shown"
_LOOKS_SECRET = re.compile(r"(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{20,}|sk-\w|xox\w-|gh[pous]_\w")


# Settings that are spoken of and not built; whoever writes one is told so, rather than kept waiting.
_NOT_BUILT = {
    "teams.enabled": "users and roles",
    "teams.list": "teams",
    "memory.search.rerank.model": "a ranking model (qmd has its own: see memory.search.rerank.enabled)",
    "memory.search.rerank.candidates": "a ranking model (qmd has its own: see memory.search.rerank.enabled)",
    "auth.profiles": "profiles in this file (agents/<id>/agent/auth-profiles.json says what each is for)",
    "board.title": "a title of the pages",
    "store.maxOverflow": "a bound of further connections (store.poolSize says how many there are)",
    "skills.load.watch": "watching of skills, which are read anew for every turn anyway",
    "skills.load.watchDebounceMs": "watching of skills, which are read anew for every turn anyway",
    "skills.registry.token": "publishing over the net (`holdfast skills publish` writes a folder)",
}
_TOKENS = ("token", "botToken", "appToken")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and the path of the key; `loc` where the key may simply be taken out."""

    path: str
    message: str
    without_effect: Loc | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


_CORRECT = "Correct the file; `holdfast doctor` lists everything that is wrong in it."
_TAKE_OUT = "`holdfast doctor --fix` takes out what does nothing; `holdfast up --lenient` starts without it."


class InvalidConfig(ConfigError):
    """A config that cannot be used; `problems` has all that is wrong, the message the first."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        idle = all(problem.without_effect is not None for problem in problems)
        super().__init__(f"{source}: {problems[0]}{more}", hint=_TAKE_OUT if idle else _CORRECT)
        self.problems = tuple(problems)


def problems_of(error: ValidationError, data: Any) -> list[Problem]:
    """Pydantic's errors in our words, in the order of the file's sections."""
    return [_problem(item, data) for item in error.errors(include_url=False)]


def _problem(item: Any, data: Any) -> Problem:
    loc = [element for element in item["loc"] if element != "[key]"]
    path = dotted(_as_written(loc, data))
    if item["type"] == "extra_forbidden":
        return Problem(path, _unknown(loc), tuple(_as_written(loc, data)))
    if item["type"] == NO_EFFECT:
        return Problem(path, item["msg"], tuple(_as_written(loc, data)))
    if item["type"] == "missing":
        return Problem(path, "expected a value, found none")
    if item["type"] == "config":
        return Problem(path, item["msg"])
    expected = _expected(item)
    if "found" in expected or (item["type"] == "value_error" and isinstance(item["input"], dict)):
        return Problem(path, expected)
    return Problem(path, f"{expected}, found {found(item['input'], loc)}")


def _expected(item: Any) -> str:
    if item["type"] == "string_pattern_mismatch" and "a-z0-9" in item["ctx"]["pattern"]:
        return "expected an id of lower-case letters, digits, - and _ (at most 64)"
    text: str = item["msg"].removeprefix("Value error, ")
    for start in ("Input should be ", "Input should "):
        if text.startswith(start):
            return f"expected {text.removeprefix(start)}"
    return text if text.startswith("expected") else f"expected otherwise: {text}"


def found(value: Any, loc: Loc) -> str:
    """A value as it may stand in a message; secrets and what looks like one are not shown."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "null"
    named = any(isinstance(element, str) and is_secret_name(element) for element in loc)
    if named or isinstance(value, Secret) or at(Config, loc) is Secret:
        return HIDDEN
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        shown = without_password(value)
        return HIDDEN if _LOOKS_SECRET.search(shown) else repr(shown[:60])
    return str(value)[:60]


def _unknown(loc: Loc) -> str:
    section, name = at(Config, loc[:-1]), str(loc[-1])
    if dotted(loc) in _NOT_BUILT:
        return f"not built yet: {_NOT_BUILT[dotted(loc)]}; take the key out"
    if loc[0] == "channels" and name in _TOKENS:
        return "not built yet: Holdfast connects to webhook channels alone; take the key out"
    known = [wire for wire, _ in fields(section)] if is_section(section) else []
    if section is Config:
        known += SHORTCUTS
    folded = {wire.lower(): wire for wire in known}
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return f"unknown key; did you mean {folded[near[0]]!r}?" if near else "unknown key"


def _as_written(loc: list[str | int], data: Any) -> list[str | int]:
    """The path in the file: a shortcut's problem is reported where the shortcut was written."""
    if loc[:2] == ["agents", "defaults"] and len(loc) > 2 and loc[2] in SHORTCUTS:
        short = loc[2:]
        if not _reaches(data, loc) and _reaches(data, short):
            return short
    return loc


def _reaches(data: Any, loc: Loc) -> bool:
    for element in loc:
        try:
            data = data[element]
        except (KeyError, IndexError, TypeError):
            return False
    return True
