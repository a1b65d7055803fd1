"""Reading the config file: JSON5 text to plain data to a checked Config."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from holdfast.config.problems import InvalidConfig, Problem, problems_of
from holdfast.config.root import Config

MAX_FILE_BYTES = 1024**2
_JSON5_ERROR = re.compile(r"^[^:]*:(?P<line>\d+) (?P<what>.*) at column (?P<column>\d+)$", re.S)


def load_config(path: str | Path) -> Config:
    """The config in a file, or the defaults where there is none; InvalidConfig says what is wrong."""
    text = read_text(Path(path))
    return Config() if text is None else parse_config(text, source=str(path))


def parse_config(text: str, *, source: str = "config") -> Config:
    """A checked Config from JSON5 text."""
    return check(parse_text(text, source=source), source=source)


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
