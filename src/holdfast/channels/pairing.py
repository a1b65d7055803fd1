"""Letting strangers in: who writes for the first time gets a short code; the owner says yes or no to it."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa

from holdfast.channels.records import channel_pairings as table
from holdfast.channels.surface import Surface
from holdfast.clock import DAY_MS, Millis
from holdfast.errors import NotFound
from holdfast.ids import uuid7
from holdfast.log import Tx
from holdfast.text import clip

MOST_WAITING: Final = 16
MOST_LISTED: Final = 200
REFUSED_MS: Final = 7 * DAY_MS
_LETTERS: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_CODE: Final = 8


class Status(StrEnum):
    WAITING = "waiting"
    APPROVED = "approved"
    DENIED = "denied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """One person on one channel. `owner` says that they are the owner."""

    id: str
    channel: str
    sender: str
    surface: str
    code: str
    status: Status
    owner: bool
    created_at: Millis
    expires_at: Millis
    label: str | None = None
    decided_at: Millis | None = None


_NAMES: Final = tuple(f.name for f in fields(Pairing))


def find(tx: Tx, channel: str, sender: str) -> Pairing | None:
    """What is known of a person; a code that has expired, or a no of long ago, is nothing."""
    where = table.c.channel == channel, table.c.sender == sender
    row = tx.conn.execute(sa.select(table).where(*where)).mappings().first()
    if row is None:
        return None
    known = _pairing(row)
    return None if known.status is not Status.APPROVED and known.expires_at <= tx.now else known


def ask(tx: Tx, surface: Surface, sender: str, label: str | None, minutes: int) -> Pairing | None:
    """A code for a stranger; None if there is one already, or as many wait as may."""
    if find(tx, surface.channel, sender) is not None:
        return None
    fresh = table.c.status == Status.WAITING, table.c.expires_at > tx.now
    waiting = sa.select(sa.func.count()).where(table.c.channel == surface.channel, *fresh)
    if (tx.conn.execute(waiting).scalar() or 0) >= MOST_WAITING:
        return None
    made = Pairing(
        id=f"pair-{uuid7()}",
        channel=surface.channel,
        sender=sender,
        label=None if label is None else clip(label, 120),
        surface=surface.address,
        code="".join(secrets.choice(_LETTERS) for _ in range(_CODE)),
        status=Status.WAITING,
        owner=False,
        created_at=tx.now,
        expires_at=Millis(tx.now + minutes * 60_000),
    )
    _forget(tx, surface.channel, sender)
    tx.conn.execute(sa.insert(table), {name: getattr(made, name) for name in _NAMES})
    return made


def decide(tx: Tx, code: str, *, approve: bool, owner: bool = False, channel: str | None = None) -> Pairing:
    """Say yes or no to a code that waits; `NotFound` for any other."""
    given = code.strip().upper().encode()
    found = [p for p in listing(tx, channel=channel) if hmac.compare_digest(p.code.encode(), given)]
    if not found:
        raise NotFound(
            "no such code waits",
            code="unknown_pairing",
            hint="Codes expire; see `holdfast channels pair list`.",
        )
    known = found[0]
    status = Status.APPROVED if approve else Status.DENIED
    values = {"status": status, "owner": owner and approve, "decided_at": tx.now}
    values |= {} if approve else {"expires_at": tx.now + REFUSED_MS}
    tx.conn.execute(sa.update(table).where(table.c.id == known.id).values(**values, code=""))
    return get(tx, known.id)


def get(tx: Tx, id_: str) -> Pairing:
    row = tx.conn.execute(sa.select(table).where(table.c.id == id_)).mappings().first()
    if row is None:
        raise NotFound(f"no pairing {id_[:80]!r}", code="unknown_pairing")
    return _pairing(row)


def listing(tx: Tx, *, channel: str | None = None, status: Status = Status.WAITING) -> list[Pairing]:
    """Those of a status, oldest first; of the waiting ones those whose code still holds."""
    query = sa.select(table).where(table.c.status == status)
    if status is Status.WAITING:
        query = query.where(table.c.expires_at > tx.now)
    if channel is not None:
        query = query.where(table.c.channel == channel)
    rows = tx.conn.execute(query.order_by(table.c.created_at, table.c.id).limit(MOST_LISTED)).mappings()
    return [_pairing(row) for row in rows]


def prune(tx: Tx) -> int:
    over = sa.and_(table.c.status != Status.APPROVED, table.c.expires_at <= tx.now)
    return tx.conn.execute(sa.delete(table).where(over)).rowcount


def _forget(tx: Tx, channel: str, sender: str) -> None:
    tx.conn.execute(sa.delete(table).where(table.c.channel == channel, table.c.sender == sender))


def _pairing(row: Mapping[Any, Any]) -> Pairing:
    values = dict(row)
    values["status"] = Status(values["status"])
    return Pairing(**values)
