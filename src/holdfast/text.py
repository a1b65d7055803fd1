"""Text that every store, index and wire can hold."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from math import isfinite
from typing import Any


def clean_text(text: str) -> str:
    """A NUL or half a surrogate pair, which no database takes, becomes the replacement mark."""
    if not text.isascii():
        text = text.encode("utf-8", "holdfast.replacement").decode()
    return text.replace("\0", "\ufffd") if "\0" in text else text


def clean_json(value: Any) -> Any:
    """The same for every text within a JSON-like value; a number that is none becomes null."""
    kind = type(value)
    if kind is str:
        return clean_text(value)
    if value is None or kind is int or kind is bool:
        return value
    if kind is dict:
        return {clean_text(str(k)): clean_json(v) for k, v in value.items()}
    if kind is list or kind is tuple:
        return [clean_json(v) for v in value]
    if kind is float:
        return value if isfinite(value) else None
    if isinstance(value, str):
        return clean_text(value)
    return clean_json(dict(value)) if isinstance(value, Mapping) else value


def clip(text: str, limit: int) -> str:
    """At most `limit` characters, with an ellipsis in place of what was cut."""
    return text if len(text) <= limit else text[: max(0, limit - 1)].rstrip() + "…"


def _replacement(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "\ufffd".encode() * (error.end - error.start), error.end


codecs.register_error("holdfast.replacement", _replacement)


def rough_tokens(text: str) -> int:
    """About how many tokens a text is: a quarter of a token a Latin letter, more for other scripts."""
    if text.isascii():
        return -(-len(text) // 4)
    wide = sum(1 for char in text if ord(char) > 0x2E7F)
    return -(-(len(text) - wide) // 4) + wide * 3 // 2
