"""The embedded index at its edges: crashes, damage, threads, rare words, spaces of vectors."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from index_model import DIMS, FINGERPRINT, Model, assert_same, ids_of, move, vector_of

import forks
from holdfast.errors import Conflict, InvalidInput
from holdfast.memory.documents import Document, Filter
from holdfast.memory.engine import view as searching
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


def found(
    index: EmbeddedIndex, question: str, wanted: Filter | None = None, limit: int = 10
) -> list[str | None]:
    view = index.view(wanted or Filter())
    return ids_of(view, view.lexical(query_terms(question).terms, limit).numbers)


WRITER = """
import sys
from pathlib import Path
from holdfast.memory.documents import Document
from holdfast.memory.engine.embedded import EmbeddedIndex

index = EmbeddedIndex(Path(sys.argv[1]), seal_rows=64)
number = max(0, index.position - 5)
while True:
    numbers = range(number, number + 5)
    index.upsert([Document(f"d{n}", f"entry word{n}", position=n + 1) for n in numbers])
    if number >= 50:
        index.delete([f"d{number - 50}"])
        index.move([Document(f"d{number - 49}", "", topic="moved")])
    number += 5
    print(index.position, flush=True)
"""


def test_a_killed_writer_leaves_all_that_it_acknowledged(folder: Path) -> None:
    for acknowledged_at_least in (60, 120, 200):
        writer = forks.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        acknowledged = 0
        while acknowledged < acknowledged_at_least:
            acknowledged = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        opened = EmbeddedIndex(folder, seal_rows=64)
        assert opened.position >= acknowledged
        for number in range(acknowledged):
            there = found(opened, f"word{number}")
            if number % 5 or number >= opened.position - 50:
                assert there == [f"d{number}"]
            elif number <= acknowledged - 55:
                assert there == []
        assert opened.get(["d6"])["d6"].topic == "moved"
        opened.close()


def test_a_rare_word_decides_beside_common_ones(index: EmbeddedIndex) -> None:
    common = [note(n, "the harbour meeting about the harbour plan and the tide") for n in range(300)]
    index.upsert([note(999, "the harbour plan names the quokka once"), *common])
    assert found(index, "harbour plan meeting quokka")[0] == "n999"


def test_a_log_that_grows_with_common_words_is_not_read_through_for_a_question_with_rare_ones(
    index: EmbeddedIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "_FEW_POSTINGS", 0)
    terms = query_terms("garden quokka wombat").terms
    read = []
    for begin, end in ((0, 300), (300, 3_000)):
        index.upsert(
            [note(n, "quokka wombat" if n < 30 else "garden talk of the day") for n in range(begin, end)]
        )
        looked = index.view(Filter())
        best = looked.lexical(terms, 20)
        assert set(ids_of(looked, best.numbers)) == {f"n{n}" for n in range(20)}
        read.append(looked.postings_read)
    assert read == [60, 60]


def test_the_best_by_words_are_the_same_whether_all_lists_are_read_or_the_long_ones_looked_into(
    index: EmbeddedIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    words = [f"word{n}" for n in range(60)]
    drawn = np.minimum(60 ** rng.random((1_500, 12)), 59).astype(int)
    texts = [" ".join(words[word] for word in row[: rng.integers(2, 12)]) for row in drawn]
    index.upsert([note(n, text, topic=f"t{n % 3}") for n, text in enumerate(texts)])
    index.delete([f"n{n}" for n in range(0, 1_500, 7)])
    pruned = 0
    for wanted in (Filter(), Filter(topics=frozenset({"t1"}))):
        for row in drawn[:200]:
            terms = query_terms(" ".join(words[word] for word in row[:6])).terms
            monkeypatch.setattr(searching, "_FEW_POSTINGS", 10**9)
            scanned, every = index.view(wanted), index.view(wanted).lexical(terms, 5)
            monkeypatch.setattr(searching, "_FEW_POSTINGS", 0)
            looked = index.view(wanted)
            found_by_few = looked.lexical(terms, 5)
            assert np.array_equal(found_by_few.numbers, every.numbers)
            assert np.array_equal(found_by_few.scores, every.scores)
            pruned += looked.postings_read < sum(scanned.frequencies(list(dict.fromkeys(terms))))
        asked = [[words[word] for word in row[:6]] for row in drawn[:200]]
        alone = [index.view(wanted).lexical(terms, 5) for terms in asked]
        for many in (0, 500, 10**9):
            monkeypatch.setattr(searching, "_MANY_POSTINGS", many)
            for one, other in zip(index.view(wanted).lexical_each(asked, 5), alone, strict=True):
                assert np.array_equal(one.numbers, other.numbers)
                assert np.array_equal(one.scores, other.scores)
    assert pruned > 50


def test_many_starts_and_stops_leave_a_handful_of_segments(folder: Path) -> None:
    for start in range(0, 120, 3):
        with_some = EmbeddedIndex(folder)
        with_some.upsert([note(n, f"word{n} is said") for n in range(start, start + 3)])
        with_some.delete([f"n{start - 6}"])
        move(with_some, [f"n{start - 5}"], topic="moved")
        with_some.close()
    opened = EmbeddedIndex(folder)
    assert len(opened.segments) <= 3
    assert [found(opened, f"word{n}") for n in (0, 1, 60, 119)] == [[], ["n1"], [], ["n119"]]
    assert opened.get(["n1"])["n1"].topic == "moved"
    opened.close()


def test_quiet_hours_make_one_segment_of_many_or_two(index: EmbeddedIndex) -> None:
    for start in range(0, 600, 7):
        index.upsert([note(n, f"talk number{n}") for n in range(start, start + 7)])
    index.delete(["n4"])
    index.settle()
    assert len(index.segments) > 2
    index.tidy()
    index.settle()
    # The row of what was deleted goes when its segment is written again.
    assert sum(index.segments) in (601, 602)
    assert len(index.segments) <= 2
    assert [found(index, f"number{n}") for n in (0, 4, 300, 599)] == [["n0"], [], ["n300"], ["n599"]]


def test_a_large_segment_is_not_written_again_for_a_few_rows(index: EmbeddedIndex) -> None:
    index.upsert([note(n, f"talk number{n}") for n in range(400)])
    index.flush()
    for start in range(400, 440, 8):
        index.upsert([note(n, f"talk number{n}") for n in range(start, start + 8)])
        index.flush()
        index.tidy()
        index.settle()
        assert sum(index.segments) == start + 8
        assert len(index.segments) <= 2
    assert max(index.segments) == 400
    assert [found(index, f"number{n}") for n in (0, 439)] == [["n0"], ["n439"]]


def test_the_oldest_document_is_found_after_many_merges(index: EmbeddedIndex) -> None:
    index.upsert([note(0, "the first thing ever said was zanzibar")])
    for start in range(1, 600, 7):
        index.upsert([note(n, f"later talk number{n}") for n in range(start, start + 7)])
    index.settle()
    assert len(index.segments) < 8
    assert found(index, "zanzibar") == ["n0"]


def test_a_write_is_found_by_the_next_search(index: EmbeddedIndex) -> None:
    for number in range(40):
        index.upsert([note(number, f"fresh word{number}")])
        assert found(index, f"word{number}") == [f"n{number}"]


def test_a_small_scope_is_not_crowded_out_by_a_large_one(index: EmbeddedIndex) -> None:
    index.upsert([note(n, "anchor anchor anchor", spaces=frozenset({"big"})) for n in range(200)])
    index.upsert([note(900, "one anchor among many other words here", spaces=frozenset({"small"}))])
    index.flush()
    assert found(index, "anchor", Filter(spaces=frozenset({"small"})), limit=1) == ["n900"]


def test_what_one_agent_wrote_changes_no_score_of_another(index: EmbeddedIndex) -> None:
    index.upsert([note(1, "kelp grows", agent="a"), note(2, "tide turns", agent="a")])
    view = index.view(Filter(agents=frozenset({"a"})))
    before = view.lexical(["kelp", "tide"], 5).scores.tolist()
    index.upsert([note(n, "kelp kelp kelp", agent="b") for n in range(10, 60)])
    after = index.view(Filter(agents=frozenset({"a"}))).lexical(["kelp", "tide"], 5)
    assert after.scores.tolist() == before


def test_a_moved_topic_is_found_in_its_new_spaces_only(index: EmbeddedIndex) -> None:
    index.upsert([note(n, "anchor", spaces=frozenset({"old"}), topic="t") for n in range(100)])
    index.flush()
    ids = [f"n{n}" for n in range(0, 100, 2)]
    assert move(index, ids, spaces=frozenset({"new", "other"})) == 50
    assert set(found(index, "anchor", Filter(spaces=frozenset({"new"})), 200)) == set(ids)
    assert len(found(index, "anchor", Filter(spaces=frozenset({"old"})), 200)) == 50
    index.tidy()
    index.settle()
    assert set(found(index, "anchor", Filter(spaces=frozenset({"other"})), 200)) == set(ids)


def test_moves_and_deletions_of_sealed_documents_outlive_a_crash_and_a_restart(tmp_path: Path) -> None:
    index, model = EmbeddedIndex(tmp_path / "0", seal_rows=4), Model()
    documents = [note(n, "kelp tide", spaces=frozenset({"old"}), topic="t") for n in range(20)]
    index.upsert(documents)
    index.flush()
    model.upsert(documents, embedded=False)
    moves = [
        (["n0", "n7"], {"spaces": frozenset({"new"})}),
        (["n19"], {"topic": "u"}),
        (["n3"], {"task": "v"}),
    ]
    for ids, changes in moves:
        move(index, ids, **changes)
        model.move(ids, **changes)
    index.delete(["n5"])
    model.delete(["n5"])
    later = note(30, "kelp", spaces=frozenset({"new"}))
    index.upsert([later])
    index.flush()
    model.upsert([later], embedded=False)
    shutil.copytree(tmp_path / "0", tmp_path / "1")
    index.close()
    for folder in (tmp_path / "0", tmp_path / "1"):
        opened = EmbeddedIndex(folder, seal_rows=4)
        assert opened.segments == [20, 1]
        for fields in ({}, {"spaces": {"old"}}, {"spaces": {"new"}}, {"topics": {"t"}}, {"tasks": {"v"}}):
            wanted = Filter(**{name: frozenset(value) for name, value in fields.items()})  # type: ignore[arg-type]
            assert_same(opened, model, wanted, ["kelp"])
        opened.close()


@pytest.mark.parametrize("sealed", [False, True])
def test_what_is_excluded_is_neither_found_nor_a_neighbour(index: EmbeddedIndex, sealed: bool) -> None:
    documents = [note(n, "kelp", spaces=frozenset({f"s{n % 2}"}), thread="t", ordinal=n) for n in range(12)]
    vectors = {FINGERPRINT: np.array([vector_of(d.id) for d in documents])}
    index.upsert(documents, vectors)
    if sealed:
        index.flush()
    for out in (*range(12), 99):
        view = index.view(Filter(exclude=frozenset({f"n{out}"})))
        left = [f"n{n}" for n in range(12) if n != out]
        assert view.count == view.with_vector(FINGERPRINT) == len(left)
        assert sorted(map(str, ids_of(view, view.recent(99)))) == sorted(left)
        assert f"n{out}" not in ids_of(view, view.lexical(["kelp"], 99).numbers)
        assert f"n{out}" not in ids_of(view, view.dense(FINGERPRINT, vector_of("x"), 99).numbers)
        beside = view.neighbours(view.recent(99))
        assert f"n{out}" not in ids_of(view, beside.ravel())


def test_a_view_stays_as_it_was_while_the_index_goes_on(index: EmbeddedIndex) -> None:
    index.upsert([note(n, f"kelp word{n}") for n in range(50)])
    view = index.view(Filter())
    index.delete([f"n{n}" for n in range(25)])
    index.tidy()
    index.settle()
    assert view.count == 50
    assert len(view.lexical(["kelp"], 100).numbers) == 50
    assert index.view(Filter()).count == 25


def test_vectors_of_two_models_never_mix(index: EmbeddedIndex) -> None:
    documents = [note(n, f"text {n}") for n in range(20)]
    index.upsert(documents, {FINGERPRINT: np.array([vector_of(d.text) for d in documents])})
    other = np.array([vector_of(d.text, "other:8")[:8] for d in documents[:5]])
    assert index.put_vectors("other:8", [d.id for d in documents[:5]], other) == 5
    index.flush()
    view = index.view(Filter())
    top = view.dense("other:8", vector_of("text 3", "other:8")[:8], 20)
    assert len(top.numbers) == 5
    assert ids_of(view, top.numbers)[0] == "n3"
    assert ids_of(view, view.dense(FINGERPRINT, vector_of("text 7"), 1).numbers) == ["n7"]
    assert len(view.dense("unknown", vector_of("x"), 5).numbers) == 0
    assert len(view.lexical(["text"], 50).numbers) == 20


@pytest.mark.parametrize("sealed", [False, True])
def test_a_zero_vector_takes_away_the_one_that_was_there(index: EmbeddedIndex, sealed: bool) -> None:
    documents = [note(n, f"text {n}") for n in range(5)]
    index.upsert(documents, {FINGERPRINT: np.array([vector_of(d.text) for d in documents])})
    if sealed:
        index.flush()
    assert index.view(Filter()).with_vector(FINGERPRINT) == 5
    index.put_vectors(FINGERPRINT, ["n3"], np.zeros((1, DIMS)))
    view = index.view(Filter())
    assert view.with_vector(FINGERPRINT) == 4
    assert "n3" not in ids_of(view, view.dense(FINGERPRINT, vector_of("text 3"), 9).numbers)


def test_vectors_of_the_wrong_width_or_number_are_refused(index: EmbeddedIndex) -> None:
    index.upsert([note(1, "kelp")], {FINGERPRINT: np.ones((1, DIMS))})
    with pytest.raises(InvalidInput):
        index.put_vectors(FINGERPRINT, ["n1"], np.ones((1, DIMS + 1)))
    with pytest.raises(InvalidInput):
        index.upsert([note(2, "tide")], {FINGERPRINT: np.ones((2, DIMS))})
    with pytest.raises(InvalidInput):
        index.view(Filter()).dense(FINGERPRINT, np.ones(3), 5)
    assert index.count == 1
    assert found(index, "tide") == []


def test_a_scan_by_sign_bits_finds_what_an_exact_one_does(folder: Path) -> None:
    rng = np.random.default_rng(5)
    centres = rng.standard_normal((400, 128))
    rows = 24_000
    vectors = (centres[rng.integers(0, 400, rows)] + 0.9 * rng.standard_normal((rows, 128))).astype(
        np.float32
    )
    index = EmbeddedIndex(folder)
    for start in range(0, rows, 4_000):
        batch = [Document(f"{n}", "") for n in range(start, start + 4_000)]
        index.upsert(batch, {"wide:128": vectors[start : start + 4_000]})
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    view = index.view(Filter())
    hits = 0
    for query in rng.choice(unit, 40) + 0.05 * rng.standard_normal((40, 128)):
        exact = np.argsort(-(unit @ query))[:20]
        near = ids_of(view, view.dense("wide:128", query, 20).numbers)
        hits += len({str(n) for n in exact} & set(near))
    index.close()
    assert hits / 800 >= 0.99


def test_readers_see_whole_batches_while_a_writer_works(index: EmbeddedIndex) -> None:
    """Every batch has one document per space; no search may see part of a batch or another's space."""
    batches, stop = 120, threading.Event()

    def read() -> int:
        seen = 0
        while not stop.is_set():
            everywhere = index.view(Filter())
            assert everywhere.count % 3 == 0
            assert everywhere.count >= seen
            seen = everywhere.count
            view = index.view(Filter(spaces=frozenset({"s1"})))
            top = view.lexical(["kelp"], 500)
            documents = [d for d in view.documents(top.numbers) if d is not None]
            assert len(documents) == view.count
            assert all(d.spaces == {"s1"} for d in documents)
            dense = view.dense(FINGERPRINT, vector_of("kelp"), 500)
            assert len(dense.numbers) == view.count
        return seen

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        for batch in range(batches):
            documents = [
                note(batch * 3 + s, f"kelp word{batch}", spaces=frozenset({f"s{s}"})) for s in range(3)
            ]
            index.upsert(documents, {FINGERPRINT: np.array([vector_of(d.text) for d in documents])})
        stop.set()
        assert all(reader.result() <= batches * 3 for reader in readers)
    assert index.view(Filter()).count == batches * 3


def test_a_document_that_is_being_rewritten_is_never_missed(index: EmbeddedIndex) -> None:
    """Neither by the search nor when what it found is fetched, while batches are replaced and merged."""
    ids = {f"n{n}" for n in range(30)}
    index.upsert([note(n, "kelp first") for n in range(30)])
    stop = threading.Event()

    def read() -> int:
        rounds = 0
        while not stop.is_set():
            view = index.view(Filter())
            assert view.count == 30
            top = view.lexical(["kelp"], 100)
            documents = view.documents(top.numbers)
            assert {d.id for d in documents if d is not None} == ids
            rounds += 1
        return rounds

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            for turn in range(150):
                index.upsert([note(n, f"kelp turn{turn}") for n in range(turn % 20, turn % 20 + 10)])
        finally:
            stop.set()
        assert all(reader.result() > 0 for reader in readers)


def test_a_document_that_left_the_scope_is_not_shown_by_an_older_view(index: EmbeddedIndex) -> None:
    index.upsert([note(1, "kelp open", spaces=frozenset({"red"}))])
    view = index.view(Filter(spaces=frozenset({"red"})))
    found_before = view.lexical(["kelp"], 5).numbers
    index.upsert([note(1, "kelp secret", spaces=frozenset({"blue"}))])
    assert view.documents(found_before) == [None]
    of_blue = index.view(Filter(spaces=frozenset({"blue"})))
    found_before = of_blue.lexical(["kelp"], 5).numbers
    move(index, ["n1"], spaces=frozenset({"red"}))
    assert of_blue.documents(found_before) == [None]
    assert index.view(Filter(spaces=frozenset({"blue"}))).count == 0


def test_a_merge_under_way_is_given_up_at_the_close_and_leaves_nothing(folder: Path) -> None:
    begun: list[Merge] = []
    index = EmbeddedIndex(folder, seal_rows=8, beside=lambda merge, finish: begun.append(merge))
    for start in (0, 8):
        index.upsert([note(n, f"kelp word{n}") for n in range(start, start + 8)])
    begun[0].write()
    assert (folder / f"{begun[0].name}.seg").exists()
    index.close()
    assert not list(folder.glob(f"{begun[0].name}.*"))
    opened = EmbeddedIndex(folder, seal_rows=8)
    assert len(found(opened, "kelp", limit=99)) == 16
    opened.flush()
    opened.settle()
    assert opened.segments == [16]
    opened.close()


def test_a_merge_that_cannot_be_written_costs_no_document(folder: Path) -> None:
    begun: list[tuple[Merge, Callable[[Merge], None]]] = []
    index = EmbeddedIndex(folder, seal_rows=8, beside=lambda *merge: begun.append(merge))
    for start in (0, 8):
        index.upsert([note(n, f"kelp word{n}") for n in range(start, start + 8)])
    merge, finish = begun.pop()
    (folder / f"{merge.name}.new").mkdir()
    merge.write()
    finish(merge)
    assert not merge.is_written
    assert index.segments == [8, 8]
    (folder / f"{merge.name}.new").rmdir()
    index.flush()
    merge, finish = begun.pop()
    merge.write()
    finish(merge)
    assert index.segments == [16]
    assert len(found(index, "kelp", limit=99)) == 16
    index.close()


def test_a_second_process_is_told_that_the_index_is_open(index: EmbeddedIndex, folder: Path) -> None:
    with pytest.raises(Conflict) as refused:
        EmbeddedIndex(folder)
    assert refused.value.code == "index_in_use"


def test_a_damaged_store_is_set_aside_and_the_index_begins_anew(folder: Path) -> None:
    first = EmbeddedIndex(folder)
    first.upsert([note(7, "kelp")])
    first.close()
    (folder / "index.db").write_bytes(b"not a database, by any means" * 100)
    again = EmbeddedIndex(folder)
    assert (again.count, again.position) == (0, 0)
    assert again.identity != first.identity
    assert "index.db" in again.health.damaged[0].part
    assert any(name.endswith("-index.db") for name in again.health.set_aside)
    again.upsert([note(1, "kelp")])
    assert found(again, "kelp") == ["n1"]
    again.close()


def test_another_way_of_cutting_words_indexes_the_stored_texts_again(folder: Path) -> None:
    first = EmbeddedIndex(folder)
    first.upsert([note(1, "Kelp Forest")], {FINGERPRINT: vector_of("x")[None, :]})
    first.close()
    second = EmbeddedIndex(folder, analyse=lambda text: [text.upper()])
    view = second.view(Filter())
    assert ids_of(view, view.lexical(["KELP FOREST"], 5).numbers) == ["n1"]
    assert second.without_vector(FINGERPRINT, 5) == []
    second.close()


def test_a_repeated_id_in_one_batch_keeps_the_last(index: EmbeddedIndex) -> None:
    model = Model()
    batch = [note(1, "kelp"), note(2, "tide"), note(1, "anchor")]
    index.upsert(batch, {FINGERPRINT: np.array([vector_of(d.text) for d in batch])})
    model.upsert(batch, embedded=True)
    assert_same(index, model, Filter(), ["kelp", "tide", "anchor"])


def test_an_index_that_was_laid_out_otherwise_is_made_anew(folder: Path) -> None:
    index = EmbeddedIndex(folder)
    index.upsert([note(1, "kelp")])
    old = index.identity
    index.close()
    with closing(sqlite3.connect(folder / "index.db")) as connection:
        connection.execute("alter table docs drop column writer")
    again = EmbeddedIndex(folder)
    try:
        assert (again.count, again.position, again.segments) == (0, 0, [])
        assert again.identity != old
        again.upsert([note(2, "kelp", writer="coder")])
        assert found(again, "kelp", Filter(writers=frozenset({"coder"}))) == ["n2"]
        assert found(again, "kelp", Filter(writers=frozenset({"main"}))) == []
    finally:
        again.close()
