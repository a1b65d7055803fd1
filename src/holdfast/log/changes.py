"""The change feed: a durable, gapless-in-order account of what changed, for streams and other readers.

A change names an entity; what the entity is now is looked up when the change is read, so that the feed
stays small. Only facts that cannot be looked up later (what a deleted thing was) travel in the payload.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.log.statements import Insert, Statement
from holdfast.log.store import Tx
from holdfast.log.tables import changes as table

SIGNAL: Final = "changes"
MAX_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Change:
    seq: int
    type: str
    entity_id: str
    payload: Mapping[str, Any] | None
    created_at: Millis


def emit(tx: Tx, type_: str, entity_id: str, payload: Mapping[str, Any] | None = None) -> None:
    """Tell of a change; all of a transaction are written together at its end."""
    row = {"type": type_, "entity_id": entity_id, "payload": payload, "created_at": tx.now}
    tx.gather(_INSERT.many, row)
    tx.wake(SIGNAL)


def emit_for(tx: Tx, type_: str, ids: sa.Select[tuple[str]], given: Mapping[str, Any]) -> None:
    """One change for each id that the query finds, in its order, without reading them out first."""
    tx.write_gathered()
    chosen = ids.add_columns(sa.literal(type_), sa.literal(int(tx.now)))
    tx.conn.execute(sa.insert(table).from_select(["entity_id", "type", "created_at"], chosen), given)
    tx.wake(SIGNAL)


def since(tx: Tx, seq: int, *, limit: int = MAX_PAGE) -> list[Change]:
    """The changes behind `seq`, oldest first, at most `MAX_PAGE`."""
    return [Change(*row) for row in _SINCE.rows(tx, after=seq, most=max(1, min(limit, MAX_PAGE)))]


def bounds(tx: Tx) -> tuple[int, int]:
    """The oldest change that is still kept and the newest one; (1, 0) when there never was any."""
    low, high = _BOUNDS.first(tx) or (None, None)
    return (low or 1, high or 0)


_INSERT = Insert(table)
_SINCE = Statement(
    sa.select(*(table.c[field.name] for field in fields(Change)))
    .where(table.c.seq > sa.bindparam("after"))
    .order_by(table.c.seq)
    .limit(sa.bindparam("most"))
)
_BOUNDS = Statement(
    sa.select(
        sa.select(sa.func.min(table.c.seq)).scalar_subquery().label("low"),
        sa.select(sa.func.max(table.c.seq)).scalar_subquery().label("high"),
    )
)
