"""What `bench/continuity.py` judges a block and a topic's name by: rules, without a model."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import numpy as np
from histories import History, plain

from holdfast.memory.embedders.static import StaticEmbedder

LEAST_REPEATED = 20
LEAST_RUN = 5
MOST_SHARED = 0.6
_LEFT_OUT = "left out for room"
_LABEL = re.compile(r"^(?:\d{4}-\d\d-\d\d[T\d:.Z+]*\s+)?(?:(?:topic|task|user|main|assistant):\s+)*")
_DAY = re.compile(r"\b(?:(?:Decided|Open|Next)(?: \d{4}-\d\d-\d\d)?|\d{4}-\d\d-\d\d): ")
_WORD = re.compile(r"[^\W_]+(?:[.,:'’/_-][^\W_]+)*")
_NUMBER = re.compile(r"\d[\d.,:/-]*")


class Body(NamedTuple):
    """A block below its head: the lines behind a bullet, and the same with their titles."""

    lines: list[str]
    titled: list[tuple[str, str]]


def body(block: str) -> Body:
    """Without the head, which repeats the question, and without what is said about the block itself."""
    rows = block.splitlines()
    start = next((n for n, row in enumerate(rows) if row.startswith("Mode:")), 0) + 1
    titled, title = [], ""
    for row in rows[start:-1]:
        if not row.startswith("- "):
            title = row
        elif not row[2:].casefold().startswith(_LEFT_OUT):
            titled.append((title, row[2:]))
    return Body([line for _, line in titled], titled)


def recalled(block: str, *unasked: str) -> list[str]:
    """Lines that a question brought: those under recall's titles, and those with words that no line has in
    the blocks without it. A line that stands there anyway may be cut at another place, or have a sentence
    that stood in another."""
    always = {word for one in unasked for line in body(one).lines for word in _said(line).split()}
    return [
        line
        for title, line in body(block).titled
        if title.startswith(("Semantic recall", "Curated notes")) or not set(_said(line).split()) <= always
    ]


def beginning_to_end(block: str) -> str:
    return "\n".join(f"              | {row}" for row in block.splitlines()[4:-1])


def _said(line: str) -> str:
    """What a line says, without its date, its speaker and the marks of a cut."""
    return " ".join(_WORD.findall(plain(_DAY.sub("", _LABEL.sub("", line)).replace("…", " "))))


def repeats(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Lines that say what another line of the block says: the same, part of it, or most of it in a row."""
    said = [_said(line) for line in lines]
    found = []
    for n, one in enumerate(said):
        for m, other in enumerate(said):
            first = n < m if len(one) == len(other) else len(one) < len(other)
            if n != m and first and _repeats(one, other):
                found.append((lines[n], lines[m]))
                break
    return found


def _repeats(one: str, other: str) -> bool:
    if len(one) < LEAST_REPEATED:
        return len(one) >= LEAST_REPEATED // 2 + 2 and one == other
    if one in other:
        return True
    a, b = one.split(), other.split()
    run = SequenceMatcher(None, a, b, autojunk=False).find_longest_match().size
    return run >= LEAST_RUN and run >= MOST_SHARED * len(a)


def mid_word_cuts(lines: Sequence[str], *sources: Sequence[str]) -> list[str]:
    """Lines that break off, or begin, inside a word, a number, a time or an identifier of what they quote."""
    texts = [" ".join(text.split()) for source in sources for text in source]
    return [line for line in lines if _torn(_LABEL.sub("", line).split("…"), texts)]


def _torn(pieces: Sequence[str], texts: Sequence[str]) -> bool:
    """Whether, in all that has the words beside a cut, a word goes on across it."""
    behind = [
        [text[text.index(tail) + len(tail) :][:2] for text in texts if tail in text]
        for piece in pieces[:-1]
        if (tail := piece.rstrip()[-24:])
    ]
    before = [
        [text[: text.index(head)][-2:][::-1] for text in texts if head in text]
        for piece in pieces[1:]
        if (head := piece.lstrip()[:24])
    ]
    return any(rest and all(map(_goes_on, rest)) for rest in (*behind, *before))


def _goes_on(rest: str) -> bool:
    if not rest:
        return False
    return rest[0].isalnum() or rest[0] == "_" or (rest[0] in ".,:/-'" and rest[1:].isalnum())


def where_it_went(said: Mapping[str, str], lines: Sequence[str], data: Mapping[str, Any]) -> str | None:
    """Why an answer is not in the block although one of its entries was weighed; None: none was."""
    for text in said.values():
        if any(_quotes(line, text) for line in lines):
            return "its line stands, cut before the answer"
    where = sorted({place for id_, place in _entries(data) if id_ in said})
    return f"weighed ({', '.join(where)}), its line left out" if where else None


def _quotes(line: str, text: str) -> bool:
    pieces = [piece.strip() for piece in _LABEL.sub("", line).split("…")]
    return "…" in line and any(len(piece) >= LEAST_REPEATED and piece in text for piece in pieces)


def _entries(data: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The ids in `data`, each with the place where it was found."""
    if isinstance(data, dict):
        if isinstance(data.get("id"), str):
            yield data["id"], path
        for name, value in data.items():
            yield from _entries(value, f"{path}.{name}" if path else name)
    elif isinstance(data, list):
        for one in data:
            yield from _entries(one, path)


class Plain:
    """The two baselines, over the lines of a history as they were said."""

    def __init__(self, history: History) -> None:
        self._lines = history.lines
        self._keys = [f"agent:main:{line.session}" for line in history.lines]
        self._shown = [f"{line.at:%Y-%m-%d} {line.role}: {line.text}" for line in history.lines]
        self._words = [Counter(_WORD.findall(plain(line.text))) for line in history.lines]
        self._seen = Counter(word for words in self._words for word in words)
        self._mean = sum(map(Counter.total, self._words)) / len(self._words)
        self._model = StaticEmbedder()
        vectors = np.asarray(self._model.embed_documents([line.text for line in history.lines]), np.float32)
        self._vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        self._asked: dict[str, list[int]] = {}

    def lines(self, question: str, key: str, room: int) -> dict[str, list[str]]:
        newest = [n for n in range(len(self._lines) - 1, -1, -1) if self._keys[n] == key]
        newest = newest or list(range(len(self._lines) - 1, -1, -1))
        if question not in self._asked:
            self._asked[question] = self._best(question)
        return {"newest": self.whole(newest, room), "top-k": self.whole(self._asked[question], room)}

    def whole(self, order: Sequence[int], room: int) -> list[str]:
        """Whole lines in this order until the first that does not fit."""
        taken: list[str] = []
        for n in order:
            room -= len(self._shown[n]) + 3
            if room < 0:
                break
            taken.append(self._shown[n])
        return taken

    def _best(self, question: str) -> list[int]:
        """Reciprocal rank fusion of BM25 and cosine."""
        vector = np.asarray(self._model.embed_query(question), np.float32)
        by_sense = np.argsort(-(self._vectors @ vector), kind="stable")
        words = set(_WORD.findall(plain(question)))
        scores = np.array([self._bm25(words, n) for n in range(len(self._lines))])
        by_words = [int(n) for n in np.argsort(-scores, kind="stable") if scores[n] > 0]
        fused: defaultdict[int, float] = defaultdict(float)
        for order in (by_sense[:100], by_words[:100]):
            for rank, n in enumerate(order):
                fused[int(n)] += 1 / (60 + rank)
        return sorted(fused, key=lambda n: (-fused[n], n))

    def _bm25(self, words: set[str], n: int) -> float:
        said, count = self._words[n], len(self._lines)
        length = 0.25 + 0.75 * said.total() / self._mean
        return sum(
            math.log(1 + (count - self._seen[word] + 0.5) / (self._seen[word] + 0.5))
            * said[word]
            * 2.2
            / (said[word] + 1.2 * length)
            for word in words
            if word in said
        )


# What follows judges names.

_FUNCTION_WORDS = """
above
a about after all also am an and any are as at be because been before being below but by can could did do
does don't done each few for from get had has have he her here him his how i if in instead into is it it's
its just let me more most much must my no nor not now of off on once only or our out over per please same
she should so some such than that the their them then there these they this those to too under until up us
very was we we're were what when where which while who why will with would yes you your since tell set take
takes took move moved want wants need needs said says say go goes went comes come make made know noted right
good great ok okay thanks still already again never always perhaps maybe ab aber alle als also am an auch
auf aus bei bin bis bitte da damit dann das dass dem den denn der des die dies diese doch dort du durch ein
eine einem einen einer eines er es etwas für gegen haben hat hatte hier ich ihm ihn ihr im in ins ist ja
jede jetzt kann kein keine können man mein meine mich mir mit muss nach nicht noch nun nur ob oder ohne sehr
sein seine sich sie sind so soll um und uns unser unter vom von vor war waren was weil wenn wer werden wie
wieder will wir wird wo zu zum zur über geht kommt braucht nimmt wäre gut gern ja nein notiert
"""
_UNITS_WORDS = """
utc am pm gmt minute minutes minuten hour hours stunde stunden day days tag tage week weeks woche wochen
month months monat monate year years jahr jahre euro euros eur pound pounds gbp usd percent prozent mb gb kb
kilos kilo kg uhr km kilometer meter metres cm mm monday tuesday wednesday thursday friday saturday sunday
montag dienstag mittwoch donnerstag freitag samstag sonntag january february march april may june july
august september october november december januar februar märz mai juni juli oktober dezember o'clock amp
amps
"""
_FUNCTION = frozenset(_FUNCTION_WORDS.split())
_UNITS = frozenset(_UNITS_WORDS.split())
_MAY_BEGIN = frozenset(
    ("the", "a", "an", "my", "our", "der", "die", "das", "ein", "eine", "mein", "meine", "unser")
)
_FINITE_WORDS = """
is are was were has have had will would can could should must do does did says said needs wants lost left paid
sold went got came comes goes moved costs slips leaks arrived ran fell broke took gave kept sent found
ist sind war waren hat haben hatte wird werden
kann können muss müssen soll will kommt geht läuft braucht heißt gehört steht liegt fehlt kostet habe
"""
_FINITE = frozenset(_FINITE_WORDS.split())
_SENTENCE = re.compile(r"[?!;\n…]|\.\s")
LONGEST_NAME = 60


def name_faults(name: str, own: frozenset[str], texts: Sequence[str]) -> str:
    """Why it is no name for the matter, or "": a noun phrase with a word of the matter, nothing torn."""
    parts = _WORD.findall(name)
    words = [word.casefold() for word in parts]
    if not words:
        return "empty"
    if len(name) > LONGEST_NAME or _SENTENCE.search(name):
        return "a sentence or a piece of one"
    if all(_NUMBER.fullmatch(word) or word in _UNITS for word in words):
        return "a bare number, time or amount"
    if _NUMBER.fullmatch(words[0]):
        return "begins with a number"
    torn = [word for word in words if _NUMBER.fullmatch(word) and not _whole(word, texts)]
    if torn:
        return f"a piece of a number ({torn[0]})"
    if words[-1] in _UNITS and len(words) > 1 and _NUMBER.fullmatch(words[-2]):
        return "ends with a number, time or amount"
    if not _noun_phrase(parts, texts):
        return "no noun phrase"
    if not any(_same(word, telling) for word in words for telling in own):
        return "no word of the matter's own"
    return ""


def _noun_phrase(name: Sequence[str], texts: Sequence[str]) -> bool:
    """No verb in it, nothing at its ends that only joins words, at its end a noun as far as one can tell."""
    words = [word.casefold() for word in name]
    first, last = words[0], words[-1]
    if last in _FUNCTION or (first in _FUNCTION and first not in _MAY_BEGIN) or _FINITE & set(words):
        return False
    if _german(texts) and name[-1].isalpha():
        end = name[-1][1:]
        return not _has(name[-1][0].lower() + end, texts) or _has(name[-1][0].upper() + end, texts)
    return not (last.endswith("ed") and len(last) > 4 and not last.endswith("eed"))


def _has(word: str, texts: Sequence[str]) -> bool:
    return any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) for text in texts)


def _german(texts: Sequence[str]) -> bool:
    """Whether most of the texts are German: there a noun has a capital."""
    said = Counter(word for text in texts for word in plain(text).split())
    german = sum(
        said[word] for word in ("der", "die", "das", "und", "ist", "den", "ich", "wir", "auf", "für")
    )
    return german > sum(said[word] for word in ("the", "and", "is", "of", "to", "we", "it", "for"))


def _whole(number: str, texts: Sequence[str]) -> bool:
    """Whether the number stands somewhere as one, not only inside a larger one."""
    pattern = re.compile(rf"(?<![\d.,:]){re.escape(number)}(?![.,:]?\d)")
    return any(pattern.search(text) for text in texts)


def _same(word: str, telling: str) -> bool:
    """Equal, or one the beginning of the other: plurals, and compounds as German makes them."""
    short, long = sorted((word, telling), key=len)
    return (
        short == long
        or long == f"{short}s"
        or (len(short) >= 4 and (long.startswith(short) or long.endswith(short)))
    )


def own_words(history: History) -> dict[str, frozenset[str]]:
    """The words that tell a matter: those its author names, and those said again there and nearly only there:
    "Stackpool Road" names the flat that stands in it as well as "flat" does."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for line in history.lines:
        counts[line.matter or ""].update(set(_WORD.findall(plain(line.text))))
    every = Counter(word for words in counts.values() for word in words.elements())
    found = {}
    for key, matter in history.matters.items():
        named = {part for word in matter.words for part in _WORD.findall(plain(word))}
        often = {
            word
            for word, count in counts[key].items()
            if count >= 2 and count >= 0.7 * every[word] and len(word) > 2 and word not in _FUNCTION | _UNITS
        }
        found[key] = frozenset(named | {word for word in often if not _NUMBER.fullmatch(word)})
    return found
