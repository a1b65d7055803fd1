"""Which topics an exchange may belong to: few enough to weigh each, never one that nothing speaks for.

Read as those who hear the exchange: what they may not read is neither chosen nor weighed.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Protocol

import sqlalchemy as sa

from holdfast.board import heuristic, topics
from holdfast.board.heuristic import Profile
from holdfast.board.semantic import semantic_text, topic_text
from holdfast.board.tables import topics as table
from holdfast.board.topics import Topic
from holdfast.board.visibility import View
from holdfast.board.words import is_filler, terms
from holdfast.board.work import TopicStatus
from holdfast.log import EntryFilter, Reader, Tx, entries

MAX_CANDIDATES: Final = 16
RECENT_TOPICS: Final = 200
RECENT_ENTRIES: Final = 240
LATELY: Final = 24
KEPT: Final = 4_000
_ARCHIVED: Final = 2.5
_SNOOZED: Final = 1.0
_K1: Final = 1.2
_B: Final = 0.6


class Candidates(Protocol):
    """What the search index can add: topics whose texts are like this one, wherever they lie in history."""

    def topics(
        self, text: str, *, reader: Reader, spaces: frozenset[str] | None, limit: int
    ) -> Sequence[str]:
        """Topic ids, best first, by what the reader may read and in the given spaces. Called in a thread,
        outside any transaction."""
        ...


@dataclass(frozen=True, slots=True)
class Weighable:
    """A candidate with what is needed to weigh it."""

    topic: Topic
    profile: Profile


class Texts:
    """What entries say, kept by their state: the neighbours of one exchange are those of the next."""

    def __init__(self, most: int = KEPT) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, int], str] = OrderedDict()

    def of(self, tx: Tx, refs: Sequence[entries.Ref]) -> list[str]:
        """The text of each, "" for one that says nothing; only those not known yet are read."""
        with self._lock:
            found = {ref.id: self._known.get((ref.id, ref.updated_at)) for ref in refs}
        missing = [id_ for id_, text in found.items() if text is None]
        fresh: dict[str, str] = {entry.id: semantic_text(entry) for entry in entries.get_many(tx, missing)}
        with self._lock:
            for ref in refs:
                if ref.id in fresh:
                    self._known[ref.id, ref.updated_at] = fresh[ref.id]
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return [found[ref.id] or fresh.get(ref.id, "") for ref in refs]


@dataclass(slots=True)
class Known:
    """What one transaction has read of topics, so that the next exchange in it need not read it again."""

    topics: dict[tuple[View, Reader], list[tuple[str, tuple[str, ...]]]] = field(default_factory=dict)

    def forget_topics(self) -> None:
        """A topic was made or brought back."""
        self.topics.clear()


def gather(
    tx: Tx,
    text: str,
    view: View,
    *,
    routed: Sequence[str],
    retrieved: Sequence[str],
    texts: Texts,
    known: Known | None = None,
) -> list[Weighable]:
    """The topics of this session first, then those that the index found, then those that share rare words."""
    lexical = nearest(tx, text, view, limit=MAX_CANDIDATES, texts=texts, known=known or Known())
    ids = list(dict.fromkeys((*reversed(routed), *retrieved, *lexical)))[: 2 * MAX_CANDIDATES]
    there = {topic.id: topic for topic in topics.get_many(tx, ids) if view.sees(topic.space_ids)}
    chosen = [there[id_] for id_ in ids if id_ in there][:MAX_CANDIDATES]
    return [weighable(tx, topic, texts) for topic in chosen]


def weighable(tx: Tx, topic: Topic, texts: Texts) -> Weighable:
    """A topic with the profile of what was lately said in it."""
    lately = entries.refs(tx, EntryFilter(topic_id=topic.id), limit=LATELY)
    said = [text for text in reversed(texts.of(tx, lately)) if text]
    handicap = {TopicStatus.ARCHIVED: _ARCHIVED, TopicStatus.SNOOZED: _SNOOZED}.get(topic.status, 0.0)
    return Weighable(topic, _profile(topic.id, topic.name, tuple(said), handicap))


@lru_cache(maxsize=512)
def _profile(id_: str, name: str, said: tuple[str, ...], handicap: float) -> Profile:
    """Most topics are as they were for the exchange before."""
    return heuristic.profile(id_, name, said, handicap=handicap)


def nearest(tx: Tx, text: str, view: View, *, limit: int, texts: Texts, known: Known) -> list[str]:
    """Topics by BM25 over their names, descriptions and what was lately sorted into them."""
    documents = {id_: [*named, *named] for id_, named in _recent_topics(tx, view, known)}
    where = EntryFilter(space_ids=view.spaces)
    recent = entries.refs(tx, where, limit=RECENT_ENTRIES) if documents else []
    sorted_ = [ref for ref in recent if ref.topic_id in documents]
    for ref, said in zip(sorted_, texts.of(tx, sorted_), strict=True):
        documents[ref.topic_id or ""] += terms(said[:1_000])
    scores = bm25(terms(text), documents)
    return sorted(scores, key=lambda id_: (-scores[id_], id_))[:limit]


def _recent_topics(tx: Tx, view: View, known: Known) -> list[tuple[str, tuple[str, ...]]]:
    """The words of the topics changed last; read once in a transaction as long as all of them fit."""
    found = known.topics.get((view, tx.reader))
    if found is None:
        query = sa.select(table.c.id, table.c.name, table.c.description, table.c.tags)
        query = query.where(*view.topics(), *topics.within_reach(tx.reader))
        rows = tx.conn.execute(query.order_by(table.c.updated_at.desc()).limit(RECENT_TOPICS)).all()
        found = [(row.id, terms(topic_text(row.name, row.description, row.tags))) for row in rows]
        if len(found) < RECENT_TOPICS:
            known.topics[view, tx.reader] = found
    return found


def bm25(words: Iterable[str], documents: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Scores above 0 only: a document that shares no word of meaning is no candidate."""
    wanted = {word for word in words if not is_filler(word)}
    counts = {id_: Counter(w for w in document if w in wanted) for id_, document in documents.items()}
    spread = Counter(word for count in counts.values() for word in count)
    mean = sum(map(len, documents.values())) / max(1, len(documents)) or 1.0
    scores: dict[str, float] = {}
    for id_, count in counts.items():
        length = 1 - _B + _B * len(documents[id_]) / mean
        score = sum(
            math.log(1 + (len(documents) - spread[w] + 0.5) / (spread[w] + 0.5))
            * n
            * (_K1 + 1)
            / (n + _K1 * length)
            for w, n in count.items()
        )
        if score > 0:
            scores[id_] = score
    return scores
