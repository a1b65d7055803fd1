"""BERT's WordPiece tokenizer, so that a transformer needs no tokenizer package."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

_LONGEST_WORD = 100


class WordPiece:
    """Turns text into token ids exactly as the uncased BERT models were trained."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._ids = {token: number for number, token in enumerate(vocabulary)}
        self.cls, self.sep = self._ids["[CLS]"], self._ids["[SEP]"]
        self._unknown = self._ids["[UNK]"]
        self._pieces = lru_cache(maxsize=1 << 16)(self._split_word)

    @classmethod
    def from_file(cls, path: Path) -> WordPiece:
        return cls(path.read_text(encoding="utf-8").rstrip("\n").split("\n"))

    def ids(self, text: str, limit: int) -> list[int]:
        """Token ids with the opening and closing marks, at most `limit` of them."""
        body: list[int] = []
        for word in basic_words(text):
            body.extend(self._pieces(word))
            if len(body) >= limit - 2:
                break
        return [self.cls, *body[: limit - 2], self.sep]

    def _split_word(self, word: str) -> tuple[int, ...]:
        if len(word) > _LONGEST_WORD:
            return (self._unknown,)
        pieces: list[int] = []
        start = 0
        while start < len(word):
            mark = "##" if start else ""
            for end in range(len(word), start, -1):
                found = self._ids.get(mark + word[start:end])
                if found is not None:
                    pieces.append(found)
                    start = end
                    break
            else:
                return (self._unknown,)
        return tuple(pieces)


def basic_words(text: str) -> list[str]:
    """Lower-cased words without accents, each mark and each CJK character on its own."""
    spaced = "".join(_place(char) for char in text)
    plain = unicodedata.normalize("NFD", spaced.lower())
    plain = "".join(char for char in plain if unicodedata.category(char) != "Mn")
    return "".join(f" {char} " if _is_mark(char) else char for char in plain).split()


@lru_cache(maxsize=1 << 14)
def _place(char: str) -> str:
    if char in "\t\n\r":
        return " "
    code = ord(char)
    if code in (0, 0xFFFD) or unicodedata.category(char).startswith("C"):
        return ""
    return f" {char} " if _is_ideograph(code) else char


@lru_cache(maxsize=1 << 14)
def _is_mark(char: str) -> bool:
    code = ord(char)
    if 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126:
        return True
    return unicodedata.category(char).startswith("P")


def _is_ideograph(code: int) -> bool:
    return (
        0x4E00 <= code <= 0x9FFF
        or 0x3400 <= code <= 0x4DBF
        or 0x20000 <= code <= 0x2CEAF
        or 0xF900 <= code <= 0xFAFF
        or 0x2F800 <= code <= 0x2FA1F
    )
