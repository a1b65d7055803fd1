"""A small exact engine in memory: what the tests and the recall bench run, and others are held to."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.memory.documents import Document
from holdfast.memory.engine.protocol import Metadata, Numbers, Scores, Top
from holdfast.memory.text import terms as text_terms

_K1 = 1.2
_B = 0.75


class InMemoryEngine:
    """All of one scope in arrays: BM25 over our terms, cosines over given vectors."""

    def __init__(
        self, documents: Sequence[Document], vectors: Mapping[str, NDArray[np.float32]] | None = None
    ) -> None:
        self._documents = list(documents)
        self._vectors = dict(vectors or {})
        analysed = [text_terms(document.text) for document in documents]
        self._lengths = np.array([len(words) for words in analysed], np.float64)
        self._postings = _postings(analysed)
        self._beside = _beside(self._documents)
        self._asked: tuple[tuple[str, ...], Scores] | None = None

    @property
    def count(self) -> int:
        return len(self._documents)

    def lexical(self, terms: Sequence[str], limit: int) -> Top:
        scores = self._bm25(terms)
        return _top(np.flatnonzero(scores > 0), scores, limit)

    def dense(self, fingerprint: str, vector: NDArray[Any], limit: int) -> Top:
        every = np.arange(self.count)
        scores = self.dense_scores(fingerprint, vector, every)
        return _top(every[~np.isnan(scores)], scores, limit)

    def lexical_scores(self, terms: Sequence[str], numbers: Numbers) -> Scores:
        return self._bm25(terms)[numbers]

    def dense_scores(self, fingerprint: str, vector: NDArray[Any], numbers: Numbers) -> Scores:
        known = self._vectors.get(fingerprint)
        if known is None:
            return np.full(len(numbers), np.nan, np.float32)
        return np.asarray(known[numbers] @ vector, np.float32)

    def holding(self, terms: Sequence[str], numbers: Numbers) -> NDArray[np.bool_]:
        held = np.zeros((len(terms), self.count), np.bool_)
        for place, term in enumerate(terms):
            if term in self._postings:
                held[place, self._postings[term][0]] = True
        return held[:, numbers]

    def frequencies(self, terms: Sequence[str]) -> list[int]:
        return [len(self._postings[term][0]) if term in self._postings else 0 for term in terms]

    def neighbours(self, numbers: Numbers) -> Numbers:
        return self._beside[numbers]

    def speakers(self) -> list[str]:
        return sorted({document.speaker for document in self._documents if document.speaker})

    def speakers_of(self, numbers: Numbers) -> list[str | None]:
        return [self._documents[number].speaker for number in numbers.tolist()]

    def metadata(self, numbers: Numbers) -> Metadata:
        chosen = [self._documents[number] for number in numbers.tolist()]
        return Metadata(
            at=np.array([document.at for document in chosen], np.int64),
            curated=np.array([document.curated for document in chosen], np.bool_),
            source=[document.source for document in chosen],
            thread=[document.thread for document in chosen],
        )

    def documents(self, numbers: Numbers) -> list[Document | None]:
        return [self._documents[number] for number in numbers.tolist()]

    def _bm25(self, terms: Sequence[str]) -> Scores:
        wanted = tuple(dict.fromkeys(terms))
        if self._asked is not None and self._asked[0] == wanted:
            return self._asked[1]
        scores = np.zeros(self.count)
        mean = float(self._lengths.mean()) if self.count else 1.0
        for term in wanted:
            rows, counts = self._postings.get(term, (np.empty(0, np.int64), np.empty(0)))
            rarity = math.log(1 + (self.count - len(rows) + 0.5) / (len(rows) + 0.5))
            damping = _K1 * (1 - _B + _B * self._lengths[rows] / (mean or 1.0))
            scores[rows] += rarity * counts * (_K1 + 1) / (counts + damping)
        self._asked = (wanted, scores.astype(np.float32))
        return self._asked[1]


def _postings(
    analysed: Sequence[Sequence[str]],
) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, words in enumerate(analysed):
        for word, count in Counter(words).items():
            found[word].append((number, count))
    return {
        word: (np.array([row for row, _ in rows], np.int64), np.array([n for _, n in rows], np.float64))
        for word, rows in found.items()
    }


def _beside(documents: Sequence[Document]) -> Numbers:
    """Previous and next of the same thread by ordinal."""
    threads: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, document in enumerate(documents):
        if document.thread is not None:
            threads[document.thread].append((document.ordinal, number))
    beside = np.full((len(documents), 2), -1, np.int64)
    for turns in threads.values():
        numbers = [number for _, number in sorted(turns)]
        for before, after in pairwise(numbers):
            beside[after, 0], beside[before, 1] = before, after
    return beside


def _top(numbers: Numbers, scores: Scores, limit: int) -> Top:
    order = numbers[np.argsort(-scores[numbers], kind="stable")[:limit]]
    best = scores[order]
    return Top(order, best, float(best[0]) if len(best) else 0.0)
