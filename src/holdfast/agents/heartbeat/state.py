"""What is known of an agent's heartbeat: how it last went, what it looked after, what it has cost today."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from holdfast.agents.heartbeat.checklist import Seen
from holdfast.agents.heartbeat.tables import heartbeats as table
from holdfast.clock import Millis
from holdfast.log import Tx, changes

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
    rows = tx.conn.execute(sa.select(table).where(table.c.agent_id.in_(agent_ids))).mappings()
    return {row["agent_id"]: _state(row) for row in rows}


def locked(tx: Tx, agent_id: str) -> State:
    """The same, made if it is not there, and nobody else's to change until the transaction ends."""
    insert = postgresql.insert(table) if tx.postgres else sqlite.insert(table)
    new = _values(State(agent_id=agent_id, updated_at=tx.now))
    tx.conn.execute(insert.values(new).on_conflict_do_nothing())
    query = sa.select(table).where(table.c.agent_id == agent_id)
    row = tx.conn.execute(query.with_for_update() if tx.postgres else query).mappings().one()
    return _state(row)


def save(tx: Tx, state: State) -> State:
    """Keep what was made of a locked state, and tell the pages."""
    after = replace(state, updated_at=tx.now, revision=state.revision + 1)
    tx.conn.execute(sa.update(table).where(table.c.agent_id == state.agent_id).values(_values(after)))
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
