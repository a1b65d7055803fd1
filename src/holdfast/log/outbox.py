"""The outbox: what must reach someone, written with the fact that caused it, delivered once.

A row is the state of one delivery and can be looked at; the agenda item beside it makes the attempts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.errors import Conflict, NotFound
from holdfast.ids import OutboxId, outbox_id
from holdfast.log import agenda, audit, changes
from holdfast.log.store import Tx
from holdfast.log.tables import outbox as table
from holdfast.text import clean_json, clean_text

KIND: Final = "deliver"
MAX_ATTEMPTS: Final = 12
# What a turn says where it is heard has one of these; all else is sent somewhere, and that is an act.
_ANSWERS: Final = frozenset({"turnId", "op", "block"})


class DeliveryStatus(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """What to deliver: `key` makes a repeat harmless; parcels for one `target` go out in order."""

    key: str
    kind: str
    target: str
    payload: Mapping[str, Any]
    due_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    id: OutboxId
    key: str
    kind: str
    target: str
    status: DeliveryStatus
    payload: Mapping[str, Any]
    attempts: int
    created_at: Millis
    updated_at: Millis
    receipt: str | None = None
    error: str | None = None
    agenda_id: str | None = None
    delivered_at: Millis | None = None


_NAMES = tuple(f.name for f in fields(Delivery))


def post(tx: Tx, parcel: Parcel) -> Delivery:
    """Write a delivery and its agenda item; the same key again finds the one that is there."""
    key = clean_text(parcel.key)
    known = tx.conn.execute(sa.select(table).where(table.c.key == key)).mappings().first()
    if known is not None:
        return _delivery(known)
    id_ = outbox_id()
    item = agenda.enqueue(
        tx,
        KIND,
        {"outboxId": id_},
        lane=f"deliver:{parcel.target}",
        due_at=parcel.due_at,
        max_attempts=MAX_ATTEMPTS,
    )
    delivery = Delivery(
        id=id_,
        key=key,
        kind=parcel.kind,
        target=parcel.target,
        status=DeliveryStatus.PENDING,
        payload=clean_json(parcel.payload),
        attempts=0,
        agenda_id=item.id,
        created_at=tx.now,
        updated_at=tx.now,
    )
    tx.conn.execute(sa.insert(table), {name: getattr(delivery, name) for name in _NAMES})
    changes.emit(tx, "delivery.upserted", id_)
    if not _ANSWERS.intersection(parcel.payload):
        audit.note(tx, "delivery.sent", parcel.target, delivery=id_, cause=key)
    return delivery


def get(tx: Tx, id_: str) -> Delivery:
    row = tx.conn.execute(sa.select(table).where(table.c.id == id_)).mappings().first()
    if row is None:
        raise NotFound(f"no delivery {id_[:80]!r}", code="unknown_delivery")
    return _delivery(row)


def get_many(tx: Tx, ids: Sequence[str]) -> list[Delivery]:
    rows = tx.conn.execute(sa.select(table).where(table.c.id.in_(ids))).mappings()
    return [_delivery(row) for row in rows]


def sent_to(tx: Tx, beginning: str) -> list[tuple[str, str]]:
    """Kind and target of every delivery whose key begins so, each once."""
    begins = table.c.key.startswith(beginning, autoescape=True)
    query = sa.select(table.c.kind, table.c.target).where(begins).distinct().order_by(table.c.target)
    return [(kind, target) for kind, target in tx.conn.execute(query)]


def last_begun(tx: Tx, beginning: str, target: str) -> Delivery | None:
    """The newest delivery to a target whose key begins so."""
    begins = table.c.key.startswith(beginning, autoescape=True)
    newest = sa.select(table).where(begins, table.c.target == target)
    row = (
        tx.conn.execute(newest.order_by(table.c.created_at.desc(), table.c.id.desc()).limit(1))
        .mappings()
        .first()
    )
    return None if row is None else _delivery(row)


def delivered(tx: Tx, id_: str, *, receipt: str | None = None) -> Delivery:
    """Mark a delivery as done, once; a second mark is a `Conflict`, never a silent yes."""
    values = {"status": "delivered", "receipt": receipt, "delivered_at": tx.now, "error": None}
    return _move(tx, id_, values)


def attempt_failed(tx: Tx, id_: str, error: str, *, final: bool) -> Delivery:
    values = {"error": clean_text(error)[:4000], "attempts": table.c.attempts + 1}
    return _move(tx, id_, values | ({"status": "failed"} if final else {}))


def retry(tx: Tx, id_: str) -> Delivery:
    """Set a delivery that was given up on its way again, from its first attempt on."""
    known = get(tx, id_)
    if known.status is not DeliveryStatus.FAILED:
        raise Conflict(f"delivery {id_} has not failed", code="delivery_not_failed")
    item = agenda.enqueue(
        tx, KIND, {"outboxId": known.id}, lane=f"deliver:{known.target}", max_attempts=MAX_ATTEMPTS
    )
    values = {"status": "pending", "attempts": 0, "agenda_id": item.id, "updated_at": tx.now}
    tx.conn.execute(sa.update(table).where(table.c.id == id_).values(**values))
    changes.emit(tx, "delivery.upserted", id_)
    return get(tx, id_)


def remark(tx: Tx, id_: str, error: str) -> None:
    """Say how a delivery stands that is still on its way; that is no attempt."""
    pending = table.c.id == id_, table.c.status == "pending"
    tx.conn.execute(sa.update(table).where(*pending).values(error=error, updated_at=tx.now))


def listing(
    tx: Tx,
    *,
    status: DeliveryStatus | None = None,
    target: str | None = None,
    limit: int = 100,
) -> list[Delivery]:
    query = sa.select(table).order_by(table.c.updated_at.desc(), table.c.id.desc())
    if status is not None:
        query = query.where(table.c.status == status)
    if target is not None:
        query = query.where(table.c.target == target)
    rows = tx.conn.execute(query.limit(max(1, min(limit, 500)))).mappings()
    return [_delivery(row) for row in rows]


def _move(tx: Tx, id_: str, values: dict[str, Any]) -> Delivery:
    statement = sa.update(table).where(table.c.id == id_, table.c.status == "pending")
    if tx.conn.execute(statement.values(**values, updated_at=tx.now)).rowcount != 1:
        raise Conflict(f"delivery {id_} is not pending", code="delivery_ended")
    changes.emit(tx, "delivery.upserted", id_)
    return get(tx, id_)


def _delivery(row: Mapping[Any, Any]) -> Delivery:
    values = dict(row)
    values["status"] = DeliveryStatus(values["status"])
    return Delivery(**values)
