"""Text from models and tools on a terminal: read, never obeyed."""

from __future__ import annotations

import unicodedata
from typing import Final

_KEPT: Final = frozenset("\n\t")
_TURNING: Final = frozenset(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))


def safe(text: str) -> str:
    """Without what a terminal would obey: control characters, and marks that turn the direction of text."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(ch if ch in _KEPT or not _obeyed(ch) else "\ufffd" for ch in text)


def exact(text: str) -> str:
    """For what a person decides on: every character that does not show itself is written out."""
    return "".join(ch if ch == "\n" or ch.isprintable() else _written(ch) for ch in text)


def _obeyed(ch: str) -> bool:
    return ch in _TURNING or unicodedata.category(ch) in ("Cc", "Cs", "Zl", "Zp")


def _written(ch: str) -> str:
    return {"\t": "\\t", "\r": "\\r", "\x1b": "\\e"}.get(ch, f"\\u{{{ord(ch):x}}}")
