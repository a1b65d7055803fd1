"""What others said, made safe to quote: on one line, with nothing in it that could pass for a mark."""

from __future__ import annotations

import math
import re
import unicodedata
from functools import lru_cache
from typing import Final

from holdfast.text import clean_text, make_visible

_READ: Final = 4_000
_LEAST_RUN: Final = 4
_LEAST_WHOLE: Final = 22
"""Fewer words than that are said by another line if all of them are, and they are long enough to tell."""
_REPEATED: Final = 0.55
_RUN: Final = re.compile(r"[^\W_]+(?:[.,:'’/_-][^\W_]+)*")
_JOINERS: Final = frozenset("\u200c\u200d")
_GLUE: Final = "[\u200c\u200d\u034f\u0300-\u036f\ufe00-\ufe0f]*"


def _word(text: str) -> str:
    return _GLUE.join(map(re.escape, text))


_NAMES: Final = "|".join(
    map(_word, ("clawboard", "holdfast", "begin_", "end_", "internal", "system", "inst"))
)
_TAGS: Final = "|".join(
    map(_word, ("holdfast", "begin_", "end_", "system", "developer", "assistant", "im_start", "im_end"))
)
_SQUARE: Final = re.compile(rf"[\[［【⟦]{_GLUE}(?=[\s\\/]*(?:{_NAMES}))", re.IGNORECASE)
_ANGLE: Final = re.compile(rf"[<＜﹤]{_GLUE}(?=\s*(?:[<＜﹤|]|[/!|\s]*(?:{_TAGS})))", re.IGNORECASE)


def quoted(text: str, most: int) -> str:
    """What someone said, on one line of at most `most` characters, with nothing in it that is a mark."""
    read = text[:_READ]
    if not (read.isascii() and read.isprintable()):
        read = "".join(map(_shown, make_visible(clean_text(read))))
    return shorten(_defused(" ".join(read.split())), most)


def shorten(text: str, most: int) -> str:
    """Cut between characters as a reader sees them: no accent, no part of an emoji is torn off."""
    size = units(text)
    if size <= most:
        return text
    whole = end = most - 1 if size == len(text) else _fitting(text, most - 1)
    while whole > 0 and (_joins(text[whole]) or text[whole - 1] in _JOINERS):
        whole -= 1
    return f"{text[: whole or end].rstrip()}…"


def units(text: str) -> int:
    """The length as a host written in JavaScript counts it, which is never less than Python's."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _fitting(text: str, most: int) -> int:
    """How many characters take at most so many units."""
    room = 0
    for end, char in enumerate(text):
        room += 2 if char > "\uffff" else 1
        if room > most:
            return end
    return len(text)


def _shown(char: str) -> str:
    """Control characters part words, a lone invisible one vanishes; joiners are part of scripts and emoji."""
    if char.isascii():
        return char if char.isprintable() else " "
    kind = unicodedata.category(char)
    if kind == "Cf":
        return char if char in _JOINERS else ""
    return " " if kind in ("Cc", "Zl", "Zp", "Cs") else char


def _defused(text: str) -> str:
    if not text.isascii():
        wide = unicodedata.normalize("NFKC", text)
        text = wide if wide != text and (_SQUARE.search(wide) or _ANGLE.search(wide)) else text
    return _ANGLE.sub("‹", _SQUARE.sub("⁅", text))


def _joins(char: str) -> bool:
    """Whether it belongs to the character before it."""
    return (
        unicodedata.combining(char) != 0
        or char in _JOINERS
        or "\ufe00" <= char <= "\ufe0f"
        or "\U0001f3fb" <= char <= "\U0001f3ff"
        or unicodedata.category(char) in ("Mn", "Me", "Mc")
    )


class Spoken:
    """The words of a line, to be held against those of others."""

    __slots__ = ("_joined", "_runs", "_telling", "words")

    def __init__(self, text: str) -> None:
        self.words = _RUN.findall(text.lower())
        self._telling = frozenset(self.words)
        self._joined = f" {' '.join(self.words)} "
        self._runs: list[str] | None = None

    def mostly_in(self, longer: Spoken) -> bool:
        """Whether most of it stands in another line in a row."""
        if len(self.words) < _LEAST_RUN:
            return len(self._joined) >= _LEAST_WHOLE and self._joined in longer._joined
        if len(self._telling & longer._telling) < len(self._telling) * _REPEATED / 2:
            return False
        return any(run in longer._joined for run in self._most_of_it())

    def overlaps(self, other: Spoken) -> bool:
        """Whether one of the two says most of the other."""
        short, long = sorted((other, self), key=lambda one: len(one.words))
        return short.mostly_in(long)

    def _most_of_it(self) -> list[str]:
        """Each run of its words that is just long enough to be most of it."""
        if self._runs is None:
            least = max(_LEAST_RUN, math.ceil(_REPEATED * len(self.words)))
            begins = range(len(self.words) - least + 1)
            self._runs = [f" {' '.join(self.words[at : at + least])} " for at in begins]
        return self._runs


@lru_cache(maxsize=2_048)
def spoken(text: str) -> Spoken:
    """Kept, as the lines of a working set stand in one block after the other."""
    return Spoken(text)
