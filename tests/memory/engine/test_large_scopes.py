"""The embedded index as it grows: scopes too large to multiply every vector, and the number of segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_machine import filters
from index_model import FINGERPRINT, Model, ids_of, move, vector_of

from builders import examples
from holdfast.memory.documents import Document, Filter
from holdfast.memory.engine import vectors
from holdfast.memory.engine.embedded import EmbeddedIndex
from holdfast.memory.engine.merging import Merge
from holdfast.memory.text import query_terms


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def index(folder: Path) -> Iterator[EmbeddedIndex]:
    opened = EmbeddedIndex(folder, seal_rows=64)
    yield opened
    opened.close()


def note(number: int, text: str, **fields: object) -> Document:
    return Document(id=f"n{number}", text=text, position=number + 1, **fields)  # type: ignore[arg-type]


@pytest.fixture
def large_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scopes as if they were large: sign bits are compared, few vectors multiplied."""
    monkeypatch.setattr(vectors, "EXACT_ROWS", 0)
    monkeypatch.setattr(vectors, "kept_for", lambda rows, limit: (5, 60))


@pytest.mark.usefixtures("large_scope")
def test_in_a_large_scope_nobody_is_shown_what_is_not_theirs_and_each_score_is_the_cosine(
    index: EmbeddedIndex,
) -> None:
    names = ("red", "green", "blue")
    batch = [
        note(n, f"said {n}", audience=names[n % 3], agent=names[n % 2], spaces=frozenset({names[n // 2 % 3]}))
        for n in range(200)
    ]
    model = Model()
    index.upsert(batch, {FINGERPRINT: np.array([vector_of(d.text) for d in batch])})
    model.upsert(batch, embedded=True)
    index.delete([f"n{n}" for n in range(0, 200, 9)])
    model.delete([f"n{n}" for n in range(0, 200, 9)])
    move(index, ["n50", "n51", "n52"], audience="blue")
    model.move(["n50", "n51", "n52"], audience="blue")

    @settings(max_examples=examples(60), deadline=None)
    @given(wanted=filters, text=st.text(max_size=3), limit=st.integers(1, 8))
    def asked(wanted: Filter, text: str, limit: int) -> None:
        query = vector_of(text)
        view, every = index.view(wanted), model.dense(query, wanted)
        near = view.dense(FINGERPRINT, query, limit)
        ids = ids_of(view, near.numbers)
        assert len(ids) == len(set(ids)) == min(limit, len(every))
        for id_, score in zip(ids, near.scores.tolist(), strict=True):
            assert abs(score - every[str(id_)]) < 0.02

    asked()


@pytest.mark.usefixtures("large_scope")
def test_in_a_large_scope_what_was_just_written_is_the_nearest_to_itself(index: EmbeddedIndex) -> None:
    for start in range(0, 300, 30):
        batch = [note(n, f"said {n}") for n in range(start, start + 30)]
        index.upsert(batch, {FINGERPRINT: np.array([vector_of(d.text) for d in batch])})
        view = index.view(Filter())
        for document in batch:
            near = view.dense(FINGERPRINT, vector_of(document.text), 1)
            assert ids_of(view, near.numbers) == [document.id]


def test_most_of_the_nearest_are_found_by_their_sign_bits_alone(
    index: EmbeddedIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    topics = rng.standard_normal((60, 256))
    batch = [note(n, f"word{n}") for n in range(6_000)]
    index.upsert(
        batch, {"wide": topics[rng.integers(0, 60, 6_000)] + 1.5 * rng.standard_normal((6_000, 256))}
    )
    view, kept = index.view(Filter()), 0
    for topic in topics[:25]:
        question = topic + rng.standard_normal(256)
        monkeypatch.setattr(vectors, "EXACT_ROWS", 10_000)
        exact = view.dense("wide", question, 40).numbers
        monkeypatch.setattr(vectors, "EXACT_ROWS", 0)
        kept += len(np.intersect1d(exact, view.dense("wide", question, 40).numbers))
    assert kept >= 0.985 * 25 * 40


def test_some_of_the_documents_that_were_looked_up_hold_what_they_hold_when_asked_alone(
    index: EmbeddedIndex,
) -> None:
    index.upsert([note(n, " ".join(f"word{n % m}" for m in (2, 3, 5))) for n in range(90)])
    view, terms = index.view(Filter()), [query_terms(f"word{n}").terms[0] for n in range(4)]
    every = np.arange(90)
    view.holding(terms, every)
    for some in (every[3:40:4], every[:0], np.array([7, 3, 88])):
        alone = index.view(Filter())
        assert np.array_equal(view.holding(terms[1:3], some), alone.holding(terms[1:3], some))
        assert np.array_equal(view.lexical_scores(terms, some), alone.lexical_scores(terms, some))


def test_segments_stay_few_while_the_log_grows(folder: Path) -> None:
    index = EmbeddedIndex(folder, seal_rows=8)
    most = 0
    for start in range(0, 8 * 64, 8):
        index.upsert([note(n, f"word{n}") for n in range(start, start + 8)])
        index.settle()
        most = max(most, len(index.segments))
    assert most <= 4
    view = index.view(Filter())
    assert ids_of(view, view.lexical(query_terms("word0").terms, 10).numbers) == ["n0"]
    index.close()


def test_an_index_that_makes_itself_anew_has_few_segments_again(folder: Path) -> None:
    def at_once(merge: Merge, finish: Callable[[Merge], None]) -> None:
        merge.write()
        finish(merge)

    with closing(EmbeddedIndex(folder, seal_rows=8)) as index:
        for start in range(0, 8 * 64, 8):
            index.upsert([note(n, f"word{n}") for n in range(start, start + 8)])
        index.settle()
    with closing(EmbeddedIndex(folder, seal_rows=8, analyse=str.split, beside=at_once)) as index:
        assert len(index.segments) <= 4
        index.rebuild()
        assert len(index.segments) <= 4
        view = index.view(Filter())
        assert ids_of(view, view.lexical(["word9"], 10).numbers) == ["n9"]


def test_which_of_equal_documents_are_the_best_does_not_depend_on_where_they_lie(tmp_path: Path) -> None:
    batch = [note(n, "the same words", spaces=frozenset({"ab"[n % 2]})) for n in range(40)]
    found = []
    for name, step in (("at once", 40), ("in pieces", 8)):
        index = EmbeddedIndex(tmp_path / name, seal_rows=8)
        for start in range(0, 40, step):
            some = batch[start : start + step]
            index.upsert(some, {FINGERPRINT: np.array([vector_of(d.text) for d in some])})
            index.flush()
        view = index.view(Filter())
        best = view.lexical(query_terms("same words").terms, 7).numbers
        near = view.dense(FINGERPRINT, vector_of("the same words"), 7).numbers
        found += [(ids_of(view, best), ids_of(view, near))]
        index.close()
    first = [f"n{n}" for n in range(7)]
    assert found == [(first, first), (first, first)]


def test_how_many_of_the_nearest_are_multiplied_does_not_depend_on_where_they_lie() -> None:
    rng = np.random.default_rng(5)
    found = np.minimum(rng.binomial(256, 0.4, 20_000), 254).astype(np.uint8)
    bars = {vectors.nearest(rng.permutation(found), 900, 256) for _ in range(30)}
    assert len(bars) == 1
    assert np.count_nonzero(found <= bars.pop()) >= 900
