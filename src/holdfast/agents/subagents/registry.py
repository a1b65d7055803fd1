"""Delegated runs, and what they put on the agenda: beginning, waking their requester, stopping, clearing up.

preparing ──▶ queued ──▶ running ──▶ ended (again running, if someone resumes it)
announce: none ──▶ waiting ──▶ asked ──▶ delivered;  quiet: lies ready for whatever turn comes next
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final, Literal

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.errors import Conflict, NotFound
from holdfast.log import Tx, agenda, chains
from holdfast.log.statements import Statement, among
from holdfast.log.tables import Json, metadata

MAX_PAGE: Final = 200
MAX_UNENDED: Final = 10_000
STALE_MS: Final = 2 * 3_600_000

table = sa.Table(
    "subagent_runs",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("spawn_key", sa.Text, nullable=False, unique=True),
    sa.Column("run_id", sa.Text, unique=True),
    sa.Column("child_key", sa.Text, nullable=False),
    sa.Column("child_session_id", sa.Text, nullable=False),
    sa.Column("agent_id", sa.Text, nullable=False),
    sa.Column("requester_key", sa.Text, nullable=False),
    sa.Column("requester_agent", sa.Text, nullable=False),
    sa.Column("requester_turn", sa.Text),
    sa.Column("origin", Json, nullable=False),
    sa.Column("binding", Json),
    sa.Column("task", sa.Text, nullable=False),
    sa.Column("label", sa.Text),
    sa.Column("depth", sa.Integer, nullable=False),
    sa.Column("mode", sa.Text, nullable=False),
    sa.Column("cleanup", sa.Text, nullable=False),
    sa.Column("context", sa.Text, nullable=False),
    sa.Column("expects", sa.Boolean, nullable=False),
    sa.Column("timeout_seconds", sa.Integer, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("outcome", sa.Text),
    sa.Column("error", sa.Text),
    sa.Column("said", sa.Text),
    sa.Column("usage", Json),
    sa.Column("stop_reason", sa.Text),
    sa.Column("announce", sa.Text, nullable=False),
    sa.Column("announcement", sa.Text),
    sa.Column("announce_turn", sa.Text),
    sa.Column("asks", sa.Integer, nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("started_at", sa.BigInteger),
    sa.Column("ended_at", sa.BigInteger),
    sa.Column("archived_at", sa.BigInteger),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("chain_id", sa.Text),
    sa.Column("parts", sa.Integer, nullable=False, server_default="0"),
)

Mode = Literal["run", "session"]
Cleanup = Literal["keep", "delete"]
ContextMode = Literal["isolated", "fork"]


class Status(StrEnum):
    PREPARING = "preparing"
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"


class Outcome(StrEnum):
    """How a run ended, as the runtime saw it; what the model says of itself has no part in it."""

    SUCCESS = "success"
    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    UNKNOWN = "unknown"


class Announce(StrEnum):
    """Where a result is on its way to the requester.

    `waiting` for a turn of the requester, `asked` for in a turn that is accepted, `delivered` with a turn
    that committed; `quiet` lies ready for the next turn and asks for none.
    """

    NONE = "none"
    WAITING = "waiting"
    ASKED = "asked"
    DELIVERED = "delivered"
    QUIET = "quiet"


OWN_KEYS: Final = ("spawn:", "further:")
OPEN: Final = (Announce.WAITING, Announce.ASKED, Announce.QUIET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One delegated run. `run_id` is its first turn; `origin` is in whose name it was asked for.

    `binding` is the surface of its own that the child was given. `round` counts how often it was begun. It
    ends when nothing of its chain is at work in the child's session any more: `said` is the last word of the
    `parts` that it spoke until then, and while it runs `outcome` is that of its last turn.
    """

    id: str
    spawn_key: str
    child_key: str
    child_session_id: str
    agent_id: str
    requester_key: str
    requester_agent: str
    task: str
    depth: int
    mode: Mode
    cleanup: Cleanup
    context: ContextMode
    expects: bool
    timeout_seconds: int
    owner: str
    created_at: Millis
    updated_at: Millis
    run_id: str | None = None
    requester_turn: str | None = None
    origin: Mapping[str, Any]
    binding: Mapping[str, Any] | None = None
    label: str | None = None
    status: Status = Status.PREPARING
    outcome: Outcome | None = None
    error: str | None = None
    said: str | None = None
    usage: Mapping[str, Any] | None = None
    stop_reason: str | None = None
    announce: Announce = Announce.NONE
    announcement: str | None = None
    announce_turn: str | None = None
    asks: int = 0
    round: int = 1
    started_at: Millis | None = None
    ended_at: Millis | None = None
    archived_at: Millis | None = None
    revision: int = 0
    chain_id: str | None = None
    parts: int = 0

    @property
    def on_errand(self) -> bool:
        """Whether another room had it spawned under a key of its own, and tells of its return itself."""
        return not self.spawn_key.startswith(OWN_KEYS)

    @property
    def live(self) -> bool:
        return self.status is not Status.ENDED

    @property
    def name(self) -> str:
        return self.label or self.id

    @property
    def note_key(self) -> str:
        """One note for each time that the run came to an end."""
        return f"subagent:{self.id}:{self.round}"

    @property
    def own_surface(self) -> bool:
        """Whether the answer to its return goes to the child's own surface, in a turn of its own."""
        return self.binding is not None

    def stale(self, now: int) -> bool:
        """Unended for so long that someone should look at it."""
        return self.live and now - (self.started_at or self.created_at) >= STALE_MS


_NAMES: Final = tuple(f.name for f in fields(Run))


def insert(tx: Tx, run: Run) -> Run:
    tx.conn.execute(sa.insert(table), {name: getattr(run, name) for name in _NAMES})
    return run


def save(tx: Tx, run: Run, **values: Any) -> Run:
    """Write changes of a run that was read, unless someone else did since (`Conflict`)."""
    new = replace(run, **values, updated_at=tx.now, revision=run.revision + 1)
    where = (table.c.id == run.id, table.c.revision == run.revision)
    row = {name: getattr(new, name) for name in (*values, "updated_at", "revision")}
    if tx.conn.execute(sa.update(table).where(*where).values(**row)).rowcount != 1:
        raise Conflict(f"subagent run {run.id} changed meanwhile", code="stale_subagent_run")
    if new.announce is not run.announce:
        chains.touch(tx, new.chain_id)
    return new


def get(tx: Tx, id_: str) -> Run:
    found = _first(tx, table.c.id == id_)
    if found is None:
        raise NotFound(f"no subagent run {id_[:80]!r}", code="unknown_subagent")
    return found


def by_spawn(tx: Tx, spawn_key: str) -> Run | None:
    return _first(tx, table.c.spawn_key == spawn_key)


def by_run(tx: Tx, run_id: str) -> Run | None:
    return _first(tx, table.c.run_id == run_id)


def live_of_child(tx: Tx, child_key: str) -> Run | None:
    """The run that is under way in a child's session."""
    return _first(tx, table.c.child_key == child_key, _LIVE)


def newest_of_child(tx: Tx, child_key: str) -> Run | None:
    query = sa.select(table).where(table.c.child_key == child_key)
    return _one(tx, query.order_by(table.c.created_at.desc(), table.c.id.desc()).limit(1))


def children(tx: Tx, requester_key: str, *, live: bool | None = None, limit: int = MAX_PAGE) -> list[Run]:
    """The runs that a session asked for, newest first."""
    query = sa.select(table).where(table.c.requester_key == requester_key)
    if live is not None:
        query = query.where(_LIVE if live else ~_LIVE)
    return _many(tx, query.order_by(table.c.created_at.desc(), table.c.id.desc()), limit)


def live_count(tx: Tx, requester_key: str) -> int:
    query = sa.select(sa.func.count()).where(table.c.requester_key == requester_key, _LIVE)
    return int(tx.conn.execute(query).scalar_one())


def asked_by_turn(tx: Tx, turn_id: str) -> list[Run]:
    """What is under way that this turn asked for."""
    return _many(tx, sa.select(table).where(table.c.requester_turn == turn_id, _LIVE))


def announced(tx: Tx, requester_key: str, states: Collection[Announce] = OPEN) -> list[Run]:
    """Ended runs of a session whose results are still on their way, oldest first."""
    query = _ANNOUNCED_OPEN if set(states) <= set(OPEN) else _ANNOUNCED
    rows = query.rows(tx, requester=requester_key, states=[state.value for state in states])
    return [_run(dict(zip(_COLUMNS, row, strict=True))) for row in rows]


def in_chain(tx: Tx, chain_id: str, *, live: bool = False, limit: int = MAX_PAGE) -> list[Run]:
    """The runs of a chain, newest first."""
    query = sa.select(table).where(table.c.chain_id == chain_id, *((_LIVE,) if live else ()))
    query = query.order_by(table.c.created_at.desc(), table.c.id.desc()).limit(limit)
    return [_run(row) for row in tx.conn.execute(query).mappings()]


def quiet(tx: Tx, chain_id: str) -> int:
    """Results of a stopped chain ask for no turn any more; they lie ready for whatever turn comes next. How
    many had not asked yet."""
    asks = [
        tx.conn.execute(
            sa.update(table)
            .where(table.c.chain_id == chain_id, table.c.announce == state.value)
            .values(announce=Announce.QUIET.value, announce_turn=None, revision=table.c.revision + 1)
        ).rowcount
        for state in (Announce.WAITING, Announce.ASKED)
    ]
    chains.touch(tx, chain_id)
    return asks[0]


def unended(tx: Tx) -> list[Run]:
    """Every run that has not ended, oldest first."""
    query = sa.select(table).where(_LIVE).order_by(table.c.created_at, table.c.id).limit(MAX_UNENDED)
    return [_run(row) for row in tx.conn.execute(query).mappings()]


def waiting_requesters(tx: Tx) -> list[str]:
    query = sa.select(table.c.requester_key).where(_OPEN_ANNOUNCE, table.c.announce == Announce.WAITING)
    return [str(key) for key in tx.conn.execute(query.distinct().limit(MAX_UNENDED)).scalars()]


def prune(tx: Tx, before: int, *, limit: int = 2_000) -> int:
    """Remove what ended before a moment and is on its way no more."""
    over = sa.and_(
        table.c.status == "ended", table.c.ended_at < before, table.c.announce.not_in(sorted(OPEN))
    )
    ids = sa.select(table.c.id).where(over).limit(limit)
    return tx.conn.execute(sa.delete(table).where(table.c.id.in_(ids))).rowcount


# Written out rather than bound, so that the partial indexes can be used.
_LIVE: Final = table.c.status != sa.literal_column("'ended'")
chains.takes_part(
    chains.Part(
        "subagent", table.c.chain_id, table.c.requester_key, _LIVE, at_work=sa.and_(_LIVE, table.c.expects)
    )
)
# A result that will ask for a turn is as good as that turn: whoever stops the chain stops it too.
chains.takes_part(
    chains.Part(
        "return",
        table.c.chain_id,
        table.c.requester_key,
        table.c.announce == sa.literal_column(f"'{Announce.WAITING}'"),
    )
)
_OPEN_ANNOUNCE: Final = table.c.announce.in_([sa.literal_column(f"'{state}'") for state in OPEN])
_COLUMNS: Final = tuple(table.c.keys())
_ANNOUNCED_ROWS = (
    sa.select(table)
    .where(table.c.requester_key == sa.bindparam("requester"), among(table.c.announce, "states"))
    .order_by(table.c.created_at, table.c.id)
    .limit(MAX_PAGE)
)
_ANNOUNCED: Final = Statement(_ANNOUNCED_ROWS)
_ANNOUNCED_OPEN: Final = Statement(_ANNOUNCED_ROWS.where(_OPEN_ANNOUNCE))


def _first(tx: Tx, *where: sa.ColumnElement[bool]) -> Run | None:
    return _one(tx, sa.select(table).where(*where).order_by(table.c.id).limit(1))


def _one(tx: Tx, query: sa.Select[Any]) -> Run | None:
    row = tx.conn.execute(query).mappings().first()
    return None if row is None else _run(row)


def _many(tx: Tx, query: sa.Select[Any], limit: int = MAX_PAGE) -> list[Run]:
    rows = tx.conn.execute(query.limit(max(1, min(limit, MAX_PAGE)))).mappings()
    return [_run(row) for row in rows]


def _run(row: Mapping[Any, Any]) -> Run:
    values = dict(row)
    values["status"] = Status(values["status"])
    values["announce"] = Announce(values["announce"])
    values["outcome"] = None if values["outcome"] is None else Outcome(values["outcome"])
    return Run(**values)


LAUNCH: Final = "subagent.launch"
WAKE: Final = "subagent.wake"
STOP: Final = "subagent.stop"
SWEEP: Final = "subagent.sweep"

TIMEOUT: Final = "timeout"
ATTEMPTS: Final = 8
_ALWAYS_ROOM: Final = 1_000_000


def launch_soon(tx: Tx, run: Run, traceparent: str | None) -> None:
    """Begin a run that was reserved in this transaction, whatever becomes of this process."""
    payload = {"id": run.id, "traceparent": traceparent}
    agenda.enqueue(tx, LAUNCH, payload, key=launch_key(run), max_attempts=ATTEMPTS)


def launch_key(run: Run) -> str:
    return f"{LAUNCH}:{run.id}"


def wake_requester(tx: Tx, requester_key: str, *, due_at: int | None = None) -> None:
    """Look after the requester's results when its lane is free: one look for all that came back by then."""
    agenda.enqueue(
        tx,
        WAKE,
        {"sessionKey": requester_key},
        lane=requester_key,
        key=f"{WAKE}:{requester_key}",
        due_at=due_at,
        max_attempts=ATTEMPTS,
        most_waiting=_ALWAYS_ROOM,
    )


def stop_soon(tx: Tx, run: Run, reason: str) -> None:
    """End a run soon, wherever it runs."""
    payload = {"id": run.id, "round": run.round, "reason": reason}
    agenda.enqueue(tx, STOP, payload, key=f"{STOP}:{run.id}:{run.round}", max_attempts=ATTEMPTS)


def limit_time(tx: Tx, run: Run) -> None:
    """End a run that takes too long; counted from its first turn's beginning."""
    if run.timeout_seconds:
        agenda.enqueue(
            tx,
            STOP,
            {"id": run.id, "round": run.round, "reason": TIMEOUT},
            key=f"{STOP}.{TIMEOUT}:{run.id}:{run.round}",
            due_at=int(tx.now) + run.timeout_seconds * 1000,
            max_attempts=ATTEMPTS,
        )


def sweep_later(tx: Tx, run: Run) -> None:
    """Tell the engine that the child has ended, and archive its session in its time."""
    key = f"{SWEEP}:{run.id}:{run.round}"
    payload = {"id": run.id, "round": run.round}
    agenda.enqueue(tx, SWEEP, payload, lane=key, key=key, max_attempts=ATTEMPTS)
