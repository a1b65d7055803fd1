"""Embeddings by provider, model and content: kept in the home, and shared by gateways on one PostgreSQL."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

import numpy as np

from holdfast.log import Store
from holdfast.memory.embedders.base import Vectors

log = logging.getLogger(__name__)

SCHEMA: Final = "memory_cache"
_TABLES: Final = f"""
CREATE SCHEMA IF NOT EXISTS {SCHEMA};
CREATE TABLE IF NOT EXISTS {SCHEMA}.embeddings (
  provider text NOT NULL, model text NOT NULL, content_hash text NOT NULL, embedding bytea NOT NULL,
  used bigint NOT NULL, PRIMARY KEY (provider, model, content_hash));
CREATE INDEX IF NOT EXISTS embedding_age ON {SCHEMA}.embeddings (used);
"""
_FIND: Final = f"""SELECT content_hash, embedding FROM {SCHEMA}.embeddings
  WHERE provider = %s AND model = %s AND content_hash = ANY(%s)"""
_PUT: Final = f"""INSERT INTO {SCHEMA}.embeddings VALUES (%s, %s, %s, %s, %s)
  ON CONFLICT (provider, model, content_hash) DO NOTHING"""
_COUNT: Final = f"SELECT count(*) FROM {SCHEMA}.embeddings"
_TRIM: Final = f"""DELETE FROM {SCHEMA}.embeddings WHERE ctid IN
  (SELECT ctid FROM {SCHEMA}.embeddings ORDER BY used LIMIT %s)"""
_TRIM_EVERY: Final = 10_000
_TRY_AGAIN_SECONDS: Final = 60.0


class EmbeddingCache(Protocol):
    """What is known of texts already, so that no text is embedded twice."""

    def embeddings(self, provider: str, model: str, hashes: Sequence[str]) -> dict[str, Vectors]: ...

    def put_embeddings(
        self, provider: str, model: str, vectors: Iterable[tuple[str, Vectors]], *, now: int, most: int
    ) -> None: ...

    def close(self) -> None: ...


def embedding_cache(local: EmbeddingCache, store: Store | None, shared_most: int) -> EmbeddingCache:
    """That of the home, with the one in the store's PostgreSQL behind it where there is one."""
    if store is None or not store.postgres or not shared_most:
        return local
    return SharedEmbeddings(local, store, shared_most)


class SharedEmbeddings:
    """What any gateway on this PostgreSQL has embedded. While that does not answer, the home's own serves."""

    def __init__(self, local: EmbeddingCache, store: Store, most: int) -> None:
        self._conninfo = store.url.set(drivername="postgresql").render_as_string(hide_password=False)
        self._local = local
        self._most = most
        self._lock = threading.Lock()
        self._connection: Any = None
        self._not_before = 0.0
        self._put_since_trim = _TRIM_EVERY

    def embeddings(self, provider: str, model: str, hashes: Sequence[str]) -> dict[str, Vectors]:
        """The vectors that are known here or there, by content hash."""
        found: dict[str, Vectors] = self._local.embeddings(provider, model, hashes)
        missing = [key for key in hashes if key not in found]
        if not missing:
            return found
        rows = self._run(lambda db: db.execute(_FIND, (provider, model, missing)).fetchall()) or []
        return found | {key: np.frombuffer(blob, np.float16).astype(np.float32) for key, blob in rows}

    def put_embeddings(
        self, provider: str, model: str, vectors: Iterable[tuple[str, Vectors]], *, now: int, most: int
    ) -> None:
        """Keep vectors here and there; `most` bounds what the home keeps."""
        kept = list(vectors)
        self._local.put_embeddings(provider, model, kept, now=now, most=most)
        rows = [(provider, model, key, vector.astype(np.float16).tobytes(), now) for key, vector in kept]

        def put(db: Any) -> None:
            with db.cursor() as cursor:
                cursor.executemany(_PUT, rows)
            self._put_since_trim += len(rows)
            if self._put_since_trim >= _TRIM_EVERY:
                self._put_since_trim = 0
                over = db.execute(_COUNT).fetchone()[0] - self._most
                if over > 0:
                    db.execute(_TRIM, (over + self._most // 10,))

        self._run(put)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()

    def _run(self, work: Any) -> Any:
        """One piece of work on the shared one; None, told once, when it does not answer."""
        from psycopg import Error

        with self._lock:
            if time.monotonic() < self._not_before:
                return None
            try:
                return work(self._connected())
            except Error as error:
                why = (str(error).splitlines() or [type(error).__name__])[0]
                log.warning("shared embeddings cannot be used for a while: %s", why)
                self._not_before = time.monotonic() + _TRY_AGAIN_SECONDS
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None
                return None

    def _connected(self) -> Any:
        import psycopg

        if self._connection is None:
            self._connection = psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)
            if self._connection.execute("SELECT to_regclass(%s)", (f"{SCHEMA}.embeddings",)).fetchone()[0]:
                return self._connection
            self._connection.execute(_TABLES)
        return self._connection
