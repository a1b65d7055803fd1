"""What the store knows of engines: how far each was told of a session, what it is still to be told, and
how it fares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

import sqlalchemy as sa
from typing_extensions import TypedDict

from holdfast.clock import Millis, iso
from holdfast.context.blobs import insert_new
from holdfast.context.host import Health
from holdfast.context.tables import engine_health, engine_outbox, engine_sessions
from holdfast.log import Tx, agenda, entries
from holdfast.log.statements import Insert, Statement
from holdfast.records import record

DELIVER: Final = "engine.deliver"
Kind = Literal["turn", "batch", "message"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One thing that an engine is still to be told. `body` names the turn or the entries, and for a turn that
    was committed what it came to."""

    engine: str
    session_id: str
    key: str
    kind: Kind
    number: int
    position: int
    body: Mapping[str, Any]
    attempts: int = 0
    error: str | None = None
    created_at: Millis
    next_at: int


@dataclass(frozen=True, slots=True)
class Told:
    """How far an engine has been told of a session: up to which turn, and to which place in the log of what
    belongs to no turn."""

    version: str
    turn: int
    position: int


_NAMES: Final = tuple(f.name for f in fields(Waiting))
_POST: Final = Insert(engine_outbox, ignore=(["engine", "session_id", "key"], None))
_OF_SESSION: Final = Statement(
    sa.select(*(engine_outbox.c[name] for name in _NAMES))
    .where(
        engine_outbox.c.engine == sa.bindparam("engine"),
        engine_outbox.c.session_id == sa.bindparam("session"),
    )
    .order_by(engine_outbox.c.position, engine_outbox.c.number, engine_outbox.c.key)
    .limit(1)
)
_GONE: Final = Statement(
    sa.delete(engine_outbox).where(
        engine_outbox.c.engine == sa.bindparam("of"),
        engine_outbox.c.session_id == sa.bindparam("session"),
        engine_outbox.c.key == sa.bindparam("which"),
    )
)
_TOLD: Final = Statement(
    sa.select(engine_sessions.c.version, engine_sessions.c.told_turn, engine_sessions.c.told_position).where(
        engine_sessions.c.engine == sa.bindparam("engine"),
        engine_sessions.c.session_id == sa.bindparam("session"),
    )
)
_TELL: Final = Insert(engine_sessions, replace=["engine", "session_id"])


def post(
    tx: Tx, engine: str, session_id: str, *, key: str, kind: Kind, number: int, body: Mapping[str, Any]
) -> None:
    """Write down, in the transaction of what happened, that an engine is to be told of it; once for a key.

    It has its place in the order by where the log then ends.
    """
    row = Waiting(
        engine=engine,
        session_id=session_id,
        key=key,
        kind=kind,
        number=number,
        position=entries.head(tx),
        body=body,
        created_at=tx.now,
        next_at=tx.now,
    )
    _POST.one(tx, {name: getattr(row, name) for name in _NAMES})


def find(tx: Tx, engine: str, session_id: str, key: str) -> Waiting | None:
    c = engine_outbox.c
    query = sa.select(engine_outbox).where(c.engine == engine, c.session_id == session_id, c.key == key)
    row = tx.conn.execute(query).mappings().first()
    return None if row is None else Waiting(**{name: row[name] for name in _NAMES})


@record
class QueueOut(TypedDict):
    """What an engine is still to be told, and how its oldest try fared."""

    waiting: int
    oldestAt: str | None
    attempts: int
    nextAt: str | None
    error: str | None


@record
class EnginePastOut(TypedDict):
    """What the store knows of an engine."""

    engine: str
    calls: int
    failures: int
    lastError: str | None
    lastErrorAt: str | None
    lastOkAt: str | None
    queue: QueueOut


@record
class EngineOut(EnginePastOut):
    selected: bool
    registered: bool
    running: bool
    version: str | None
    byCall: dict[str, int]


def health_of(tx: Tx, engine: str) -> EnginePastOut:
    """How an engine has fared, as far as the store knows, and what waits for it."""
    kept = (
        tx.conn.execute(sa.select(engine_health).where(engine_health.c.engine == engine)).mappings().first()
    )
    c = engine_outbox.c
    figures = sa.select(
        sa.func.count(), sa.func.min(c.created_at), sa.func.max(c.attempts), sa.func.min(c.next_at)
    ).where(c.engine == engine)
    count, oldest, attempts, next_at = tx.conn.execute(figures).one()
    failing = sa.select(c.error).where(c.engine == engine, c.error.is_not(None)).order_by(c.attempts.desc())
    return {
        "engine": engine,
        "calls": 0 if kept is None else kept["calls"],
        "failures": 0 if kept is None else kept["failures"],
        "lastError": None if kept is None else kept["last_error"],
        "lastErrorAt": _iso(None if kept is None else kept["last_error_at"]),
        "lastOkAt": _iso(None if kept is None else kept["last_ok_at"]),
        "queue": {
            "waiting": count,
            "oldestAt": _iso(oldest),
            "attempts": attempts or 0,
            "nextAt": _iso(next_at),
            "error": tx.conn.execute(failing.limit(1)).scalar(),
        },
    }


def known_engines(tx: Tx) -> set[str]:
    """Engines of which the store knows anything."""
    found: set[str] = set()
    for column in (engine_health.c.engine, engine_outbox.c.engine):
        found |= set(tx.conn.execute(sa.select(column).distinct()).scalars())
    return found


def save_health(tx: Tx, engine: str, health: Health) -> None:
    """Add what this process has counted since it last wrote it down."""
    with health.lock:
        calls, failures = health.unsaved_calls, health.unsaved_failures
        last = (health.last_error, health.last_error_at, health.last_ok_at)
        health.unsaved_calls = health.unsaved_failures = 0
    if not calls:
        return
    c = engine_health.c
    names = ("last_error", "last_error_at", "last_ok_at")
    fresh = {name: value for name, value in zip(names, last, strict=True) if value is not None}
    counted = {"calls": c.calls + calls, "failures": c.failures + failures}
    if not tx.conn.execute(
        sa.update(engine_health).where(c.engine == engine).values(**counted, **fresh)
    ).rowcount:
        row = {"engine": engine, "calls": calls, "failures": failures, **dict.fromkeys(names), **fresh}
        tx.conn.execute(insert_new(tx, engine_health), row)


def known_to(tx: Tx, engine: str, session_id: str) -> Told | None:
    row = _TOLD.first(tx, engine=engine, session=session_id)
    return None if row is None else Told(*row)


def save_told(tx: Tx, engine: str, session_id: str, told: Told) -> None:
    row = {
        "engine": engine,
        "session_id": session_id,
        "version": told.version,
        "told_turn": told.turn,
        "told_position": told.position,
        "updated_at": tx.now,
    }
    _TELL.one(tx, row)


def enqueue(tx: Tx, engine: str, session_id: str, due_at: int) -> None:
    payload = {"engine": engine, "sessionId": session_id}
    key = f"{DELIVER}:{engine}:{session_id}"
    agenda.enqueue(tx, DELIVER, payload, lane=key, key=key, due_at=due_at, max_attempts=1_000)


def _iso(at: int | None) -> str | None:
    return None if at is None else iso(Millis(at))


def first_waiting(tx: Tx, engine: str, session_id: str) -> Waiting | None:
    """What an engine is to be told of a session next."""
    found = _OF_SESSION.first(tx, engine=engine, session=session_id)
    return None if found is None else Waiting(**dict(zip(_NAMES, found, strict=True)))


def remove(tx: Tx, row: Waiting) -> None:
    _GONE.run(tx, of=row.engine, session=row.session_id, which=row.key)
