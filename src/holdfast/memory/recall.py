"""One question against one view: read it, embed it, rank what the engine finds."""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import Protocol

import numpy as np

from holdfast.clock import Millis
from holdfast.memory.embedders.base import Embedder
from holdfast.memory.engine.protocol import Numbers
from holdfast.memory.question import Query, understand
from holdfast.memory.scoring import Candidates, Reranker, Scored, Scoring, rank
from holdfast.memory.text import query_terms

_SAMPLE = 256


class Searchable(Candidates, Protocol):
    """A view that can also say what came last, from which the speakers of the scope are known."""

    def recent(self, limit: int) -> Numbers: ...


def recall(
    question: str,
    view: Searchable,
    embedder: Embedder | None = None,
    options: Scoring | None = None,
    *,
    now: Millis,
    limit: int = 10,
    zone: tzinfo = UTC,
    reranker: Reranker | None = None,
) -> list[Scored]:
    """The best documents of the view for a question; without an embedder by words alone."""
    query = prepare(question, view, embedder, now=now, zone=zone)
    return rank(query, view, options or Scoring(), limit=limit, reranker=reranker)


def prepare(
    question: str, view: Searchable, embedder: Embedder | None, *, now: Millis, zone: tzinfo = UTC
) -> Query:
    """The question read against the scope's speakers, with its vector."""
    query = understand(question, now, speakers_in(view, question), zone)
    if embedder is None:
        return query
    return query.with_vector(embedder.embed_query(query.dense_text), embedder.id.fingerprint)


def speakers_in(view: Searchable, question: str) -> frozenset[str]:
    """Who speaks in the scope: those of its latest documents and of those that share a word."""
    near = view.lexical(query_terms(question).terms, _SAMPLE).numbers
    numbers = np.unique(np.append(near, view.recent(_SAMPLE))).astype(np.int64)
    return frozenset(name for name in view.metadata(numbers).speaker if name)
