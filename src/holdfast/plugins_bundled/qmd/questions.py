"""A question in the form in which `qmd` finds something.

It wants every word of a line to occur. Of a question, that is nearly never so: hence one line with all of
its telling words, and further ones with fewer, which it joins by rank.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from holdfast.memory.folding import fold
from holdfast.memory.stopwords import ENGLISH, GERMAN
from holdfast.memory.text import language_of

MAX_LINES: Final = 16
_MAX_WORDS: Final = 12
_WORD: Final = re.compile(r"[^\W_]+(?:['’._/\-]{1,2}[^\W_]+)*")
_ELISION: Final = re.compile(r"['’](?:s|re|ve|ll|d|m|t)$", re.IGNORECASE)
_STOPS: Final = {"english": ENGLISH, "german": GERMAN}


def keywords(question: str) -> list[str]:
    """The telling words, each once, in order; all of them where the question has nothing but small words."""
    found = [_ELISION.sub("", word) for word in _WORD.findall(question)]
    stops = _STOPS[language_of(question)]
    telling = [word for word in found if fold(word) not in stops]
    return list({fold(word): word for word in telling or found}.values())


def query_document(question: str, *, vectors: bool = False) -> str:
    """Lines for `qmd query`; the one for meaning only where there are vectors to compare with."""
    words = [_quoted(word) for word in keywords(question)[:_MAX_WORDS]]
    pairs = [f"{one} {two}" for one, two in pairwise(words)]
    longest_first = sorted(words, key=len, reverse=True)
    lines = list(dict.fromkeys([" ".join(words), *longest_first, *pairs]))
    meaning = [f"vec: {_plain(question)}"] if vectors and _plain(question) else []
    return "\n".join([*meaning, *(f"lex: {line}" for line in lines[:MAX_LINES] if line)])


def _quoted(word: str) -> str:
    """Identifiers and paths are looked for as they stand."""
    return word if word.isalnum() else f'"{word}"'


def _plain(question: str) -> str:
    """One line in which nothing is taken for an operator."""
    return re.sub(r"(?<!\w)-+|[\"\s]+", " ", question).strip()
