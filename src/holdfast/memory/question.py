"""What a question says before anything is searched: its words, persons, times and kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.clock import Millis
from holdfast.memory.folding import fold
from holdfast.memory.stopwords import ENGLISH, GERMAN
from holdfast.memory.text import query_terms
from holdfast.memory.timewords import CALENDAR, TimeRange, asks_for_time, resolve

_ROLES = frozenset({"user", "assistant", "system", "tool", "agent", "bot", "unknown"})
_WORD = re.compile(r"[^\W_]+")
_SHORTEST_NAME = 3
_FUNCTION_WORDS = ENGLISH | GERMAN


@dataclass(frozen=True, slots=True)
class Query:
    """A question ready to be ranked. Without a vector the words alone decide."""

    text: str
    terms: tuple[str, ...]
    dense_text: str
    persons: frozenset[str] = frozenset()
    ranges: tuple[TimeRange, ...] = ()
    wants_time: bool = False
    vector: NDArray[Any] | None = None
    fingerprint: str = ""
    also: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What terms that the scope does not have mean in another language; those stand in `terms` as well."""
    translated: str = ""

    @property
    def plain_text(self) -> str:
        """What a model that knows one language is given."""
        return self.translated or self.dense_text

    @property
    def words(self) -> list[tuple[str, ...]]:
        """The question's words, each with what else it may be called."""
        meant = {term for terms in self.also.values() for term in terms}
        own = [term for term in self.terms if term in self.also or term not in meant]
        return [(term, *self.also.get(term, ())) for term in own]

    def with_vector(self, vector: NDArray[np.float32], fingerprint: str) -> Query:
        return replace(self, vector=vector, fingerprint=fingerprint)


def understand(text: str, now: Millis, speakers: Iterable[str | None] = (), zone: tzinfo = UTC) -> Query:
    """Read a question against the speakers who occur where it will be searched.

    A named speaker is left out of the text to embed: a name draws a dense search to everything that
    person ever said. The words keep it, and what that person said is preferred.
    """
    named = named_speakers(text, speakers)
    return Query(
        text=text,
        terms=query_terms(text).terms,
        dense_text=_without(text, named) or text,
        persons=frozenset(named),
        ranges=tuple(resolve(text, now, zone)),
        wants_time=asks_for_time(text),
    )


def named_speakers(text: str, speakers: Iterable[str | None]) -> dict[str, str]:
    """The speakers whom the text names by a part of their name or its beginning, with that word."""
    words = _name_words(text)
    known = sorted({name for name in speakers if name and fold(name) not in _ROLES})
    return {name: word for name in known if (word := _called(name, words))}


def _name_words(text: str) -> dict[str, str]:
    """Words that may be names: written with a capital, or any where no capitals are used at all."""
    every = _WORD.findall(text)
    bare = text == text.lower()
    return {
        folded: word
        for place, word in enumerate(every)
        if (bare or not word.islower())
        and ((folded := fold(word)) not in _FUNCTION_WORDS or (place > 0 and not bare))
    }


def _called(name: str, words: dict[str, str]) -> str:
    parts = [part for part in _WORD.findall(fold(name)) if len(part) >= _SHORTEST_NAME]
    for part in parts:
        if part in words:
            return words[part]
    for word, raw in words.items():
        short = len(word) >= _SHORTEST_NAME and word not in CALENDAR | _FUNCTION_WORDS
        if short and any(part.startswith(word) for part in parts):
            return raw
    return ""


def _without(text: str, named: dict[str, str]) -> str:
    for word in set(named.values()):
        text = re.sub(rf"\b{re.escape(word)}(?:['’]s)?\b", " ", text)
    return " ".join(text.split())
