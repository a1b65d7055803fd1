"""Contents by hash, stored once for the many turns that share them, and for as long as an account refers to
them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from holdfast.clock import DAY_MS
from holdfast.context.messages import text_digest
from holdfast.context.tables import blobs, manifests, states
from holdfast.errors import NotFound
from holdfast.log import SYSTEM, Store, Tx
from holdfast.log.statements import Insert

_MOST_KNOWN: Final = 100_000
_CHUNK: Final = 500
_INSERT: Final = Insert(blobs, ignore=(["hash"], None))
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
        query = sa.select(blobs.c.hash, blobs.c.content).where(
            blobs.c.hash.in_(wanted[start : start + _CHUNK])
        )
        found |= {row.hash: row.content for row in tx.conn.execute(query)}
    if len(found) != len(wanted):
        raise NotFound("a part of this context is no longer stored", code="erased_blob")
    return found


def erase(tx: Tx, needle: str) -> int:
    """Take out every content that holds a text; replays that need it then say that it is no longer stored."""
    global _erasures
    gone = tx.conn.execute(sa.delete(blobs).where(blobs.c.content.contains(needle, autoescape=True))).rowcount
    _erasures += 1
    return gone


def insert_new(tx: Tx, into: sa.Table) -> Any:
    """An insert that leaves a row alone that is there already."""
    dialect = postgresql if tx.postgres else sqlite
    return dialect.insert(into).on_conflict_do_nothing()


BATCH: Final = 500
ROUNDS: Final = 200


def prune(store: Store, days: int, *, rounds: int = ROUNDS) -> dict[str, int]:
    """Remove manifests older than so many days, then the texts that none is left to refer to."""
    removed = {"manifests": 0, "blobs": 0}
    for _ in range(rounds):
        with store.write(SYSTEM, ordered=False) as tx:
            count = _old_manifests(tx, _oldest_day(tx, days))
        removed["manifests"] += count
        if count < BATCH:
            break
    if removed["manifests"]:
        removed["blobs"] = _sweep(store, days, rounds)
    return removed


def _oldest_day(tx: Tx, days: int) -> int:
    """In whole days: one sweep of a day finds something, and looks through all accounts for what is left."""
    return (tx.now // DAY_MS - days) * DAY_MS


def _old_manifests(tx: Tx, before: int) -> int:
    old = sa.select(manifests.c.turn_id, manifests.c.call).where(manifests.c.created_at < before).limit(BATCH)
    keys = [tuple(row) for row in tx.conn.execute(old)]
    if keys:
        tx.conn.execute(
            sa.delete(manifests).where(sa.tuple_(manifests.c.turn_id, manifests.c.call).in_(keys))
        )
    return len(keys)


def _sweep(store: Store, days: int, rounds: int) -> int:
    """What is younger than the limit stays: a context may be in the making that refers to it."""
    with store.read(SYSTEM) as tx:
        before = _oldest_day(tx, days)
        used = _used(tx)
        old = tx.conn.execute(sa.select(blobs.c.hash).where(blobs.c.created_at < before))
        gone = [row.hash for row in old if bytes.fromhex(row.hash) not in used]
    gone = gone[: rounds * BATCH]
    for start in range(0, len(gone), BATCH):
        with store.write(SYSTEM, ordered=False) as tx:
            chunk = gone[start : start + BATCH]
            tx.conn.execute(sa.delete(blobs).where(blobs.c.hash.in_(chunk)))
    return len(gone)


def _used(tx: Tx) -> set[bytes]:
    """Every text that a manifest or the state of a session leads to, pieces of lists included."""
    found: set[bytes] = set()
    groups: set[str] = set()
    for body in _bodies(tx):
        found.update(map(bytes.fromhex, _named(body)))
        groups.update(ref[2:] for ref in body["refs"] if ref.startswith("g:"))
    for daily in tx.conn.execute(sa.select(states.c.daily).where(states.c.daily.is_not(None))).scalars():
        found.update(map(bytes.fromhex, daily.values()))
    while groups:
        fresh = [one for one in groups if bytes.fromhex(one) not in found]
        found.update(map(bytes.fromhex, fresh))
        groups = set()
        for start in range(0, len(fresh), BATCH):
            for text in get_many(tx, fresh[start : start + BATCH]).values():
                refs = json.loads(text)
                found.update(bytes.fromhex(ref[2:]) for ref in refs if ref.startswith("b:"))
                groups.update(ref[2:] for ref in refs if ref.startswith("g:"))
    return found


def _bodies(tx: Tx) -> Iterator[dict[str, Any]]:
    query = sa.select(manifests.c.body).execution_options(yield_per=BATCH)
    yield from tx.conn.execute(query).scalars()


def _named(body: dict[str, Any]) -> Iterable[str]:
    yield from body["system"]
    yield from (one for one in (body["tools"], body["carrier"]) if one is not None)
    yield from (ref[2:] for ref in body["refs"] if ref.startswith("b:"))
    yield from (s["hash"] for s in body["manifest"]["sections"] if s.get("hash"))
    yield from (body.get("inputs") or {}).get("kept", ())
