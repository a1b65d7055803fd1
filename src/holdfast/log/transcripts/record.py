"""JSON objects with known fields, of which nothing unknown is ever lost; and JSON as JavaScript writes it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, NoReturn, TypeAlias, TypeVar

Json: TypeAlias = Mapping[str, Any]


def key(name: str, *types: type) -> Any:
    """A field that may be missing, under its JSON name, with the types it is taken for."""
    return field(default=None, metadata={"key": name, "types": types})


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A JSON object with known fields; one of a strange type is kept among the extra ones."""

    fixed: ClassVar[Json] = {}
    extra: Json = field(default_factory=dict)
    order: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def as_json(self) -> dict[str, Any]:
        """The object again: keys in the order they were read, then those that were added."""
        present = {**self.fixed}
        for part in _known(type(self)).values():
            value = getattr(self, part.name)
            if value is not None or part.metadata["key"] in self.order:
                present[part.metadata["key"]] = value
        present.update(self.extra)
        return {key: present[key] for key in self.order if key in present} | present


R = TypeVar("R", bound=Record)


def record(kind: type[R], found: dict[str, Any]) -> R:
    """Take an object for a record: known fields of the right type in their places, the rest as extra."""
    known = _known(kind)
    values: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in found.items():
        part = known.get(name)
        if part is not None and _fits(value, part.metadata["types"]):
            values[part.name] = value
        elif name not in kind.fixed:
            extra[name] = value
    return kind(**values, extra=extra, order=tuple(found))


def decode(text: str) -> Any:
    """JSON as JavaScript writes it: no NaN, no Infinity, no number that only Python could hold."""
    return json.loads(text.removeprefix("\ufeff"), parse_constant=_no_constant, parse_float=_finite)


def encode(value: Any, indent: int | None = None) -> str:
    """Compact JSON in UTF-8, or all in ASCII if a lone surrogate leaves no other way."""
    separators = None if indent else (",", ":")
    text = json.dumps(value, ensure_ascii=False, separators=separators, indent=indent)
    if text.isascii() or not has_surrogates(text):
        return text
    return json.dumps(value, separators=separators, indent=indent)


def has_surrogates(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def storable(text: str) -> str:
    """Text that every store takes: no lone surrogates and no NUL."""
    clean = text.replace("\0", "\ufffd")
    if clean.isascii() or not has_surrogates(clean):
        return clean
    return clean.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _known(kind: type[Record]) -> dict[str, Field[Any]]:
    return {part.metadata["key"]: part for part in fields(kind) if "key" in part.metadata}


def _fits(value: object, types: tuple[type, ...]) -> bool:
    return value is None or (isinstance(value, types) and not isinstance(value, bool))


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number
