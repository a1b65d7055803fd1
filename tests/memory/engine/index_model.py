"""The plainest index that could be right: a dictionary, and every question answered by looping."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.memory.documents import Document, Filter
from holdfast.memory.engine import Index, Top, View
from holdfast.memory.text import CUES
from holdfast.memory.text import terms as text_terms

FINGERPRINT = "test:16"
DIMS = 16


def vector_of(text: str, fingerprint: str = FINGERPRINT) -> NDArray[np.float32]:
    """A made-up embedding that depends on nothing but the text."""
    seed = [ord(char) for char in fingerprint + "|" + text]
    return np.random.default_rng(seed).standard_normal(DIMS).astype(np.float32)


class Model:
    """Documents by id and which of them have a vector."""

    def __init__(self) -> None:
        self.documents: dict[str, Document] = {}
        self.vectors: dict[str, NDArray[np.float32]] = {}
        self.position = 0

    def upsert(self, documents: Iterable[Document], *, embedded: bool) -> None:
        for document in documents:
            self.documents[document.id] = document
            self.vectors.pop(document.id, None)
            if embedded:
                self.vectors[document.id] = vector_of(document.text)
            self.position = max(self.position, document.position or 0)

    def delete(self, ids: Iterable[str]) -> None:
        for id_ in ids:
            self.documents.pop(id_, None)
            self.vectors.pop(id_, None)

    def move(self, ids: Iterable[str], **changes: Any) -> None:
        for id_ in ids:
            if id_ in self.documents:
                self.documents[id_] = replace(self.documents[id_], **changes)

    def visible(self, wanted: Filter) -> set[str]:
        return {d.id for d in self.documents.values() if wanted.matches(d)}

    def lexical(self, terms: Sequence[str], wanted: Filter) -> dict[str, float]:
        """BM25 by the book, counted over the scope, for what the whole filter lets through."""
        scope = [d for d in self.documents.values() if wanted.matches_scope(d)]
        counts = {d.id: Counter(text_terms(d.text)) for d in scope}
        average = max(sum(sum(c.values()) for c in counts.values()) / max(len(scope), 1), 1.0)
        scores: dict[str, float] = {}
        for term in dict.fromkeys(terms):
            having = [id_ for id_, count in counts.items() if count[term]]
            idf = math.log(1 + (len(scope) - len(having) + 0.5) / (len(having) + 0.5))
            for id_ in having:
                frequency, length = counts[id_][term], sum(counts[id_].values())
                norm = 1.2 * (0.25 + 0.75 * length / average)
                scores[id_] = scores.get(id_, 0.0) + idf * frequency * 2.2 / (frequency + norm)
        return {id_: score for id_, score in scores.items() if wanted.matches(self.documents[id_])}

    def dense(self, query: NDArray[np.float32], wanted: Filter) -> dict[str, float]:
        visible = self.visible(wanted)
        return {
            id_: float(v @ query / np.linalg.norm(v) / np.linalg.norm(query))
            for id_, v in self.vectors.items()
            if id_ in visible
        }

    def neighbours(self, id_: str, wanted: Filter) -> tuple[str | None, str | None]:
        own = self.documents[id_]
        thread = [
            d
            for d in self.documents.values()
            if own.thread is not None and d.thread == own.thread and wanted.matches(d)
        ]
        before = [d for d in thread if d.ordinal < own.ordinal]
        after = [d for d in thread if d.ordinal > own.ordinal]
        return (
            max(before, key=lambda d: d.ordinal).id if before else None,
            min(after, key=lambda d: d.ordinal).id if after else None,
        )


def move(index: Index, ids: Iterable[str], **changes: Any) -> int:
    """Let some documents lie elsewhere: what else is said of them here does not come to be there."""
    there = index.get(list(ids)).values()
    return index.move([replace(one, text="another text", at=one.at + 1, **changes) for one in there])


def ids_of(view: View, numbers: NDArray[np.int64]) -> list[str | None]:
    """The ids behind a view's numbers, -1 giving `None`."""
    known = [number for number in numbers.tolist() if number >= 0]
    documents = iter(view.documents(np.array(known, np.int64)))
    return [d.id if number >= 0 and (d := next(documents)) else None for number in numbers.tolist()]


def assert_same(index: Index, model: Model, wanted: Filter, words: Sequence[str]) -> None:
    """The index answers everything about one filter as the model does."""
    view = index.view(wanted)
    every = 10_000
    assert view.count == len(model.visible(wanted))
    assert set(ids_of(view, view.recent(every))) == model.visible(wanted)
    lexical = view.lexical(words, every)
    found = dict(zip(ids_of(view, lexical.numbers), lexical.scores.tolist(), strict=True))
    _assert_scores(found, model.lexical(words, wanted), 1e-4)
    assert lexical.maximum == max(found.values(), default=0.0)
    assert np.array_equal(view.lexical_scores(words, lexical.numbers), lexical.scores)
    query = vector_of("the question")
    dense = view.dense(FINGERPRINT, query, every)
    near = dict(zip(ids_of(view, dense.numbers), dense.scores.tolist(), strict=True))
    _assert_scores(near, model.dense(query, wanted), 0.02)
    _assert_alike(
        view.lexical_each([words, [], words[:1]], 3), [view.lexical(w, 3) for w in (words, [], words[:1])]
    )
    queries = [query, vector_of("another question"), np.zeros(DIMS, np.float32)]
    for chosen in (queries, queries[:2], []):
        alone = [view.dense(FINGERPRINT, one, 3) for one in chosen]
        _assert_alike(view.dense_each(FINGERPRINT, chosen, 3), alone)
    _assert_rest(view, model, wanted, query)


def _assert_alike(found: Sequence[Top], expected: Sequence[Top]) -> None:
    """What is asked with others is answered as by itself, to the last bit."""
    for one, other in zip(found, expected, strict=True):
        assert one.numbers.tolist() == other.numbers.tolist()
        assert one.scores.tolist() == other.scores.tolist()
        assert one.maximum == other.maximum


def _assert_rest(view: View, model: Model, wanted: Filter, query: NDArray[np.float32]) -> None:
    numbers = view.recent(10_000)
    ids = ids_of(view, numbers)
    cosines = view.dense_scores(FINGERPRINT, query, numbers)
    assert {id_ for id_, c in zip(ids, cosines, strict=True) if not np.isnan(c)} == set(
        model.dense(query, wanted)
    )
    beside = view.neighbours(numbers)
    for id_, pair in zip(ids, beside, strict=True):
        assert id_ is not None
        assert tuple(ids_of(view, pair)) == model.neighbours(id_, wanted)
    documents = view.documents(numbers)
    assert {d.id: d for d in documents if d} == {i: model.documents[i] for i in model.visible(wanted)}
    metadata = view.metadata(numbers)
    assert metadata.at.tolist() == [model.documents[str(i)].at for i in ids]
    assert metadata.source == [model.documents[str(i)].source for i in ids]
    assert metadata.curated.tolist() == [model.documents[str(i)].curated for i in ids]
    assert view.speakers_of(numbers) == [model.documents[str(i)].speaker for i in ids]
    said = [set(text_terms(model.documents[str(i)].text)) for i in ids]
    assert view.holding(CUES, numbers).tolist() == [[cue in one for one in said] for cue in CUES]
    where = view.whereabouts(numbers)
    for name in ("source", "topic", "task", "session", "ordinal"):
        assert getattr(where, name) == [getattr(model.documents[str(i)], name) for i in ids]
    speakers = {model.documents[str(i)].speaker for i in ids} - {None}
    assert set(view.speakers()) == speakers


def _assert_scores(found: dict[Any, float], expected: dict[str, float], within: float) -> None:
    assert set(found) == set(expected)
    for id_, score in expected.items():
        assert abs(found[id_] - score) < within * max(1.0, abs(score))
