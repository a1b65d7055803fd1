"""The index in PostgreSQL: the model's rules, its own edges, and the embedded index beside it."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test
from index_machine import IndexMachine, filters
from index_model import DIMS, FINGERPRINT, ids_of, move, vector_of

import forks
from holdfast.errors import Conflict, InvalidInput, Unavailable
from holdfast.log import Store
from holdfast.memory.documents import SOURCES, Document, Filter
from holdfast.memory.engine import Index, View, open_index
from holdfast.memory.engine.embedded import EmbeddedIndex
from holdfast.memory.engine.postgres import PostgresIndex
from holdfast.memory.question import Query
from holdfast.memory.scoring import rank
from holdfast.memory.text import query_terms, terms
from holdfast.runtime import open_home

FEW = settings(
    max_examples=8,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)


RED = frozenset({"red"})
ONE_OF_EACH = (
    *(Filter(), Filter(agents=RED), Filter(spaces=RED), Filter(collections=RED), Filter(topics=RED)),
    *(Filter(tasks=RED), Filter(sessions=RED), Filter(speakers=RED), Filter(sources=frozenset({"log"}))),
    *(Filter(curated=True), Filter(curated=False), Filter(since=100), Filter(until=100)),
    *(Filter(chatter_since=200), Filter(exclude=frozenset({"d3", "d4"})), Filter(agents=frozenset())),
)


@pytest.fixture
def url(postgres_url: str) -> str:
    return postgres_url


@pytest.fixture
def index(url: str) -> Iterator[PostgresIndex]:
    opened = PostgresIndex(url)
    yield opened
    opened.close()
    dropped(url)


def dropped(url: str, schema: str = "memory_index") -> None:
    import sqlalchemy as sa

    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"drop schema if exists {schema} cascade")
    engine.dispose()


def note(number: int, text: str, **fields: Any) -> Document:
    return Document(id=f"n{number}", text=text, position=number + 1, **fields)


def found(index: Index, question: str, wanted: Filter | None = None, limit: int = 10) -> list[str | None]:
    view = index.view(wanted or Filter())
    return ids_of(view, view.lexical(query_terms(question).terms, limit).numbers)


def test_any_history_leaves_an_index_that_answers_like_the_model(url: str) -> None:
    class PostgresMachine(IndexMachine):
        def opened(self) -> PostgresIndex:
            return PostgresIndex(url, "any_history")

        def cleared(self) -> None:
            dropped(url, "any_history")

    run_state_machine_as_test(PostgresMachine, settings=FEW)


def test_both_engines_find_the_same_with_the_same_scores(index: PostgresIndex, tmp_path: Path) -> None:
    embedded = EmbeddedIndex(tmp_path / "index", seal_rows=64)
    for engine in (index, embedded):
        fill(engine)
    queries = [query_of(text) for text in ("kelp harbour w3 w70", "who spoke of the tide?", "w1 w2 w500")]

    def same(wanted: Filter, query: Query) -> None:
        ours, theirs = index.view(wanted), embedded.view(wanted)
        assert ours.count == theirs.count
        assert ours.with_vector(FINGERPRINT) == theirs.with_vector(FINGERPRINT)
        assert set(ours.speakers()) == set(theirs.speakers())
        assert ours.frequencies([*query.terms, "nowhere"]) == theirs.frequencies([*query.terms, "nowhere"])
        assert scores(ours, query) == pytest.approx(scores(theirs, query), abs=1e-3)
        assert ranked(ours, query) == pytest.approx(ranked(theirs, query), abs=1e-3)

    for wanted in ONE_OF_EACH:
        same(wanted, queries[0])
    settings(FEW, max_examples=30)(given(wanted=filters, query=st.sampled_from(queries))(same))()
    for query in queries:
        first, second = (ranked(engine.view(Filter()), query) for engine in (index, embedded))
        assert_same_order(list(first)[:20], second)
    embedded.close()


def assert_same_order(names: list[str | None], scores: dict[str | None, float]) -> None:
    """The best twenty are the best of the other too; which of two equals comes first is left to either."""
    best = sorted(scores.values(), reverse=True)[: len(names)]
    assert [scores[name] for name in names] == pytest.approx(best, abs=2e-3)


def fill(index: Index) -> None:
    """A few hundred documents with every field in use, then moved, replaced and deleted in part."""
    rng = random.Random(3)
    names = ("red", "green", "blue", None)
    documents = [
        Document(
            id=f"d{number}",
            text=" ".join(rng.choices(("kelp", "tide?", "harbour", *(f"w{n}" for n in range(99))), k=12)),
            source=rng.choice(SOURCES),
            agent=rng.choice(names),
            spaces=frozenset(rng.sample(("red", "green", "blue"), rng.randrange(3))),
            collection=rng.choice(names),
            topic=rng.choice(names),
            task=rng.choice(names),
            session=rng.choice(names),
            speaker=rng.choice(names),
            at=number,
            curated=rng.random() < 0.2,
            thread=f"t{number // 20}",
            ordinal=number % 20,
        )
        for number in range(300)
    ]
    embedded = documents[:250]
    index.upsert(embedded, {FINGERPRINT: np.array([vector_of(d.text) for d in embedded])})
    index.upsert(documents[250:])
    index.upsert([replace(documents[7], text="tide kelp kelp"), replace(documents[260], text="w3 " * 30)])
    move(index, [f"d{n}" for n in range(0, 300, 9)], spaces=frozenset({"red"}), topic="green")
    index.delete([f"d{n}" for n in range(0, 300, 17)])


def query_of(text: str) -> Query:
    return Query(text, query_terms(text).terms, text, vector=vector_of(text), fingerprint=FINGERPRINT)


def scores(view: View, query: Query) -> dict[str | None, float]:
    """Both components of everything that a view has, by id."""
    assert query.vector is not None
    lexical = view.lexical(query.terms, 10_000)
    dense = view.dense(query.fingerprint, query.vector, 10_000)
    by_words = dict(zip(ids_of(view, lexical.numbers), lexical.scores.tolist(), strict=True))
    by_meaning = zip(ids_of(view, dense.numbers), dense.scores.tolist(), strict=True)
    return {**by_words, **{f"{id_} by meaning": score for id_, score in by_meaning}}


def ranked(view: View, query: Query) -> dict[str | None, float]:
    best = rank(query, view, limit=10_000)
    ids = ids_of(view, np.array([one.number for one in best], np.int64))
    return dict(zip(ids, (one.score for one in best), strict=True))


def test_a_view_stays_as_it_was_while_the_index_goes_on(index: PostgresIndex) -> None:
    index.upsert([note(n, f"kelp word{n}") for n in range(20)])
    view = index.view(Filter())
    index.delete([f"n{n}" for n in range(5)])
    index.upsert([note(n, "kelp") for n in range(30, 40)])
    assert view.count == 20
    top = view.lexical(["kelp"], 100)
    assert len(top.numbers) == 20
    assert view.speakers_of(top.numbers) == [None] * 20
    assert index.view(Filter()).count == 25


def test_what_one_process_wrote_is_found_by_another_at_once(index: PostgresIndex, url: str) -> None:
    other = PostgresIndex(url)
    assert other.identity == index.identity
    for number in range(5):
        index.upsert([note(number, f"fresh word{number}", agent=f"a{number}")])
        assert found(other, f"word{number}") == [f"n{number}"]
        assert other.position == number + 1
        other.delete([f"n{number}"])
        assert index.count == 0
    other.close()


WRITER = """
import sys
from holdfast.memory.documents import Document
from holdfast.memory.engine.postgres import PostgresIndex

index = PostgresIndex(sys.argv[1])
print("open", flush=True)
sys.stdin.readline()
for number in range(15):
    who = sys.argv[2]
    index.upsert([Document(f"shared{number}", f"kelp {who}"), Document(f"{who}{number}", f"tide {who}")])
    index.move([Document(f"shared{number}", "", spaces=frozenset({who}))])
index.close()
"""


def test_writers_in_two_processes_leave_every_count_right(index: PostgresIndex, url: str) -> None:
    writers = [
        forks.Popen(
            [sys.executable, "-c", WRITER, url, who],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for who in ("ann", "ben")
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
    for writer in writers:
        assert writer.stdin is not None
        print("go", file=writer.stdin, flush=True)
    assert [writer.wait() for writer in writers] == [0, 0]
    view = index.view(Filter())
    before = view.lexical(["kelp", "tide", "ann"], 100)
    assert index.count == view.count == 45
    index.rebuild()
    again = index.view(Filter()).lexical(["kelp", "tide", "ann"], 100)
    assert again.scores.tolist() == before.scores.tolist()
    assert again.numbers.tolist() == before.numbers.tolist()


def test_a_write_that_fails_leaves_nothing_of_itself(index: PostgresIndex) -> None:
    index.upsert([note(1, "kelp")], {FINGERPRINT: np.ones((1, DIMS))})
    with pytest.raises(InvalidInput):
        index.upsert([note(2, "tide")], {FINGERPRINT: np.ones((1, DIMS + 1))}, position=9)
    with pytest.raises(InvalidInput):
        index.upsert([note(2, "tide")], {FINGERPRINT: np.ones((2, DIMS))})
    with pytest.raises(InvalidInput):
        index.view(Filter()).dense(FINGERPRINT, np.ones(3), 5)
    assert (index.count, index.position) == (1, 2)
    assert found(index, "tide") == []
    index.upsert([note(2, "tide")])
    assert found(index, "tide") == ["n2"]


def test_vectors_of_two_models_never_mix(index: PostgresIndex) -> None:
    documents = [note(n, f"text {n}") for n in range(20)]
    index.upsert(documents, {FINGERPRINT: np.array([vector_of(d.text) for d in documents])})
    other = np.array([vector_of(d.text, "other:8")[:8] for d in documents[:5]])
    assert index.put_vectors("other:8", [*(d.id for d in documents[:5])], other) == 5
    view = index.view(Filter())
    top = view.dense("other:8", vector_of("text 3", "other:8")[:8], 20)
    assert len(top.numbers) == view.with_vector("other:8") == 5
    assert ids_of(view, top.numbers)[0] == "n3"
    assert ids_of(view, view.dense(FINGERPRINT, vector_of("text 7"), 1).numbers) == ["n7"]
    assert len(view.dense("unknown", vector_of("x"), 5).numbers) == 0


def test_an_empty_write_still_moves_the_position_and_never_back(index: PostgresIndex) -> None:
    index.upsert([], position=7)
    index.delete([], position=5)
    assert index.move([], position=6) == 0
    assert (index.count, index.position) == (0, 7)


def test_a_zero_vector_takes_away_the_one_that_was_there(index: PostgresIndex) -> None:
    index.upsert([note(1, "kelp"), note(2, "tide")], {FINGERPRINT: np.eye(2, DIMS)})
    assert index.put_vectors(FINGERPRINT, ["n1", "unknown"], np.zeros((2, DIMS))) == 1
    assert [d.id for d in index.without_vector(FINGERPRINT, 5)] == ["n1"]
    assert index.view(Filter()).with_vector(FINGERPRINT) == 1


def test_a_text_with_a_nul_is_kept_and_found(index: PostgresIndex) -> None:
    index.upsert([note(1, "kelp\x00forest", speaker="a\x00b")])
    assert found(index, "forest", Filter(speakers=frozenset({"a\x00b"}))) == ["n1"]


def test_another_way_of_cutting_words_indexes_the_stored_texts_again(index: PostgresIndex, url: str) -> None:
    index.upsert([note(1, "Kelp Forest"), note(2, "Tide")], {FINGERPRINT: np.ones((2, DIMS))})
    other = PostgresIndex(url, analyse=lambda text: [text.upper()])
    view = other.view(Filter())
    assert ids_of(view, view.lexical(["KELP FOREST"], 5).numbers) == ["n1"]
    assert len(view.lexical(terms("kelp"), 5).numbers) == 0
    assert other.without_vector(FINGERPRINT, 5) == []
    other.close()


def test_a_dropped_index_is_made_anew_under_another_identity(index: PostgresIndex, url: str) -> None:
    index.upsert([note(1, "kelp")])
    before = index.identity
    index.close()
    dropped(url)
    again = PostgresIndex(url)
    assert (again.count, again.position) == (0, 0)
    assert again.identity != before
    again.close()


def test_a_schema_with_other_tables_is_left_alone(url: str) -> None:
    with pytest.raises(Conflict):
        PostgresIndex(url, "pg_catalog")


def test_a_closed_index_says_so_and_holds_nothing(index: PostgresIndex, url: str) -> None:
    view = index.view(Filter())
    index.close()
    with pytest.raises(Unavailable):
        index.view(Filter())
    with pytest.raises(Unavailable):
        view.recent(5)
    dropped(url)


def test_a_home_searches_the_shared_index_and_fills_it_again_when_it_was_dropped(
    url: str, tmp_path: Path
) -> None:
    settings = '{"memory": {"search": {"engine": "postgres", "embedding": {"providers": ["local"]}}}}'
    (tmp_path / "holdfast.json").write_text(settings)
    indexed = []
    for drop in (True, False, True):
        if drop:
            dropped(url)
        with open_home(tmp_path, store_url=url) as hold:
            note = hold.workspace("main") / "MEMORY.md"
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text("The quokka lives on Rottnest.")
            indexed.append(hold.memory.update("main").indexed)
            assert [hit.path for hit in hold.memory.find("where does the quokka live?").hits] == ["MEMORY.md"]
        reader = PostgresIndex(url)
        assert found(reader, "quokka Rottnest", Filter(agents=frozenset({"main"})))
        reader.close()
    assert indexed == [1, 0, 1]
    dropped(url)


def test_the_engine_is_chosen_by_name(url: str, tmp_path: Path) -> None:
    store = Store(url)
    for engine, kind in (("auto", EmbeddedIndex), ("embedded", EmbeddedIndex), ("postgres", PostgresIndex)):
        opened = open_index(tmp_path / engine, store, engine)  # type: ignore[arg-type]
        assert isinstance(opened, kind)
        opened.close()
    with pytest.raises(InvalidInput):
        open_index(tmp_path / "index", None, "postgres")
    with pytest.raises(InvalidInput):
        PostgresIndex("sqlite:///somewhere.db")
    store.close()
    dropped(url)
