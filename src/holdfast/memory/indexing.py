"""Keeping the index true to the files: only what changed is read, cut and embedded again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from holdfast.clock import Clock
from holdfast.errors import HoldfastError
from holdfast.memory.catalogue import FILES_KNOWN, Catalogue, FileState
from holdfast.memory.chunking import Chunk, chunk
from holdfast.memory.collections import Collection
from holdfast.memory.deadline import Stop, unless_stopped
from holdfast.memory.documents import Document, Filter
from holdfast.memory.embedders.base import Embedder, Vectors
from holdfast.memory.embedding_cache import EmbeddingCache
from holdfast.memory.engine.protocol import Index
from holdfast.memory.following import WRITES
from holdfast.memory.reading import read_within

Progress = Callable[[str, int, int], None]
Keep = Callable[[str, Collection, str, bytes], None]
"""Is told of each new text of a file: agent, collection, path, text."""

_EMBED_BATCH: Final = 256
_LOCAL_BATCH: Final = 32
_MUCH: Final = 1_000


@dataclass(slots=True)
class Update:
    """What an update of the index did."""

    seen: int = 0
    indexed: int = 0
    removed: int = 0
    chunks: int = 0
    embedded: int = 0
    stopped: bool = False
    problems: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Whether there is anything to tell of."""
        return bool(self.indexed or self.removed or self.problems)


@dataclass(slots=True)
class _Waiting:
    """Files that were read and cut, to be written together: a commit costs far more than a small file."""

    documents: list[Document] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    surplus: list[str] = field(default_factory=list)
    states: list[tuple[str, str, FileState]] = field(default_factory=list)


class FileIndexer:
    """Brings the collections of an agent into the index, and what has gone out of it."""

    def __init__(
        self,
        index: Index,
        catalogue: Catalogue,
        base: Embedder,
        clock: Clock,
        *,
        tokens: int = 1024,
        overlap: int = 128,
        cache_entries: int = 50_000,
        stop: Stop = lambda: False,
        keep: Keep | None = None,
    ) -> None:
        self._stop = stop
        self._keep = keep
        self._index = index
        self._catalogue = catalogue
        self._base = base
        self._clock = clock
        self._tokens = tokens
        self._overlap = overlap
        self._cache_entries = cache_entries
        self._waiting = _Waiting()

    def update(
        self,
        agent: str,
        collections: Sequence[Collection],
        *,
        progress: Progress | None = None,
        force: bool = False,
    ) -> Update:
        """Index what changed since the last time; a file that cannot be read is reported, not fatal."""
        done = Update()
        for collection in collections:
            self._collection(agent, collection, done, progress, force)
            self._write_waiting()
        if done.stopped:
            return done
        self._drop_unlisted(agent, collections, done)
        self._drop_unknown(agent, collections)
        if done.chunks >= _MUCH:
            self._index.flush()
        return done

    def _collection(
        self, agent: str, collection: Collection, done: Update, progress: Progress | None, force: bool
    ) -> None:
        known = self._catalogue.files(agent, collection.name)
        found = dict(collection.files())
        for count, (path, facts) in enumerate(found.items(), 1):
            done.stopped = done.stopped or self._stop()
            if done.stopped:
                return
            done.seen += 1
            before = known.get(path)
            touched = before is None or (before.mtime, before.size) != (facts.st_mtime_ns, facts.st_size)
            if touched or force:
                try:
                    self._file(agent, collection, path, before, facts.st_mtime_ns, done, force)
                except HoldfastError as error:
                    done.problems.append(error.message)
            if progress is not None:
                progress(collection.name, count, len(found))
        for path in known.keys() - found.keys():
            self._remove(agent, collection.name, known[path], done)

    def _file(
        self,
        agent: str,
        collection: Collection,
        path: str,
        before: FileState | None,
        mtime: int,
        done: Update,
        force: bool,
    ) -> None:
        data = read_within(collection.root, path)
        digest = hashlib.sha256(data).hexdigest()
        pieces: Sequence[Chunk] = ()
        count = before.chunk_count if before is not None else 0
        if self._keep is not None and (before is None or before.hash != digest):
            self._keep(agent, collection, path, data)
        if force or before is None or before.hash != digest:
            pieces = chunk(data.decode("utf-8", "replace"), tokens=self._tokens, overlap=self._overlap)
            self._waiting.documents += _documents(agent, collection, path, pieces, mtime)
            self._waiting.texts += [(piece.hash, piece.embed_text) for piece in pieces]
            self._waiting.surplus += [_id(agent, collection.name, path, n) for n in range(len(pieces), count)]
            count = len(pieces)
            done.indexed += 1
            done.chunks += count
        state = FileState(path, digest, mtime, len(data), count)
        self._waiting.states.append((agent, collection.name, state))
        if len(self._waiting.documents) >= _EMBED_BATCH:
            self._write_waiting()

    def _write_waiting(self) -> None:
        """Index what was read, and only then note its files as known: a crash costs work, not text."""
        batch, self._waiting = self._waiting, _Waiting()
        if batch.documents:
            vectors = embed_cached(self._base, batch.texts, self._catalogue, self._clock, self._cache_entries)
            self._index.upsert(batch.documents, {self._base.id.fingerprint: vectors})
        if batch.surplus:
            self._index.delete(batch.surplus)
        if batch.states:
            self._catalogue.put_fact(WRITES, str(self._index.writes))
            self._catalogue.put_files(batch.states)

    def _remove(self, agent: str, collection: str, state: FileState, done: Update) -> None:
        ids = [_id(agent, collection, state.path, number) for number in range(state.chunk_count)]
        if ids:
            self._index.delete(ids)
        self._catalogue.drop_file(agent, collection, state.path)
        done.removed += 1

    def _drop_unlisted(self, agent: str, collections: Sequence[Collection], done: Update) -> None:
        """A collection that is no longer configured leaves the index."""
        listed = {collection.name for collection in collections}
        for owner, name in self._catalogue.collections():
            if owner == agent and name not in listed:
                for state in self._catalogue.files(agent, name).values():
                    self._remove(agent, name, state, done)

    def _drop_unknown(self, agent: str, collections: Sequence[Collection]) -> None:
        """Once for a catalogue that was made anew: files that it does not know leave the index.

        An index that several processes fill holds the files of others too, and is left alone.
        """
        if not self._index.computes_here or self._catalogue.fact(FILES_KNOWN + agent):
            return
        known = {
            _id(agent, collection.name, state.path, number)
            for collection in collections
            for state in self._catalogue.files(agent, collection.name).values()
            for number in range(state.chunk_count)
        }
        view = self._index.view(Filter(agents=frozenset((agent,)), sources=frozenset(("file",))))
        there = [document.id for document in view.documents(view.recent(view.count)) if document is not None]
        unknown = [id_ for id_ in there if id_ not in known]
        if unknown:
            self._index.delete(unknown)
        self._catalogue.put_fact(FILES_KNOWN + agent, "1")


def forget(index: Index, catalogue: Catalogue, agent: str) -> int:
    """Take all files of an agent out of the index; returns how many documents those were."""
    view = index.view(Filter(agents=frozenset((agent,)), sources=frozenset(("file",))))
    ids = [document.id for document in view.documents(view.recent(view.count)) if document is not None]
    for start in range(0, len(ids), _MUCH):
        index.delete(ids[start : start + _MUCH])
    catalogue.drop_files(agent)
    return len(ids)


def refine(
    index: Index,
    embedder: Embedder,
    cache: EmbeddingCache,
    clock: Clock,
    *,
    limit: int = 10_000,
    cache_entries: int,
    progress: Progress | None = None,
    stop: Stop = lambda: False,
) -> int:
    """Give documents the vectors of a better embedder, newest first; returns how many got one.

    In batches, small ones for a model that runs here, between which a stop is heeded; one that takes too
    long for a stop is left behind.
    """
    done = 0
    fingerprint = embedder.id.fingerprint
    batch = _LOCAL_BATCH if embedder.id.provider == "local" else _EMBED_BATCH
    before: list[str] = []
    while done < limit and not stop():
        waiting = index.without_vector(fingerprint, min(batch, limit - done))
        ids = [document.id for document in waiting]
        if not waiting or ids == before:
            break
        texts = [(hash_of(document.text), document.text) for document in waiting]
        vectors = unless_stopped(partial(embed_cached, embedder, texts, cache, clock, cache_entries), stop)
        if vectors is None:
            break
        index.put_vectors(fingerprint, ids, vectors)
        done, before = done + len(waiting), ids
        if progress is not None:
            progress("embeddings", done, limit)
    if done:
        index.flush()
    return done


def embed_cached(
    embedder: Embedder,
    texts: Sequence[tuple[str, str]],
    cache: EmbeddingCache,
    clock: Clock,
    most: int,
) -> Vectors:
    """Vectors for (hash, text) pairs: known ones from the cache, the rest from the embedder, once each."""
    import numpy as np

    who = embedder.id
    known = cache.embeddings(who.provider, who.fingerprint, [key for key, _ in texts])
    missing = {key: text for key, text in texts if key not in known}
    if missing:
        made = embedder.embed_documents(list(missing.values()))
        fresh = list(zip(missing, made, strict=True))
        cache.put_embeddings(who.provider, who.fingerprint, fresh, now=clock.now(), most=most)
        known |= dict(fresh)
    return np.stack([known[key] for key, _ in texts])


def _documents(
    agent: str, collection: Collection, path: str, pieces: Sequence[Chunk], mtime: int
) -> list[Document]:
    return [
        Document(
            id=_id(agent, collection.name, path, number),
            text=piece.text,
            source="file",
            agent=agent,
            writer=agent,
            collection=collection.name,
            at=mtime // 1_000_000,
            curated=collection.curated,
            thread=f"{agent}:{collection.name}:{path}",
            ordinal=number,
            path=collection.address(path),
            from_line=piece.start,
            to_line=piece.end,
            payload={"headings": list(piece.headings)} if piece.headings else {},
        )
        for number, piece in enumerate(pieces)
    ]


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _id(agent: str, collection: str, path: str, number: int) -> str:
    return f"file:{agent}:{collection}:{path}#{number}"
