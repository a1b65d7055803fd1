"""How much of a long conversation is found again: evidence-turn recall on LoCoMo.

    python bench/recall.py --data locomo.json [--embedders static,minilm] [--cache DIR] [--tune]

The data is not part of Holdfast (CC BY-NC) and is given by its path. A document is one turn, written
`[date] speaker: text` with the caption of its image; a hit is a turn that the question's evidence
names; questions without an answer (category 5) are left out. All methods see the same documents.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.clock import Millis
from holdfast.memory.documents import Document
from holdfast.memory.embedders.base import Embedder, EmbedderId, Vectors
from holdfast.memory.embedders.static import StaticEmbedder
from holdfast.memory.embedders.transformer import TransformerEmbedder
from holdfast.memory.question import Query
from holdfast.memory.recall import prepare
from holdfast.memory.reference import InMemoryEngine
from holdfast.memory.scoring import Scoring, rank

CATEGORIES = {1: "several", 2: "temporal", 3: "open", 4: "single"}
DEPTH = 20
DAY = 86_400_000
FORMULA_CANDIDATES = 80


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    category: int
    evidence: frozenset[int]


@dataclass(frozen=True, slots=True)
class Conversation:
    documents: list[Document]
    questions: list[Question]

    @property
    def now(self) -> Millis:
        return Millis(max(document.at for document in self.documents) + DAY)

    @property
    def texts(self) -> list[str]:
        return [document.text for document in self.documents]


Ranking = Callable[[Conversation, Question], Sequence[int]]
Figures = NDArray[np.float64]


def load(path: Path) -> list[Conversation]:
    return [_conversation(number, raw) for number, raw in enumerate(json.loads(path.read_bytes()))]


def _conversation(number: int, raw: dict[str, Any]) -> Conversation:
    talk = raw["conversation"]
    documents: list[Document] = []
    places: dict[str, int] = {}
    sessions = sorted((k for k, v in talk.items() if isinstance(v, list)), key=lambda k: int(k[8:]))
    for session in sessions:
        said_at = talk[f"{session}_date_time"]
        for ordinal, turn in enumerate(talk[session]):
            caption = f" [image: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
            places[turn["dia_id"]] = len(documents)
            documents.append(
                Document(
                    id=f"{number}:{turn['dia_id']}",
                    text=f"[{said_at}] {turn['speaker']}: {turn['text']}{caption}",
                    source="transcript",
                    speaker=turn["speaker"],
                    at=_millis(said_at),
                    thread=f"{number}:{session}",
                    ordinal=ordinal,
                )
            )
    return Conversation(documents, list(_questions(raw["qa"], places)))


def _questions(rows: Iterable[dict[str, Any]], places: dict[str, int]) -> Iterable[Question]:
    for row in rows:
        named = re.findall(r"D\d+:\d+", " ".join(row["evidence"]))
        evidence = frozenset(places[name] for name in named if name in places)
        if row["category"] in CATEGORIES and evidence:
            yield Question(row["question"], row["category"], evidence)


def _millis(said_at: str) -> int:
    moment = datetime.strptime(said_at, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


class CachedEmbedder:
    """Keeps every vector in one file of a folder, by the model's fingerprint and the text."""

    def __init__(self, inner: Embedder, folder: Path) -> None:
        self._inner = inner
        name = hashlib.sha256(inner.id.fingerprint.encode()).hexdigest()[:16]
        self._path = folder / f"{name}.npz"
        self._known: dict[str, Vectors] = {}
        if self._path.exists():
            kept = np.load(self._path)
            self._known = dict(zip(kept["keys"].tolist(), kept["vectors"], strict=True))

    @property
    def id(self) -> EmbedderId:
        return self._inner.id

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        keys = [self._key("document", text) for text in texts]
        missing = {k: text for k, text in zip(keys, texts, strict=True) if k not in self._known}
        if missing:
            made = self._inner.embed_documents(list(missing.values()))
            self._known.update(zip(missing, made, strict=True))
        return np.array([self._known[key] for key in keys])

    def embed_query(self, text: str) -> Vectors:
        key = self._key("query", text)
        if key not in self._known:
            self._known[key] = self._inner.embed_query(text)
        return self._known[key]

    def _key(self, kind: str, text: str) -> str:
        return hashlib.sha256(f"{kind}\0{text}".encode()).hexdigest()

    def save(self) -> None:
        vectors = np.array(list(self._known.values()))
        np.savez(self._path, keys=np.array(list(self._known)), vectors=vectors)


def embedders(names: Sequence[str], cache: Path) -> dict[str, Embedder]:
    made: dict[str, Embedder] = {}
    if "static" in names:
        made["static"] = StaticEmbedder()
    if "minilm" in names:
        made["minilm"] = CachedEmbedder(TransformerEmbedder.minilm(), cache)
    return made


class Fts5:
    """SQLite's full-text search as most would set it up: unicode61, the words joined with OR."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._db = sqlite3.connect(":memory:")
        self._db.execute("CREATE VIRTUAL TABLE turns USING fts5(text)")
        rows = enumerate(texts, start=1)
        self._db.executemany("INSERT INTO turns(rowid, text) VALUES (?, ?)", rows)

    def top(self, question: str, limit: int) -> list[int]:
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", question))
        found = self._db.execute(
            "SELECT rowid - 1 FROM turns WHERE turns MATCH ? ORDER BY rank LIMIT ?", (words, limit)
        )
        return [row for (row,) in found]


def naive(conversations: Sequence[Conversation]) -> Ranking:
    tables = {id(talk): Fts5(talk.texts) for talk in conversations}
    return lambda talk, question: tables[id(talk)].top(question.text, DEPTH)


def openclaw_formula(conversations: Sequence[Conversation], embedder: Embedder) -> Ranking:
    """0.7 cosine + 0.3 / (1 + rank) over the best 80 of each side."""
    tables = {id(talk): Fts5(talk.texts) for talk in conversations}
    vectors = {id(talk): embedder.embed_documents(talk.texts) for talk in conversations}

    def ranking(talk: Conversation, question: Question) -> Sequence[int]:
        cosines = vectors[id(talk)] @ embedder.embed_query(question.text)
        scores: dict[int, float] = {}
        for number in np.argsort(-cosines)[:FORMULA_CANDIDATES].tolist():
            scores[number] = 0.7 * float(cosines[number])
        for place, number in enumerate(tables[id(talk)].top(question.text, FORMULA_CANDIDATES)):
            scores[number] = scores.get(number, 0.0) + 0.3 / (1 + place)
        return sorted(scores, key=lambda number: -scores[number])[:DEPTH]

    return ranking


def ours(conversations: Sequence[Conversation], embedder: Embedder | None) -> Callable[[Scoring], Ranking]:
    """Our pipeline over the reference engine; questions are read and embedded once."""
    views: dict[int, InMemoryEngine] = {}
    queries: dict[tuple[int, str], Query] = {}
    for talk in conversations:
        vectors = {embedder.id.fingerprint: embedder.embed_documents(talk.texts)} if embedder else {}
        view = views[id(talk)] = InMemoryEngine(talk.documents, vectors)
        for asked in talk.questions:
            queries[id(talk), asked.text] = prepare(asked.text, view, embedder, now=talk.now)

    def with_options(options: Scoring) -> Ranking:
        def ranking(talk: Conversation, question: Question) -> Sequence[int]:
            query = queries[id(talk), question.text]
            return [hit.number for hit in rank(query, views[id(talk)], options, limit=DEPTH)]

        return ranking

    return with_options


COLUMNS = ("R@5", "R@10", "R@20", "MRR", "nDCG")


def measure(conversations: Sequence[Conversation], ranking: Ranking) -> Figures:
    """One row per question: conversation, category, then the columns."""
    rows = []
    for number, talk in enumerate(conversations):
        for question in talk.questions:
            hits = [place in question.evidence for place in ranking(talk, question)[:DEPTH]]
            rows.append([number, question.category, *_figures(hits, len(question.evidence))])
    return np.array(rows)


def _figures(hits: Sequence[bool], wanted: int) -> list[float]:
    gains = [1 / np.log2(place + 2) for place in range(10)]
    ndcg = sum(gain for gain, hit in zip(gains, hits, strict=False) if hit) / sum(gains[:wanted])
    first = hits.index(True) + 1 if True in hits else 0
    return [*(sum(hits[:k]) / wanted for k in (5, 10, 20)), 1 / first if first else 0.0, ndcg]


def line(name: str, figures: Figures, base: float | None) -> str:
    overall = "  ".join(f"{value * 100:5.1f}" for value in figures[:, 2:].mean(axis=0))
    kinds = "  ".join(f"{figures[figures[:, 1] == k, 3].mean() * 100:8.1f}" for k in CATEGORIES)
    ratio = f"{figures[:, 3].mean() / base:6.2f}x" if base else "      -"
    return f"{name:34s} {overall}   {kinds}  {ratio}"


GRID: dict[str, Sequence[Any]] = {
    "dense": (0.4, 0.5, 0.6, 0.7, 0.8),
    "beside": (0.0, 0.5, 0.7, 1.0),
    "answer_dense": (0.0, 0.2, 0.4),
    "answer_lexical": (0.0, 0.3, 0.6, 0.9),
    "speaker": (0.0, 0.6, 0.85, 1.0),
    "time": (0.0, 0.3, 0.5, 0.7),
    "period": (0.0, 0.3, 0.5, 0.7),
    "statement": (0.0, 0.15, 0.25),
    "particular": (0.0, 0.15, 0.3),
    "passage": (0.0, 0.5, 0.7, 1.0, 1.3),
    "passage_reach": (2, 4, 8),
}


def tune(conversations: Sequence[Conversation], make: Callable[[Scoring], Ranking]) -> None:
    """Each choice alone: its figure per value, and what choosing it without a conversation costs it."""
    default = measure(conversations, make(Scoring()))
    print(f"{'default':15s} {default[:, 3].mean() * 100:.1f}")
    everything = [default]
    for name, values in GRID.items():
        tried = [measure(conversations, make(_with(name, value))) for value in values]
        everything += tried
        shown = "  ".join(f"{v}: {f[:, 3].mean() * 100:.1f}" for v, f in zip(values, tried, strict=True))
        print(f"{name:15s} {shown}   left out: {_held_out(tried) * 100:.1f}", flush=True)
    best = max(float(figures[:, 3].mean()) for figures in everything)
    held_out = _held_out(everything)
    print(f"{'any one change':15s} best {best * 100:.1f}   left out: {held_out * 100:.1f}")


def _with(name: str, value: Any) -> Scoring:
    changed = replace(Scoring(), **{name: value})
    return replace(changed, lexical=1 - value) if name == "dense" else changed


def _held_out(tried: Sequence[Figures]) -> float:
    talks = np.unique(tried[0][:, 0])
    found = []
    for talk in talks:
        inside = tried[0][:, 0] == talk
        best = max(tried, key=lambda figures: float(figures[~inside, 3].mean()))
        found.append(best[inside, 3])
    return float(np.concatenate(found).mean())


def candidate_loss(conversations: Sequence[Conversation], embedder: Embedder | None) -> str:
    """All conversations as one scope: what a short candidate list loses against the whole of it."""
    documents = [document for talk in conversations for document in talk.documents]
    starts = np.cumsum([0, *(len(talk.documents) for talk in conversations)]).tolist()
    questions = [
        Question(q.text, q.category, frozenset(start + place for place in q.evidence))
        for talk, start in zip(conversations, starts, strict=False)
        for q in talk.questions
    ]
    merged = [Conversation(documents, questions)]
    make = ours(merged, embedder)
    shown = []
    for count in (100, 300, len(documents)):
        began = time.process_time()
        figure = measure(merged, make(replace(Scoring(), candidates=count)))[:, 3].mean()
        each = (time.process_time() - began) / len(questions) * 1000
        shown.append(f"{count}: {figure * 100:.1f} ({each:.1f} ms)")
    return f"one scope of {len(documents)} turns, R@10 by candidates  " + "  ".join(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--embedders", default="static,minilm")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "holdfast-recall")
    parser.add_argument("--tune", action="store_true", help="show every choice, leave-one-out")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    conversations = load(options.data)
    made = embedders(options.embedders.split(","), options.cache)
    report(conversations, made)
    for embedder in made.values():
        if isinstance(embedder, CachedEmbedder):
            embedder.save()
    if options.tune:
        assert set(GRID) <= {field.name for field in fields(Scoring)}
        for name, embedder in made.items():
            print(f"\n{name}")
            tune(conversations, ours(conversations, embedder))


def report(conversations: Sequence[Conversation], made: dict[str, Embedder]) -> None:
    turns = sum(len(talk.documents) for talk in conversations)
    asked = sum(len(talk.questions) for talk in conversations)
    print(f"{len(conversations)} conversations, {turns} turns, {asked} questions\n")
    kinds = "  ".join(f"{name:>8s}" for name in CATEGORIES.values())
    print(f"{'':34s} {'  '.join(f'{name:>5s}' for name in COLUMNS)}   {kinds}  (R@10)   ratio")
    print(line("FTS5, words ORed", measure(conversations, naive(conversations)), None))
    base = None
    for name, embedder in made.items():
        figures = measure(conversations, openclaw_formula(conversations, embedder))
        base = max(base or 0.0, float(figures[:, 3].mean()))
        print(line(f"OpenClaw's formula, {name}", figures, None))
    print(line("Holdfast, words only", measure(conversations, ours(conversations, None)(Scoring())), base))
    for name, embedder in made.items():
        figures = measure(conversations, ours(conversations, embedder)(Scoring()))
        print(line(f"Holdfast, {name}", figures, base))
    for name, embedder in made.items():
        print(f"\n{name}: {candidate_loss(conversations, embedder)}")


if __name__ == "__main__":
    main()
