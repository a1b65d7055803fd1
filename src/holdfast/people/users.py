"""People who may log in: who they are, how they prove it, and how they are invited.

Passwords are kept as argon2 hashes, codes of invitations as SHA-256. A person who is disabled, whose role
changes or whose password is set anew is so everywhere at once: whoever holds logins in memory is woken.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NewType

import sqlalchemy as sa

from holdfast.clock import DAY_MS, Millis
from holdfast.errors import Busy, Conflict, InvalidInput, NotFound, Unauthorized, Unavailable
from holdfast.ids import uuid7
from holdfast.log import SYSTEM, Origin, Store, Tx, audit
from holdfast.log.tables import metadata
from holdfast.people.roles import Role

if TYPE_CHECKING:
    from argon2 import PasswordHasher

Hashed = NewType("Hashed", str)
"""A password as it is kept. Made before the transaction that keeps it: it takes its time on purpose."""

SIGNAL: Final = "tokens"  # whoever holds logins in memory waits for this one
MAX_USERS: Final = 10_000
LEAST_PASSWORD: Final = 10
MOST_PASSWORD: Final = 512
FREE_TRIES: Final = 5
MOST_WAIT_MS: Final = 15 * 60_000
INVITED_DAYS: Final = 7
_LOGIN: Final = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,126}")

users = sa.Table(
    "users",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("login", sa.Text, nullable=False, unique=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("password", sa.Text),
    sa.Column("issuer", sa.Text),
    sa.Column("subject", sa.Text),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("disabled_at", sa.BigInteger),
    sa.Column("last_login_at", sa.BigInteger),
    sa.Column("failed_logins", sa.Integer, nullable=False, server_default="0"),
    sa.Column("wait_until", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("away_until", sa.BigInteger),
    sa.Column("delegate_id", sa.Text),
)

invitations = sa.Table(
    "invitations",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("hash", sa.Text, nullable=False, unique=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("team_id", sa.Text),
    sa.Column("invited_by", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Column("used_by", sa.Text),
    sa.Column("ended_at", sa.BigInteger),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    id: str
    login: str
    name: str
    role: Role
    has_password: bool
    issuer: str | None
    subject: str | None
    created_at: Millis
    disabled_at: Millis | None
    last_login_at: Millis | None
    away_until: Millis | None = None
    delegate_id: str | None = None

    @property
    def active(self) -> bool:
        return self.disabled_at is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    id: str
    role: Role
    team_id: str | None
    invited_by: str
    created_at: Millis
    expires_at: Millis
    used_by: str | None
    ended_at: Millis | None


def add(
    tx: Tx,
    login: str,
    *,
    role: Role,
    name: str | None = None,
    password: Hashed | None = None,
    issuer: str | None = None,
    subject: str | None = None,
) -> User:
    """Make a person who may log in; without a password only by a provider that vouches for them."""
    login = checked_login(login)
    if tx.conn.execute(sa.select(users.c.id).where(users.c.login == login)).first() is not None:
        raise Conflict(
            f"there is somebody {login!r} already", code="login_taken", hint="Choose another login."
        )
    if (tx.conn.execute(sa.select(sa.func.count()).select_from(users)).scalar() or 0) >= MAX_USERS:
        raise Conflict(f"there are {MAX_USERS} people already")
    id_ = f"usr-{uuid7()}"
    row = {
        "id": id_,
        "login": login,
        "name": checked_name(name or login),
        "role": role.value,
        "password": password,
        "issuer": issuer,
        "subject": subject,
        "created_at": tx.now,
    }
    tx.conn.execute(sa.insert(users), row)
    audit.note(tx, "user.added", login, role=role.value)
    tx.wake(SIGNAL)
    return get(tx, id_)


def get(tx: Tx, id_or_login: str) -> User:
    named = sa.or_(users.c.id == id_or_login, users.c.login == id_or_login.lower())
    row = tx.conn.execute(sa.select(users).where(named)).mappings().first()
    if row is None:
        raise NotFound(
            f"nobody is called {id_or_login[:80]!r}", code="unknown_user", hint="See `holdfast users list`."
        )
    return _user(row)


def of_provider(tx: Tx, issuer: str, subject: str) -> User | None:
    """Whom a provider's own name for somebody stands for, if they are known."""
    where = sa.and_(users.c.issuer == issuer, users.c.subject == subject)
    row = tx.conn.execute(sa.select(users).where(where)).mappings().first()
    return None if row is None else _user(row)


def vouched(tx: Tx, user: User, issuer: str, subject: str) -> User:
    """From now on a provider vouches for somebody who was added here without a password."""
    values = {"issuer": issuer, "subject": subject}
    tx.conn.execute(sa.update(users).where(users.c.id == user.id).values(values))
    audit.note(tx, "user.vouched", user.login, issuer=issuer)
    tx.wake(SIGNAL)
    return get(tx, user.id)


def listing(tx: Tx) -> list[User]:
    query = sa.select(users).order_by(users.c.login).limit(MAX_USERS)
    return [_user(row) for row in tx.conn.execute(query).mappings()]


def away(tx: Tx) -> list[User]:
    """Those who are away now and said who decides for them."""
    gone = sa.and_(users.c.delegate_id.is_not(None), users.c.away_until > tx.now)
    return [_user(row) for row in tx.conn.execute(sa.select(users).where(gone)).mappings()]


def log_in(store: Store, login: str, password: str, origin: Origin) -> User:
    """Who has this login and password; `Unauthorized` in the same words and time for all who have not.

    After a few wrong passwords each further one makes the next try wait longer. The password is looked at
    outside any transaction, so that nobody who guesses keeps others from writing. Blocks.
    """
    named = sa.select(users).where(users.c.login == login.strip().lower())
    with store.read(SYSTEM) as tx:
        row = tx.conn.execute(named).mappings().first()
        now = tx.now
    if row is not None and row["wait_until"] > now:
        raise Busy(
            "too many wrong passwords for this login",
            code="login_waits",
            hint=f"Try again in {(row['wait_until'] - now) // 1000 + 1} s, or ask for a new password.",
        )
    fits = _fits(password, None if row is None else row["password"])
    with store.write(SYSTEM, ordered=False) as tx:
        tx.origin = origin
        if row is not None and fits and row["disabled_at"] is None:
            values = {"failed_logins": 0, "wait_until": 0, "last_login_at": tx.now}
            tx.conn.execute(sa.update(users).where(users.c.id == row["id"]).values(values))
            audit.note(tx, "login", row["login"], by=f"user:{row['login']}")
            return get(tx, row["id"])
        if row is not None:
            _count_failure(tx, row)
        audit.note(tx, "login.failed", login.strip()[:80], by="nobody")
    raise Unauthorized("no such login with this password", code="bad_login", hint="Check both.")


def change(
    tx: Tx,
    user: User,
    *,
    name: str | None = None,
    role: Role | None = None,
    password: Hashed | None = None,
    disabled: bool | None = None,
) -> User:
    """Change somebody; what ends their logins does so at once."""
    values: dict[str, Any] = {}
    if name is not None and name != user.name:
        values["name"] = checked_name(name)
    if role is not None and role is not user.role:
        values["role"] = role.value
        audit.note(tx, "user.role", user.login, before=user.role.value, after=role.value)
    if password is not None:
        values |= {"password": password, "failed_logins": 0, "wait_until": 0}
        audit.note(tx, "user.password", user.login)
    if disabled is not None and disabled is user.active:
        values["disabled_at"] = tx.now if disabled else None
        audit.note(tx, "user.disabled" if disabled else "user.enabled", user.login)
    if values:
        tx.conn.execute(sa.update(users).where(users.c.id == user.id).values(values))
        tx.wake(SIGNAL)
    return get(tx, user.id)


def invite(
    tx: Tx, role: Role, *, by: str, team_id: str | None = None, days: int = INVITED_DAYS
) -> tuple[Invitation, str]:
    """An invitation for one person; its code is returned here and never again."""
    if not 1 <= days <= 90:
        raise InvalidInput("an invitation lasts 1 to 90 days", code="bad_days")
    code = secrets.token_urlsafe(24)
    row = {
        "id": f"inv-{uuid7()}",
        "hash": _code_hash(code),
        "role": role.value,
        "team_id": team_id,
        "invited_by": by,
        "created_at": tx.now,
        "expires_at": tx.now + days * DAY_MS,
    }
    tx.conn.execute(sa.insert(invitations), row)
    audit.note(tx, "invitation.made", str(row["id"]), role=role.value, team=team_id or "")
    return invitation(tx, str(row["id"])), code


def invitation(tx: Tx, id_: str) -> Invitation:
    row = tx.conn.execute(sa.select(invitations).where(invitations.c.id == id_)).mappings().first()
    if row is None:
        raise NotFound(f"no invitation {id_[:80]!r}", code="unknown_invitation")
    return _invitation(row)


def open_invitations(tx: Tx) -> list[Invitation]:
    live = sa.and_(invitations.c.ended_at.is_(None), invitations.c.expires_at > tx.now)
    query = sa.select(invitations).where(live).order_by(invitations.c.created_at).limit(MAX_USERS)
    return [_invitation(row) for row in tx.conn.execute(query).mappings()]


def take_invitation(tx: Tx, code: str) -> Invitation:
    """Spend an invitation, once."""
    named = invitations.c.hash == _code_hash(code)
    row = tx.conn.execute(sa.select(invitations).where(named)).mappings().first()
    is_open = sa.and_(named, invitations.c.ended_at.is_(None), invitations.c.expires_at > tx.now)
    spent = tx.conn.execute(sa.update(invitations).where(is_open).values(ended_at=tx.now)).rowcount
    if row is None or spent != 1:
        raise Unauthorized(
            "this invitation is not known, used or over", code="bad_invitation", hint="Ask for a new one."
        )
    return invitation(tx, row["id"])


def accept_invitation(
    tx: Tx, code: str, login: str, password: Hashed, name: str | None = None
) -> tuple[User, str | None]:
    """Become somebody who may log in, by an invitation; and the team that one is invited to."""
    taken = take_invitation(tx, code)
    user = add(tx, login, role=taken.role, name=name, password=password)
    tx.conn.execute(sa.update(invitations).where(invitations.c.id == taken.id).values(used_by=user.id))
    audit.note(tx, "invitation.accepted", taken.id, by=f"user:{user.login}", behalf_of=taken.invited_by)
    return user, taken.team_id


def withdraw(tx: Tx, id_: str) -> Invitation:
    found = invitation(tx, id_)
    if found.ended_at is None:
        values = {"ended_at": tx.now}
        tx.conn.execute(sa.update(invitations).where(invitations.c.id == id_).values(values))
        audit.note(tx, "invitation.withdrawn", id_)
    return invitation(tx, id_)


def checked_login(text: str) -> str:
    login = text.strip().lower()
    if not _LOGIN.fullmatch(login):
        raise InvalidInput(
            f"not a login: {text[:80]!r}",
            code="bad_login_name",
            hint="Use letters, digits and . _ @ + -, such as ada or ada@example.org.",
        )
    return login


def checked_name(text: str) -> str:
    name = text.strip()
    if not name or len(name) > 120 or not name.isprintable():
        raise InvalidInput("a name has 1 to 120 printable characters", code="bad_name")
    return name


def _count_failure(tx: Tx, row: Mapping[Any, Any]) -> None:
    failed = row["failed_logins"] + 1
    wait = 0 if failed < FREE_TRIES else min(2 ** min(failed - FREE_TRIES, 20) * 1_000, MOST_WAIT_MS)
    values = {"failed_logins": min(failed, 1_000), "wait_until": tx.now + wait}
    tx.conn.execute(sa.update(users).where(users.c.id == row["id"]).values(values))


def hashed(password: str) -> Hashed:
    """A password in the form that is kept; one that is too short is refused."""
    if not LEAST_PASSWORD <= len(password) <= MOST_PASSWORD:
        raise InvalidInput(
            f"a password has {LEAST_PASSWORD} to {MOST_PASSWORD} characters", code="bad_password"
        )
    return Hashed(_hasher().hash(password))


def _fits(password: str, kept: str | None) -> bool:
    """Whether a password fits; for who has none it takes as long to say no."""
    from argon2.exceptions import InvalidHashError, VerificationError

    hasher = _hasher()
    try:
        fits = hasher.verify(kept or _nobodys(), password[:MOST_PASSWORD])
    except (VerificationError, InvalidHashError):
        return False
    return fits and kept is not None


@cache
def _hasher() -> PasswordHasher:
    try:
        from argon2 import PasswordHasher
    except ImportError as error:
        raise Unavailable(
            "passwords need the package argon2-cffi", code="no_argon2", hint="pip install 'holdfast[people]'"
        ) from error
    return PasswordHasher()


@cache
def _nobodys() -> str:
    return _hasher().hash(secrets.token_urlsafe(16))


def _code_hash(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "replace")).hexdigest()


def _user(row: Mapping[Any, Any]) -> User:
    return User(
        id=row["id"],
        login=row["login"],
        name=row["name"],
        role=Role(row["role"]),
        has_password=row["password"] is not None,
        issuer=row["issuer"],
        subject=row["subject"],
        created_at=row["created_at"],
        disabled_at=row["disabled_at"],
        last_login_at=row["last_login_at"],
        away_until=row["away_until"],
        delegate_id=row["delegate_id"],
    )


def _invitation(row: Mapping[Any, Any]) -> Invitation:
    kept = {name: row[name] for name in Invitation.__slots__ if name != "role"}
    return Invitation(role=Role(row["role"]), **kept)
