"""What heartbeats are run with, what is known of each agent's, and where people last spoke."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from holdfast.agents.heartbeat import checklist
from holdfast.agents.heartbeat.checklist import Seen
from holdfast.agents.loop.asks import Deliver, Terms
from holdfast.clock import Millis
from holdfast.config import AgentSettings, Config
from holdfast.context.workspace import FileReader
from holdfast.errors import InvalidInput, NotFound
from holdfast.ids import AgentId
from holdfast.keys import MainKey, canonical_key, parse_key
from holdfast.log import FOR_OWNER, Audience, Session, Store, Threads, Turn, Tx, agenda, changes
from holdfast.log.tables import Json, metadata

heartbeats = sa.Table(
    "heartbeats",
    metadata,
    sa.Column("agent_id", sa.Text, primary_key=True),
    sa.Column("last_at", sa.BigInteger),
    sa.Column("last_status", sa.Text),
    sa.Column("last_reason", sa.Text),
    sa.Column("turn_id", sa.Text),
    sa.Column("boot_turn", sa.Text),
    sa.Column("ran_at", Json, nullable=False),
    sa.Column("items", Json, nullable=False),
    sa.Column("reports", Json, nullable=False),
    sa.Column("day", sa.Text),
    sa.Column("day_tokens", sa.BigInteger, nullable=False),
    sa.Column("day_cost", sa.Float, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
)

last_surfaces = sa.Table(
    "last_surfaces",
    metadata,
    sa.Column("session_key", sa.Text, primary_key=True),
    sa.Column("agent_id", sa.Text, nullable=False),
    sa.Column("direct", sa.Boolean, nullable=False),
    sa.Column("deliver", Json, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
)


CHANGED: Final = "heartbeat.updated"
REPORT_LASTS_MS: Final = 24 * 3_600_000
_MOST_REPORTS: Final = 50
_MOST_RUNS: Final = 20

Status = Literal["running", "ok", "reported", "repeated", "logged", "failed", "skipped", "deferred"]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """`ran_at` are the newest turns' times, `reports` when each report was last told, by its digest."""

    agent_id: str
    last_at: Millis | None = None
    last_status: Status | None = None
    last_reason: str | None = None
    turn_id: str | None = None
    boot_turn: str | None = None
    ran_at: tuple[int, ...] = ()
    items: Mapping[str, Seen] = field(default_factory=dict)
    reports: Mapping[str, int] = field(default_factory=dict)
    day: str | None = None
    day_tokens: int = 0
    day_cost: float = 0.0
    updated_at: int = 0
    revision: int = 0

    def spent(self, day: str) -> tuple[int, float]:
        """Tokens and cost of a day; only the newest day is kept."""
        return (self.day_tokens, self.day_cost) if self.day == day else (0, 0.0)

    def told(self, report: str, now: int) -> bool:
        """Whether this report went out within the last day."""
        return now - self.reports.get(report, -REPORT_LASTS_MS) < REPORT_LASTS_MS

    def with_report(self, report: str, now: int) -> State:
        kept = {text: at for text, at in self.reports.items() if now - at < REPORT_LASTS_MS} | {report: now}
        newest = sorted(kept.items(), key=lambda pair: pair[1])[-_MOST_REPORTS:]
        return replace(self, reports=dict(newest))

    def with_spending(self, day: str, usage: Mapping[str, Any]) -> State:
        tokens, cost = self.spent(day)
        more = sum(int(usage.get(name) or 0) for name in ("inputTokens", "outputTokens"))
        return replace(
            self, day=day, day_tokens=tokens + more, day_cost=cost + float(usage.get("cost") or 0.0)
        )

    def with_run(self, turn_id: str, now: int) -> State:
        return replace(self, turn_id=turn_id, ran_at=(*self.ran_at, now)[-_MOST_RUNS:])


_NAMES = tuple(f.name for f in fields(State))


def get(tx: Tx, agent_id: str) -> State:
    """The state of an agent's heartbeat; one that never beat has an empty one."""
    return get_many(tx, [agent_id]).get(agent_id) or State(agent_id=agent_id)


def get_many(tx: Tx, agent_ids: list[str]) -> dict[str, State]:
    rows = tx.conn.execute(sa.select(heartbeats).where(heartbeats.c.agent_id.in_(agent_ids))).mappings()
    return {row["agent_id"]: _state(row) for row in rows}


def locked(tx: Tx, agent_id: str) -> State:
    """The same, made if it is not there, and nobody else's to change until the transaction ends."""
    insert = postgresql.insert(heartbeats) if tx.postgres else sqlite.insert(heartbeats)
    new = _values(State(agent_id=agent_id, updated_at=tx.now))
    tx.conn.execute(insert.values(new).on_conflict_do_nothing())
    query = sa.select(heartbeats).where(heartbeats.c.agent_id == agent_id)
    row = tx.conn.execute(query.with_for_update() if tx.postgres else query).mappings().one()
    return _state(row)


def save(tx: Tx, state: State) -> State:
    """Keep what was made of a locked state, and tell the pages."""
    after = replace(state, updated_at=tx.now, revision=state.revision + 1)
    tx.conn.execute(
        sa.update(heartbeats).where(heartbeats.c.agent_id == state.agent_id).values(_values(after))
    )
    changes.emit(tx, CHANGED, state.agent_id)
    return after


def _values(state: State) -> dict[str, Any]:
    values = {name: getattr(state, name) for name in _NAMES}
    values["ran_at"] = list(state.ran_at)
    values["items"] = {id_: [seen.at, seen.ran] for id_, seen in state.items.items()}
    return values


def _state(row: Mapping[Any, Any]) -> State:
    values = dict(row)
    values["ran_at"] = tuple(values["ran_at"])
    values["items"] = {id_: Seen(*pair) for id_, pair in values["items"].items()}
    return State(**values)


LAST: Final = "last"
NONE: Final = "none"
# What belongs to the one message that was answered, not to the place.
_OF_ONE_MESSAGE: Final = frozenset(("replyTo", "messageId"))


def note_surface(tx: Tx, turn: Turn, session: Session, terms: Terms) -> None:
    """Remember where a turn from outside is answered. What runs by itself, and strangers, leave no trace."""
    if turn.trigger != "user" or terms.deliver is None or not terms.owner:
        return
    to = terms.deliver
    payload = {name: value for name, value in to.payload.items() if name not in _OF_ONE_MESSAGE}
    values: dict[str, Any] = {
        "session_key": session.key,
        "agent_id": terms.agent_id,
        "direct": session.chat_type == "direct",
        "deliver": replace(to, payload=payload).json(),
        "at": tx.now,
    }
    insert = postgresql.insert(last_surfaces) if tx.postgres else sqlite.insert(last_surfaces)
    changed = {name: value for name, value in values.items() if name != "session_key"}
    tx.conn.execute(insert.values(values).on_conflict_do_update(index_elements=["session_key"], set_=changed))


HeardAt = Callable[[Tx, str], Audience | None]
"""Who hears an address of a channel; None where that is not known."""


def nobody_knows(_: Tx, __: str) -> Audience | None:
    """Who hears a place, where no channels are."""
    return None


def last_surface(
    tx: Tx, target: str, session_key: str, agent_id: str, heard_at: HeardAt = nobody_knows
) -> Deliver | None:
    """Where a target leads: `last`, `none`, or a channel with a place in it, as in `discord:42`.

    Who hears a place is asked anew each time: others may have come since the owner last spoke there.
    """
    if target == NONE:
        return None
    if target == LAST:
        found = _last(tx, session_key, agent_id)
        return None if found is None else replace(found, heard=heard_at(tx, found.target) or found.heard)
    kind, _, to = target.partition(":")
    payload = {"to": to} if to else {}
    return Deliver(kind=kind, target=target, payload=payload, heard=heard_at(tx, target))


def _last(tx: Tx, session_key: str, agent_id: str) -> Deliver | None:
    """The session's own surface. The main session has none where direct chats have sessions of their own:
    then it is the owner's newest direct chat with the agent."""
    kept = sa.select(last_surfaces.c.deliver, last_surfaces.c.direct)
    found = tx.conn.execute(kept.where(last_surfaces.c.session_key == session_key)).first()
    if found is None and isinstance(parse_key(session_key), MainKey):
        newest = kept.where(last_surfaces.c.agent_id == agent_id, last_surfaces.c.direct.is_(True))
        found = tx.conn.execute(newest.order_by(last_surfaces.c.at.desc()).limit(1)).first()
    if found is None:
        return None
    # Only the owner leaves a trace here, so that a direct chat of which nothing more is known is theirs.
    heard = {"heard": FOR_OWNER} if found.direct else {}
    return Deliver(**(heard | found.deliver))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatParts:
    """The config is asked for every time anew, so that a reload takes effect."""

    store: Store
    threads: Threads
    config: Callable[[], Config]
    workspace: Callable[[str], Path]
    heard_at: HeardAt = nobody_knows
    reader: FileReader = field(default_factory=FileReader)

    def items(self, agent_id: str, name: str) -> tuple[checklist.Item, ...] | None:
        """What a workspace file lists; None where there is no such file."""
        found = self.reader.read(self.workspace(agent_id), name)
        return None if found.problem is not None else checklist.parse(found.text)

    def settings(self, agent_id: str) -> AgentSettings:
        """An agent's settings; for one that is no longer there those of any."""
        config = self.config()
        try:
            return config.agent(agent_id)
        except NotFound:
            return config.agents.defaults


def session_key(named: str, agent_id: str) -> str:
    """`main`, the rest of a key of the agent's own, or a key in full; never another agent's."""
    if named == "main":
        return str(MainKey(AgentId(agent_id)))
    own = named.startswith(("agent:", "clawboard:", "channel:"))
    key = canonical_key(named if own else f"agent:{agent_id}:{named}")
    if parse_key(key).agent_id not in (None, agent_id):
        raise InvalidInput(
            f"session {key!r} is another agent's than {agent_id}",
            hint='Use "main", or a session key of this agent.',
        )
    return key


def is_busy(tx: Tx, key: str) -> bool:
    """Whether something runs in a session's lane, or is due there and waits."""
    found = agenda.listing(tx, lane=key, limit=20)
    return any(item.status is agenda.Status.RUNNING or item.due_at <= tx.now for item in found)
