"""Whether memory knows that it has no answer: fits the weights of `memory/confidence.py`, and checks them.

    python bench/confidence.py --data locomo.json [--embedders static,minilm] [--cache DIR] [--fit]
    python bench/confidence.py --words /usr/share/trans/de-en

Questions that a scope answers (LoCoMo's, those of the small homes in `small_homes.py`, and of the people's
talk in `continuity/`) are held against questions that it does not: general requests, those of other
conversations (`foreign`), and those with names changed to the ones that speak here (`swapped`, never fitted
on: many are near the truth). Fitted on the first three conversations, three homes and the histories that are
for tuning; everything that is printed under `proved` is of the other conversations and homes. `told` is the
share of questions that get an answer at the floor. `--words` asks the homes in the other language, with a
word list and without.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np
from histories import History
from histories import load as load_history
from histories import names as history_names
from numpy.typing import NDArray
from recall import DAY, CachedEmbedder, Conversation, embedders, load
from small_homes import EVERYDAY, GERMAN, HELD_OUT, HOMES, PARAPHRASED, UNRELATED

from holdfast.clock import Millis
from holdfast.config.memory import FLOOR
from holdfast.memory.confidence import LOOKED_AT, WEIGHTS, Signals, answer, confidence, signals_of
from holdfast.memory.dictionary import Dictionary
from holdfast.memory.documents import Document
from holdfast.memory.embedders.base import Embedder
from holdfast.memory.recall import prepare
from holdfast.memory.reference import InMemoryEngine
from holdfast.memory.scoring import Scoring, weigh

TUNED_CONVERSATIONS = 3
NOTES_IN_A_FILE = (1, 3, 12)
ANSWERED = ("answerable", "own", "paraphrased")
FITTED = (*ANSWERED, "general", "in vain", "foreign")
COUNTS = {"own": 3.5, "paraphrased": 0.5, "in vain": 8.0, "general": 2.0}
GENERAL = (*UNRELATED, *EVERYDAY)
EVIDENCE = ("words", "words_near", "likeness", "agreement", "standing_out", "some", "held")
FLOORS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7)


@dataclass(frozen=True, slots=True)
class Asked:
    """One question put to one scope, and what the best results say."""

    kind: str
    tuned: bool
    home: bool
    signals: Signals | None
    found: bool


class Scope:
    """Documents of one conversation or home, ready to be asked."""

    def __init__(self, documents: Sequence[Document], embedder: Embedder, base: Embedder) -> None:
        texts = [document.text for document in documents]
        vectors = {one.id.fingerprint: one.embed_documents(texts) for one in (base, embedder)}
        self._view = InMemoryEngine(documents, vectors)
        self._embedder = embedder
        self._base = base
        self._now = Millis(max(document.at for document in documents) + DAY)

    def ask(self, text: str, evidence: frozenset[int] = frozenset()) -> tuple[Signals | None, bool]:
        """The signals of a question, and whether the best ten hold what answers it."""
        query = prepare(text, self._view, self._embedder, now=self._now)
        weighed = weigh(query, self._view, Scoring(), LOOKED_AT)
        best = weighed.best(LOOKED_AT)
        if not best:
            return None, False
        found = any(one.number in evidence for one in best)
        return signals_of(query, self._view, weighed, best, self._base), found


def conversations(path: Path, embedder: Embedder, base: Embedder) -> Iterator[Asked]:
    talks = load(path)
    names = [_names(raw["conversation"]) for raw in json.loads(path.read_bytes())]
    for number, talk in enumerate(talks):
        scope, tuned = Scope(talk.documents, embedder, base), number < TUNED_CONVERSATIONS
        for question in talk.questions:
            yield Asked("answerable", tuned, False, *scope.ask(question.text, question.evidence))
        for text in GENERAL[tuned::2]:
            yield Asked("general", tuned, False, *scope.ask(text))
        other = (number + 1) % len(talks)
        for text in _some(talks[other]):
            yield Asked("foreign", tuned, False, *scope.ask(text))
            for theirs, ours in zip(names[other], names[number], strict=True):
                text = text.replace(theirs, ours)
            yield Asked("swapped", tuned, False, *scope.ask(text))


def _names(talk: dict[str, str]) -> tuple[str, str]:
    return talk["speaker_a"], talk["speaker_b"]


def _some(talk: Conversation) -> list[str]:
    return [question.text for question in talk.questions[::3]]


def homes(embedder: Embedder, base: Embedder) -> Iterator[Asked]:
    for name, lines in HOMES.items():
        tuned = name not in HELD_OUT
        others = [n for n in HOMES if n != name and (n in HELD_OUT) != tuned]
        for notes in NOTES_IN_A_FILE:
            scope = Scope(_files(name, [note for note, _, _ in lines], notes), embedder, base)
            for place, (_, question, translated) in enumerate(lines):
                where = frozenset((place // notes,))
                yield Asked("own", tuned, True, *scope.ask(question, where))
                yield Asked("translated", tuned, True, *scope.ask(translated, where))
            for place, question in PARAPHRASED[name]:
                yield Asked("paraphrased", tuned, True, *scope.ask(question, frozenset((place // notes,))))
            for text in GENERAL[tuned::2]:
                yield Asked("general", tuned, True, *scope.ask(text))
            for other in others:
                for _, question, _ in HOMES[other]:
                    yield Asked("foreign", tuned, True, *scope.ask(question))


def histories(embedder: Embedder, base: Embedder) -> Iterator[Asked]:
    """People's talk with an assistant, as far as it is for tuning."""
    talks = [one for one in map(load_history, history_names()) if one.split == "tuning"]
    for number, talk in enumerate(talks):
        scope = Scope(_entries(talk), embedder, base)
        for question in talk.questions:
            where = frozenset(talk.evidence(question))
            yield Asked("own", True, True, *scope.ask(question.text, where))
        for overview in talk.overviews:
            yield Asked("own", True, True, *scope.ask(overview.text))
        for text in talk.unanswerable:
            yield Asked("in vain", True, True, *scope.ask(text))
        for text in GENERAL[1::2]:
            yield Asked("general", True, True, *scope.ask(text))
        for other in talks[:number] + talks[number + 1 :]:
            for question in other.questions[::2]:
                yield Asked("foreign", True, True, *scope.ask(question.text))


def _entries(talk: History) -> list[Document]:
    return [
        Document(
            id=f"{talk.name}:{number}",
            text=line.text,
            speaker="user" if line.role == "user" else "main",
            thread=line.session,
            ordinal=number,
            at=int(line.at.timestamp() * 1000),
        )
        for number, line in enumerate(talk.lines)
    ]


def _files(name: str, notes: Sequence[str], each: int) -> list[Document]:
    parts = [notes[start : start + each] for start in range(0, len(notes), each)]
    return [
        Document(
            id=f"{name}:{number}",
            text="# Notes\n\n" + "\n\n".join(part),
            source="file",
            thread=f"{name}:{number}",
            at=1,
        )
        for number, part in enumerate(parts)
    ]


def fitted(asked: Sequence[Asked], strength: float = 1.0) -> NDArray[np.float64]:
    """Logistic regression over what may be tuned on. What speaks for an answer never counts against one: such
    a signal is left out instead."""
    known = [(one, one.signals) for one in asked if one.tuned and one.kind in FITTED and one.signals]
    rows = np.array([[1.0, *astuple(signals)] for _, signals in known])
    wanted = np.array([one.kind in ANSWERED for one, _ in known], np.float64)
    weight = np.array([COUNTS.get(one.kind, 1.0) for one, _ in known])
    speaks_for = np.array([False, *(field.name in EVIDENCE for field in fields(Signals))])
    used = np.ones(rows.shape[1], np.bool_)
    weights = np.zeros(rows.shape[1])
    while True:
        weights[used] = _newton(rows[:, used], wanted, weight, strength)
        against = used & speaks_for & (weights < 0)
        if not against.any():
            return weights
        used &= ~against
        weights[against] = 0.0


def _newton(
    rows: NDArray[np.float64], wanted: NDArray[np.float64], weight: NDArray[np.float64], strength: float
) -> NDArray[np.float64]:
    """Newton's method, with a little ridge on all but the bias."""
    ridge = strength * np.diag([1e-6, *[1.0] * (rows.shape[1] - 1)])
    weights = np.zeros(rows.shape[1])
    for _ in range(60):
        likely = 1 / (1 + np.exp(-np.clip(rows @ weights, -30, 30)))
        slope = rows.T @ (weight * (wanted - likely)) - ridge @ weights
        bend = (rows * (weight * likely * (1 - likely))[:, None]).T @ rows + ridge
        weights = weights + np.linalg.solve(bend, slope)
    return weights


def report(asked: Sequence[Asked], serves: str) -> None:
    """What is told and what is kept silent at each floor, and how far the numbers mean what they say."""
    for tuned in (True, False):
        print(f"\n{'tuned on' if tuned else 'proved on'}{'told at a floor of':>26s}")
        print(f"{'':28s}questions" + "".join(f"{floor:8.1f}" for floor in FLOORS))
        groups: dict[tuple[bool, str], list[float]] = defaultdict(list)
        for one in asked:
            if one.tuned == tuned:
                groups[one.home, one.kind].append(_sure(one, serves))
        for (home, kind), sure in sorted(groups.items()):
            told = "".join(f"{np.mean(np.array(sure) >= floor):8.1%}" for floor in FLOORS)
            print(f"{'homes' if home else 'conversations':14s}{kind:14s}{len(sure):9d}{told}")
    print("\nproved on: of questions with a confidence of … so many are answered here")
    proved = [(_sure(o, serves), o.kind in ANSWERED) for o in asked if not o.tuned and o.kind in FITTED]
    for low in np.arange(0, 1, 0.2):
        inside = [good for sure, good in proved if low <= sure < low + 0.2]
        if inside:
            print(f"{low:.1f} to {low + 0.2:.1f}: {np.mean(inside):6.1%} of {len(inside)}")
    found = [one for one in asked if not one.tuned and one.kind in ANSWERED and one.found]
    hits = [_sure(one, serves) >= FLOOR for one in found]
    print(f"\nat the floor of {FLOOR} {np.mean(hits):.1%} of what ranking finds is told")


def _sure(one: Asked, serves: str) -> float:
    return 0.0 if one.signals is None else confidence(one.signals, serves)


def other_language(base: Embedder, words: Path) -> None:
    """Questions on the notes of the homes of the other language: is the answer first, and is it told?"""
    with tempfile.TemporaryDirectory() as folder:
        lists = Dictionary(Path(folder) / "words.db", [str(words)])
        began = time.process_time()
        lists.refresh()
        print(f"word list read in {time.process_time() - began:.1f} CPU seconds")
        for name, german in (("German questions, English notes", False), ("the other way round", True)):
            lines = [line for home, rows in HOMES.items() if (home in GERMAN) == german for line in rows]
            texts = [note for note, _, _ in lines]
            documents = [Document(id=str(n), text=t, thread=str(n), at=1) for n, t in enumerate(texts)]
            view = InMemoryEngine(documents, {base.id.fingerprint: base.embed_documents(texts)})
            for kind, used in (("without", None), ("with", lists)):
                _print_languages(f"{name}, {kind}", lines, view, base, used)


def _print_languages(
    name: str,
    lines: Sequence[tuple[str, str, str]],
    view: InMemoryEngine,
    base: Embedder,
    used: Dictionary | None,
) -> None:
    began, first, told = time.process_time(), 0, 0
    for place, (_, _, question) in enumerate(lines):
        query = prepare(question, view, None, now=Millis(DAY))
        query = query if used is None else used.understood(query, view)
        query = query.with_vector(base.embed_query(query.plain_text), base.id.fingerprint)
        made = answer(query, view, base, Scoring(), limit=5)
        numbers = [one.number for one in made.results]
        first += numbers[:1] == [place]
        told += place in numbers and made.confidence >= FLOOR
    each = (time.process_time() - began) / len(lines) * 1000
    print(f"{name:46s} first {first}/{len(lines)}  told {told}/{len(lines)}  {each:.1f} CPU ms each")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--words", type=Path, help="a word list in the form of Ding")
    parser.add_argument("--embedders", default="static,minilm")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "holdfast-recall")
    parser.add_argument("--fit", action="store_true", help="print weights fitted anew")
    options = parser.parse_args()
    if options.words:
        other_language(embedders(["static"], options.cache)["static"], options.words)
    if options.data is None:
        return
    options.cache.mkdir(parents=True, exist_ok=True)
    made = embedders(["static", *options.embedders.split(",")], options.cache)
    for name in options.embedders.split(","):
        began = time.process_time()
        base, embedder = made["static"], made[name]
        asked = [
            *conversations(options.data, embedder, base),
            *homes(embedder, base),
            *histories(embedder, base),
        ]
        if isinstance(embedder, CachedEmbedder):
            embedder.save()
        print(f"\n== {name}: {len(asked)} questions in {time.process_time() - began:.0f} CPU seconds")
        report(asked, name)
        if options.fit:
            used = WEIGHTS["static" if name == "static" else "better"]
            print("\nsignals: bias,", ", ".join(field.name for field in fields(Signals)))
            print("fitted:", ", ".join(f"{weight:.2f}" for weight in fitted(asked)))
            print("used:  ", ", ".join(f"{weight:.2f}" for weight in used))


if __name__ == "__main__":
    main()
