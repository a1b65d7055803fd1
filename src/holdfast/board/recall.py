"""What the board asks of memory's index: what was said, and its own topics and tasks, for one reader."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from holdfast.clock import Clock
from holdfast.config.board import BoardConfig
from holdfast.log import Reader
from holdfast.memory.confidence import judged
from holdfast.memory.documents import Filter, Source
from holdfast.memory.question import Query, understand
from holdfast.memory.scoring import Scored, Scoring, choose, rank
from holdfast.memory.text import query_terms

if TYPE_CHECKING:
    from holdfast.memory import MemoryService
    from holdfast.memory.engine.protocol import View

Kind = Literal["topic", "task", "log", "note"]

_SAID: Final[frozenset[Source]] = frozenset(("transcript", "log", "note"))
_PLACED: Final[frozenset[Source]] = frozenset(("topic", "task"))
_KINDS: Final[Mapping[str, Kind]] = {"topic": "topic", "task": "task", "note": "note"}
_INLINE: Final = 2_000
_PATIENCE_SECONDS: Final = 0.5
_CANDIDATES: Final = 40
_FOR_SORTING: Final = 16
_MOST_LEXICAL: Final = 0.85
_LEAST_COSINE: Final = 0.25
_NEAR_COSINE: Final = 0.6
_OF_PLACES: Final = Scoring(
    beside=0.0, passage=0.0, curated=0.0, statement=0.0, particular=0.0, speaker=0.0, time=0.0, quotas={}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One question to the index: for whom, and within which spaces and topic it may find.

    `seq` is the newest change that the asker knows of: what was written until then must be findable.
    """

    question: str
    reader: Reader
    spaces: frozenset[str] | None = None
    topic_id: str | None = None
    logs: int = 36
    places: int = 24
    seq: int = 0


class Recalled(NamedTuple):
    """One find: a topic or task by its id, an entry by its place in the log, which no change gives another.

    `parts` add up to `score`, which lies between 0 and 1.
    """

    kind: Kind
    score: float
    id: str = ""
    position: int = 0
    parts: Mapping[str, float] = MappingProxyType({})
    topic_id: str | None = None
    task_id: str | None = None
    session_key: str | None = None


@dataclass(frozen=True, slots=True)
class Recollection:
    """What was found, best first within logs and within places; `behind` counts what is not indexed yet.

    `confidence` is how likely something that was said answers the question; whether it `fits` is that held
    against the floor.
    """

    logs: Sequence[Recalled] = ()
    places: Sequence[Recalled] = ()
    mode: str = "none"
    behind: int = 0
    embed_ms: float = 0.0
    confidence: float = 1.0
    fits: bool = True


class Recall(Protocol):
    def search(self, wanted: Wanted) -> Recollection:
        """The best of the whole history for a question. Called in a thread, outside any transaction."""
        ...

    def follow(self, seq: int) -> int:
        """Have what was written up to this change be findable; how much of it is not yet."""
        ...


class NoRecall:
    """A board without an index: it finds nothing and says so."""

    def search(self, wanted: Wanted) -> Recollection:
        return Recollection()

    def follow(self, seq: int) -> int:
        return 0


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

    def search(self, wanted: Wanted) -> Recollection:
        """What was written before the question is found, if need be by taking it in now."""
        behind = self.follow(wanted.seq)
        memory = self._memory()
        with self._one if memory.index.computes_here else nullcontext():
            found = memory.whole(lambda: self._find(wanted, behind))
        # What was damaged and is made again is not searched, and an answer without it is not to be kept.
        health = memory.health
        return replace(found, behind=max(behind, health.unsearched, 1)) if health.healing else found

    def _find(self, wanted: Wanted, behind: int) -> Recollection:
        began = time.thread_time()
        within = None if wanted.topic_id is None else frozenset((wanted.topic_id,))
        readable = Filter(audiences=wanted.reader.audiences, spaces=wanted.spaces, topics=within)
        agents = wanted.reader.agents
        said = self._view(replace(readable, sources=_SAID, writers=agents))
        placed = self._view(replace(readable, sources=_PLACED, agents=agents))
        if not said.count and not placed.count:
            return Recollection(mode="text", behind=behind, confidence=0.0, fits=self._floor() <= 0)
        query = self._prepared(wanted.question, said if said.count else placed)
        embed_ms = (time.thread_time() - began) * 1000
        scoring = replace(self._scoring(), quotas={}, candidates=_CANDIDATES, most_lexical=_MOST_LEXICAL)
        weighed, sure = judged(query, said, self._memory().chain.base, scoring, wanted.logs)
        logs = choose(query, weighed, scoring, wanted.logs)
        near = replace(_OF_PLACES, dense=scoring.dense, lexical=scoring.lexical)
        places = rank(query, placed, near, limit=wanted.places) if wanted.places else []
        places = sorted(map(_absolute, places), key=lambda one: -one.score)
        mode = "hybrid" if query.vector is not None else "text"
        fits = sure >= self._floor()
        found, near_places = _recalled(said, logs), _recalled(placed, places)
        return Recollection(found, near_places, mode, behind, embed_ms, sure, fits)

    def topics(
        self, texts: Sequence[str], *, reader: Reader, spaces: frozenset[str] | None, limit: int
    ) -> Sequence[Sequence[str]]:
        """The topics that texts may belong to, as the classifier asks: by name, or by what was said.

        What was said a moment ago the classifier knows without the index, which is not brought up to date.
        """
        readable = Filter(audiences=reader.audiences, spaces=spaces)

        def find() -> list[list[str]]:
            said = self._view(replace(readable, sources=_SAID, writers=reader.agents))
            placed = self._view(replace(readable, sources=_PLACED, agents=reader.agents))
            return self._topics(texts, said, placed, limit)

        return self._memory().whole(find)

    def _topics(self, texts: Sequence[str], said: View, placed: View, limit: int) -> list[list[str]]:
        """By the static embedder, which is always at hand and costs next to nothing, and by words: few are
        looked at, as each is weighed by the classifier itself."""
        if not said.count and not placed.count:
            return [[] for _ in texts]
        base = self._memory().chain.base
        asked = _Asked(
            [query_terms(text).terms for text in texts],
            [base.embed_query(" ".join(text.split()) or text) for text in texts],
            base.id.fingerprint,
        )
        found: list[list[str]] = []
        nearest = (_nearest_topics(asked, said, _FOR_SORTING), _nearest_topics(asked, placed, limit))
        for of_said, named in zip(*nearest, strict=True):
            mixed = [id_ for pair in zip(of_said, named, strict=False) for id_ in pair]
            found.append(list(dict.fromkeys([*mixed, *of_said, *named]))[:limit])
        return found

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

    def _prepared(self, question: str, view: View) -> Query:
        query = understand(question, self._clock.now())
        if not view.count:
            return replace(query, vector=None)
        if self._options().search.embedder == "static":
            base = self._memory().chain.base
            return query.with_vector(base.embed_query(query.dense_text), base.id.fingerprint)
        chain = self._memory().chain
        covered = {
            embedder.id.fingerprint: view.with_vector(embedder.id.fingerprint) / max(1, view.count)
            for embedder in chain.preferred
        }
        made = chain.question(query.dense_text, covered)
        return query.with_vector(made.vector, made.embedder.id.fingerprint)


def _recalled(view: View, scored: Sequence[Scored]) -> list[Recalled]:
    """The finds, named by what the index has in memory; what they say the board reads from the store."""
    good = [one for one in scored if _is_related(one, scored[0].score)]
    if not good:
        return []
    where = view.whereabouts(np.array([one.number for one in good], np.int64))
    places = zip(good, where.source, where.topic, where.task, where.session, where.ordinal, strict=True)
    return [
        Recalled(
            _KINDS.get(source, "log"),
            one.score,
            (task if source == "task" else topic if source == "topic" else None) or "",
            ordinal,
            one.parts,
            topic,
            task,
            session,
        )
        for one, source, topic, task, session, ordinal in places
    ]


class _Asked(NamedTuple):
    """Several texts, each by its words and by its sense."""

    terms: Sequence[Sequence[str]]
    vectors: Sequence[NDArray[Any]]
    fingerprint: str


def _nearest_topics(asked: _Asked, view: View, limit: int) -> list[list[str]]:
    """For each text the topics of what is nearest by its words or by its sense, in turn."""
    if not view.count:
        return [[] for _ in asked.terms]
    by_words = view.lexical_each(asked.terms, limit)
    by_sense = view.dense_each(asked.fingerprint, asked.vectors, limit)
    mixed: list[list[int]] = []
    for words, sense in zip(by_words, by_sense, strict=True):
        near = sense.numbers[sense.scores >= _LEAST_COSINE].tolist()
        pairs = zip_longest(words.numbers.tolist(), near)
        mixed.append(list(dict.fromkeys(number for pair in pairs for number in pair if number is not None)))
    numbers = np.array(list(dict.fromkeys(chain(*mixed))), np.int64)
    topics = dict(zip(numbers.tolist(), view.whereabouts(numbers).topic, strict=True))
    named = [dict.fromkeys(topics[number] for number in own) for own in mixed]
    return [[topic for topic in own if topic is not None] for own in named]


def _is_related(one: Scored, best: float) -> bool:
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
