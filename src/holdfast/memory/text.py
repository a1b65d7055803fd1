"""Words as the index sees them: folded, split, stemmed, the same for documents and questions.

Every term is made of letters and digits only, so any engine's whitespace or unicode tokenizer keeps
it whole. Identifiers, paths, addresses and versions are kept whole (joined without their marks) and
in parts; Chinese, Japanese and Korean become overlapping pairs of characters, a German compound its words
as well ("Schiffsreise" is found by "Reise", and by "Donaureise"). A document also gets
cue terms, by which the scoring knows what kind of text it is: whether it asks, names a time or a thing by
its name, speaks of its writer, or only answers kindly.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain
from typing import Any, Final, Literal

from holdfast.memory.folding import fold
from holdfast.memory.rarity import listed
from holdfast.memory.stopwords import ENGLISH, GERMAN, HEARER, WRITER
from holdfast.memory.timewords import may_name_time, names_time

Language = Literal["english", "german"]

ASKS: Final = "0cueasks"
"""Cue term of a document that asks a question."""
NAMES_TIME: Final = "0cuetime"
"""Cue term of a document that says when something happens."""
PARTICULAR: Final = "0cuefact"
"""Cue term of a document that has a proper name, a quotation or a number."""
PARTICULARS: Final = "0cuefacts"
"""Cue term of a document that has two or more of them."""
OWN: Final = "0cueown"
"""Cue term of a document that speaks of its writer more than of whom it is written to."""
REPLIES: Final = "0cuereply"
"""Cue term of a document that begins by thanking, praising or agreeing."""

CUES: Final = (ASKS, PARTICULAR, PARTICULARS, OWN, REPLIES, NAMES_TIME)
"""All of them: much of what is said has one, and every question asks for most of them."""

_CJK = "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f々〆"
_CJK_CHAR = re.compile(f"[{_CJK}]")
_LETTER = rf"[^\W_{_CJK}]"
_RUN = re.compile(rf"[{_CJK}]+|{_LETTER}+(?:['’._/\\@:#+\-]{{1,3}}{_LETTER}+)*")
_PIECE = re.compile(rf"{_LETTER}+")
_ASCII_RUN = re.compile(r"[A-Za-z0-9]+(?:['._/\\@:#+\-]{1,3}[A-Za-z0-9]+)*")
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\WA-Z\d_]+|[A-Z]+")
_ELISION = re.compile(r"['’](?:s|re|ve|ll|d|m)$", re.IGNORECASE)
_NEGATION = re.compile(r"\w+n['’]t", re.IGNORECASE)
_HEADER = re.compile(r"^\s*\[[^\]]{1,80}\](?:\s*[^\s:][^:\n]{0,40}:)?")
_QUOTATION = r"\"[^\"\n]+\"|“[^”\n]+”|„[^“”\n]+[“”]"
_PARTICULAR: dict[Language, re.Pattern[str]] = {
    "english": re.compile(rf"(?<=[a-z] )[A-Z][a-z]+|\d+|{_QUOTATION}"),
    "german": re.compile(rf"\d+|{_QUOTATION}"),
}
_REPLY = re.compile(
    r"""\s*(?:wow|that'?s|that\ is|that\ sounds|thanks|thank\ you|congrats|congratulations|cool|awesome|sounds
    |nice|great|glad|absolutely|definitely|totally|good\ luck|you're|danke|super|toll|klasse|prima|gratuliere
    |gluckwunsch|das\ klingt|freut\ mich|gern)\b""",
    re.VERBOSE,
)
_STOPS: dict[Language, frozenset[str]] = {"english": ENGLISH, "german": GERMAN}
_SHORTEST_ROOT = 5
_PARTICIPLE = re.compile(
    r"""(?P<before>ab|an|auf|aus|bei|ein|fest|her|hin|los|mit|nach|um|vor|weg|zu|zuruck|zusammen)?
    ge(?P<verb>[a-z]{3,})t""",
    re.VERBOSE,
)
_ENDING = re.compile(
    r"(?P<verb>(?:be|er|ver|ent|zer)[a-z]{3,})t|(?P<root>[a-z]{4,}?)(?:iert|ier|i|ation|atur|ung)|(?P<man>[a-z]{6,})in"
)
_SHORTEST_COMPOUND = 8
_SHORTEST_PART = 4
_SHORTEST_UNLISTED = 5
_SHORTEST_STEM = 6
_JOINTS = ("", "s", "n", "en", "es", "er", "e")
_MADE = re.compile(r"[a-z]{2,}(?:ung|heit|keit|schaft|ion|tat)")
"""What always has an `s` behind it in a compound, and is a word whether it is listed or not."""
_LONGEST_TERM = 64
_LONGEST_RUN = 256


@dataclass(frozen=True, slots=True)
class QueryTerms:
    """A question's terms: `content` decides; `every` has its stop words too."""

    content: tuple[str, ...]
    every: tuple[str, ...]
    language: Language
    compounds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Terms of compounds, each with those of its words, which are among the terms as well."""

    @property
    def terms(self) -> tuple[str, ...]:
        """What to search for: a question of nothing but stop words is still searched."""
        return self.content or self.every


def terms(text: str) -> list[str]:
    """The terms under which a document is found, in order and with repeats, and its cues last.

    A date in square brackets before it is the document's own, and no cue; so is a name after that.
    """
    folded = fold(text)
    words = _words(folded)
    language = _language(words)
    found = list(chain.from_iterable(map(_READERS[language], runs(text))))
    found.extend(_cues(text, folded, words, language))
    return found


def _cues(text: str, folded: str, words: list[str], language: Language) -> Iterator[str]:
    header = _HEADER.match(text)
    body = _HEADER.sub("", folded, count=1)
    if "?" in body:
        yield ASKS
    if may_name_time(words, body) and names_time(body):
        yield NAMES_TIME
    named = _PARTICULAR[language].finditer(text, header.end() if header else 0)
    yield from (cue for cue, _ in zip((PARTICULAR, PARTICULARS), named, strict=False))
    if sum(map(WRITER.__contains__, words)) > sum(map(HEARER.__contains__, words)):
        yield OWN
    if _REPLY.match(body):
        yield REPLIES


def query_terms(text: str) -> QueryTerms:
    """The terms of a question, each once, in the order in which they stand."""
    language = language_of(text)
    found = runs(text)
    content, every = (
        tuple(dict.fromkeys(chain.from_iterable(map(read[language], found)))) for read in (_READERS, _EVERY)
    )
    read = {run: _READERS[language](run) for run in found if words_of(run, language)}
    compounds = {forms[0]: forms[1:] for forms in read.values() if forms}
    return QueryTerms(content, every, language, compounds)


def terms_in(text: str, language: Language) -> tuple[str, ...]:
    """The terms of a text that is known to be in this language, each once; none for function words."""
    return tuple(dict.fromkeys(term for run in runs(text) for term in _READERS[language](run)))


def run_terms(run: str, language: Language) -> tuple[str, ...]:
    """The terms of one run of a text; none for a function word."""
    return _READERS[language](run)


def pieces(run: str) -> list[str]:
    """The words of a run, folded and without their marks; a stretch of CJK as its pairs."""
    if _is_cjk(run[0]):
        return list(_pairs(run))
    return _PIECE.findall(fold(_ELISION.sub("", run)))


@lru_cache(maxsize=1_024)
def language_of(text: str) -> Language:
    """German where German function words outnumber English ones, else English."""
    return _language(_words(fold(text)))


def _language(words: list[str]) -> Language:
    german = sum(map(GERMAN.__contains__, words))
    return "german" if german and german > sum(map(ENGLISH.__contains__, words)) else "english"


def _words(folded: str) -> list[str]:
    """Plain words of a folded text; most texts are ASCII, for which a narrow pattern is much quicker."""
    return (_ASCII_WORD if folded.isascii() else _PIECE).findall(folded)


def runs(text: str) -> list[str]:
    """Runs of the text: plain words, identifiers with their marks, stretches of CJK."""
    if text.isascii():
        return _ASCII_RUN.findall(text)
    return _RUN.findall(unicodedata.normalize("NFC", text))


def _content_forms(run: str, language: Language) -> tuple[str, ...]:
    """The terms of a run, none for a function word."""
    word = _ELISION.sub("", run)
    if fold(word) in _STOPS[language] or _NEGATION.fullmatch(word):
        return ()
    return _forms(run, language)


def _forms(run: str, language: Language) -> tuple[str, ...]:
    if _is_cjk(run[0]):
        return _pairs(run)
    joined = _PIECE.findall(_ELISION.sub("", run))
    parts = [fold(part) for piece in joined for part in _camel_parts(piece)]
    if len(parts) > 1:
        parts = [part for part in parts if part not in _STOPS[language]]
        parts += [_whole(joined)] if len(run) <= _LONGEST_RUN else []
    found = [stem(part, language) for part in parts]
    found += map(_stem_of_part, words_of(run, language))
    return tuple([_root(one, language)[:_LONGEST_TERM] for one in found])


def words_of(run: str, language: Language) -> tuple[str, ...]:
    """The two words of a German compound, folded; () for all else. A word of everyday talk is none: who asks
    for a "Haushalt" means no house."""
    if language != "german" or len(run) < _SHORTEST_COMPOUND or not (run[0].isupper() and run[1:].islower()):
        return ()
    return _split(fold(run))


@lru_cache(maxsize=1 << 14)
def _split(word: str) -> tuple[str, ...]:
    """Where both are known words, the shorter first; else where one is, if both are long."""
    if word in _parts()[0] or not word.isascii():
        return ()
    cuts = range(_SHORTEST_PART, len(word) - _SHORTEST_PART + 1)
    pairs = [(word[:cut], word[cut:]) for cut in cuts]
    for first, last in pairs:
        if _is_word(last) and (plain := _without_joint(first)):
            return plain, last
    words = _parts()[0] | _parts()[2]
    long = [pair for pair in pairs if min(map(len, pair)) >= _SHORTEST_UNLISTED]
    for first, last in long:
        if last in words:
            return first, last
    return next(((first, last) for first, last in long[::-1] if first in words), ())


def _stem_of_part(part: str) -> str:
    """The stem of a compound's word. What is a stem by itself has no ending to lose: the "Förder" of a
    "Förderzusage" is that of the "Förderung"."""
    words, _, long = _parts()
    return part if part in long and part not in words else stem(part, "german")


def _without_joint(first: str) -> str:
    """A first word as it stands alone: "Buchungs" is "Buchung"; "" where it is no known one."""
    for joint in _JOINTS:
        plain = first.removesuffix(joint)
        if len(plain) + len(joint) == len(first) and (
            _is_word(plain) or (joint == "s" and _MADE.fullmatch(plain))
        ):
            return plain
    return ""


def _is_word(part: str) -> bool:
    words, stems, _ = _parts()
    return len(part) >= _SHORTEST_PART and (part in words or stem(part, "german") in stems)


@lru_cache(maxsize=1)
def _parts() -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """What compounds are made of: the common words, their stems, and those stems that are long enough to be
    known by themselves ("Förder" in "Förderzusage")."""
    words = frozenset(word for word in listed()["german"] if word.isalpha() and word not in GERMAN)
    stems = frozenset(stem(word, "german") for word in words if len(word) >= _SHORTEST_PART)
    return words, stems, frozenset(one for one in stems if len(one) >= _SHORTEST_STEM)


def _pairs(run: str) -> tuple[str, ...]:
    run = unicodedata.normalize("NFKC", run)
    return tuple(run[i : i + 2] for i in range(len(run) - 1)) or (run,)


def _whole(joined: list[str]) -> str:
    """The identifier as one term; numbers keep a joint, so that version 1.2.3 is not the number 123."""
    whole = fold("".join(joined))
    return "p".join(joined) if whole.isdigit() else whole


def _camel_parts(piece: str) -> list[str]:
    """`parseJsonFile` in its parts; a plain word or a code such as `7F3A` stays as it is."""
    if piece.islower() or piece.istitle() or piece.isupper() or not piece.isalpha():
        return [piece]
    return _CAMEL.findall(piece) or [piece]


def _is_cjk(char: str) -> bool:
    return _CJK_CHAR.match(char) is not None


def stem(word: str, language: Language) -> str:
    """A folded word without its ending; what is no plain word stays as it is."""
    if not word.isascii() or not word.isalpha() or len(word) < 3:
        return word
    stemmed: str = _stemmer(language).stemWord(word)
    return stemmed


def _root(stemmed: str, language: Language) -> str:
    """What is common to the forms of a German word that its stemmer leaves apart: participles and what is
    made of their verbs ("umgebucht", "Umbuchung"; "bestellt", "Bestellung"), foreign verbs ("Konfirmation",
    "konfirmiert"), and the word for a woman ("Kassenwartin")."""
    if language != "german" or len(stemmed) < _SHORTEST_ROOT:
        return stemmed
    match = _PARTICIPLE.fullmatch(stemmed)
    word = (match["before"] or "") + match["verb"] if match else stemmed
    ended = _ENDING.fullmatch(word)
    return word if ended is None else next(filter(None, ended.groups()))


def _kept(forms: Callable[[str], tuple[str, ...]]) -> Callable[[str], tuple[str, ...]]:
    return lru_cache(maxsize=1 << 16)(forms)


@lru_cache(maxsize=2)
def _stemmer(language: Language) -> Any:
    import Stemmer

    return Stemmer.Stemmer(language, 0)


_READERS, _EVERY = (
    {language: _kept(partial(forms, language=language)) for language in _STOPS}
    for forms in (_content_forms, _forms)
)
"""The content terms of a run, and all of them, kept by language: the same words come again and again."""
