"""Text that every store, index and wire can hold."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final


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


_BIDI: Final = "\u202a-\u202e\u2066-\u2069"
_TAGS: Final = "\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
_VARIANTS: Final = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_UNSEEN: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    "\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
)
_REGIONS: Final = ("gbeng", "gbsct", "gbwls")
_FLAGS: Final = "|".join("".join(chr(0xE0000 + ord(c)) for c in region) for region in _REGIONS)
# Flags are matched first, so that nothing of them is taken for a run.
_RUN: Final = re.compile(f"\U0001f3f4(?:{_FLAGS})\U000e007f|(?P<run>[{_BIDI}{_TAGS}{_VARIANTS}{_UNSEEN}]+)")
_NEVER_ALONE: Final = re.compile(f"[{_BIDI}{_TAGS}]")
_PICTURE: Final = re.compile(
    "[\u00a9\u00ae\u203c\u2049\u20e3\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u25fe\u2600-\u27bf"
    "\u2934\u2935\u2b05-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
_IDEOGRAPH: Final = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_JOINING: Final = re.compile(
    "[\u0600-\u08ff\u0900-\u0dff\u0e00-\u0fff\u1000-\u109f\u1780-\u18af\u1a00-\u1aff\u1b00-\u1bff\ua800-\uabff"
    "\U00010a00-\U00011fff\U0001e900-\U0001e95f]"
)


def make_visible(text: str) -> str:
    """The text with what hides in it shown: `[U+202E]`, or how many characters a run has. Idempotent."""
    return text if text.isascii() else _RUN.sub(_shown, text)


def visible_with_places(text: str) -> tuple[str, list[int]]:
    """As `make_visible`, with the place in the text that each character of the result stands for."""
    parts: list[str] = []
    places: list[int] = []
    end = 0
    for match in _RUN.finditer(text):
        shown = _shown(match)
        parts += [text[end : match.start()], shown]
        places += range(end, match.start())
        same = shown == match[0]
        places += range(match.start(), match.end()) if same else [match.start()] * len(shown)
        end = match.end()
    return "".join([*parts, text[end:]]), [*places, *range(end, len(text) + 1)]


def _shown(match: re.Match[str]) -> str:
    run = match["run"]
    if run is None or _is_needed(run, match.string[: match.start()][-1:], match.string[match.end() :][:1]):
        return match[0]
    return f"[U+{ord(run):04X}]" if len(run) == 1 else f"[hidden characters: {len(run)}]"


def _is_needed(run: str, before: str, after: str) -> bool:
    """Whether writing has a use for it, there."""
    pictured = _PICTURE.match(before) is not None and _PICTURE.match(after) is not None
    if run == "\ufe0f\u200d":
        return pictured
    if len(run) > 1 or _NEVER_ALONE.match(run):
        return False
    if run in "\u200c\u200d":
        return pictured or _JOINING.match(before) is not None
    if run >= "\U000e0100":
        return _IDEOGRAPH.match(before) is not None
    if "\ufe00" <= run <= "\ufe0f":
        return run >= "\ufe0e" or (bool(before) and not before.isascii())
    return True
