"""Drafts: texts begun on one device and finished on another, by key. They are the owner's alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from holdfast.board.tables import drafts as table
from holdfast.clock import Millis
from holdfast.errors import Forbidden, InvalidInput
from holdfast.log import Tx, changes
from holdfast.text import clean_text

MAX_KEY: Final = 240
MAX_VALUE: Final = 50_000
MAX_DRAFTS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Draft:
    key: str
    value: str
    created_at: Millis
    updated_at: Millis


def put(tx: Tx, key: str, value: str) -> tuple[Draft, bool]:
    """Keep a draft, and whether it is new; an empty one is forgotten. Past the limit the oldest go."""
    if not tx.reader.reads_all:
        raise Forbidden(
            "drafts are the owner's", code="drafts_owner_only", hint="Keep yours where you write."
        )
    key, value = clean_text(key), clean_text(value)
    if not key or len(key) > MAX_KEY or len(value) > MAX_VALUE:
        raise InvalidInput(f"a draft has a key of 1 to {MAX_KEY} and at most {MAX_VALUE} characters")
    old = get(tx, key)
    if old is not None and old.value == value:
        return old, False
    made = tx.now if old is None else old.created_at
    tx.conn.execute(sa.delete(table).where(table.c.key == key))
    if value:
        row = {"key": key, "value": value, "created_at": made, "updated_at": tx.now}
        tx.conn.execute(sa.insert(table), row)
        _forget_oldest(tx)
    changes.emit(tx, "draft.upserted", key)
    return Draft(key, value, made, tx.now), old is None and bool(value)


def get(tx: Tx, key: str) -> Draft | None:
    if not tx.reader.reads_all:
        return None
    row = tx.conn.execute(sa.select(table).where(table.c.key == key)).first()
    return None if row is None else Draft(row.key, row.value, row.created_at, row.updated_at)


def listing(tx: Tx, *, limit: int = 100) -> list[Draft]:
    """The most recently written first; none for anybody else."""
    if not tx.reader.reads_all:
        return []
    query = sa.select(table).order_by(table.c.updated_at.desc(), table.c.key.desc())
    rows = tx.conn.execute(query.limit(max(1, min(limit, 500))))
    return [Draft(row.key, row.value, row.created_at, row.updated_at) for row in rows]


def _forget_oldest(tx: Tx) -> None:
    newest = sa.select(table.c.key).order_by(table.c.updated_at.desc(), table.c.key.desc())
    excess = newest.offset(MAX_DRAFTS).limit(100)
    tx.conn.execute(sa.delete(table).where(table.c.key.in_(excess)))
