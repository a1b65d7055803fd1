"""Page sessions: what keeps a browser logged in. Each is a row, so that it ends at once and everywhere.

The cookie is a random value of which only the hash is kept. A session stands on the token or the person that
opened it: `token_id` names either, and one that stands on a token of the home itself, which has no row, keeps
its hash. `address` and `program` are for the person who looks where they are logged in.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from holdfast.clock import DAY_MS, Clock, Millis
from holdfast.errors import Unauthorized, Unavailable
from holdfast.home import Home
from holdfast.log import Tx
from holdfast.log.tables import metadata
from holdfast.text import clean_text, clip

COOKIE: Final = "holdfast"
SIGNAL: Final = "tokens"  # those who hold tokens in memory hold their sessions too
MAX_PER_TOKEN: int = 200
KEPT_DAYS: Final = 7
TOUCH_MS: Final = 60 * 60_000

table = sa.Table(
    "page_sessions",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("token_id", sa.Text, nullable=False),
    sa.Column("home_token", sa.Text),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Column("last_used_at", sa.BigInteger, nullable=False),
    sa.Column("ended_at", sa.BigInteger),
    sa.Column("address", sa.Text),
    sa.Column("program", sa.Text),
)
_IS_OPEN: Final = table.c.ended_at.is_(None)


@dataclass(frozen=True, slots=True)
class PageSession:
    id: str
    token_id: str
    home_token: str | None
    created_at: Millis
    expires_at: Millis
    last_used_at: Millis
    ended_at: Millis | None
    address: str | None = None
    program: str | None = None

    def is_open(self, now: int) -> bool:
        return self.ended_at is None and self.expires_at > now


def id_of(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()


def start(
    tx: Tx,
    token_id: str,
    *,
    days: int,
    lasts_ms: int | None = None,
    home_token: str | None = None,
    address: str | None = None,
    program: str | None = None,
) -> str:
    """Open a session; the cookie's value is returned here and never again."""
    cookie = secrets.token_urlsafe(32)
    row = {
        "id": id_of(cookie),
        "token_id": token_id,
        "home_token": home_token,
        "created_at": tx.now,
        "expires_at": tx.now + (days * DAY_MS if lasts_ms is None else lasts_ms),
        "last_used_at": tx.now,
        "address": address,
        "program": None if program is None else clip(clean_text(program), 200),
    }
    tx.conn.execute(sa.insert(table), row)
    newest = sa.select(table.c.id).where(table.c.token_id == token_id, _IS_OPEN)
    newest = newest.order_by(table.c.created_at.desc(), table.c.id)
    _end(tx, table.c.id.in_(newest.offset(MAX_PER_TOKEN).limit(MAX_PER_TOKEN)))
    return cookie


def end(tx: Tx, id_: str) -> None:
    """End one session; one that is unknown or over stays as it is."""
    _end(tx, table.c.id == id_)


def end_of_token(tx: Tx, token_id: str, *, but: str | None = None) -> None:
    """End all sessions of a token or a person, or all but one."""
    _end(tx, sa.and_(table.c.token_id == token_id, table.c.id != (but or "")))


def end_of_home_tokens(tx: Tx, hashes: Collection[str]) -> None:
    """End what was opened with tokens of the home that count no more."""
    _end(tx, table.c.home_token.in_(hashes))


def touch(tx: Tx, id_: str) -> None:
    tx.conn.execute(sa.update(table).where(table.c.id == id_, _IS_OPEN).values(last_used_at=tx.now))


def prolong(tx: Tx, id_: str, lasts_ms: int) -> None:
    """Let an open session go on for so long from now."""
    still = sa.and_(table.c.id == id_, _IS_OPEN)
    tx.conn.execute(sa.update(table).where(still).values(expires_at=tx.now + lasts_ms))
    tx.wake(SIGNAL)


def live(tx: Tx) -> dict[str, PageSession]:
    rows = tx.conn.execute(sa.select(table).where(_IS_OPEN, table.c.expires_at > tx.now)).mappings()
    return {row["id"]: PageSession(**row) for row in rows}


def listing(tx: Tx, token_id: str) -> list[PageSession]:
    """Every session of a token that is still known, oldest first."""
    query = sa.select(table).where(table.c.token_id == token_id).order_by(table.c.created_at, table.c.id)
    return [PageSession(**row) for row in tx.conn.execute(query).mappings()]


def prune(tx: Tx, *, limit: int = 2_000) -> int:
    """Forget sessions that have long been over."""
    before = tx.now - KEPT_DAYS * DAY_MS
    over = sa.or_(table.c.ended_at <= before, table.c.expires_at <= before)
    ids = sa.select(table.c.id).where(over).limit(limit)
    return tx.conn.execute(sa.delete(table).where(table.c.id.in_(ids))).rowcount


def _end(tx: Tx, which: sa.ColumnElement[bool]) -> None:
    values: dict[str, Any] = {"ended_at": tx.now}
    tx.conn.execute(sa.update(table).where(which, _IS_OPEN).values(values))
    tx.wake(SIGNAL)


LASTS_MS: Final = 10 * 60_000
FRAGMENT: Final = "#code="


class LoginCodes:
    """Blocks; call it in a thread."""

    def __init__(self, home: Home, clock: Clock) -> None:
        self._home = home
        self._clock = clock

    def make(self) -> str:
        """A code that takes the place of the one before."""
        code = secrets.token_urlsafe(24)
        kept = {"hash": _hash(code), "expiresAt": self._clock.now() + LASTS_MS}
        draft = self._file.with_name(f".{self._file.name}.{secrets.token_hex(4)}")
        try:
            draft.touch(mode=0o600)
            draft.write_text(json.dumps(kept))
            os.replace(draft, self._file)
        except OSError as error:
            raise Unavailable(
                f"{self._file} cannot be written: {error.strerror}", code="home_unusable"
            ) from error
        return code

    def redeem(self, code: str) -> None:
        """Spend a code; `Unauthorized` for one that is unknown, over or spent."""
        try:
            kept = json.loads(self._file.read_text())
            good = hmac.compare_digest(kept["hash"], _hash(code)) and kept["expiresAt"] > self._clock.now()
            if not good:
                raise _ended()
            self._file.unlink()
        except (OSError, ValueError, KeyError, TypeError):
            raise _ended() from None

    @property
    def _file(self) -> Path:
        return self._home.credentials / "login_code"


def login_link(home: Home, clock: Clock, url: str) -> str:
    """Where a browser logs in by itself. The code stands in the fragment, which no server is ever sent."""
    return f"{url}/{FRAGMENT}{LoginCodes(home, clock).make()}"


def _ended() -> Unauthorized:
    return Unauthorized(
        "this login link has been used or is over",
        code="code_ended",
        hint="`holdfast token --link` makes another; the token of `holdfast token` works too.",
    )


def _hash(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "replace")).hexdigest()
