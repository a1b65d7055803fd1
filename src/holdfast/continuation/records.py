"""Continuation in the database: what was elected, and what is known of each session.

Each change of an election is a pure step, at the revision it was made for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.config import Compaction
from holdfast.context import Pressure, how_full
from holdfast.continuation.state import (
    Election,
    Event,
    Forward,
    IllegalStep,
    Kind,
    Phase,
    Record,
    Status,
    transition,
)
from holdfast.errors import NotFound
from holdfast.ids import uuid7
from holdfast.log import Session, Tx, chains, changes
from holdfast.log.statements import Row, Statement, Update
from holdfast.log.tables import Json, metadata
from holdfast.text import clean_json

record_table = sa.Table(
    "continuation_records",
    metadata,
    sa.Column("record_id", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("owner_session_key", sa.Text, nullable=False),
    sa.Column("session_id", sa.Text, nullable=False),
    sa.Column("agent_id", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("phase", sa.Text, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("failure_reason", sa.Text),
    sa.Column("notice_pending", sa.Boolean, nullable=False),
    sa.Column("cancel_requested_at", sa.BigInteger),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("ended_at", sa.BigInteger),
    sa.Column("chain_id", sa.Text),
    sa.Column("due_at", sa.BigInteger),
    sa.Column("state", Json, nullable=False),
    sa.Column("elected_in", sa.Text),
    sa.Column("call", sa.Text),
)

session_table = sa.Table(
    "continuation_sessions",
    metadata,
    sa.Column("session_id", sa.Text, primary_key=True),
    sa.Column("session_key", sa.Text, nullable=False),
    sa.Column("band", sa.Integer),
    sa.Column("used", sa.BigInteger, nullable=False),
    sa.Column("window", sa.BigInteger, nullable=False),
    sa.Column("idle_turns", sa.Integer, nullable=False),
    sa.Column("idle_at", sa.BigInteger),
    sa.Column("compactions", Json, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)

_AT_WORK = record_table.c.status.in_([sa.literal_column("'queued'"), sa.literal_column("'running'")])
chains.takes_part(
    chains.Part(
        "election",
        record_table.c.chain_id,
        record_table.c.owner_session_key,
        _AT_WORK,
        at_work=sa.and_(_AT_WORK, record_table.c.phase != "staged"),
    )
)


MAX_LIVE: Final = 2_000
SCRUB: Final = "continuation.scrub"
RETENTION_MS: Final = 7 * 24 * 3_600_000

_COLUMNS: Final = {
    "id": "record_id",
    "owner": "owner_session_key",
    "failure": "failure_reason",
    **{
        name: name
        for name in (
            "kind",
            "session_id",
            "agent_id",
            "status",
            "phase",
            "revision",
            "notice_pending",
            "cancel_requested_at",
            "created_at",
            "updated_at",
            "ended_at",
            "chain_id",
        )
    },
}
_IN_STATE: Final = tuple(f.name for f in fields(Record) if f.name not in _COLUMNS)
_LIVE: Final = sa.literal_column("status").in_(
    [sa.literal_column("'queued'"), sa.literal_column("'running'")]
)


def new_id() -> str:
    """Ids sort in the order of their making."""
    return f"cont-{uuid7()}"


def create(
    tx: Tx,
    session: Session,
    kind: Kind,
    election: Election,
    *,
    hedge_at: int,
    chain_id: str | None = None,
    id_: str | None = None,
    traceparent: str | None = None,
) -> Record:
    """A new election of a running turn. Until that turn ends, `hedge_at` is when it would be due."""
    record = Record(
        id=id_ or new_id(),
        kind=kind,
        owner=session.key,
        session_id=session.id,
        agent_id=str(election.terms.get("agentId") or session.agent_id or ""),
        election=election,
        created_at=tx.now,
        updated_at=tx.now,
        due_at=hedge_at,
        chain_id=chain_id,
        traceparent=traceparent,
    )
    _INSERT.run(tx, **_values(record))
    changes.emit(tx, "continuation.elected", record.id)
    return record


def apply(tx: Tx, record: Record, event: Event) -> Record:
    """Make a step durable; `IllegalStep` if it may not be taken, or the record has moved on meanwhile."""
    after = transition(record, event, tx.now)
    if _UPDATE.run(tx, _values(after), id_=record.id, expected=record.revision) != 1:
        raise IllegalStep(f"continuation {record.id} was changed by someone else")
    if after.status.ended and after.election.attachments:
        tx.wake(SCRUB)
    if after.status is not record.status:
        changes.emit(tx, f"continuation.{after.status}", record.id)
        chains.touch(tx, record.chain_id)
    return after


def get(tx: Tx, id_: str) -> Record:
    found = find(tx, id_)
    if found is None:
        raise NotFound(f"no continuation {id_[:80]!r}", code="unknown_continuation")
    return found


def find(tx: Tx, id_: str) -> Record | None:
    row = _BY_ID.first(tx, id=id_)
    return None if row is None else _read(row)


def live(tx: Tx, owner: str) -> list[Record]:
    """What a session has waiting or under way, in the order of its election."""
    return [_read(row) for row in (_LIVE_LOCKED if tx.postgres else _LIVE_OF).rows(tx, owner=owner)]


def of_call(tx: Tx, turn_id: str, call: str) -> Record | None:
    """The live election of one call of a turn."""
    row = _OF_CALL.first(tx, turn=turn_id, call=call)
    return None if row is None else _read(row)


def of_turn(tx: Tx, turn_id: str) -> list[Record]:
    """What a turn elected and is still live, as it was elected."""
    return [_read(row) for row in _OF_TURN.rows(tx, turn=turn_id)]


def in_chain(tx: Tx, chain_id: str, *, live: bool = False, limit: int = 500) -> list[Record]:
    """What was elected in a chain, as it was elected; the newest of more."""
    query = sa.select(record_table).where(record_table.c.chain_id == chain_id, *((_LIVE,) if live else ()))
    query = query.order_by(record_table.c.created_at.desc(), record_table.c.record_id.desc()).limit(limit)
    return [_record(row) for row in tx.conn.execute(query).mappings()][::-1]


def next_due_of(tx: Tx, chain_ids: Sequence[str]) -> dict[str, int]:
    """When the next of what each chain waits for is due; what a running turn still elects has no time yet."""
    waits = (_LIVE, record_table.c.phase != Phase.ELECTING.value, record_table.c.due_at.is_not(None))
    query = sa.select(record_table.c.chain_id, sa.func.min(record_table.c.due_at)).where(
        record_table.c.chain_id.in_(list(chain_ids)), *waits
    )
    return {str(id_): int(at) for id_, at in tx.conn.execute(query.group_by(record_table.c.chain_id))}


def get_many(tx: Tx, ids: Sequence[str]) -> list[Record]:
    query = sa.select(record_table).where(record_table.c.record_id.in_(list(ids)))
    return [_record(row) for row in tx.conn.execute(query).mappings()]


@dataclass(frozen=True, slots=True)
class Waiting:
    """How many elections of a session wait, and of them how many are of one turn that still runs."""

    work: int = 0
    delegates: int = 0
    electing: int = 0
    sent: int = 0


def waiting(tx: Tx, owner: str, turn_id: str) -> Waiting:
    """Counted by the database: a turn may elect very many."""
    row = _WAITING.first(tx, owner=owner, turn=turn_id)
    return Waiting(*(int(number or 0) for number in row or ()))


def listing(
    tx: Tx,
    *,
    owner: str | None = None,
    statuses: Sequence[Status] = (Status.QUEUED, Status.RUNNING),
    limit: int = 100,
) -> list[Record]:
    """What is due next comes first."""
    query = sa.select(record_table).where(record_table.c.status.in_([s.value for s in statuses]))
    if owner is not None:
        query = query.where(record_table.c.owner_session_key == owner)
    order = (
        sa.case((record_table.c.due_at.is_(None), 1), else_=0),
        record_table.c.due_at,
        record_table.c.record_id,
    )
    rows = tx.conn.execute(query.order_by(*order).limit(max(1, min(limit, 500)))).mappings()
    return [_record(row) for row in rows]


def next_due(found: Sequence[Record]) -> int | None:
    """When a session is looked at next; what runs counts too, where it is looked after by the clock."""
    times = [record.due for record in found if not record.status.ended and _timed(record)]
    return min((at for at in times if at is not None), default=None)


def owners_due(tx: Tx) -> list[tuple[str, int]]:
    """Every session with something that the clock brings, and the earliest moment of it."""
    return [(row.owner_session_key, int(row.at)) for row in tx.conn.execute(_OWNERS)]


def running_since(tx: Tx, before: int, *, limit: int = 500) -> list[Record]:
    query = sa.select(record_table).where(record_table.c.status == sa.literal_column("'running'"))
    query = query.where(record_table.c.updated_at <= before).order_by(record_table.c.updated_at).limit(limit)
    return [_record(row) for row in tx.conn.execute(query).mappings()]


def bring_forward(tx: Tx, ms: int, since: int) -> None:
    """Have all that was to come after now come so much earlier: the clock was set back by that.

    As on the agenda, what was written by the clock as it is now is left alone: another process may have
    brought it forward already.
    """
    before = -1 if tx.postgres else since
    by_old_clock = sa.or_(record_table.c.updated_at > tx.now, record_table.c.updated_at < before)
    query = sa.select(record_table).where(_LIVE, record_table.c.due_at > tx.now, by_old_clock)
    for row in tx.conn.execute(query.order_by(record_table.c.record_id).limit(MAX_LIVE)).mappings():
        apply(tx, _record(row), Forward(ms))


def owed(tx: Tx, *, limit: int = 500) -> list[Record]:
    """Ended ones of which nobody has been told."""
    query = sa.select(record_table).where(record_table.c.notice_pending).limit(limit)
    return [_record(row) for row in tx.conn.execute(query).mappings()]


def prune(tx: Tx, *, limit: int = 2_000) -> list[str]:
    """Remove what ended a week ago, unless a notice is still owed; the ids of what went."""
    old = sa.select(record_table.c.record_id).where(
        record_table.c.ended_at < tx.now - RETENTION_MS, sa.not_(record_table.c.notice_pending)
    )
    ids = [row.record_id for row in tx.conn.execute(old.limit(limit))]
    if ids:
        tx.conn.execute(sa.delete(record_table).where(record_table.c.record_id.in_(ids)))
    return ids


def _timed(record: Record) -> bool:
    return record.status is Status.QUEUED or record.phase is Phase.FOLDED


def _values(record: Record) -> dict[str, Any]:
    values = {column: getattr(record, name) for name, column in _COLUMNS.items()}
    values |= {"kind": record.kind.value, "status": record.status.value, "phase": record.phase.value}
    values["due_at"] = record.due if _timed(record) and not record.status.ended else None
    state = {name: getattr(record, name) for name in _IN_STATE}
    state["election"] = {f.name: getattr(record.election, f.name) for f in fields(Election)}
    values |= {"elected_in": record.election.turn_id, "call": record.election.call}
    values["state"] = clean_json({name: value for name, value in state.items() if value is not None})
    return values


def _read(row: Row) -> Record:
    return _record(dict(zip(_NAMES, row, strict=True)))


def _record(row: Mapping[Any, Any]) -> Record:
    values = {name: row[column] for name, column in _COLUMNS.items()}
    state = dict(row["state"])
    election = dict(state.pop("election"))
    election["targets"] = tuple(election["targets"])
    values |= {
        "kind": Kind(values["kind"]),
        "status": Status(values["status"]),
        "phase": Phase(values["phase"]),
        "notice_pending": bool(values["notice_pending"]),
        "election": Election(**election),
    }
    attempts = state.pop("attempts", ())  # as records were kept before their delegates were spawned at once
    if attempts:
        state.setdefault("spawn_key", attempts[-1][1])
    return Record(**values, **{name: _millis(name, value) for name, value in state.items()})


def _millis(name: str, value: Any) -> Any:
    return Millis(value) if name == "delivered_at" else value


_NAMES: Final = tuple(column.name for column in record_table.columns)
_INSERT = Statement(sa.insert(record_table))
_UPDATE = Update(
    record_table,
    record_table.c.record_id == sa.bindparam("id_"),
    record_table.c.revision == sa.bindparam("expected"),
)
_BY_ID = Statement(sa.select(record_table).where(record_table.c.record_id == sa.bindparam("id")))
_OF_OWNER = (
    sa.select(record_table)
    .where(record_table.c.owner_session_key == sa.bindparam("owner"), _LIVE)
    .order_by(record_table.c.created_at, record_table.c.record_id)
    .limit(sa.literal_column(str(MAX_LIVE)))
)
_LIVE_OF = Statement(_OF_OWNER)
_LIVE_LOCKED = Statement(_OF_OWNER.with_for_update())
_OF_TURN_ROWS = sa.select(record_table).where(record_table.c.elected_in == sa.bindparam("turn"), _LIVE)
_OF_TURN = Statement(_OF_TURN_ROWS.order_by(record_table.c.created_at, record_table.c.record_id))
_OF_CALL = Statement(_OF_TURN_ROWS.where(record_table.c.call == sa.bindparam("call")))


def _count(*conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    return sa.func.sum(sa.case((sa.and_(*conditions), 1), else_=0))


_QUEUED = record_table.c.status == sa.literal_column("'queued'")
_IS_WORK = record_table.c.kind == sa.literal_column("'work'")
_OWN = record_table.c.elected_in == sa.bindparam("turn")
_WAITING = Statement(
    sa.select(
        _count(_QUEUED, _IS_WORK),
        _count(_QUEUED, ~_IS_WORK),
        _count(_OWN, record_table.c.phase == sa.literal_column("'electing'")),
        _count(_OWN, ~_IS_WORK),
    ).where(record_table.c.owner_session_key == sa.bindparam("owner"), _LIVE)
)
_OWNERS = (
    sa.select(record_table.c.owner_session_key, sa.func.min(record_table.c.due_at).label("at"))
    .where(_LIVE, record_table.c.due_at.is_not(None))
    .group_by(record_table.c.owner_session_key)
)


COMPACTIONS_TTL_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """`band` is the last pressure band that the session was told of; None: none yet, which is not band 0.

    `used` of `window` is what the last turn's prompt took; 0 where that is not known or no longer true.
    """

    session_id: str
    session_key: str
    band: int | None = None
    used: int = 0
    window: int = 0
    idle_turns: int = 0
    idle_at: int | None = None
    compactions: tuple[int, ...] = ()

    def pressure(self, settings: Compaction) -> Pressure | None:
        known = self.used > 0 and self.window > 0
        return how_full(settings, self.window, counted=self.used) if known else None

    def compacted(self, now: int) -> SessionState:
        """One more compaction that the agent asked for; those of the last day are counted."""
        kept = tuple(at for at in self.compactions if now - at < COMPACTIONS_TTL_MS)
        return replace(self, compactions=(*kept, now)[-100:])


_STATE_NAMES = tuple(f.name for f in fields(SessionState))


def load_session_state(tx: Tx, session: Session) -> SessionState:
    """As it stands; of a session that nothing is known of, nothing."""
    row = _STATE_OF_SESSION.first(tx, session=session.id)
    if row is None:
        return SessionState(session_id=session.id, session_key=session.key)
    values = dict(zip(_STATE_NAMES, row, strict=True))
    return SessionState(**{**values, "compactions": tuple(values["compactions"] or ())})


def save_session_state(tx: Tx, state: SessionState) -> SessionState:
    values = {name: getattr(state, name) for name in _STATE_NAMES}
    values |= {"compactions": list(state.compactions), "updated_at": tx.now}
    if _UPDATE_STATE.run(tx, values, session=state.session_id) == 0:
        _INSERT_STATE.run(tx, **values)
    return state


_INSERT_STATE = Statement(sa.insert(session_table))
_UPDATE_STATE = Update(session_table, session_table.c.session_id == sa.bindparam("session"))
_STATE_OF_SESSION = Statement(
    sa.select(*(session_table.c[name] for name in _STATE_NAMES)).where(
        session_table.c.session_id == sa.bindparam("session")
    )
)
