"""How long accounts of built contexts are kept; a text goes when no account that is left refers to it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import sqlalchemy as sa

from holdfast.clock import DAY_MS
from holdfast.context import blobs
from holdfast.context.tables import blobs as blob_table
from holdfast.context.tables import manifests as table
from holdfast.context.tables import states
from holdfast.log import SYSTEM, Store, Tx

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
    old = sa.select(table.c.turn_id, table.c.call).where(table.c.created_at < before).limit(BATCH)
    keys = [tuple(row) for row in tx.conn.execute(old)]
    if keys:
        tx.conn.execute(sa.delete(table).where(sa.tuple_(table.c.turn_id, table.c.call).in_(keys)))
    return len(keys)


def _sweep(store: Store, days: int, rounds: int) -> int:
    """What is younger than the limit stays: a context may be in the making that refers to it."""
    with store.read(SYSTEM) as tx:
        before = _oldest_day(tx, days)
        used = _used(tx)
        old = tx.conn.execute(sa.select(blob_table.c.hash).where(blob_table.c.created_at < before))
        gone = [row.hash for row in old if bytes.fromhex(row.hash) not in used]
    gone = gone[: rounds * BATCH]
    for start in range(0, len(gone), BATCH):
        with store.write(SYSTEM, ordered=False) as tx:
            chunk = gone[start : start + BATCH]
            tx.conn.execute(sa.delete(blob_table).where(blob_table.c.hash.in_(chunk)))
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
            for text in blobs.get_many(tx, fresh[start : start + BATCH]).values():
                refs = json.loads(text)
                found.update(bytes.fromhex(ref[2:]) for ref in refs if ref.startswith("b:"))
                groups.update(ref[2:] for ref in refs if ref.startswith("g:"))
    return found


def _bodies(tx: Tx) -> Iterator[dict[str, Any]]:
    query = sa.select(table.c.body).execution_options(yield_per=BATCH)
    yield from tx.conn.execute(query).scalars()


def _named(body: dict[str, Any]) -> Iterable[str]:
    yield from body["system"]
    yield from (one for one in (body["tools"], body["carrier"]) if one is not None)
    yield from (ref[2:] for ref in body["refs"] if ref.startswith("b:"))
    yield from (s["hash"] for s in body["manifest"]["sections"] if s.get("hash"))
    yield from (body.get("inputs") or {}).get("kept", ())
