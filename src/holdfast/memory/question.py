"""What a question says before anything is searched: its words, persons, times and kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.clock import Millis
from holdfast.memory.folding import fold
from holdfast.memory.stopwords import ENGLISH, FUNCTION_WORDS, GERMAN
from holdfast.memory.text import Language, language_of, query_terms, run_terms, runs, terms_in
from holdfast.memory.timewords import CALENDAR, TimeRange, asks_for_time, resolve

_QUOTED = re.compile(r"\"([^\"\n]{2,80})\"|“([^”\n]{2,80})”|„([^“”\n]{2,80})[“”]|`([^`\n]{2,80})`")
_MEASURED = re.compile(r"\d+[^\W\d_]{1,3}")
_NUMBER = re.compile(r"(?!(?:19|20)\d\d$)\d{3,}")
_MARKED = re.compile(r"[_/\\@#]")
_NAMED = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+")
_REQUEST = re.compile(
    r"""\W*(?:please\ |bitte\ |(?:can|could|would)\ you\ (?:please\ )?|kannst\ du\ )?(?:
    (?: translate | write | compose | draft | explain | define | summari[sz]e | convert | calculate | compute
    | give\ me | tell\ me\ (?:a|an|something) | suggest | recommend | list | name | spell | generate
    | fix\ the | make\ this | set\ (?:a|an) | play | order | call | find\ me | what\ is\ an?
    | what\ are\ the\ rules | what\ does\ the\ (?:\w+\ )?word | how\ do\ (?:i|you) | how\ does
    | what\ time\ is\ it | what(?:'s|\ is)\ (?:today's\ date|the\ (?:date|weather)) | what\ day\ is\ it
    | who\ (?:wrote|painted|composed|invented|discovered|won|was\ the\ first)
    | what(?:'s|\ is)\ (?:\d+\ percent|the\ (?:capital|difference|meaning|square\ root|plural|opposite))
    | how\ many\ \w+\ (?:(?:are|is)\ (?:there\ )?in|has|have|does|do)\ an? | (?:book|reserve)\ (?:me\ )?an?
    | what\ (?:should|can|could)\ (?:i|we)\ (?:cook|eat|watch|read) )\b
    | empf(?:iehl|ehle)\b | schlag(?:e|t)?\b.*\ vor\W*\Z | (?:reservier|buch)e?\ (?:mir\ |uns\ )?ein
    | (?:kannst|könntest)\ du\ .{1,80}\ (?:empfehlen|übersetzen|erklären|vorschlagen)\W*\Z
    | (?:können|könnten)\ sie\ .{1,80}\ (?:empfehlen|übersetzen|erklären|vorschlagen)\W*\Z
    | wie\ viele?\ \w+\ (?:hat|haben|sind|ist|gehen)\ (?:in\ )?ein | wie\ (?:koche?|backe?)\ (?:ich|man)\b
    | was\ (?:soll|kann|könnte)\ ich\ .{0,30}\b(?:kochen|essen|lesen|schauen|gucken)\b
    | übersetz | schreib | erklär | nenn | rechne | erzähl | gib\ mir | formulier | stell\b | spiel\b
    | bestell | ruf\b | such\ mir | was\ ist\ (?:ein|der\ unterschied|die\ hauptstadt) | was\ reimt
    | was\ (?:bedeutet|heißt)\ (?:das\ wort|['"„]) | wie\ heißt\ die\ hauptstadt
    | wie\ (?:funktioniert|spielt\ man|bindet\ man|macht\ man|rechne[nt]?\ (?:ich|man)|spät\ ist)
    | wie\ (?:ist|wird)\ das\ wetter | was\ sind\ \d
    | wer\ hat\ .{1,60}\ (?:geschrieben|erfunden|entdeckt|gemalt|komponiert)
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_GREETING = re.compile(
    r"""(?:(?:hi|hey|hello|hallo|moin|servus|good\ (?:morning|evening|afternoon|day|night)
      |guten\ (?:morgen|tag|abend)|gute\ nacht)
      (?:\ (?:there|again|everyone|zusammen|you))?\W*)?
    (?: how\ (?:are\ you|is\ it\ going|do\ you\ do)(?:\ (?:today|doing|doing\ today))?
      | how's\ it\ going | what's\ up | wie\ geht(?:'s|\ es|s)?(?:\ (?:dir|ihnen|euch))?(?:\ heute)?
      | alles\ (?:gut|klar)(?:\ bei\ dir)? )?\W*""",
    re.VERBOSE | re.IGNORECASE,
)
_ROLES = frozenset({"user", "assistant", "system", "tool", "agent", "bot", "unknown"})
_WORD = re.compile(r"[^\W_]+")
_ENGLISH_ALONE = ENGLISH - GERMAN
_SHORTEST_NAME = 3
_LONGEST_GREETING = 200


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
    literals: tuple[tuple[str, ...], ...] = ()
    """What is looked for to the letter, each as its terms: an identifier, a number, a quotation."""
    quotations: tuple[str, ...] = ()
    """The words of those of `literals` that are quotations, in their order; "" for the others."""
    compounds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Terms of compounds, each with those of its words, which stand in `terms` as well."""

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

    def within(self, frequencies: Callable[[Sequence[str]], Sequence[int]]) -> Query:
        """As it is put to one scope: a compound that stands there, or that a word list knows, is looked for
        as a whole, another by its words."""
        if not self.compounds:
            return self
        whole = list(self.compounds)
        counts = zip(whole, frequencies(whole), strict=True)
        there = {term for term, count in counts if count or term in self.also}
        drop = {part for term in there for part in self.compounds[term]} | (self.compounds.keys() - there)
        terms = tuple([term for term in self.terms if term not in drop])
        return replace(self, terms=terms or self.terms, compounds={})

    def with_vector(self, vector: NDArray[np.float32], fingerprint: str) -> Query:
        return replace(self, vector=vector, fingerprint=fingerprint)


def understand(text: str, now: Millis, speakers: Iterable[str | None] = (), zone: tzinfo = UTC) -> Query:
    """Read a question against the speakers who occur where it will be searched.

    A named speaker is left out of the text to embed: a name draws a dense search to everything that
    person ever said. The words keep it, and what that person said is preferred.
    """
    named = named_speakers(text, speakers)
    found = query_terms(text)
    literals = dict(_literals(text, found.language))
    return Query(
        text=text,
        terms=found.terms,
        dense_text=_without(text, named) or text,
        persons=frozenset(named),
        ranges=tuple(resolve(text, now, zone)),
        wants_time=asks_for_time(text),
        literals=tuple(literals),
        quotations=tuple(literals.values()),
        compounds=found.compounds,
    )


def _literals(text: str, language: Language) -> Iterator[tuple[tuple[str, ...], str]]:
    """The quotations of a question with their words in a row, then its identifiers and numbers; no years, no
    amounts with units."""
    for match in _QUOTED.finditer(text):
        quoted = next(filter(None, match.groups()))
        terms = terms_in(quoted, language)
        if terms:
            yield terms, in_a_row(quoted) if len(terms) > 1 else ""
    for run in runs(text):
        if _is_identifier(run) and (terms := run_terms(run, language)):
            yield (terms[-1],), ""


def in_a_row(text: str) -> str:
    """The words of a text, folded and with single spaces, to look for one row of words in another."""
    return f" {' '.join(_WORD.findall(fold(text)))} "


@lru_cache(maxsize=1 << 14)
def _is_identifier(run: str) -> bool:
    if _MARKED.search(run) or _NUMBER.fullmatch(run):
        return True
    mixed = any(map(str.isdigit, run)) and any(map(str.isalpha, run))
    return mixed and _MEASURED.fullmatch(run) is None


@lru_cache(maxsize=1 << 10)
def is_request(text: str) -> bool:
    """Whether it asks for something to be made, or for what anybody could know: "Translate …", "Who wrote …".
    Such may be asked of what was said as well, and seldom are; a greeting asks nothing."""
    return _REQUEST.match(text) is not None or is_greeting(text)


@lru_cache(maxsize=1 << 10)
def is_greeting(text: str) -> bool:
    """Whether it only greets or asks how one is."""
    return _GREETING.fullmatch(text[:_LONGEST_GREETING].strip()) is not None


def names_in(text: str) -> frozenset[str]:
    """The terms of the names in an English question: what has a capital within a sentence. In German every
    noun has one, and a short question may be either: it must have a word that is English alone."""
    if language_of(text) != "english" or _ENGLISH_ALONE.isdisjoint(map(fold, runs(text))):
        return frozenset()
    return frozenset(term for word in _NAMED.findall(text) for term in run_terms(word, "english"))


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
        and ((folded := fold(word)) not in FUNCTION_WORDS or (place > 0 and not bare))
    }


def _called(name: str, words: dict[str, str]) -> str:
    parts = [part for part in _WORD.findall(fold(name)) if len(part) >= _SHORTEST_NAME]
    for part in parts:
        if part in words:
            return words[part]
    for word, raw in words.items():
        short = len(word) >= _SHORTEST_NAME and word not in CALENDAR | FUNCTION_WORDS
        if short and any(part.startswith(word) for part in parts):
            return raw
    return ""


def _without(text: str, named: dict[str, str]) -> str:
    for word in set(named.values()):
        text = re.sub(rf"\b{re.escape(word)}(?:['’]s)?\b", " ", text)
    return " ".join(text.split())
