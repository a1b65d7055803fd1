"""Tokens: who may call, and for what. Only their hashes are kept; a token is shown once, when it is made."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final, Literal, cast

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.config import Author
from holdfast.errors import Conflict, Forbidden, HoldfastError, InvalidInput, NotFound, Unauthorized
from holdfast.gateway import page_sessions
from holdfast.gateway.page_sessions import SIGNAL, PageSession
from holdfast.ids import uuid7
from holdfast.log import FOR_ANYONE, SYSTEM, Origin, Reader, Store, Tx, audit, for_member, for_space
from holdfast.log.audience import token_reader
from holdfast.log.tables import Json, metadata
from holdfast.people import Right, Role, Team, User, roles, teams, users

log = logging.getLogger(__name__)

MAX_TOKENS: Final = 10_000

table = sa.Table(
    "tokens",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False, unique=True),
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("spaces", Json),
    sa.Column("agents", Json),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger),
    sa.Column("revoked_at", sa.BigInteger),
    sa.Column("last_used_at", sa.BigInteger),
    sa.Column("user_id", sa.Text),
)


Named = Literal["read", "write", "admin"]


class Scope(IntEnum):
    """Each scope may do what those below it may."""

    READ = 1
    WRITE = 2
    ADMIN = 3

    @property
    def label(self) -> Named:
        """As it is written and told."""
        return cast("Named", self.name.lower())

    @classmethod
    def parse(cls, text: str) -> Scope:
        try:
            return cls[text.upper()]
        except KeyError:
            raise InvalidInput(f"not a scope: {text[:40]!r}", hint="Use read, write or admin.") from None


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is calling. `spaces` and `agents` None means no limit.

    A person has a `role` and a `user_id`; a token of the home's has neither, and may what its scope says.
    `session_id` is the page session that they came in by; `home_token` is the hash of the home's token behind
    it all, which has no row that could be revoked. `origin` is where they call from.
    """

    id: str
    name: str
    scope: Scope
    spaces: frozenset[str] | None = None
    agents: frozenset[str] | None = None
    expires_at: int | None = None
    role: Role | None = None
    user_id: str | None = None
    teams: tuple[Team, ...] = ()
    session_id: str | None = field(default=None, compare=False, repr=False)
    home_token: str | None = field(default=None, compare=False, repr=False)
    origin: Origin | None = field(default=None, compare=False, repr=False)

    @property
    def actor(self) -> str:
        """Who acts, for trails and for people who read them."""
        return f"token:{self.name}" if self.user_id is None else f"user:{self.name}"

    @property
    def author(self) -> Author:
        """The same for versions of the config and of skills."""
        origin = self.origin or audit.LOCAL
        return Author(self.actor, origin.surface, origin.address)

    @property
    def reader(self) -> Reader:
        """What the caller may read: all, as the owner; what its spaces share and its agents wrote; or what is
        a person's own and their teams'."""
        if self.user_id is None or not self.limited:
            return token_reader(self.actor, self.spaces, self.agents)
        held = map(for_space, self.spaces or ())
        return Reader(self.actor, frozenset((FOR_ANYONE, for_member(self.user_id), *held)))

    @property
    def giver(self) -> Role:
        """As whom they give roles to others: a token that may administer everything is the owner's."""
        return self.role or (Role.OWNER if self.is_owner else Role.VIEWER)

    def may(self, right: Right) -> bool:
        return roles.may(self.role, right) if self.role is not None else self.is_owner

    def require_right(self, right: Right) -> None:
        if not self.may(right):
            raise Forbidden(
                f"{self.actor} may not {right.value}",
                code="role_forbidden",
                hint="See the roles in docs/people.md; an administrator can change yours.",
            )

    @property
    def limited(self) -> bool:
        return self.spaces is not None or self.agents is not None

    @property
    def is_owner(self) -> bool:
        """Only who may administer everything is the owner to what is for the owner alone."""
        return self.scope is Scope.ADMIN and not self.limited

    def require_unlimited(self) -> None:
        if self.limited:
            raise Forbidden(
                f"{self.actor} is limited to some spaces or agents, and this is about all",
                hint="Use a token without such limits.",
            )

    def require(self, scope: Scope) -> None:
        if self.scope < scope:
            raise Forbidden(
                f"{self.actor} may {self.scope.name.lower()}, not {scope.name.lower()}",
                hint=f"Make one that may: holdfast tokens add NAME --scope {scope.name.lower()}",
            )

    @property
    def may_ask_agents(self) -> bool:
        """People by their role; tokens unless they are limited to spaces."""
        return self.spaces is None if self.user_id is None else self.may(Right.TALK)

    def may_see_space(self, space_id: str | None) -> bool:
        return self.spaces is None or space_id in self.spaces

    def may_see_agent(self, agent_id: str | None) -> bool:
        return self.agents is None or agent_id in self.agents


@dataclass(frozen=True, slots=True)
class Token:
    id: str
    name: str
    scope: Scope
    spaces: tuple[str, ...] | None
    agents: tuple[str, ...] | None
    created_at: Millis
    expires_at: Millis | None
    revoked_at: Millis | None
    last_used_at: Millis | None
    user_id: str | None = None


def add(
    tx: Tx,
    name: str,
    *,
    scope: Scope = Scope.WRITE,
    spaces: Iterable[str] | None = None,
    agents: Iterable[str] | None = None,
    expires_at: int | None = None,
    user: User | None = None,
) -> tuple[Token, str]:
    """Make a token, a person's own with `user`; its text is returned here and never again."""
    if not name or len(name) > 80 or not name.isprintable():
        raise InvalidInput("a token needs a name of at most 80 printable characters")
    owned = table.c.user_id == (None if user is None else user.id)
    if tx.conn.execute(sa.select(table.c.id).where(*_live(name), owned)).first() is not None:
        raise Conflict(f"there is a token {name!r} already", hint="Revoke it first, or choose another name.")
    live = sa.select(sa.func.count()).where(table.c.revoked_at.is_(None))
    count = tx.conn.execute(live).scalar() or 0
    if count >= MAX_TOKENS:
        raise Conflict(f"there are {MAX_TOKENS} tokens already", hint="Revoke those not in use.")
    text = f"hf_{secrets.token_urlsafe(32)}"
    id_ = f"tok-{uuid7()}"
    row = {
        "id": id_,
        "name": name,
        "hash": _hash(text),
        "scope": scope.name.lower(),
        "spaces": None if spaces is None else sorted(spaces),
        "agents": None if agents is None else sorted(agents),
        "created_at": tx.now,
        "expires_at": expires_at,
        "user_id": None if user is None else user.id,
    }
    tx.conn.execute(sa.insert(table), row)
    audit.note(tx, "token.added", name, scope=scope.name.lower(), user="" if user is None else user.login)
    tx.wake(SIGNAL)
    return _get(tx, id_), text


def listing(tx: Tx, user_id: str | None = None) -> list[Token]:
    """All tokens, or those of one person."""
    query = sa.select(table).order_by(table.c.created_at).limit(MAX_TOKENS)
    if user_id is not None:
        query = query.where(table.c.user_id == user_id)
    return [_token(row) for row in tx.conn.execute(query).mappings()]


def revoke(tx: Tx, name_or_id: str, *, user_id: str | None = None) -> Token:
    """End a token and the page sessions that stand on it, at once, in every process; of a person by
    its id, or by its name where they do it themselves."""
    own = sa.and_(table.c.name == name_or_id, table.c.user_id == user_id)
    named = sa.or_(table.c.id == name_or_id, own)
    if user_id is not None:
        named = sa.and_(named, table.c.user_id == user_id)
    id_ = tx.conn.execute(sa.select(table.c.id).where(named, table.c.revoked_at.is_(None))).scalar()
    if id_ is None:
        raise NotFound(f"no live token {name_or_id[:80]!r}", hint="See `holdfast tokens list`.")
    tx.conn.execute(sa.update(table).where(table.c.id == id_).values(revoked_at=tx.now))
    page_sessions.end_of_token(tx, id_)
    audit.note(tx, "token.revoked", name_or_id)
    tx.wake(SIGNAL)
    return _get(tx, id_)


@dataclass(frozen=True, slots=True)
class _Known:
    by_hash: dict[str, Principal]
    by_id: dict[str, Principal]
    """Tokens by their ids, and people by theirs."""
    sessions: dict[str, PageSession]


class TokenBook:
    """The live tokens and page sessions in memory, read anew when any began or ended, here or in another
    process."""

    def __init__(self, store: Store, admin: Iterable[str]) -> None:
        self._store = store
        self._reading = threading.Lock()
        self._lock = threading.Lock()
        self._generation = 0
        self._known: _Known | None = None
        self._admin = _admins(admin)
        store.signals.subscribe(SIGNAL, self._forget)

    def set_admin(self, texts: Iterable[str]) -> None:
        """The tokens that stand for the home itself; they may change while it is served.

        Those that count no more take their page sessions along, for good. Blocks.
        """
        before, self._admin = self._admin, _admins(texts)
        gone = before.keys() - self._admin.keys()
        if gone:
            with self._store.write(SYSTEM, ordered=False) as tx:
                page_sessions.end_of_home_tokens(tx, gone)

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back whenever a token or a session may have ended; the result ends it."""
        return self._store.signals.subscribe(SIGNAL, callback)

    def principal(self, text: str) -> Principal:
        """Who holds this token; `Unauthorized` for one that is unknown, revoked or expired."""
        given = _hash(text)
        return self._is_admin(given) or self._checked(self._live().by_hash.get(given))

    def at_once(self, text: str) -> Principal | None:
        """As `principal`, but None where a look into the database is needed to say."""
        given, known = _hash(text), self._known
        admin = self._is_admin(given)
        if admin is not None or known is None:
            return admin
        return self._checked(known.by_hash.get(given))

    def by_cookie(self, cookie: str) -> Principal:
        """Whom a page speaks for; `Unauthorized` if its session is unknown or over."""
        return self._in_session(self._live(), page_sessions.id_of(cookie))

    def by_cookie_at_once(self, cookie: str) -> Principal | None:
        """As `by_cookie`, but None where a look into the database is needed to say."""
        known = self._known
        return None if known is None else self._in_session(known, page_sessions.id_of(cookie))

    @property
    def home(self) -> Principal:
        """Who the home itself is: its owner, by the first of its tokens."""
        return next(iter(self._admin.values()), _ADMIN)

    def require_live(self, principal: Principal) -> None:
        """`Unauthorized` once the token or the page session that somebody came in by has ended."""
        if principal.session_id is not None:
            self._in_session(self._live(), principal.session_id)
        elif principal.id != _ADMIN.id:
            self._checked(self._live().by_id.get(principal.id))
        elif principal.home_token is not None:
            self._checked(self._admin.get(principal.home_token))

    def of_user(self, user_id: str) -> Principal:
        """A person who has just proved who they are."""
        return self._checked(self._live().by_id.get(user_id))

    def open_session(
        self, principal: Principal, *, days: int, lasts_ms: int | None = None, program: str | None = None
    ) -> str:
        """The cookie's value of a new page session that stands on the token or the person of this caller."""
        with self._store.write(SYSTEM, ordered=False) as tx:
            tx.origin = principal.origin
            if principal.user_id is None:
                audit.note(tx, "login", principal.name, by=principal.actor)
            return page_sessions.start(
                tx,
                principal.id,
                days=days,
                lasts_ms=lasts_ms,
                home_token=principal.home_token,
                address=None if principal.origin is None else principal.origin.address,
                program=program,
            )

    def end_session(self, principal: Principal, cookie: str) -> None:
        with self._store.write(SYSTEM, ordered=False) as tx:
            tx.origin = principal.origin
            page_sessions.end(tx, page_sessions.id_of(cookie))
            audit.note(tx, "logout", principal.name, by=principal.actor)

    def wants_touch(self, principal: Principal) -> bool:
        """Whether the last use of the caller's session was written down long ago."""
        known, id_ = self._known, principal.session_id
        found = None if known is None or id_ is None else known.sessions.get(id_)
        now = self._store.clock.now()
        return found is not None and found.last_used_at + page_sessions.TOUCH_MS <= now

    def touch(self, principal: Principal) -> None:
        """Write down that the caller's session is in use; here it is known without reading all anew.

        A store that cannot be written to is no reason to refuse a page that only reads.
        """
        known, id_ = self._known, principal.session_id or ""
        try:
            with self._store.write(SYSTEM, ordered=False, durable=False) as tx:
                page_sessions.touch(tx, id_)
        except HoldfastError as error:
            log.warning("the use of a page session was not written down: %s", error.message)
            return
        if known is not None and id_ in known.sessions:
            known.sessions[id_] = replace(known.sessions[id_], last_used_at=tx.now)

    @property
    def is_warm(self) -> bool:
        """Whether a look-up needs no database."""
        return self._known is not None

    def _is_admin(self, given: str) -> Principal | None:
        admin = self._admin
        same = [known for known in admin if hmac.compare_digest(known, given)]
        return admin[same[0]] if same else None

    def _in_session(self, known: _Known, id_: str) -> Principal:
        found = known.sessions.get(id_)
        if found is None or found.expires_at <= self._store.clock.now():
            raise _login_ended()
        by_home = found.home_token is not None
        holder = self._admin.get(found.home_token or "") if by_home else known.by_id.get(found.token_id)
        if holder is None:
            raise _login_ended()
        return replace(self._checked(holder), session_id=id_)

    def _checked(self, found: Principal | None) -> Principal:
        if found is None:
            raise Unauthorized("this token is not known", code="bad_token", hint=HOW_TO_LOG_IN)
        if found.expires_at is not None and found.expires_at <= self._store.clock.now():
            raise Unauthorized("this token has expired", code="token_expired", hint=HOW_TO_LOG_IN)
        return found

    def _live(self) -> _Known:
        """Looked up by hash: the time it takes says nothing about the token, only about its SHA-256."""
        known = self._known
        if known is not None:
            return known
        with self._reading:
            generation = self._generation
            known = self._read()
            with self._lock:
                # A token revoked while we read may be in what we read: then it is not kept.
                self._known = known if generation == self._generation else None
        return known

    def _read(self) -> _Known:
        query = sa.select(table).where(table.c.revoked_at.is_(None)).limit(MAX_TOKENS)
        with self._store.read(SYSTEM) as tx:
            people = _people(tx)
            rows = tx.conn.execute(query).mappings().all()
            sessions = page_sessions.live(tx)
        known = [(row["hash"], _principal(row, people)) for row in rows]
        found = {hash_: principal for hash_, principal in known if principal is not None}
        return _Known(found, people | {principal.id: principal for principal in found.values()}, sessions)

    def _forget(self) -> None:
        with self._lock:
            self._generation += 1
            self._known = None


HOW_TO_LOG_IN: Final = "Send `Authorization: Bearer TOKEN`; `holdfast token` prints the home's own."

_ADMIN: Final = Principal("home", "home", Scope.ADMIN)
# Who comes with an invitation, or from a provider, is nobody yet.
NOBODY_YET: Final = Principal("nobody", "nobody", Scope.READ, frozenset(), frozenset())


def _admins(texts: Iterable[str]) -> dict[str, Principal]:
    """The home itself, by the hash of each token that stands for it."""
    hashes = [_hash(text) for text in texts if text]
    return {each: replace(_ADMIN, home_token=each) for each in hashes}


def _login_ended() -> Unauthorized:
    return Unauthorized("this login has ended", code="login_ended", hint="Log in again.")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _live(name: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (table.c.name == name, table.c.revoked_at.is_(None))


def _get(tx: Tx, id_: str) -> Token:
    return _token(tx.conn.execute(sa.select(table).where(table.c.id == id_)).mappings().one())


def _token(row: Mapping[Any, Any]) -> Token:
    return Token(
        id=row["id"],
        name=row["name"],
        scope=Scope.parse(row["scope"]),
        spaces=None if row["spaces"] is None else tuple(row["spaces"]),
        agents=None if row["agents"] is None else tuple(row["agents"]),
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
        last_used_at=row["last_used_at"],
        user_id=row["user_id"],
    )


def _principal(row: Mapping[Any, Any], people: Mapping[str, Principal]) -> Principal | None:
    """Whom a token stands for; nobody if it is the token of somebody who may not log in any more."""
    token = _token(row)
    if token.user_id is not None:
        return _of_person(token, people.get(token.user_id))
    return Principal(
        token.id,
        token.name,
        token.scope,
        None if token.spaces is None else frozenset(token.spaces),
        None if token.agents is None else frozenset(token.agents),
        token.expires_at,
    )


def _of_person(token: Token, person: Principal | None) -> Principal | None:
    """A person by a token of theirs: no more than they may, and no more than it may."""
    if person is None:
        return None
    return replace(person, id=token.id, scope=min(token.scope, person.scope), expires_at=token.expires_at)


def _people(tx: Tx) -> dict[str, Principal]:
    """Everyone who may log in, as they are now."""
    all_teams = teams.listing(tx)
    return {user.id: _person(user, all_teams) for user in users.listing(tx) if user.active}


def _person(user: User, all_teams: Iterable[Team]) -> Principal:
    if user.role is Role.OWNER:
        return Principal(user.id, user.login, Scope.ADMIN, role=user.role, user_id=user.id)
    own = tuple(team for team in all_teams if user.id in team.members)
    return Principal(
        user.id,
        user.login,
        Scope.READ if user.role is Role.VIEWER else Scope.WRITE,
        frozenset(team.space_id for team in own),
        frozenset(agent for team in own for agent in team.agents),
        role=user.role,
        user_id=user.id,
        teams=own,
    )
