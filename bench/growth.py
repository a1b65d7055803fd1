"""How finding and ranking grow from ten thousand to ten million entries, on an index made by a generator.

    python bench/growth.py                                  # to 1,000,000: about a minute
    python bench/growth.py --sizes 10000 1000000 10000000   # about 6 GB of memory, some minutes of CPU
    python bench/growth.py --texts docs locomo.json         # how many of the nearest are found, in real text

Writing ten million entries takes hours; what a question costs depends on the index, which is made here as
arrays, in the segments that merging leaves, and put together by the index's own code. Words, scopes and
topics are those of bench/search.py. Each question is ranked as the board does it (`weigh` and `choose`, 40
candidates), in one of the 20 scopes and over all of them. CPU is the best of some rounds over all questions,
after one that warms up; `postings` is how many the question's words have in the scope, `read` how many of
them were gone through, `rows` how many vectors were compared by their sign bits.

With `--texts` sentences of files are embedded by the static model, and the nearest 40 as the index finds them
are held against those by every product. Vectors of a generator have no such neighbours as real ones have.
"""

from __future__ import annotations

import argparse
import re
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from search import DIMS, FINGERPRINT, SCOPES, TOPICS, VOCABULARY, WORDS, Corpus

from holdfast.memory.documents import Filter
from holdfast.memory.embedders.static import StaticEmbedder
from holdfast.memory.engine import segment as seg
from holdfast.memory.engine import vectors as vec
from holdfast.memory.engine.parts import Part, Parts
from holdfast.memory.engine.postings import MOST_FREQUENT, Postings, term_key
from holdfast.memory.engine.reading import Searchable
from holdfast.memory.engine.symbols import Group, Groups, Symbols
from holdfast.memory.question import Query
from holdfast.memory.scoring import Scoring, choose, weigh
from holdfast.memory.text import ASKS, PARTICULAR, query_terms, terms

SHARES = (0.52, 0.38, 0.089, 0.011)
"""Of all rows in each segment, as merging left them at a million."""
CUES = {ASKS: 0.2, PARTICULAR: 0.3}
RANKED = Scoring(quotas={}, candidates=40, most_lexical=0.85)
QUESTIONS, ROUNDS, BLOCK = 40, 5, 262_144
NEAREST = 40
STRING = re.compile(r'"((?:[^"\\\\]|\\\\.)*)"')
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n\s*\n|\n(?=[-*#>|])")


class Made(Searchable):
    """An index of which only the arrays are there."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._symbols = Symbols()
        self._groups = Groups((n, _group(n)) for n in range(SCOPES))
        self._spaces = {FINGERPRINT: (1, DIMS)}
        self._replaced = {}

    @property
    def live_parts(self) -> Parts:
        return self._parts


def _group(number: int) -> Group:
    return Group("owner", "main", None, "transcript", frozenset({f"space-{number}"}))


@dataclass
class Generator:
    """Words and vectors of any number of rows, drawn at once."""

    corpus: Corpus
    rng: np.random.Generator

    def __post_init__(self) -> None:
        named = [term_key((terms(word) or (word,))[0]) for word in self.corpus.words]
        keys = np.array([*named, *map(term_key, CUES)], np.uint64)
        self.names, self.rank_of = np.unique(keys, return_inverse=True)
        self.leanings = self.rng.integers(-60, 60, (TOPICS, DIMS), np.int8)

    def index(self, size: int) -> Made:
        """Threads of 50 entries lie in one segment each, as they do but where one was being sealed."""
        threads = np.arange(size // 50)
        edges = np.cumsum([0, *(int(share * len(threads)) for share in SHARES[:-1])]).tolist()
        spans = zip(edges, [*edges[1:], len(threads)], strict=True)
        return Made(tuple(self._part(threads[low:high]) for low, high in spans if low < high))

    def _part(self, threads: NDArray[np.int64]) -> Part:
        thread = np.repeat(threads[np.lexsort((threads, threads % SCOPES))], 50)
        ordinal = np.tile(np.arange(50), len(threads))
        rows = len(thread)
        columns: seg.Columns = {
            name: np.zeros(rows, dtype) for name, dtype in {**seg.COLUMNS, **seg.MOVING}.items()
        }
        columns["num"][:] = thread * 50 + ordinal + 1
        columns["place"][:] = (thread + 1) << 32 | ordinal
        columns["at"][:] = 1_700_000_000_000 + columns["num"] * 60_000
        columns["group"][:] = thread % SCOPES
        columns["length"][:] = WORDS
        topic = (thread * 7919 % TOPICS).astype(np.int32)
        return seg.assemble("", columns, self._postings(topic), {1: self._vectors(topic)})

    def _postings(self, topic: NDArray[np.int32]) -> Postings:
        packed = []
        for low in range(0, len(topic), BLOCK):
            of = topic[low : low + BLOCK]
            row = np.arange(low, low + len(of), dtype=np.int64)[:, None]
            packed.append(
                (self.rank_of[self.corpus.drawn(self.rng, of)].astype(np.int64) << 24 | row).ravel()
            )
            for n, share in enumerate(CUES.values()):
                having = row[self.rng.random(len(of)) < share, 0]
                packed.append(np.int64(self.rank_of[VOCABULARY + n]) << 24 | having)
        places, frequency = np.unique(np.concatenate(packed), return_counts=True)
        codes = np.uint16(WORDS) << 4 | np.minimum(frequency, MOST_FREQUENT).astype(np.uint16)
        counts = np.bincount(places >> 24, minlength=len(self.names))
        used = counts > 0
        starts = np.concatenate([[0], np.cumsum(counts[used])]).astype(np.int64)
        return Postings(self.names[used], starts, (places & 0xFFFFFF).astype(np.int32), codes)

    def _vectors(self, topic: NDArray[np.int32]) -> vec.Quantised:
        found = vec.empty(len(topic), DIMS)
        for low in range(0, len(topic), BLOCK):
            part = slice(low, low + BLOCK)
            found.codes[part] = self._leaning(topic[part])
            found.bits[:, part] = vec.signs(found.codes[part])
            wide = found.codes[part].astype(np.float32)
            found.scales[part] = 1 / np.sqrt(np.vecdot(wide, wide))
        return found

    def _leaning(self, topic: NDArray[np.int32]) -> NDArray[np.int8]:
        return self.leanings[topic] + self.rng.integers(-64, 64, (len(topic), DIMS), np.int8)

    def questions(self) -> list[tuple[str, Query]]:
        found = []
        for topic in self.rng.integers(0, TOPICS, QUESTIONS).tolist():
            drawn = self.corpus.drawn(self.rng, np.array([topic], np.int32))[0, :10]
            text = " ".join(self.corpus.words[word] for word in drawn)
            vector = self._leaning(np.array([topic], np.int32))[0].astype(np.float32)
            query = Query(text, query_terms(text).terms, text, vector=vector, fingerprint=FINGERPRINT)
            found.append((f"space-{-topic % SCOPES}", query))  # where the threads of the topic are
        return found


@dataclass
class Work:
    cpu: float
    postings: float
    read: float
    rows: float


def measured(index: Made, asked: list[tuple[Filter, Query]]) -> Work:
    best, postings, read, rows = np.inf, 0, 0, 0
    for _ in range(1 + ROUNDS):
        began = time.process_time()
        views = [_ranked(index, wanted, query) for wanted, query in asked]
        best = min(best, (time.process_time() - began) * 1000 / len(asked))
    for view, (_, query) in zip(views, asked, strict=True):
        postings += sum(view.frequencies(list(dict.fromkeys(query.terms))))
        read += view.postings_read
        rows += view.count if view.count > vec.EXACT_ROWS else 0
    return Work(best, postings / len(asked), read / len(asked), rows / len(asked))


def _ranked(index: Made, wanted: Filter, query: Query):  # type: ignore[no-untyped-def]
    view = index.view(wanted)
    choose(query, weigh(query, view, RANKED, 36), RANKED, 36)
    return view


def sentences(paths: list[Path]) -> list[str]:
    """Each sentence of some files, once; of JSON every text."""
    found: dict[str, None] = {}
    for path in paths:
        every = [path] if path.is_file() else [one for one in sorted(path.rglob("*")) if one.is_file()]
        for file in every:
            text = file.read_text(errors="ignore")
            for said in STRING.findall(text) if file.suffix == ".json" else SENTENCE.split(text):
                words = said.split()
                if 6 <= len(words) <= 80:
                    found[" ".join(words)] = None
    return list(found)


def nearest_found(paths: list[Path]) -> None:
    """The share of the exact nearest that is found, for questions of the first words of some sentences."""
    texts = sentences(paths)
    embedder = StaticEmbedder()
    parts = [embedder.embed_documents(texts[low : low + 5_000]) for low in range(0, len(texts), 5_000)]
    block = vec.quantise(np.concatenate(parts))
    columns: seg.Columns = {
        name: np.zeros(len(texts), dtype) for name, dtype in {**seg.COLUMNS, **seg.MOVING}.items()
    }
    columns["num"][:] = np.arange(1, len(texts) + 1)
    nothing = Postings(
        np.zeros(0, np.uint64), np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.uint16)
    )
    view = Made((seg.assemble("", columns, nothing, {1: block}),)).view(Filter())
    asked = [" ".join(text.split()[:6]) for text in texts[:: max(1, len(texts) // 400)]]
    kept, exact_rows = 0, vec.EXACT_ROWS
    for question in asked:
        query = embedder.embed_query(question)
        vec.EXACT_ROWS = len(texts)
        least = view.dense(FINGERPRINT, query, NEAREST).scores[-1]
        vec.EXACT_ROWS = min(exact_rows, len(texts) - 1)
        kept += int(np.count_nonzero(view.dense(FINGERPRINT, query, NEAREST).scores >= least))
    print(f"{len(texts):,} sentences: {kept / len(asked) / NEAREST:.4f} of the nearest {NEAREST} are found")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--texts", type=Path, nargs="+", help="files and folders of text, or JSON")
    given = parser.parse_args()
    if given.texts:
        nearest_found(given.texts)
        return
    generator = Generator(Corpus(0), np.random.default_rng(7))
    questions = generator.questions()
    first: dict[str, Work] = {}
    for size in given.sizes:
        index = generator.index(size)
        print(f"{size:,} entries, segments {index.segments}", flush=True)
        for kind, of in (("one scope", lambda space: frozenset({space})), ("all scopes", lambda space: None)):
            wanted = partial(Filter, agents=frozenset({"main"}))
            found = measured(index, [(wanted(spaces=of(space)), query) for space, query in questions])
            grown = found.cpu / first.setdefault(kind, found).cpu
            print(
                f"  {kind:<11} {found.cpu:7.2f} CPU ms ({grown:.2f} x), {found.postings:10,.0f} postings,"
                f" {found.read:9,.0f} read, {found.rows:10,.0f} rows",
                flush=True,
            )
        del index


if __name__ == "__main__":
    main()
