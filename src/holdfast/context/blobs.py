"""Contents by hash: a text that many turns share is stored once."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from holdfast.clock import DAY_MS
from holdfast.context.messages import text_digest
from holdfast.context.tables import blobs as table
from holdfast.errors import NotFound
from holdfast.log import Tx
from holdfast.log.statements import Insert

_MOST_KNOWN: Final = 100_000
_CHUNK: Final = 500
_INSERT: Final = Insert(table, ignore=(["hash"], None))
# Counts in this process, so that nobody takes for written what was erased.
_erasures = 0


class Blobs:
    """Remembers what it has written, so that the unchanged bulk of a context costs no statement.

    For a day at most: what nothing refers to for long is removed, perhaps by another process.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._state = (0, 0)
        self._lock = threading.Lock()

    def put(self, tx: Tx, contents: Mapping[str, str]) -> None:
        """Write contents under their hashes; those that are there stay."""
        if (tx.now // DAY_MS, _erasures) != self._state:
            with self._lock:
                self._state = (tx.now // DAY_MS, _erasures)
                self._known.clear()
        new = {hash_: text for hash_, text in contents.items() if hash_ not in self._known}
        if not new:
            return
        rows = [{"hash": h, "content": text, "created_at": tx.now} for h, text in sorted(new.items())]
        # In one order everywhere, so that two writers of the same texts never wait for each other.
        _INSERT.many(tx, rows)
        tx.on_commit(lambda: self._remember(new))

    def _remember(self, hashes: Iterable[str]) -> None:
        with self._lock:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            self._known.update(hashes)


def put_text(contents: dict[str, str], text: str) -> str:
    """Add a text to those to be written; gives its hash."""
    hash_ = text_digest(text)
    contents[hash_] = text
    return hash_


def get_many(tx: Tx, hashes: Sequence[str]) -> dict[str, str]:
    """The contents of all these hashes; `NotFound` if one is not there."""
    found: dict[str, str] = {}
    wanted = list(dict.fromkeys(hashes))
    for start in range(0, len(wanted), _CHUNK):
        query = sa.select(table.c.hash, table.c.content).where(
            table.c.hash.in_(wanted[start : start + _CHUNK])
        )
        found |= {row.hash: row.content for row in tx.conn.execute(query)}
    if len(found) != len(wanted):
        raise NotFound("a part of this context is no longer stored", code="erased_blob")
    return found


def erase(tx: Tx, needle: str) -> int:
    """Take out every content that holds a text; replays that need it then say that it is no longer stored."""
    global _erasures
    gone = tx.conn.execute(sa.delete(table).where(table.c.content.contains(needle, autoescape=True))).rowcount
    _erasures += 1
    return gone


def insert_new(tx: Tx, into: sa.Table) -> Any:
    """An insert that leaves a row alone that is there already."""
    dialect = postgresql if tx.postgres else sqlite
    return dialect.insert(into).on_conflict_do_nothing()
