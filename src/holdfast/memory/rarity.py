"""How common words are in a language at large: few homes are large enough to tell.

"Night" may stand in one entry of a small home and is not therefore telling. The list in `common_words.txt`
has the words of English and German that come at least ten times in a million; its head says where it is from.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from holdfast.memory.folding import fold

if TYPE_CHECKING:
    from holdfast.memory.text import Language

UNLISTED: Final = 3.5
"""What a word counts that is not in the list: about three in a million."""


def commonness(terms_of: Callable[[str, Language], Iterable[str]]) -> Mapping[str, float]:
    """The terms of common words, each with the logarithm of how often all its words come in a billion: in the
    language that has it oftener."""
    found: dict[str, float] = {}
    for language, words in listed().items():
        rates: defaultdict[str, float] = defaultdict(float)
        for word, rate in words.items():
            for term in terms_of(word, language):
                rates[term] += rate
        for term, rate in rates.items():
            found[term] = max(found.get(term, 0.0), math.log10(rate))
    return found


@lru_cache(maxsize=1)
def listed() -> dict[Language, dict[str, float]]:
    """By language each word, folded, with how often it comes in a billion words."""
    found: dict[Language, dict[str, float]] = {"english": {}, "german": {}}
    words = found["english"]
    for row in files("holdfast.memory").joinpath("common_words.txt").read_text("utf-8").splitlines():
        if row.startswith("["):
            words = found["german" if row == "[german]" else "english"]
        elif not row.startswith("#"):
            level, *several = row.split()
            for word in map(fold, several):
                words[word] = words.get(word, 0.0) + 10 ** float(level)
    return found
