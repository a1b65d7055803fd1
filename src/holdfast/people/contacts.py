"""Where people are reached, and who stands in for them while they are away.

A chat becomes somebody's by a code that they get where they are logged in and write there: the service
vouches for the chat, the login for the person. Codes are kept as SHA-256, hold for minutes and once.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.errors import Busy, Conflict, InvalidInput, NotFound, Unauthorized
from holdfast.log import Tx, audit
from holdfast.log.tables import Json, metadata
from holdfast.people.users import SIGNAL, User, get, users

CODE_MS: Final = 10 * 60_000
MOST_CONTACTS: Final = 20
MOST_CODES: Final = 20_000
MOST_AWAY_MS: Final = 366 * 86_400_000

codes = sa.Table(
    "login_codes",
    metadata,
    sa.Column("hash", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text),
    sa.Column("kept", Json, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
)
table = sa.Table(
    "user_contacts",
    metadata,
    sa.Column("handle", sa.Text, primary_key=True),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("linked_at", sa.BigInteger, nullable=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """A chat of somebody's: `handle` is who writes there, as the channel tells it; `address` reaches it."""

    handle: str
    user_id: str
    address: str
    linked_at: Millis


def make_code(tx: Tx, kind: str, *, user_id: str | None = None, **kept: str) -> str:
    """A secret to be spent once, with what it stands for."""
    tx.conn.execute(sa.delete(codes).where(codes.c.expires_at <= tx.now))
    if (tx.conn.execute(sa.select(sa.func.count()).select_from(codes)).scalar() or 0) >= MOST_CODES:
        raise Busy("too many logins are under way", code="too_many_codes", hint="Try again in some minutes.")
    text = secrets.token_urlsafe(18)
    row = {"hash": _hash(text), "kind": kind, "user_id": user_id, "kept": kept}
    tx.conn.execute(sa.insert(codes), row | {"expires_at": tx.now + CODE_MS})
    return text


def spend_code(tx: Tx, kind: str, text: str) -> Mapping[str, Any]:
    """What a code stands for; `Unauthorized` for one that is unknown, spent or over."""
    live = sa.and_(codes.c.hash == _hash(text), codes.c.kind == kind, codes.c.expires_at > tx.now)
    row = tx.conn.execute(sa.select(codes).where(live)).mappings().first()
    if row is None or tx.conn.execute(sa.delete(codes).where(live)).rowcount != 1:
        raise Unauthorized("this code is not known, used or over", code="bad_code", hint="Ask for a new one.")
    return {**row["kept"], "userId": row["user_id"]}


def keep(tx: Tx, name: str, kind: str, kept: Mapping[str, str], lasts_ms: int) -> None:
    """Keep something under a secret name for a while, in place of what was there."""
    tx.conn.execute(sa.delete(codes).where(codes.c.hash == _hash(name)))
    row = {"hash": _hash(name), "kind": kind, "kept": dict(kept), "expires_at": tx.now + lasts_ms}
    tx.conn.execute(sa.insert(codes), row)


def kept(tx: Tx, name: str, kind: str) -> dict[str, Any] | None:
    live = sa.and_(codes.c.hash == _hash(name), codes.c.kind == kind, codes.c.expires_at > tx.now)
    found = tx.conn.execute(sa.select(codes.c.kept).where(live)).scalar()
    return None if found is None else dict(found)


def link(tx: Tx, code: str, handle: str, address: str) -> User:
    """Make a chat somebody's by their code, written there."""
    user = get(tx, str(spend_code(tx, "link", code)["userId"]))
    known = at(tx, handle)
    if known is not None and known.id != user.id:
        raise Conflict("this chat is somebody else's already", code="contact_taken", hint="Unlink it there.")
    if len(of(tx, user.id)) >= MOST_CONTACTS:
        raise Conflict(f"{MOST_CONTACTS} chats are the most", code="too_many_contacts")
    tx.conn.execute(sa.delete(table).where(table.c.handle == handle))
    row = {"handle": handle, "user_id": user.id, "address": address, "linked_at": tx.now}
    tx.conn.execute(sa.insert(table), row)
    audit.note(tx, "contact.linked", handle, by=f"user:{user.login}", address=address)
    return user


def unlink(tx: Tx, user: User, handle: str) -> None:
    own = sa.and_(table.c.handle == handle, table.c.user_id == user.id)
    if not tx.conn.execute(sa.delete(table).where(own)).rowcount:
        raise NotFound(f"no chat {handle[:80]!r} of yours", code="unknown_contact")
    audit.note(tx, "contact.unlinked", handle, by=f"user:{user.login}")


def of(tx: Tx, user_id: str | None = None) -> list[Contact]:
    """Somebody's chats, or everybody's."""
    query = sa.select(table).order_by(table.c.linked_at, table.c.handle)
    if user_id is not None:
        query = query.where(table.c.user_id == user_id)
    return [Contact(**row) for row in tx.conn.execute(query).mappings()]


def at(tx: Tx, handle: str | None) -> User | None:
    """Whose chat this is, if they may still log in."""
    found = tx.conn.execute(sa.select(table.c.user_id).where(table.c.handle == (handle or ""))).scalar()
    user = None if found is None else get(tx, found)
    return user if user is not None and user.active else None


def set_away(tx: Tx, user: User, until: int | None, delegate: User | None) -> None:
    """Be away until then, with somebody to decide meanwhile; without a time: be back."""
    if until is not None and not tx.now < until <= tx.now + MOST_AWAY_MS:
        raise InvalidInput("be away until a time within a year", code="bad_away")
    if delegate is not None and (delegate.id == user.id or not delegate.active or until is None):
        raise InvalidInput(
            "another who may log in stands in, and only for a time", code="bad_delegate", hint="Name one."
        )
    values = {"away_until": until, "delegate_id": None if delegate is None else delegate.id}
    tx.conn.execute(sa.update(users).where(users.c.id == user.id).values(values))
    told = {"delegate": "" if delegate is None else delegate.login, "until": str(until or "")}
    audit.note(tx, "user.away" if until is not None else "user.back", user.login, **told)
    tx.wake(SIGNAL)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
