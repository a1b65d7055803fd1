"""Letters reduced to what people type: lower case, no accents."""

from __future__ import annotations

import unicodedata

_LETTERS = str.maketrans({"ø": "o", "đ": "d", "ł": "l", "æ": "ae", "œ": "oe", "ð": "d", "þ": "th", "ı": "i"})


def fold(text: str) -> str:
    """Lower case without accents, so that a name is found however it was typed."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    bare = "".join(char for char in plain if not unicodedata.combining(char))
    return unicodedata.normalize("NFC", bare).translate(_LETTERS)
