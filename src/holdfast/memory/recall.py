"""One question against one view: read it, embed it, rank what the engine finds."""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import Protocol

from holdfast.clock import Millis
from holdfast.memory.embedders.base import Embedder
from holdfast.memory.question import Query, understand
from holdfast.memory.scoring import Candidates, Reranker, Scored, Scoring, rank


class Searchable(Candidates, Protocol):
    """A view that can also say who speaks in it."""

    def speakers(self) -> list[str]: ...


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
    query = understand(question, now, view.speakers(), zone)
    if embedder is None:
        return query
    return query.with_vector(embedder.embed_query(query.dense_text), embedder.id.fingerprint)
