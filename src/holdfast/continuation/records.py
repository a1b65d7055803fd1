"""Elected continuations in the database: each change is a pure step, at the revision it was made for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.continuation.record import Election, Kind, Phase, Record, Status
from holdfast.continuation.state import Event, Forward, IllegalStep, transition
from holdfast.continuation.tables import records as table
from holdfast.errors import NotFound
from holdfast.ids import uuid7
from holdfast.log import Session, Tx, chains, changes
from holdfast.log.statements import Row, Statement, Update
from holdfast.text import clean_json

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
    query = sa.select(table).where(table.c.chain_id == chain_id, *((_LIVE,) if live else ()))
    query = query.order_by(table.c.created_at.desc(), table.c.record_id.desc()).limit(limit)
    return [_record(row) for row in tx.conn.execute(query).mappings()][::-1]


def next_due_of(tx: Tx, chain_ids: Sequence[str]) -> dict[str, int]:
    """When the next of what each chain waits for is due; what a running turn still elects has no time yet."""
    waits = (_LIVE, table.c.phase != Phase.ELECTING.value, table.c.due_at.is_not(None))
    query = sa.select(table.c.chain_id, sa.func.min(table.c.due_at)).where(
        table.c.chain_id.in_(list(chain_ids)), *waits
    )
    return {str(id_): int(at) for id_, at in tx.conn.execute(query.group_by(table.c.chain_id))}


def get_many(tx: Tx, ids: Sequence[str]) -> list[Record]:
    query = sa.select(table).where(table.c.record_id.in_(list(ids)))
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
    query = sa.select(table).where(table.c.status.in_([s.value for s in statuses]))
    if owner is not None:
        query = query.where(table.c.owner_session_key == owner)
    order = sa.case((table.c.due_at.is_(None), 1), else_=0), table.c.due_at, table.c.record_id
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
    query = sa.select(table).where(table.c.status == sa.literal_column("'running'"))
    query = query.where(table.c.updated_at <= before).order_by(table.c.updated_at).limit(limit)
    return [_record(row) for row in tx.conn.execute(query).mappings()]


def bring_forward(tx: Tx, ms: int, since: int) -> None:
    """Have all that was to come after now come so much earlier: the clock was set back by that.

    As on the agenda, what was written by the clock as it is now is left alone: another process may have
    brought it forward already.
    """
    before = -1 if tx.postgres else since
    by_old_clock = sa.or_(table.c.updated_at > tx.now, table.c.updated_at < before)
    query = sa.select(table).where(_LIVE, table.c.due_at > tx.now, by_old_clock)
    for row in tx.conn.execute(query.order_by(table.c.record_id).limit(MAX_LIVE)).mappings():
        apply(tx, _record(row), Forward(ms))


def owed(tx: Tx, *, limit: int = 500) -> list[Record]:
    """Ended ones of which nobody has been told."""
    query = sa.select(table).where(table.c.notice_pending).limit(limit)
    return [_record(row) for row in tx.conn.execute(query).mappings()]


def prune(tx: Tx, *, limit: int = 2_000) -> list[str]:
    """Remove what ended a week ago, unless a notice is still owed; the ids of what went."""
    old = sa.select(table.c.record_id).where(
        table.c.ended_at < tx.now - RETENTION_MS, sa.not_(table.c.notice_pending)
    )
    ids = [row.record_id for row in tx.conn.execute(old.limit(limit))]
    if ids:
        tx.conn.execute(sa.delete(table).where(table.c.record_id.in_(ids)))
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


_NAMES: Final = tuple(column.name for column in table.columns)
_INSERT = Statement(sa.insert(table))
_UPDATE = Update(
    table, table.c.record_id == sa.bindparam("id_"), table.c.revision == sa.bindparam("expected")
)
_BY_ID = Statement(sa.select(table).where(table.c.record_id == sa.bindparam("id")))
_OF_OWNER = (
    sa.select(table)
    .where(table.c.owner_session_key == sa.bindparam("owner"), _LIVE)
    .order_by(table.c.created_at, table.c.record_id)
    .limit(sa.literal_column(str(MAX_LIVE)))
)
_LIVE_OF = Statement(_OF_OWNER)
_LIVE_LOCKED = Statement(_OF_OWNER.with_for_update())
_OF_TURN_ROWS = sa.select(table).where(table.c.elected_in == sa.bindparam("turn"), _LIVE)
_OF_TURN = Statement(_OF_TURN_ROWS.order_by(table.c.created_at, table.c.record_id))
_OF_CALL = Statement(_OF_TURN_ROWS.where(table.c.call == sa.bindparam("call")))


def _count(*conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    return sa.func.sum(sa.case((sa.and_(*conditions), 1), else_=0))


_QUEUED = table.c.status == sa.literal_column("'queued'")
_IS_WORK = table.c.kind == sa.literal_column("'work'")
_OWN = table.c.elected_in == sa.bindparam("turn")
_WAITING = Statement(
    sa.select(
        _count(_QUEUED, _IS_WORK),
        _count(_QUEUED, ~_IS_WORK),
        _count(_OWN, table.c.phase == sa.literal_column("'electing'")),
        _count(_OWN, ~_IS_WORK),
    ).where(table.c.owner_session_key == sa.bindparam("owner"), _LIVE)
)
_OWNERS = (
    sa.select(table.c.owner_session_key, sa.func.min(table.c.due_at).label("at"))
    .where(_LIVE, table.c.due_at.is_not(None))
    .group_by(table.c.owner_session_key)
)
