"""Which topics an exchange may belong to: few enough to weigh each, never one that nothing speaks for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
from holdfast.log import EntryFilter, Tx, entries

MAX_CANDIDATES: Final = 16
RECENT_TOPICS: Final = 200
RECENT_ENTRIES: Final = 240
TEXTS: Final = 24
_ARCHIVED: Final = 2.5
_SNOOZED: Final = 1.0
_K1: Final = 1.2
_B: Final = 0.6


class Candidates(Protocol):
    """What the search index can add: topics whose texts are like this one, wherever they lie in history."""

    def topics(self, text: str, *, spaces: frozenset[str] | None, limit: int) -> Sequence[str]:
        """Topic ids, best first, of the given spaces only. Called in a thread, outside any transaction."""
        ...


@dataclass(frozen=True, slots=True)
class Weighable:
    """A candidate with what is needed to weigh it."""

    topic: Topic
    profile: Profile


def gather(
    tx: Tx, text: str, view: View, *, routed: Sequence[str], retrieved: Sequence[str]
) -> list[Weighable]:
    """The topics of this session first, then those that the index found, then those that share rare words."""
    lexical = nearest(tx, text, view, limit=MAX_CANDIDATES)
    ids = list(dict.fromkeys((*reversed(routed), *retrieved, *lexical)))[: 2 * MAX_CANDIDATES]
    known = {topic.id: topic for topic in topics.get_many(tx, ids) if view.sees(topic.space_ids)}
    return [weighable(tx, known[id_]) for id_ in [one for one in ids if one in known][:MAX_CANDIDATES]]


def weighable(tx: Tx, topic: Topic) -> Weighable:
    """A topic with the profile of what was lately said in it."""
    page = entries.listing(tx, EntryFilter(topic_id=topic.id), limit=TEXTS)
    texts = [text for entry in reversed(page.entries) if (text := semantic_text(entry))]
    handicap = {TopicStatus.ARCHIVED: _ARCHIVED, TopicStatus.SNOOZED: _SNOOZED}.get(topic.status, 0.0)
    return Weighable(topic, heuristic.profile(topic.id, topic.name, texts, handicap=handicap))


def nearest(tx: Tx, text: str, view: View, *, limit: int) -> list[str]:
    """Topics by BM25 over their names, descriptions and what was lately sorted into them."""
    query = sa.select(table.c.id, table.c.name, table.c.description, table.c.tags).where(*view.topics())
    documents: dict[str, list[str]] = {}
    for row in tx.conn.execute(query.order_by(table.c.updated_at.desc()).limit(RECENT_TOPICS)):
        documents[row.id] = 2 * terms(topic_text(row.name, row.description, row.tags))
    where = EntryFilter(space_ids=view.spaces)
    for entry in entries.listing(tx, where, limit=RECENT_ENTRIES).entries if documents else ():
        if entry.topic_id in documents:
            documents[entry.topic_id] += terms(semantic_text(entry)[:1_000])
    scores = bm25(terms(text), documents)
    return sorted(scores, key=lambda id_: (-scores[id_], id_))[:limit]


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
