"""OpenAI's batch API: many texts handed over at once, done within a day, for half the price.

What comes back goes into the cache of embeddings, from which indexing then takes it. A batch is remembered
until it is taken in, so that an interrupted wait or a restart neither loses nor pays for it again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from holdfast.clock import Clock
from holdfast.errors import Conflict
from holdfast.memory.catalogue import Catalogue
from holdfast.memory.embedders.base import Vectors, normalised
from holdfast.memory.embedders.remote import EmbeddingFailed, RemoteEmbedder
from holdfast.memory.embedding import EmbedderChain
from holdfast.memory.embedding_cache import EmbeddingCache
from holdfast.memory.engine.protocol import Index
from holdfast.memory.indexing import hash_of
from holdfast.text import rough_tokens

WORTHWHILE: Final = 1_000
"""Fewer texts than this are embedded at once: that takes a minute and costs a fraction of a cent."""
MOST_IN_ONE: Final = 50_000
_MOST_BYTES: Final = 190 * 1024 * 1024
_FACT: Final = "batch:"
_DONE: Final = frozenset({"completed", "failed", "expired", "cancelled"})
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
PRICES: Final = {
    "text-embedding-3-small": 0.02,
    "text-embedding-3-large": 0.13,
    "text-embedding-ada-002": 0.10,
}
"""Dollars for a million tokens when asked directly, as published in 2025; a batch costs half."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a batch would send and cost; `dollars` is None for a model whose price is not known."""

    model: str
    texts: int
    tokens: int
    dollars: float | None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the batches under way are."""

    done: int
    total: int
    waiting: bool
    problems: tuple[str, ...] = ()


class BatchIndexing:
    """The texts that wait for the first embedder of the chain, sent and taken in as batches."""

    def __init__(
        self,
        index: Index,
        catalogue: Catalogue,
        embeddings: EmbeddingCache,
        chain: EmbedderChain,
        clock: Clock,
    ) -> None:
        self._index = index
        self._catalogue = catalogue
        self._embeddings = embeddings
        self._chain = chain
        self._clock = clock

    def offer(self) -> Offer | None:
        """What a batch would be about; None where nobody embeds who has one."""
        embedder = self._embedder()
        if embedder is None:
            return None
        waiting = self._waiting(embedder)
        tokens = sum(rough_tokens(text) for text in waiting.values())
        price = PRICES.get(embedder.id.model) if embedder.is_openai_itself else None
        dollars = None if price is None else tokens * price / 2 / 1_000_000
        return Offer(embedder.id.model, len(waiting), tokens, dollars)

    def begin(self) -> int:
        """Send what waits; returns how many texts. Nothing is sent while a batch is under way."""
        embedder = self._embedder()
        if embedder is None or self.pending(embedder):
            raise Conflict("a batch is under way already, or nobody has one", hint="Wait for it.")
        waiting = list(self._waiting(embedder).items())
        for part in _parts(waiting):
            lines = [json.dumps(embedder.batch_line(key, text)) for key, text in part]
            made = embedder.send_batch("\n".join(lines).encode() + b"\n")
            ids = [*self._ids(embedder), _checked_id(made)]
            self._catalogue.put_fact(_FACT + embedder.id.fingerprint, json.dumps(ids))
        return len(waiting)

    def pending(self, embedder: Any = None) -> bool:
        """Whether a batch of the embedder, or of the first in the chain, is still to be taken in."""
        embedder = embedder or self._embedder()
        return isinstance(embedder, RemoteEmbedder) and bool(self._ids(embedder))

    def collect(self) -> Progress:
        """Take in the batches that are done."""
        embedder = self._embedder()
        if embedder is None:
            return Progress(0, 0, waiting=False)
        done = total = 0
        left: list[str] = []
        problems: list[str] = []
        for id_ in self._ids(embedder):
            state = embedder.look_at_batch(id_)
            counts = state.get("request_counts") or {}
            done, total = done + int(counts.get("completed", 0)), total + int(counts.get("total", 0))
            if state.get("status") not in _DONE:
                left.append(id_)
                continue
            problems += self._take_in(embedder, id_, state)
        name = _FACT + embedder.id.fingerprint
        if left:
            self._catalogue.put_fact(name, json.dumps(left))
        else:
            self._catalogue.drop_fact(name)
        return Progress(done, total, waiting=bool(left), problems=tuple(problems))

    def _take_in(self, embedder: RemoteEmbedder, id_: str, state: dict[str, Any]) -> list[str]:
        """What a batch brought, into the cache; what it did not is embedded directly by and by."""
        taken = 0
        if output := state.get("output_file_id"):
            fresh = list(_vectors(embedder.read_file(_checked_id(output))))
            who, now = embedder.id, self._clock.now()
            self._embeddings.put_embeddings(who.provider, who.fingerprint, fresh, now=now, most=0)
            taken = len(fresh)
        wanted = int((state.get("request_counts") or {}).get("total", taken))
        if state["status"] == "completed" and taken >= wanted:
            return []
        return [f"batch {id_} {state['status']}: {taken} of {wanted} texts were embedded"]

    def _embedder(self) -> RemoteEmbedder | None:
        first = next(iter(self._chain.preferred), None)
        return first if isinstance(first, RemoteEmbedder) and first.id.provider == "openai" else None

    def _ids(self, embedder: RemoteEmbedder) -> list[str]:
        known = self._catalogue.fact(_FACT + embedder.id.fingerprint)
        return [] if known is None else [str(one) for one in json.loads(known)]

    def _waiting(self, embedder: RemoteEmbedder) -> dict[str, str]:
        """The texts without a vector, by their hash, less those whose vector is known."""
        documents = self._index.without_vector(embedder.id.fingerprint, self._index.count)
        texts = {hash_of(document.text): document.text for document in documents}
        known = self._embeddings.embeddings(embedder.id.provider, embedder.id.fingerprint, list(texts))
        return {key: text for key, text in texts.items() if key not in known}


def _parts(texts: Sequence[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Within what one batch may hold, in requests and in bytes."""
    part: list[tuple[str, str]] = []
    size = 0
    for key, text in texts:
        more = len(text.encode()) * 2 + 500
        if part and (len(part) == MOST_IN_ONE or size + more > _MOST_BYTES):
            yield part
            part, size = [], 0
        part.append((key, text))
        size += more
    if part:
        yield part


def _vectors(lines: str) -> Iterator[tuple[str, Vectors]]:
    for line in lines.splitlines():
        row = json.loads(line) if line.strip() else {}
        answer = row.get("response") or {}
        if answer.get("status_code") == 200:
            vector = np.array(answer["body"]["data"][0]["embedding"], np.float32)
            if vector.ndim == 1 and np.isfinite(vector).all():
                yield str(row["custom_id"]), normalised(vector)


def _checked_id(given: object) -> str:
    """An id that may stand in an address; anything else is not one."""
    if not isinstance(given, str) or not _ID.fullmatch(given):
        raise EmbeddingFailed("the embedding provider gave an id that is none")
    return given
