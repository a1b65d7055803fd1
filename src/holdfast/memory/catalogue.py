"""What is known of files and texts already: hashes of files, and embeddings by provider, model and content.

Derived, like the index beside it: it may be deleted at any time, and costs only the work of making it again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from holdfast.home import make_private
from holdfast.log.store import sqlite_module
from holdfast.memory.embedders.base import Vectors

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS files (
  agent TEXT NOT NULL, collection TEXT NOT NULL, path TEXT NOT NULL, hash TEXT NOT NULL,
  mtime INTEGER NOT NULL, size INTEGER NOT NULL, chunk_count INTEGER NOT NULL,
  PRIMARY KEY (agent, collection, path)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS embedding_cache (
  provider TEXT NOT NULL, model TEXT NOT NULL, content_hash TEXT NOT NULL, embedding BLOB NOT NULL,
  used INTEGER NOT NULL, PRIMARY KEY (provider, model, content_hash)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS embedding_age ON embedding_cache (used);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
_BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class FileState:
    """A file as it was when it was last indexed."""

    path: str
    hash: str
    mtime: int
    size: int
    chunk_count: int


class Catalogue:
    """One small SQLite file beside the index; safe to share between threads."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_private(path)
        self._lock = threading.Lock()
        self._db: Any = sqlite_module().connect(str(path), check_same_thread=False, isolation_level=None)
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=5000"):
            self._db.execute(f"PRAGMA {pragma}")
        self._db.executescript(_SCHEMA)

    def files(self, agent: str, collection: str) -> dict[str, FileState]:
        query = "SELECT path, hash, mtime, size, chunk_count FROM files WHERE agent = ? AND collection = ?"
        with self._lock:
            return {row[0]: FileState(*row) for row in self._db.execute(query, (agent, collection))}

    def put_files(self, states: Iterable[tuple[str, str, FileState]]) -> None:
        """Note files as indexed, each with its agent and collection."""
        rows = [(a, c, s.path, s.hash, s.mtime, s.size, s.chunk_count) for a, c, s in states]
        with self._lock, self._transaction():
            self._db.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def drop_file(self, agent: str, collection: str, path: str) -> None:
        with self._lock:
            self._db.execute(
                "DELETE FROM files WHERE agent = ? AND collection = ? AND path = ?", (agent, collection, path)
            )

    def drop_files(self, agent: str) -> None:
        """Forget the files of one agent."""
        with self._lock:
            self._db.execute("DELETE FROM files WHERE agent = ?", (agent,))

    def forget_files(self) -> None:
        """Forget every file, so that the next update indexes all of them anew; embeddings stay."""
        with self._lock:
            self._db.execute("DELETE FROM files")

    def collections(self) -> list[tuple[str, str]]:
        with self._lock:
            return list(self._db.execute("SELECT DISTINCT agent, collection FROM files"))

    def embeddings(self, provider: str, model: str, hashes: Sequence[str]) -> dict[str, Vectors]:
        """The vectors that are known, by content hash."""
        found: dict[str, Vectors] = {}
        with self._lock:
            for start in range(0, len(hashes), _BATCH):
                part = list(hashes[start : start + _BATCH])
                marks = ",".join("?" * len(part))
                query = (
                    "SELECT content_hash, embedding FROM embedding_cache"
                    f" WHERE provider = ? AND model = ? AND content_hash IN ({marks})"
                )
                rows = self._db.execute(query, (provider, model, *part))
                found |= {key: np.frombuffer(blob, np.float32) for key, blob in rows}
        return found

    def put_embeddings(
        self, provider: str, model: str, vectors: Iterable[tuple[str, Vectors]], *, now: int, most: int
    ) -> None:
        """Keep vectors; above `most` entries (0: no limit) the longest unused go."""
        rows = [(provider, model, key, vector.astype(np.float32).tobytes(), now) for key, vector in vectors]
        with self._lock, self._transaction():
            self._db.executemany("INSERT OR REPLACE INTO embedding_cache VALUES (?, ?, ?, ?, ?)", rows)
            if most:
                self._trim(most)

    def fact(self, name: str) -> str | None:
        with self._lock:
            row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def put_fact(self, name: str, value: str) -> None:
        with self._lock:
            self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _trim(self, most: int) -> None:
        (count,) = self._db.execute("SELECT count(*) FROM embedding_cache").fetchone()
        if count > most:
            query = (
                "DELETE FROM embedding_cache WHERE (provider, model, content_hash) IN"
                " (SELECT provider, model, content_hash FROM embedding_cache ORDER BY used LIMIT ?)"
            )
            self._db.execute(query, (count - most + most // 10,))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
