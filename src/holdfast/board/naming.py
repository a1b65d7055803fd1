"""What a topic is called: the phrase that is most telling for what was said in it, and most common there.

A name is a noun or a few of them that stand together: German ones by their capitals, others by what stands
before them ("the roof", "at Keller"). Never a number, a date or a greeting, and never a sentence where there
is a noun. A topic that was named by its words is renamed while it is young.
"""

from __future__ import annotations

import math
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from holdfast.board.summaries import capital, chip, cut, sentences, without_opening
from holdfast.board.words import (
    FUNCTION,
    NOT_TELLING,
    Language,
    commonness_of,
    language_of,
    subject_terms,
    word_subjects,
)

NAME_CHARS: Final = 60
LOOKS: Final = (4, 8)
"""After so many entries a name is thought over; after the last of them a topic is not young any more."""
_YOUNG_TOPICS: Final = 500
_TEXT_HEAD: Final = 1_000
_SENTENCES: Final = 12
_LONGEST_RUN: Final = 4
_ONE_EXCHANGE: Final = 2
_UNSURE: Final = 0.4
_IDENTIFIER: Final = 0.1
_ONCE: Final = 0.3
_EVERYDAY, _SELDOM, _LEAST_RARITY = 7.0, 5.0, 0.3
"""From where on a word of everyday talk counts least, and up to where one is seldom."""
_WORD: Final = re.compile(r"\d+(?:[.,:]\d+)+|~?[\w/][\w'’/.+#&*-]*")
_PIECE: Final = re.compile(r"[;()\"“”!?]|[,:](?!\d)|(?<!\d)[,:]|\s-\s|\s–\s|\.\s|\.$")
_LETTERS: Final = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_LANGUAGES: Final[tuple[Language, ...]] = ("english", "german")
_LINKS: Final = frozenset(("to", "of", "nach"))
_VERBS = """
ran runs came comes fell falls broke breaks lost loses won wins sold sells bought buys brought brings kept
keeps gave gives took takes went goes said says told tells sent sends found finds got gets made makes met
meets paid pays read reads sat sits slept stood stands thought won't wrote writes works worked arrives fails
stalls slips leaks costs wants needs looks seems feels means plans likes loves hates helps starts stops ends
opens closes calls asks answers moves stays leaves begins sticks eats drinks drives flies sings plays dying
going coming
"""
_IS_VERB: Final = frozenset(_VERBS.split())
_NO_END: Final = re.compile(r".{3,}(?:[^e]ed|ly)", re.IGNORECASE)
_NOUN: Final = re.compile(r"\w{3,}(?:ung|heit|keit|schaft|tion|nis|ung\w+)")
_INTRODUCING = """
the a an my our your his her their its this that these those of for with at from in on by about above near
into no some any each every between
"""
_INTRODUCES: Final = frozenset(_INTRODUCING.split())


class _Phrase(NamedTuple):
    """Words that stand together; `sure` says that they are nouns as far as one can tell."""

    words: tuple[str, ...]
    sure: bool


def topic_name(said: str | Sequence[str], elsewhere: Mapping[str, int] | None = None) -> str | None:
    """A readable name for what texts are about; None when nothing in them tells.

    `elsewhere` counts the other topics that have a word: what many have names none of them. What the first
    text says counts once more, as a matter is mostly named when it is begun; of equals the first is taken.
    """
    texts = [said] if isinstance(said, str) else said
    lines = [frozenset(subject_terms(text)) for text in texts]
    common = Counter(term for line in lines for term in line)
    if not common:
        return None
    begun = next(line for line in lines if line)
    others = elsewhere or {}
    at_large = _everyday if len(lines) > _ONE_EXCHANGE else _as_it_is
    worth = {
        t: (n - _ONCE + (t in begun)) * at_large(t) / (1 + math.log1p(others.get(t, 0)))
        for t, n in common.items()
    }
    found = _repeated([phrase for text in texts for phrase in _phrases(text)])
    best = max(found, key=lambda one: _score(one, found[one], worth, len(lines)), default=None)
    if best is not None and _score(best, found[best], worth, len(lines)) > 0:
        return cut(capital(" ".join(best.words)), NAME_CHARS)
    return cut(capital(chip(texts[0], NAME_CHARS).rstrip(" .!?…:;,")), NAME_CHARS) or None


def _as_it_is(term: str) -> float:
    return 1.0


def _everyday(term: str) -> float:
    """What a word counts the less for, the more it is of everyday talk."""
    return max(_LEAST_RARITY, min(1.0, (_EVERYDAY - commonness_of(term)) / (_EVERYDAY - _SELDOM)))


def _repeated(found: Sequence[_Phrase]) -> dict[_Phrase, int]:
    """Each phrase once, as it was written first, with how many texts have it; sure when it was once."""
    counts: Counter[tuple[str, ...]] = Counter()
    first: dict[tuple[str, ...], _Phrase] = {}
    for phrase in found:
        key = tuple([word.casefold() for word in phrase.words])
        counts[key] += 1
        if key not in first or (phrase.sure and not first[key].sure):
            first[key] = phrase
    return {phrase: counts[key] for key, phrase in first.items()}


def _score(phrase: _Phrase, count: int, worth: Mapping[str, float], lines: int) -> float:
    """The worth of its words. Of one exchange the fullest phrase is best; later only what comes again is."""
    told = {term for word in phrase.words for term in _told(word, worth)}
    if not told or (len(phrase.words) > 1 and count < 2 and lines > _ONE_EXCHANGE):
        return 0.0
    sure = 1.0 if phrase.sure else _UNSURE
    if any(not word.replace("-", "").replace("'", "").isalpha() for word in phrase.words):
        sure = _IDENTIFIER
    whole = sum(worth[term] for term in told)
    return sure * whole / (1.0 if lines <= _ONE_EXCHANGE else math.sqrt(len(told)))


def _told(word: str, worth: Mapping[str, float]) -> list[str]:
    """The terms of a word that are worth something, in the first language that has any."""
    by_language = ([term for term in terms if term in worth] for terms in _either(word))
    return next(filter(None, by_language), [])


@lru_cache(maxsize=20_000)
def _either(word: str) -> tuple[tuple[str, ...], ...]:
    """The subject terms of a word by each language; none for a word that tells nothing."""
    parts = _LETTERS.findall(word.casefold().replace("’", "'"))
    found = [tuple([t for part in parts for t in word_subjects(part, code)]) for code in _LANGUAGES]
    return tuple(filter(None, found))


@lru_cache(maxsize=512)
def _phrases(text: str) -> tuple[_Phrase, ...]:
    """Every phrase of a text once; kept for a while, as a young topic is named by it again and again."""
    return tuple(dict.fromkeys(_found(text)))


def _found(text: str) -> Iterator[_Phrase]:
    """Every phrase of a text, and those that stand within it."""
    head = text[:_TEXT_HEAD]
    language = language_of(head.casefold())
    inside = _capitals(head) if language == "german" else frozenset()
    for sentence in sentences(head)[:_SENTENCES]:
        for place, piece in enumerate(_PIECE.split(without_opening(sentence))):
            words = [found.rstrip(".'’-/") for found in _WORD.findall(piece)]
            for run in _runs(words, place == 0, language, inside):
                yield from _parts(run)
            yield from _linked(words, language)


def _parts(run: _Phrase) -> Iterator[_Phrase]:
    for start in range(len(run.words)):
        for end in range(start + 1, min(len(run.words), start + _LONGEST_RUN) + 1):
            words = run.words[start:end]
            if not _NO_END.fullmatch(words[-1]):
                yield _Phrase(words, run.sure)


def _capitals(text: str) -> frozenset[str]:
    """Words that have a capital where none is due to a beginning: in German, nouns and names."""
    return frozenset(re.findall(r"(?<=[^\W_] )[^\W\d_]\w+|(?<=, )[^\W\d_]\w+", text))


def _linked(words: Sequence[str], language: Language) -> Iterator[_Phrase]:
    """Two nouns of which one says where or of what the other is: "the trip to Lisbon"."""
    for number in range(1, len(words) - 1):
        one, link, other = words[number - 1 : number + 2]
        if link not in _LINKS or not (_tells(one) and _tells(other) and other[0].isupper()):
            continue
        before = words[number - 2].casefold() if number > 1 else ""
        if one[0].isupper() if language == "german" else before in _INTRODUCES:
            yield _Phrase((one, link, other), sure=True)


def _tells(word: str) -> bool:
    return word.isalpha() and word.casefold() not in NOT_TELLING and bool(_either(word))


def _runs(
    words: Sequence[str], begins: bool, language: Language, inside: frozenset[str]
) -> Iterator[_Phrase]:
    """Runs of telling words between others; in German, of words with a capital."""
    run: list[str] = []
    before = ""
    sure = True
    for number, word in enumerate(words):
        folded = word.casefold()
        noun = language != "german" or word[:1].isupper() or not word.isalpha()
        if folded in NOT_TELLING or folded in _IS_VERB or not noun or not _either(word):
            if run:
                yield _Phrase(tuple(run), sure)
            run = []
        else:
            if not run:
                capital_here = word[:1].isupper() and not (begins and number == 0)
                introduced = before in _INTRODUCES if language == "english" else _is_noun(word, inside)
                sure = capital_here or introduced
            run.append(word)
        before = folded if folded in FUNCTION else ""
    if run:
        yield _Phrase(tuple(run), sure)


def _is_noun(word: str, inside: frozenset[str]) -> bool:
    """Whether a German word with a capital is a noun where a sentence begins too."""
    return word in inside or _NOUN.fullmatch(word) is not None


@dataclass(slots=True)
class _Young:
    name: str
    texts: dict[str, str]
    looked: int = 0


@dataclass(slots=True)
class YoungNames:
    """The topics that sorting lately named, with the words that it may name them by.

    Kept in memory only: after a restart a name stays as it is. So does one that anybody has changed.
    """

    _known: OrderedDict[str, _Young] = field(default_factory=OrderedDict)

    def __contains__(self, topic_id: object) -> bool:
        return topic_id in self._known

    def given(self, topic_id: str, name: str) -> None:
        self._known[topic_id] = _Young(name, {})
        while len(self._known) > _YOUNG_TOPICS:
            self._known.popitem(last=False)

    def renamed(
        self,
        topic_id: str,
        name: str,
        said: Mapping[str, str],
        elsewhere: Callable[[], Mapping[str, int]] | None,
    ) -> str | None:
        """A better name for a topic that is called `name`, now that this was said in it; None: it stays.

        Without `elsewhere` what was said is only kept in mind: nobody knows what other topics have.
        """
        young = self._known.get(topic_id)
        if young is None or young.name != name:
            self._known.pop(topic_id, None)
            return None
        young.texts |= {id_: text[:_TEXT_HEAD] for id_, text in said.items() if text}
        if elsewhere is None or not any(young.looked < look <= len(young.texts) for look in LOOKS):
            return None
        young.looked = len(young.texts)
        better = topic_name(list(young.texts.values()), elsewhere())
        if len(young.texts) >= LOOKS[-1]:
            del self._known[topic_id]
        if better is None or better == name:
            return None
        young.name = better
        return better
