"""What a topic is called: the phrase that is most telling for what was said in it, and most common there.

A name is a noun or a few of them that stand together: German ones by their capitals, others by what stands
before them ("the roof", "at Keller"). Never a number, a date or a greeting, and never a sentence where there
is a noun. A topic that was named by its words is renamed while it is young.
"""

from __future__ import annotations

import math
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
    subject_set,
    word_subjects,
)

NAME_CHARS: Final = 60
SEPARATOR: Final = ", "
"""Between the phrases of a name."""
LOOKS: Final = (4, 8, 16)
"""After so many entries a name is thought over; after the last of them a topic is not young any more."""
_YOUNG_TOPICS: Final = 500
_TEXT_HEAD: Final = 1_000
_SENTENCES: Final = 12
_LONGEST_RUN: Final = 4
_ONE_EXCHANGE: Final = 2
_UNSURE: Final = 0.4
_IDENTIFIER: Final = 0.1
_ONCE: Final = 0.3
_MOST_ALONE: Final = 2
_NEAR: Final = 0.33
"""How near to the best phrase one is that may stand beside it, if that has no more words than this."""
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
going coming turns turned gets works says needs changes checks happens becomes grows rises drops runs covers
includes contains shows offers allows replaces starting ending including using getting making taking waiting
looking moving asking trying drips squeaks hurts aches rings
"""
_IS_VERB: Final = frozenset(_VERBS.split())
_NO_END: Final = re.compile(r".{3,}(?:[^e]ed|ly)|.{4,}(?:isch|lich)e[mnrs]?", re.IGNORECASE)
_NOUN: Final = re.compile(r"\w{3,}(?:ung|heit|keit|schaft|tion|nis|ung\w+)")
_VAGUE_NOUNS = """
page pages end option options version step steps point points case cases type form copy side part parts piece
quarter detail details reason way result update change changes rest total answer question questions seite
seiten ende option optionen stück teil teile fall fälle punkt punkte art form stand grund weg rest sache
sachen ding dinge ergebnis antwort frage fragen anfang stelle hälfte summe watt kilowatt volt ampere amps
"""
_VAGUE: Final = frozenset(_VAGUE_NOUNS.split())
"""Nouns that stand in any matter: a name only where there is no other."""
_INTRODUCING = """
the a an my our your his her their its this that these those of for with at from in on by about above near
into no some any each every between
"""
_INTRODUCES: Final = frozenset(_INTRODUCING.split())
_BEFORE_VERBS = """
is are was were be been too very so i we you they he she it who to not will would can could should must may
might do does did let
"""
_NO_NOUN_BEHIND: Final = frozenset(_BEFORE_VERBS.split())
"""Behind these stands what something is like or what somebody does: "is cheap", "we fly"."""


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
    lines = [subject_set(text) for text in texts]
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
    scores = {one: _score(one, count, worth, len(lines)) for one, count in found.items()}
    best = max(scores, key=scores.__getitem__, default=None)
    if best is not None and scores[best] > 0:
        chosen = _with_another(best, scores, worth)
        return cut(SEPARATOR.join(capital(_unpossessed(" ".join(one.words))) for one in chosen), NAME_CHARS)
    return cut(capital(chip(texts[0], NAME_CHARS, addresses=False).rstrip(" .!?…:;,")), NAME_CHARS) or None


def _with_another(
    best: _Phrase, scores: Mapping[_Phrase, float], worth: Mapping[str, float]
) -> list[_Phrase]:
    """A short phrase seldom tells a matter by itself: with the next most telling one that says something else
    ("Klassenfahrt, Hamburg"), as they were written where they stand together ("Filling loop")."""
    other = _next_best(best, scores, worth)
    if other is None:
        return [best]
    together = {(*best.words, *other.words), (*other.words, *best.words)}
    joined = next((one for one in scores if one.words in together), None)
    if joined is None:
        return [best, other]
    more = _next_best(joined, scores, worth)
    return [joined] if more is None else [joined, more]


def _next_best(best: _Phrase, scores: Mapping[_Phrase, float], worth: Mapping[str, float]) -> _Phrase | None:
    said = _all_told(best, worth)
    least = _NEAR * max(scores.values())
    others = [
        one
        for one, score in scores.items()
        if score >= least and said.isdisjoint(_all_told(one, worth)) and _may_stand_beside(one, best)
    ]
    return max(others, key=scores.__getitem__) if others and len(best.words) <= _MOST_ALONE else None


def _may_stand_beside(phrase: _Phrase, best: _Phrase) -> bool:
    """No action ("starting"), no identifier, no part of the same compound ("Kita, Kitaplatz")."""
    if (phrase.words[-1].endswith("ing") and not phrase.sure) or not _is_spelled(phrase):
        return False
    one, other = " ".join(phrase.words).casefold(), " ".join(best.words).casefold()
    return one not in other and other not in one


def _is_spelled(phrase: _Phrase) -> bool:
    """Whether it is made of letters: no identifier."""
    return all(word.replace("-", "").replace("'", "").isalpha() for word in phrase.words)


def _all_told(phrase: _Phrase, worth: Mapping[str, float]) -> set[str]:
    return {term for word in phrase.words for term in _told(word, worth)}


def _unpossessed(phrase: str) -> str:
    """ "Dad's" at its end is "Dad"; what is within stays: "Dad's car"."""
    return phrase[:-2] if phrase.endswith(("'s", "’s")) else phrase


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
    told = _all_told(phrase, worth)
    if not told or (len(phrase.words) > 1 and count < 2 and lines > _ONE_EXCHANGE):
        return 0.0
    sure = 1.0 if phrase.sure else _UNSURE
    if not _is_spelled(phrase):
        sure = _IDENTIFIER
    whole = sum(worth[term] for term in told)
    if all(word.casefold() in _VAGUE for word in phrase.words):
        whole *= _UNSURE
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
    for sentence in sentences(head, addresses=False)[:_SENTENCES]:
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
    sure, no_noun = True, False
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
                no_noun = not sure and before in _NO_NOUN_BEHIND
            if not no_noun:
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
        if better is None or subject_set(better) == subject_set(name):
            return None
        young.name = better
        return better

    def left(
        self, topic_id: str, name: str, ids: Collection[str], elsewhere: Mapping[str, int]
    ) -> str | None:
        """What lies elsewhere now names a topic no more: another name for one that was called by it."""
        young = self._known.get(topic_id)
        if young is None or young.name != name:
            return None
        young.texts = {id_: text for id_, text in young.texts.items() if id_ not in ids}
        if any(subject_set(text) & subject_set(name) for text in young.texts.values()):
            return None
        better = topic_name(list(young.texts.values()), elsewhere)
        young.name = better or name
        return better
