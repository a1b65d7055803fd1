"""The config file: found, read, and what is wrong in it said in one line each."""

from __future__ import annotations

import copy
import difflib
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from pydantic import ValidationError

from holdfast.config.editing import secrets_in
from holdfast.config.root import NO_EFFECT, SHORTCUTS, Config
from holdfast.config.section import Loc, at, dotted, fields, is_section
from holdfast.config.values import Secret, is_secret_name, without_password, wrap_secrets
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


log = logging.getLogger(__name__)

MAX_FILE_BYTES = 1024**2
_JSON5_ERROR = re.compile(r"^[^:]*:(?P<line>\d+) (?P<what>.*) at column (?P<column>\d+)$", re.S)


def parse_config(text: str, *, source: str = "config") -> Config:
    """A checked Config from JSON5 text, by the rule of `accept`."""
    return accept(parse_text(text, source=source), source=source)


def accept(data: Any, *, source: str = "config") -> Config:
    """A Config from a user's data. A key that does nothing is an error, which tells it before it is missed;
    within `leniently` it is warned of and left out."""
    try:
        return check(data, source=source)
    except InvalidConfig as error:
        if not is_lenient():
            raise
        kept, left_out = without_idle(data, error.problems)
    config = check(kept, source=source)
    _tell(f"{source}: left out: {problem}" for problem in left_out)
    return config


_lenient: list[set[str]] = []


@contextmanager
def leniently() -> Iterator[None]:
    """While it lasts, in every thread of this process, a key that does nothing is left out with a warning."""
    be_lenient()
    try:
        yield
    finally:
        _lenient.pop()


def be_lenient() -> None:
    """For as long as the process."""
    _lenient.append(set())


def is_lenient() -> bool:
    """Whether this process goes on without keys that do nothing; those that it starts are told so."""
    return bool(_lenient)


def _tell(warnings: Iterable[str]) -> None:
    """Each once while it is gone without: a config is read again and again."""
    told = _lenient[0] if _lenient else set()
    for warning in warnings:
        if warning not in told:
            told.add(warning)
            log.warning("%s", warning)


def without_idle(data: Any, problems: Sequence[Problem]) -> tuple[Any, list[Problem]]:
    """Config data without the keys that do nothing, and what was said of them.

    Taking one out may leave another to be told: an account without a channel, a section without keys.
    """
    kept, left_out = copy.deepcopy(data), []
    while idle := [problem for problem in problems if problem.without_effect is not None]:
        for problem in idle:
            _take_out(kept, problem.without_effect or ())
        left_out += idle
        try:
            check(kept)
            break
        except InvalidConfig as error:
            problems = error.problems
    return kept, left_out


def _take_out(data: Any, loc: Loc) -> None:
    for element in loc[:-1]:
        data = data.get(element, {}) if isinstance(data, dict) else data[element]
    data.pop(loc[-1], None)


def check(data: Any, *, source: str = "config") -> Config:
    """A Config from plain data, or InvalidConfig with every problem found."""
    if not isinstance(data, dict):
        raise InvalidConfig(source, [Problem("", "expected an object")])
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise InvalidConfig(source, problems_of(error, data)) from None


def read_text(path: Path) -> str | None:
    """The text of the file, or None where there is no file."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            raise InvalidConfig(str(path), [Problem("", "expected at most 1 MiB")])
        return raw.decode("utf-8-sig")
    except FileNotFoundError:
        return None
    except OSError as error:
        problem = Problem("", f"cannot be read: {error.strerror}")
        raise InvalidConfig(str(path), [problem]) from error
    except UnicodeDecodeError as error:
        problem = Problem("", f"expected UTF-8 text, found another byte at {error.start}")
        raise InvalidConfig(str(path), [problem]) from None


def parse_text(text: str, *, source: str = "config") -> Any:
    """Plain data from JSON5. Plain JSON takes the fast way; json5 costs some 15 ms per KB."""
    try:
        return json.loads(text, object_pairs_hook=_no_repeats)
    except _Repeated as error:
        raise InvalidConfig(source, [Problem(error.key, "the key is given twice")]) from None
    except ValueError:
        return _parse_json5(text, source)
    except RecursionError:
        raise InvalidConfig(source, [Problem("", "nested too deeply")]) from None


def _parse_json5(text: str, source: str) -> Any:
    import json5

    if not text.strip():
        return {}
    try:
        return json5.loads(text, object_pairs_hook=_no_repeats)
    except _Repeated as error:
        raise InvalidConfig(source, [Problem(error.key, "the key is given twice")]) from None
    except RecursionError:
        raise InvalidConfig(source, [Problem("", "nested too deeply")]) from None
    except ValueError as error:
        raise InvalidConfig(source, [_syntax_problem(str(error))]) from None


def _syntax_problem(message: str) -> Problem:
    match = _JSON5_ERROR.match(message)
    if not match:
        return Problem("", "not valid JSON5")
    what = " ".join(match["what"].split())
    return Problem("", f"line {match['line']}, column {match['column']}: {what.lower()}")


class _Repeated(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _no_repeats(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for name, value in pairs:
        if name in data:
            raise _Repeated(name)
        data[name] = value
    return data


FOLDER: Final = "shared"
SOURCE: Final = "HOLDFAST_CONFIG_SOURCE"
# What a gateway must know before it can reach the store, and where it listens and writes.
OWN: Final = frozenset(("config", "store", "gateway", "logging"))
_IN_STORE: Final = "lies in the store while config.source is store: `holdfast config import` puts it there"
_IN_FILE: Final = "is each gateway's own: expected in its holdfast.json, not in the store"
_IN_CLEAR: Final = "a secret in clear: expected ${NAME}, taken from the environment of each gateway"


@dataclass(frozen=True, slots=True)
class Author:
    """Who changes a config, and through which surface."""

    name: str = "owner"
    surface: str = "local"
    address: str | None = None


class Publisher(Protocol):
    """What keeps the shared text; `runtime` has the one over the store."""

    def change(self, edit: Callable[[str], str], author: Author, what: str) -> None:
        """Make the newest text another one, in one transaction, and bring the copy up to date."""
        ...


@dataclass(frozen=True, slots=True)
class Texts:
    own: str | None
    shared: str | None = None

    @classmethod
    def read(cls, path: Path) -> Texts:
        return cls(read_text(path), read_text(copy_of(path)))

    def data(self, source: str) -> dict[str, Any]:
        """All of the config as plain data; every key stands where it belongs."""
        own = {} if self.own is None else parse_text(self.own, source=source)
        if not is_shared(own):
            return own
        require_own(own, source)
        shared = parse_object(self.shared or "", IN_STORE)
        require_shareable(shared)
        return {**shared, **own, "config": {**own.get("config", {}), "source": "store"}}


IN_STORE: Final = "the config in the store"


def copy_of(path: Path) -> Path:
    """Where the copy of the shared text lies, for a home's own file."""
    return path.parent / FOLDER / path.name


def load_config(path: str | Path) -> Config:
    """The config of a home, or the defaults where it has none; InvalidConfig says what is wrong."""
    return parsed(Texts.read(Path(path)), str(path))


def parsed(texts: Texts, source: str) -> Config:
    return Config() if texts.own is None and not is_shared({}) else accept(texts.data(source), source=source)


def is_shared(own: Any, env: Mapping[str, str] = os.environ) -> bool:
    """Whether what is not this gateway's own lies in the store: as the file says, else the environment."""
    section = own.get("config", {}) if isinstance(own, dict) else {}
    named = section.get("source") if isinstance(section, dict) else None
    return (named or env.get(SOURCE)) == "store"


def split(merge: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A patch as what of it is this gateway's own and what is shared."""
    own = {name: value for name, value in merge.items() if name in OWN}
    return own, {name: value for name, value in merge.items() if name not in OWN}


def require_own(own: dict[str, Any], source: str) -> None:
    if wrong := [Problem(name, _IN_STORE) for name in sorted(own.keys() - OWN)]:
        raise InvalidConfig(source, wrong)


def parse_object(text: str, source: str) -> dict[str, Any]:
    """The object that a text holds; nothing is an empty one."""
    data = parse_text(text, source=source)
    if not isinstance(data, dict):
        raise InvalidConfig(source, [Problem("", "expected an object")])
    return data


def require_shareable(data: dict[str, Any]) -> None:
    """What the store may hold: no section that is a gateway's own."""
    if wrong := [Problem(name, _IN_FILE) for name in sorted(data.keys() & OWN)]:
        raise InvalidConfig(IN_STORE, wrong)


def require_no_secrets(data: dict[str, Any], config: Config) -> None:
    """Versions are kept for good and read by several: a secret is named in them, and never told."""
    secrets = [one for one in (*secrets_in(config), *secrets_in(wrap_secrets(data))) if one.in_clear]
    if wrong := [Problem(path, _IN_CLEAR) for path in _places(data, secrets, "")]:
        raise InvalidConfig(IN_STORE, wrong)


def _places(value: Any, secrets: list[Secret], path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _places(inner, secrets, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _places(inner, secrets, f"{path}[{index}]")
    elif isinstance(value, str) and any(one.is_text(value) for one in secrets):
        yield path
