"""Sessions: the state of one agent on one surface. One is active per key; a reset leaves a successor."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final, Literal

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.errors import Conflict, Forbidden, InvalidInput, NotFound
from holdfast.ids import SessionId, session_id
from holdfast.keys import canonical_key, parse_key
from holdfast.log import changes
from holdfast.log.audience import FOR_OWNER, Audience, Reader, covers, heard_by, of_key
from holdfast.log.statements import Row, Statement, Update
from holdfast.log.store import Tx
from holdfast.log.tables import sessions as table

MAX_PAGE: Final = 500

ChatType = Literal["direct", "group", "room"]


class SessionStatus(StrEnum):
    ACTIVE = "active"
    ARCHIVED = "archived"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session. `last_external_at` is when someone outside last spoke: only that keeps it fresh.

    `audience` is who hears what is said in it. `space_id` is the space that a person gave it, if one did.
    """

    id: SessionId
    key: str
    audience: Audience = FOR_OWNER
    space_id: str | None = None
    status: SessionStatus
    created_at: Millis
    updated_at: Millis
    last_external_at: Millis
    agent_id: str | None = None
    chat_type: ChatType | None = None
    channel: str | None = None
    label: str | None = None
    parent_key: str | None = None
    successor_id: SessionId | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    context_tokens: int = 0
    compaction_count: int = 0
    memory_flush_at: Millis | None = None
    memory_flush_compaction_count: int | None = None
    turn_count: int = 0
    meta: Mapping[str, Any] | None = None
    revision: int = 0
    archived_at: Millis | None = None
    archive_cause: str | None = None

    @property
    def reader(self) -> Reader:
        """All who hear what is said in it: a turn of the session reads no more than each of them may."""
        spaces: frozenset[str] = frozenset() if self.space_id is None else frozenset((self.space_id,))
        return heard_by(self.audience, spaces)

    def reader_for(self, agents: Sequence[str] | None) -> Reader:
        """The same for somebody who may read the words of these agents at most; None: of all."""
        return self.reader if agents is None else replace(self.reader, agents=frozenset(agents))


_NAMES = frozenset(f.name for f in fields(Session))
_FIXED = frozenset(("id", "key", "status", "created_at", "revision", "turn_count"))


def ensure(tx: Tx, key: str, **known: Any) -> Session:
    """The active session of `key`, made if there is none; its kind is read from the key."""
    row = _ACTIVE.first(tx, key=canonical_key(key))
    if row is None:
        return _create(tx, canonical_key(key), known)
    found = _read(row)
    if not _may_read(tx.reader, found):
        raise Forbidden(
            f"session {key[:80]!r} is somebody else's",
            code="session_forbidden",
            hint="Use a key of your own.",
        )
    return found


def heard_in(tx: Tx, key: str, *, otherwise: Audience | None = None) -> Audience:
    """Who hears what is said under a key: as its session has it, else as told, else as the key tells.

    A look-up of the runtime's, whoever reads: it tells nothing but who may read what is about to be written.
    """
    row = _HEARD.first(tx, key=key)
    return Audience(row[0]) if row is not None else otherwise or of_key(key)


def reader_in(tx: Tx, key: str) -> Reader:
    """All who hear what is said under a key, as one reader."""
    row = _HEARD.first(tx, key=key)
    space = None if row is None else row[1]
    heard = of_key(key) if row is None else row[0]
    return heard_by(heard, frozenset(() if space is None else (space,)))


def hearing(tx: Tx, key: str) -> tuple[Audience | None, str | None]:
    """Who hears the session of a key, and the space that it was given; in one look."""
    row = _HEARD.first(tx, key=key)
    return (None, None) if row is None else (Audience(row[0]), row[1])


def given_space(tx: Tx, key: str) -> str | None:
    """The space that a person gave the session of a key, if one did."""
    row = _HEARD.first(tx, key=key)
    return None if row is None else row[1]


def give_space(tx: Tx, session: Session, space_id: str | None) -> Session:
    """Put a session into a space, because a person who may has said so; None takes it out again."""
    return update(tx, session, space_id=space_id)


def active(tx: Tx, key: str) -> Session | None:
    row = _ACTIVE.first(tx, key=key)
    found = None if row is None else _read(row)
    return found if found is not None and _may_read(tx.reader, found) else None


def get(tx: Tx, id_: str) -> Session:
    row = _BY_ID.first(tx, id=id_)
    found = None if row is None else _read(row)
    if found is None or not _may_read(tx.reader, found):
        raise NotFound(f"no session {id_[:80]!r}", code="unknown_session")
    return found


def get_many(tx: Tx, ids: Sequence[str]) -> list[Session]:
    query = sa.select(table).where(table.c.id.in_(ids), *_within_reach(tx.reader))
    return [_session(row) for row in tx.conn.execute(query).mappings()]


def find(tx: Tx, key_or_id: str) -> Session:
    """By key the active session, else the newest archived one of that key; or by id."""
    by_key = active(tx, key_or_id)
    if by_key is not None:
        return by_key
    own = table.c.key == key_or_id, *_within_reach(tx.reader)
    query = sa.select(table).where(*own).order_by(table.c.created_at.desc())
    row = tx.conn.execute(query.limit(1)).mappings().first()
    return get(tx, key_or_id) if row is None else _session(row)


def audiences(tx: Tx, keys: Collection[str]) -> dict[str, str]:
    """Who hears the session of each key, where there is one: the active one, else the newest archived one."""
    if not keys:
        return {}
    query = sa.select(table.c.key, table.c.audience).where(
        table.c.key.in_(sorted(keys)), *_within_reach(tx.reader)
    )
    rows = tx.conn.execute(query.order_by(table.c.status == SessionStatus.ACTIVE, table.c.created_at))
    return {key: str(audience) for key, audience in rows}


def listing(
    tx: Tx,
    *,
    status: SessionStatus | None = SessionStatus.ACTIVE,
    agent_ids: frozenset[str] | None = None,
    parent_key: str | None = None,
    limit: int = 100,
    offset: int = 0,
) -> list[Session]:
    """Most recently used first."""
    query = sa.select(table).where(*_within_reach(tx.reader))
    if status is not None:
        query = query.where(table.c.status == status)
    if agent_ids is not None:
        query = query.where(table.c.agent_id.in_(sorted(agent_ids)))
    if parent_key is not None:
        query = query.where(table.c.parent_key == parent_key)
    query = query.order_by(table.c.updated_at.desc(), table.c.id.desc())
    limit = max(1, min(limit, MAX_PAGE))
    return [_session(r) for r in tx.conn.execute(query.limit(limit).offset(max(0, offset))).mappings()]


def history(tx: Tx, key: str, *, limit: int = MAX_PAGE) -> list[Session]:
    """Every session that the key ever had, oldest first."""
    own = table.c.key == key, *_within_reach(tx.reader)
    query = sa.select(table).where(*own).order_by(table.c.created_at, table.c.id)
    return [_session(r) for r in tx.conn.execute(query.limit(limit)).mappings()]


def before(tx: Tx, session: Session) -> Session | None:
    """The session whose successor this one is."""
    own = table.c.key == session.key, table.c.successor_id == session.id, *_within_reach(tx.reader)
    row = tx.conn.execute(sa.select(table).where(*own).limit(1)).mappings().first()
    return None if row is None else _session(row)


def update(tx: Tx, session: Session, **values: Any) -> Session:
    """Change fields of a session, unless someone else did since it was read (`Conflict`)."""
    wrong = values.keys() - (_NAMES - _FIXED)
    if wrong:
        raise ValueError(f"not fields of a session that may change: {sorted(wrong)}")
    return _apply(tx, session, {"updated_at": tx.now, **values})


def touch(tx: Tx, session: Session, *, external: bool) -> Session:
    """Note activity; a system event (`external=False`) never makes a session fresher."""
    values: dict[str, Any] = {"updated_at": tx.now}
    if external:
        values["last_external_at"] = max(tx.now, session.last_external_at)
    return _apply(tx, session, values)


def heard_now(tx: Tx, session: Session, audience: Audience) -> Session:
    """The session as it is heard from now on. Where more people hear it than before, it begins anew: what was
    said before them is not theirs, nor are the name and the space that it was given among fewer."""
    if session.audience == audience:
        return session
    if covers(session.audience, audience):
        return update(tx, session, audience=audience)
    fresh = reset(tx, session, cause="audience") if session.turn_count else session
    return update(tx, fresh, audience=audience, label=None, space_id=None)


_HANDED_ON = ("audience", "space_id", "agent_id", "chat_type", "channel", "label", "parent_key")


def reset(tx: Tx, session: Session, *, cause: str) -> Session:
    """Archive a session and begin its successor under the same key."""
    _require_active(session)
    successor = session_id()
    _apply(tx, session, _archived(tx, cause) | {"successor_id": successor})
    known = {name: getattr(session, name) for name in _HANDED_ON}
    return _create(tx, session.key, known, id_=successor)


def archive(tx: Tx, session: Session, *, cause: str) -> Session:
    """End a session without a successor; the next message to its key begins a new one."""
    _require_active(session)
    return _apply(tx, session, _archived(tx, cause))


def reopen(tx: Tx, session: Session) -> Session:
    """Go on with an archived session, if nothing has taken its place."""
    if session.successor_id is not None or _ACTIVE.first(tx, key=session.key) is not None:
        raise Conflict(f"session {session.key[:80]!r} has a successor", code="session_succeeded")
    back = {"status": SessionStatus.ACTIVE.value, "archived_at": None, "archive_cause": None}
    return _apply(tx, session, back | {"updated_at": tx.now})


def adopt(tx: Tx, session: Session) -> Session:
    """Store a session that was made elsewhere, as it is; the one that was there wins."""
    values = {name: getattr(session, name) for name in _NAMES}
    known = tx.conn.execute(sa.select(table.c.id).where(table.c.id == session.id)).scalar()
    if known is None:
        tx.conn.execute(sa.insert(table), values)
        changes.emit(tx, "session.upserted", session.id)
    return get(tx, session.id)


def next_turn_number(tx: Tx, id_: str) -> int:
    """Count one more turn of the session and give its number."""
    row = _COUNT_TURN.first(tx, session=id_)
    if row is None:
        raise NotFound(f"no session {id_[:80]!r}", code="unknown_session")
    return int(row[0])


def add_usage(tx: Tx, id_: str, *, input_tokens: int, output_tokens: int, context: int | None) -> None:
    """Add a turn's tokens to the session's totals."""
    _ADD_USAGE.run(tx, session=id_, now=tx.now, more_in=input_tokens, more_out=output_tokens, context=context)


def _create(tx: Tx, key: str, known: dict[str, Any], *, id_: SessionId | None = None) -> Session:
    parsed = parse_key(key)
    unknown = known.keys() - _NAMES
    if unknown:
        raise InvalidInput(f"not fields of a session: {sorted(unknown)}")
    values: dict[str, Any] = {
        "audience": of_key(key),
        "agent_id": parsed.agent_id,
        "chat_type": parsed.chat_type,
        "channel": parsed.channel,
        "created_at": tx.now,
        "updated_at": tx.now,
        "last_external_at": tx.now,
    }
    values |= {k: v for k, v in known.items() if v is not None}
    session = Session(id=id_ or session_id(), key=key, status=SessionStatus.ACTIVE, **values)
    _INSERT.run(tx, **{**{name: getattr(session, name) for name in _NAMES}, "status": session.status.value})
    changes.emit(tx, "session.upserted", session.id)
    return session


def _apply(tx: Tx, session: Session, values: dict[str, Any]) -> Session:
    revision = session.revision + 1
    if _UPDATE.run(tx, {**values, "revision": revision}, session=session.id, expected=session.revision) != 1:
        raise Conflict("the session changed meanwhile", code="stale_session", hint="Read it again.")
    changes.emit(tx, "session.upserted", session.id)
    status = SessionStatus(values.get("status", session.status))
    return replace(session, **{**values, "status": status, "revision": revision})


def _archived(tx: Tx, cause: str) -> dict[str, Any]:
    return {
        "status": SessionStatus.ARCHIVED.value,
        "archived_at": tx.now,
        "archive_cause": cause,
        "updated_at": tx.now,
    }


def _may_read(reader: Reader, session: Session) -> bool:
    return reader.may_read_of(session.audience, session.agent_id)


def _within_reach(reader: Reader) -> list[sa.ColumnElement[bool]]:
    found: list[sa.ColumnElement[bool]] = []
    if reader.audiences is not None:
        found.append(table.c.audience.in_(sorted(reader.audiences)))
    if reader.agents is not None:
        found.append(table.c.agent_id.in_(sorted(reader.agents)))
    return found


def _require_active(session: Session) -> None:
    if session.status is not SessionStatus.ACTIVE:
        raise Conflict(f"session {session.id} is archived already", code="session_archived")


def _read(row: Row) -> Session:
    return _session(dict(zip(_COLUMN_NAMES, row, strict=True)))


def _session(row: Mapping[Any, Any]) -> Session:
    values = dict(row)
    values["status"] = SessionStatus(values["status"])
    return Session(**values)


_COLUMN_NAMES = tuple(table.c.keys())
_INSERT = Statement(sa.insert(table))
_UPDATE = Update(table, table.c.id == sa.bindparam("session"), table.c.revision == sa.bindparam("expected"))
_HEARD = Statement(
    sa.select(table.c.audience, table.c.space_id)
    .where(table.c.key == sa.bindparam("key"))
    .order_by(table.c.status, table.c.created_at.desc())
    .limit(1)
)
_BY_ID = Statement(sa.select(table).where(table.c.id == sa.bindparam("id")))
_OWN = table.c.id == sa.bindparam("session")
_COUNT_TURN = Statement(
    sa.update(table).where(_OWN).values(turn_count=table.c.turn_count + 1).returning(table.c.turn_count)
)
_IN: sa.BindParameter[int] = sa.bindparam("more_in", type_=sa.BigInteger)
_OUT: sa.BindParameter[int] = sa.bindparam("more_out", type_=sa.BigInteger)
_ADD_USAGE = Statement(
    sa.update(table)
    .where(_OWN)
    .values(
        input_tokens=table.c.input_tokens + _IN,
        output_tokens=table.c.output_tokens + _OUT,
        total_tokens=table.c.total_tokens + _IN + _OUT,
        context_tokens=sa.func.coalesce(sa.bindparam("context", type_=sa.BigInteger), table.c.context_tokens),
        updated_at=sa.bindparam("now", type_=sa.BigInteger),
    )
)
_ACTIVE = Statement(
    sa.select(table).where(
        table.c.key == sa.bindparam("key"), table.c.status == sa.literal_column("'active'")
    )
)
