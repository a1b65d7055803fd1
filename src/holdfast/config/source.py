"""Reading the config file: JSON5 text to plain data to a checked Config."""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from holdfast.config.problems import InvalidConfig, Problem, problems_of
from holdfast.config.root import Config
from holdfast.config.tree import Loc

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
