"""What is known of files and texts already: hashes of files, and embeddings by provider, model and content.

Derived, like the index beside it: it may be deleted at any time, and costs only the work of making it again.
Every row has a checksum: one that is not as it was written counts as unknown. A file that SQLite cannot read
is set aside, and a new one begun.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from holdfast.errors import Unavailable
from holdfast.home import make_private
from holdfast.log.store import sqlite_module
from holdfast.memory.damage import Aside, is_damage, is_sound, row_sum
from holdfast.memory.embedders.base import Vectors

T = TypeVar("T")

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS files (
  agent TEXT NOT NULL, collection TEXT NOT NULL, path TEXT NOT NULL, hash TEXT NOT NULL,
  mtime INTEGER NOT NULL, size INTEGER NOT NULL, chunk_count INTEGER NOT NULL, sum INTEGER,
  PRIMARY KEY (agent, collection, path)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS embedding_cache (
  provider TEXT NOT NULL, model TEXT NOT NULL, content_hash TEXT NOT NULL, embedding BLOB NOT NULL,
  used INTEGER NOT NULL, sum INTEGER, PRIMARY KEY (provider, model, content_hash)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS embedding_age ON embedding_cache (used);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL, sum INTEGER) WITHOUT ROWID;
"""
_TABLES: Final = ("files", "embedding_cache", "facts")
_FILES: Final = "SELECT agent, collection, path, hash, mtime, size, chunk_count, sum FROM files"
FILES_KNOWN: Final = "files:"
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
        self.aside = Aside(path.parent)
        self._path = path
        self._lock = threading.Lock()
        self._db: Any = None
        self._run(lambda _: None)

    def files(self, agent: str, collection: str) -> dict[str, FileState]:
        query = f"{_FILES} WHERE agent = ? AND collection = ?"
        rows = self._run(lambda db: db.execute(query, (agent, collection)).fetchall())
        return {row[2]: FileState(*row[2:-1]) for row in rows if is_sound(row[-1], *row[:-1])}

    def put_files(self, states: Iterable[tuple[str, str, FileState]]) -> None:
        """Note files as indexed, each with its agent and collection."""
        rows = [(a, c, s.path, s.hash, s.mtime, s.size, s.chunk_count) for a, c, s in states]
        summed = [(*row, row_sum(*row)) for row in rows]
        self._write("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?)", summed)

    def drop_file(self, agent: str, collection: str, path: str) -> None:
        self._write(
            "DELETE FROM files WHERE agent = ? AND collection = ? AND path = ?", [(agent, collection, path)]
        )

    def drop_files(self, agent: str) -> None:
        """Forget the files of one agent."""
        self._write("DELETE FROM files WHERE agent = ?", [(agent,)])

    def forget_files(self) -> None:
        """Forget every file, so that the next update indexes all of them anew; embeddings stay."""
        self._write(f"DELETE FROM facts WHERE name LIKE '{FILES_KNOWN}%'", [()])
        self._write("DELETE FROM files", [()])

    def collections(self) -> list[tuple[str, str]]:
        return self._run(lambda db: list(db.execute("SELECT DISTINCT agent, collection FROM files")))

    def embeddings(self, provider: str, model: str, hashes: Sequence[str]) -> dict[str, Vectors]:
        """The vectors that are known, by content hash."""
        found: dict[str, Vectors] = {}
        for start in range(0, len(hashes), _BATCH):
            part = list(hashes[start : start + _BATCH])
            marks = ",".join("?" * len(part))
            query = (
                "SELECT content_hash, embedding, sum FROM embedding_cache"
                f" WHERE provider = ? AND model = ? AND content_hash IN ({marks})"
            )
            values = (provider, model, *part)
            rows = self._run(partial(_fetched, query, values))
            good = [(key, blob) for key, blob, total in rows if is_sound(total, key, blob)]
            found |= {key: np.frombuffer(blob, np.float32) for key, blob in good}
        return found

    def put_embeddings(
        self, provider: str, model: str, vectors: Iterable[tuple[str, Vectors]], *, now: int, most: int
    ) -> None:
        """Keep vectors; above `most` entries (0: no limit) the longest unused go."""
        rows = [(key, vector.astype(np.float32).tobytes()) for key, vector in vectors]
        summed = [(provider, model, *row, now, row_sum(*row)) for row in rows]
        self._write("INSERT OR REPLACE INTO embedding_cache VALUES (?, ?, ?, ?, ?, ?)", summed)
        if most:
            self._run(lambda _: self._trim(most))

    def fact(self, name: str) -> str | None:
        query = "SELECT value, sum FROM facts WHERE name = ?"
        row = self._run(lambda db: db.execute(query, (name,)).fetchone())
        return None if row is None or not is_sound(row[1], name, row[0]) else str(row[0])

    def put_fact(self, name: str, value: str) -> None:
        self._write("INSERT OR REPLACE INTO facts VALUES (?, ?, ?)", [(name, value, row_sum(name, value))])

    def drop_fact(self, name: str) -> None:
        self._write("DELETE FROM facts WHERE name = ?", [(name,)])

    def check(self) -> None:
        """Have SQLite look at all of it; what is damaged is set aside, and a new catalogue begun."""
        self._run(_whole)

    def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()

    def _run(self, work: Callable[[Any], T]) -> T:
        """One at a time; a file that cannot be read is set aside, and the work done on a new one."""
        sqlite = sqlite_module()
        with self._lock:
            try:
                return work(self._opened())
            except sqlite.OperationalError as error:
                if not is_damage(str(error), self._path):
                    raise _unusable(self._path, str(error)) from error
                self._set_aside(str(error))
            except sqlite.ProgrammingError as error:  # it was closed: whoever comes late finds a sound file
                raise _unusable(self._path, str(error)) from error
            except (sqlite.DatabaseError, UnicodeDecodeError) as error:
                self._set_aside(str(error))
            return work(self._opened())

    def _opened(self) -> Any:
        if self._db is None:
            make_private(self._path)
            module = sqlite_module()
            self._db = module.connect(str(self._path), check_same_thread=False, isolation_level=None)
            for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=5000"):
                self._db.execute(f"PRAGMA {pragma}")
            self._db.executescript(_SCHEMA)
            for table in _TABLES:
                if "sum" not in {name for _, name, *_ in self._db.execute(f"PRAGMA table_info({table})")}:
                    self._db.execute(f"ALTER TABLE {table} ADD COLUMN sum INTEGER")
        return self._db

    def _set_aside(self, why: str) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
        self.aside.take([self._path.with_name(self._path.name + end) for end in ("", "-wal", "-shm")], why)

    def _write(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        def write(db: Any) -> None:
            with self._transaction():
                db.executemany(statement, rows)

        self._run(write)

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
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


def _fetched(query: str, values: tuple[Any, ...], db: Any) -> list[Any]:
    return list(db.execute(query, values))


def _whole(db: Any) -> None:
    found = db.execute("PRAGMA integrity_check(1)").fetchone()
    if found is not None and found[0] != "ok":
        raise sqlite_module().DatabaseError(str(found[0]))


def _unusable(path: Path, why: str) -> Unavailable:
    return Unavailable(
        f"the catalogue at {path} cannot be used: {why}",
        code="index_unavailable",
        hint="See that the disk has room and that the folder may be written; then try again.",
    )
