"""What of a reply that is still being written must not be shown yet. Pure.

A reply may turn out to be none, or to end in a word for that (`NO_REPLY`, `HEARTBEAT_OK`). What could become
one is held back until it is sure. Elections at its end never come here: the run does not tell them.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from holdfast.agents.heartbeat.rules import HEARTBEAT_OK, NO_REPLY, understood
from holdfast.context import is_silent

Sure = Literal["speaks", "silent", "unsure"]

_SILENT: Final = (NO_REPLY, HEARTBEAT_OK)
MARKS: Final = " \t\r\n`*_~\"'.,:;!?>()[]-–—"
_LAST_WORD: Final = re.compile(r"[A-Z][A-Z_]*\Z")
_LONGEST_WORD: Final = 40
_BEFORE: Final = " \t\r\n`*_~\"'([>-–—"


def begins(text: str) -> Sure:
    """Whether a reply that begins like this is one for people."""
    bare = text.lstrip(MARKS)
    if not bare:
        return "unsure"
    word = re.split(r"\s", bare, maxsplit=1)[0]
    whole = len(word) < len(bare)
    plain = word.rstrip(MARKS)
    if plain in _SILENT:
        return "silent" if whole else "unsure"
    return "unsure" if not whole and any(w.startswith(plain) for w in _SILENT) else "speaks"


def shown_end(text: str) -> int:
    """Up to where a text may be shown while more of it may come; 0 while that is nothing but marks."""
    shown = text[: _before_word(text)]
    return len(shown) if shown.strip(MARKS) else 0


def spoken(text: str) -> str:
    """A whole text without words for the runtime's ear; empty if it is nothing for people."""
    if is_silent(text):
        return ""
    if begins(f"{text} ") == "silent":
        text = understood(text, 0).text
    while (at := _silent_end(text)) is not None:
        text = text[:at].rstrip()
    return text if text.strip(MARKS) else ""


def _silent_end(text: str) -> int | None:
    """Where a word for nothing begins that the text ends with."""
    bare = text.rstrip(MARKS)
    for word in _SILENT:
        if bare.endswith(word) and not bare[: -len(word)][-1:].isalnum():
            return len(bare[: -len(word)].rstrip(_BEFORE))
    return None


def _before_word(text: str) -> int:
    bare = text.rstrip(MARKS)
    last = _LAST_WORD.search(bare, max(0, len(bare) - _LONGEST_WORD))
    if last is None or not any(word.startswith(last[0]) for word in _SILENT):
        return len(text)
    at = len(bare[: last.start()].rstrip(_BEFORE))
    while (before := _silent_end(text[:at])) is not None:
        at = before
    return at
