"""Reading the config file: JSON5 text to plain data to a checked Config."""

from __future__ import annotations

import copy
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
from holdfast.config.problems import InvalidConfig, Problem, problems_of
from holdfast.config.root import Config
from holdfast.config.secret import Secret, wrap_secrets
from holdfast.config.section import Loc

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
