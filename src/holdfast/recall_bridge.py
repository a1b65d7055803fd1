"""Where the board meets the search index: neither room knows the other, both are known here.

The index holds what was said, and the board's topics and tasks; the board asks it through `IndexRecall`.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import sqlalchemy as sa

from holdfast.board import tasks, topics
from holdfast.board.recall import Kind, Recalled, Recollection, Wanted
from holdfast.board.semantic import semantic_text, topic_text
from holdfast.board.tables import tasks as task_table
from holdfast.board.tables import topics as topic_table
from holdfast.clock import Clock
from holdfast.config.board import BoardConfig
from holdfast.log import Change, Entry, EntryType, Reader, Tx
from holdfast.memory.confidence import LOOKED_AT, confidence, signals_of
from holdfast.memory.documents import Document, Filter, Source
from holdfast.memory.echoes import without_echoes
from holdfast.memory.embedding import ENOUGH
from holdfast.memory.following import plain_text
from holdfast.memory.question import Query, understand
from holdfast.memory.scoring import Scored, Scoring, choose, rank, weigh

if TYPE_CHECKING:
    from holdfast.memory import MemoryService
    from holdfast.memory.embedders.base import Embedder
    from holdfast.memory.engine.protocol import Top, View
    from holdfast.memory.scoring import Candidates

MAX_PLACES: Final = 20_000
_SAID: Final[frozenset[Source]] = frozenset(("transcript", "log", "note"))
_PLACED: Final[frozenset[Source]] = frozenset(("topic", "task"))
_KINDS: Final[Mapping[str, Kind]] = {"topic": "topic", "task": "task", "note": "note"}
_INLINE: Final = 2_000
_PATIENCE_SECONDS: Final = 0.5
_CANDIDATES: Final = 40
_SINGLED_OUT: Final = 10
_LEAST_GAP: Final = 2.0
_MOST_LEXICAL: Final = 0.85
_LEAST_COSINE: Final = 0.25
_NEAR_COSINE: Final = 0.6
_CHUNK: Final = 500
_OF_PLACES: Final = Scoring(passage=0.0, curated=0.0, statement=0.0, speaker=0.0, time=0.0, quotas={})


def findable_text(options: Callable[[], BoardConfig]) -> Callable[[Entry], str | None]:
    """What of an entry goes into the index: its words as the board reads them, without quoted memory."""

    def text_of(entry: Entry) -> str | None:
        if entry.type is EntryType.IMPORT:
            return plain_text(entry)
        text = semantic_text(entry, tool_traces=options().search.include_tool_call_logs)
        return (without_echoes(text) if entry.role == "assistant" else text).strip() or None

    return text_of


class BoardPlaces:
    """The board's topics and tasks as documents: name, description and plain tags; never a digest."""

    def changed(self, tx: Tx, batch: Sequence[Change]) -> Mapping[str, Document | None]:
        kinds = ("topic.", "task.")
        ids = {c.entity_id for c in batch if c.type.startswith(kinds)}
        found: dict[str, Document | None] = dict.fromkeys(sorted(ids))
        return found | {d.id: d for d in _documents(tx, sorted(ids))}

    def all(self, tx: Tx) -> Sequence[Document]:
        found: list[Document] = []
        for table in (topic_table, task_table):
            query = sa.select(table.c.id).order_by(table.c.updated_at.desc()).limit(MAX_PLACES)
            ids = list(tx.conn.execute(query).scalars())
            for start in range(0, len(ids), _CHUNK):
                found += _documents(tx, ids[start : start + _CHUNK])
        return found


def _documents(tx: Tx, ids: Sequence[str]) -> list[Document]:
    if not ids:
        return []
    of_topics = [
        Document(
            id=one.id,
            text=topic_text(one.name, one.description, one.tags),
            source="topic",
            audience=one.audience,
            agent=one.agent_id,
            spaces=one.space_ids,
            topic=one.id,
            at=one.created_at,
        )
        for one in topics.get_many(tx, ids)
    ]
    of_tasks = [
        Document(
            id=one.id,
            text=topic_text(one.title, one.description, one.tags),
            source="task",
            audience=one.audience,
            spaces=one.space_ids,
            topic=one.topic_id,
            task=one.id,
            at=one.created_at,
        )
        for one in tasks.get_many(tx, ids)
    ]
    return [*of_topics, *of_tasks]


class IndexRecall:
    """The board's questions, put to the one index of the home."""

    def __init__(
        self,
        memory: Callable[[], MemoryService],
        options: Callable[[], BoardConfig],
        scoring: Callable[[], Scoring],
        floor: Callable[[], float],
        clock: Clock,
    ) -> None:
        self._memory = memory
        self._options = options
        self._scoring = scoring
        self._floor = floor
        self._clock = clock
        self._lock = threading.Lock()
        self._followed = (-1, 0)
        # Two that compute at once take longer than one after the other: they wait for each other's steps.
        self._one = threading.Lock()
        self._kept = threading.Lock()
        self._vectors: OrderedDict[tuple[str, frozenset[str]], tuple[Any, str]] = OrderedDict()

    def search(self, wanted: Wanted) -> Recollection:
        """What was written before the question is found, if need be by taking it in now."""
        behind = self.follow(wanted.seq)
        memory = self._memory()
        with self._one if memory.index.computes_here else nullcontext():
            return memory.whole(lambda: self._find(wanted, behind))

    def _find(self, wanted: Wanted, behind: int = 0, *, quick: bool = False) -> Recollection:
        """`quick` asks the static embedder alone, which is always at hand and costs next to nothing."""
        began = time.thread_time()
        within = None if wanted.topic_id is None else frozenset((wanted.topic_id,))
        readable = Filter(audiences=wanted.reader.audiences, spaces=wanted.spaces, topics=within)
        agents = wanted.reader.agents
        said = self._view(replace(readable, sources=_SAID, writers=agents))
        placed = self._view(replace(readable, sources=_PLACED, agents=agents))
        query = self._prepared(wanted.question, said if said.count else placed, quick)
        embed_ms = (time.thread_time() - began) * 1000
        scoring = replace(self._scoring(), quotas={}, candidates=_CANDIDATES)
        logs, sure = _ranked(query, said, scoring, wanted.logs, None if quick else self._memory().chain.base)
        near = replace(_OF_PLACES, dense=scoring.dense, lexical=scoring.lexical)
        places = rank(query, placed, near, limit=wanted.places) if wanted.places else []
        places = sorted(map(_absolute, places), key=lambda one: -one.score)
        mode = "hybrid" if query.vector is not None else "text"
        fits = quick or sure >= self._floor()
        found, near_places = _recalled(said, logs), _recalled(placed, places)
        return Recollection(found, near_places, mode, behind, embed_ms, sure, fits)

    def topics(
        self, texts: Sequence[str], *, reader: Reader, spaces: frozenset[str] | None, limit: int
    ) -> Sequence[Sequence[str]]:
        """The topics that texts may belong to, as the classifier asks: by name, or by what was said.

        What was said a moment ago the classifier knows without the index, which is not brought up to date.
        """
        return [self._topics(text, reader, spaces, limit) for text in texts]

    def _topics(self, text: str, reader: Reader, spaces: frozenset[str] | None, limit: int) -> Sequence[str]:
        wanted = Wanted(question=text, reader=reader, spaces=spaces, logs=24, places=limit, seq=-1)
        found = self._memory().whole(lambda: self._find(wanted, quick=True))
        named = [one.topic_id for one in found.places if one.topic_id is not None]
        said = [one.topic_id for one in found.logs if one.topic_id is not None]
        mixed = [id_ for pair in zip(said, named, strict=False) for id_ in pair]
        return list(dict.fromkeys([*mixed, *said, *named]))[:limit]

    def _view(self, wanted: Filter) -> View:
        return self._memory().index.view(wanted)

    def follow(self, seq: int) -> int:
        """Read your own writes: take in what is new, once for all who ask at the same time."""
        if self._has_followed(seq):
            return 0
        with self._lock:
            if self._has_followed(seq):
                return 0
            behind = self._memory().follow(_INLINE, patience=_PATIENCE_SECONDS)
            if behind == 0 and seq >= 0:
                self._followed = seq, self._generation()
            return behind

    def _has_followed(self, seq: int) -> bool:
        """Whether the index has taken in that much; one that was made anew has forgotten it."""
        followed, generation = self._followed
        return 0 <= seq <= followed and generation == self._generation()

    def _generation(self) -> int:
        return len(self._memory().health.damaged)

    def _prepared(self, question: str, view: View, quick: bool) -> Query:
        query = understand(question, self._clock.now())
        if not view.count:
            return replace(query, vector=None)
        if quick or self._options().search.embedder == "static":
            base = self._memory().chain.base
            return query.with_vector(base.embed_query(query.dense_text), base.id.fingerprint)
        vector, fingerprint = self._vector(query.dense_text, view)
        return query.with_vector(vector, fingerprint)

    def _vector(self, text: str, view: View) -> tuple[Any, str]:
        """The question's vector; asked again soon, as it is typed or sent twice, it costs nothing."""
        chain = self._memory().chain
        covered = {
            embedder.id.fingerprint: view.with_vector(embedder.id.fingerprint) / max(1, view.count)
            for embedder in chain.preferred
        }
        key = (text, frozenset(name for name, share in covered.items() if share >= ENOUGH))
        with self._kept:
            if key in self._vectors:
                self._vectors.move_to_end(key)
                return self._vectors[key]
        made = chain.question(text, covered)
        found = (made.vector, made.embedder.id.fingerprint)
        with self._kept:
            self._vectors[key] = found
            while len(self._vectors) > self._options().search.embed_query_cache_size:
                self._vectors.popitem(last=False)
        return found


def _recalled(view: View, scored: Sequence[Scored]) -> list[Recalled]:
    """The finds, named by what the index has in memory; what they say the board reads from the store."""
    good = [one for one in scored if _speaks_to_it(one, scored[0].score)]
    if not good:
        return []
    where = view.whereabouts(np.array([one.number for one in good], np.int64))
    places = zip(where.source, where.topic, where.task, where.session, where.ordinal, strict=True)
    return [
        Recalled(
            kind=_KINDS.get(source, "log"),
            score=one.score,
            id=(task if source == "task" else topic if source == "topic" else None) or "",
            position=ordinal,
            parts=one.parts,
            topic_id=topic,
            task_id=task,
            session_key=session,
        )
        for one, (source, topic, task, session, ordinal) in zip(good, places, strict=True)
    ]


def _ranked(
    query: Query, view: View, scoring: Scoring, limit: int, base: Embedder | None
) -> tuple[list[Scored], float]:
    """The best, and, judged with the static embedder `base`, how likely it is that they answer at all."""
    if limit < 1:
        return [], 0.0
    by_words = view.lexical(query.terms, max(limit, scoring.candidates))
    asked = cast("Candidates", _Asked(view, by_words))
    options = _weighed(scoring, by_words)
    weighed = weigh(query, asked, options, limit)
    best = weighed.best(LOOKED_AT)
    sure = 0.0
    if best and base is not None:
        serves = "static" if query.fingerprint == base.id.fingerprint else "better"
        sure = confidence(signals_of(query, asked, weighed, best, base), serves)
    return choose(query, weighed, options, limit), sure


def _weighed(scoring: Scoring, by_words: Top) -> Scoring:
    """Words count for more the more they single out a few texts: a rare word is what was meant.

    Many texts on what is common in the question would otherwise stand before the only one with the rare word.
    """
    if len(by_words.scores) <= _SINGLED_OUT:
        return scoring
    gap = float(by_words.scores[0]) / max(float(by_words.scores[_SINGLED_OUT]), 1e-9)
    certainty = min(1.0, max(0.0, gap / _LEAST_GAP - 1))
    share = scoring.lexical / (scoring.dense + scoring.lexical)
    share += certainty * max(0.0, _MOST_LEXICAL - share)
    return replace(scoring, dense=1 - share, lexical=share)


class _Asked:
    """A view for one question, of which is known already what its words find."""

    def __init__(self, view: View, by_words: Top) -> None:
        self._view = view
        self._by_words = by_words

    def lexical(self, terms: Sequence[str], limit: int) -> Top:
        return self._by_words

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)


def _speaks_to_it(one: Scored, best: float) -> bool:
    """Whether it shares a word or clearly the sense; what stands beside a good one must be nearly as good.

    Scores are scaled to the best of the scope, which may itself have nothing to do with the question.
    """
    if one.bm25 > 0 or (one.cosine or 0.0) >= _LEAST_COSINE:
        return True
    return one.score >= best / 2 and one.parts.get("beside", 0.0) + one.parts.get("answer", 0.0) > 0


def _absolute(one: Scored) -> Scored:
    """Among few topics the nearest may be far: its nearness counts by how near it is, not by its rank."""
    dense = one.parts.get("dense", 0.0)
    near = min(1.0, max(0.0, one.cosine or 0.0) / _NEAR_COSINE)
    return one._replace(
        score=one.score - dense * (1 - near),
        parts={**one.parts, "dense": dense * near} if dense else one.parts,
    )
