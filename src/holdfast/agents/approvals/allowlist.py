"""Command patterns that an agent may run unasked, each stamped with its last use.

Those of the config count while they stand there; a row for one of them only carries its stamp. For a command
that runs files of the workspace, a pattern counts only as far as a person was `shown` what they hold.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import sqlalchemy as sa

from holdfast.agents.approvals import audit
from holdfast.agents.approvals.tables import allowed_commands as table
from holdfast.agents.policy import check_pattern
from holdfast.clock import Millis
from holdfast.errors import Busy, NotFound
from holdfast.log import Tx, changes
from holdfast.log import audit as trail

MAX_PATTERNS: Final = 1_000
MAX_SHOWN: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedCommand:
    agent_id: str
    pattern: str
    source: Literal["config", "person"]
    created_by: str | None
    created_at: Millis | None
    last_used_at: Millis | None
    last_used_command: str | None
    shown: Mapping[str, Mapping[str, str]] | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """A command that runs files, as a person saw it: which one, what they held, and by which approval."""

    command: str
    digest: str
    approval_id: str


def allow(tx: Tx, agent_id: str, pattern: str, *, by: str) -> AllowedCommand:
    """Let commands of this pattern run unasked from now on; again finds the one that is there."""
    pattern = check_pattern(pattern)
    known = _find(tx, agent_id, pattern)
    if known is not None and known.source == "person":
        return known
    if len(listing(tx, agent_id)) >= MAX_PATTERNS:
        raise Busy(f"agent {agent_id} has {MAX_PATTERNS} patterns", hint="Remove some that are not used.")
    _put(tx, agent_id, pattern, {"source": "person", "created_by": by, "created_at": tx.now})
    _account(tx, "pattern", agent_id, pattern, by)
    changes.emit(tx, "approval.allowed", agent_id, {"agentId": agent_id, "pattern": pattern})
    return _found(tx, agent_id, pattern)


def show(tx: Tx, agent_id: str, pattern: str, shown: Shown) -> None:
    """Let the pattern cover a command that runs files, for as long as they hold what they hold now."""
    known = dict(_found(tx, agent_id, pattern).shown or {})
    known.pop(shown.command, None)
    known[shown.command] = {"digest": shown.digest, "approvalId": shown.approval_id}
    _put(tx, agent_id, pattern, {"shown": dict(list(known.items())[-MAX_SHOWN:])})


def shown_files(tx: Tx, agent_id: str, command: str) -> list[Shown]:
    """What people were shown of a command, under whichever patterns."""
    rows = [entry.shown or {} for entry in listing(tx, agent_id) if entry.source == "person"]
    known = [row[command] for row in rows if command in row]
    return [Shown(command, each["digest"], each["approvalId"]) for each in known]


def disallow(tx: Tx, agent_id: str, pattern: str, *, by: str) -> None:
    """Take a pattern back."""
    where = sa.and_(table.c.agent_id == agent_id, table.c.pattern == pattern, table.c.source == "person")
    if tx.conn.execute(sa.delete(table).where(where)).rowcount == 0:
        raise NotFound(
            f"agent {agent_id} has no pattern {pattern[:80]!r} that a person added",
            hint="Patterns of the config are changed there (tools.exec.allowlist).",
        )
    _account(tx, "unpattern", agent_id, pattern, by)
    changes.emit(tx, "approval.disallowed", agent_id, {"agentId": agent_id, "pattern": pattern})


def patterns(tx: Tx, agent_id: str, configured: tuple[str, ...]) -> tuple[str, ...]:
    """What counts now: the config's, then those that people added."""
    added = (entry.pattern for entry in listing(tx, agent_id) if entry.source == "person")
    return tuple(dict.fromkeys((*configured, *added)))


def in_force(tx: Tx, agent_id: str, configured: tuple[str, ...]) -> list[AllowedCommand]:
    """What `patterns` gives, with the stamps; one of the config that was never used has none."""
    known = {entry.pattern: entry for entry in listing(tx, agent_id)}
    return [
        known.get(pattern) or _of_config(agent_id, pattern) for pattern in patterns(tx, agent_id, configured)
    ]


def listing(tx: Tx, agent_id: str | None = None) -> list[AllowedCommand]:
    query = sa.select(table).order_by(table.c.agent_id, table.c.pattern).limit(MAX_PATTERNS)
    if agent_id is not None:
        query = query.where(table.c.agent_id == agent_id)
    return [AllowedCommand(**row) for row in tx.conn.execute(query).mappings()]


def stamp(tx: Tx, agent_id: str, used: tuple[str, ...], command: str) -> None:
    """Note when and by which command each pattern was used, secrets masked."""
    for pattern in dict.fromkeys(used):
        values: dict[str, Any] = {"last_used_at": tx.now, "last_used_command": audit.masked(command)}
        if _find(tx, agent_id, pattern) is None:
            values |= {"source": "config", "created_by": None, "created_at": tx.now}
        _put(tx, agent_id, pattern, values)


def _of_config(agent_id: str, pattern: str) -> AllowedCommand:
    return AllowedCommand(
        agent_id=agent_id,
        pattern=pattern,
        source="config",
        created_by=None,
        created_at=None,
        last_used_at=None,
        last_used_command=None,
    )


def _put(tx: Tx, agent_id: str, pattern: str, values: dict[str, Any]) -> None:
    where = sa.and_(table.c.agent_id == agent_id, table.c.pattern == pattern)
    if tx.conn.execute(sa.update(table).where(where).values(**values)).rowcount == 0:
        tx.conn.execute(sa.insert(table), {"agent_id": agent_id, "pattern": pattern, **values})


def _find(tx: Tx, agent_id: str, pattern: str) -> AllowedCommand | None:
    where = sa.and_(table.c.agent_id == agent_id, table.c.pattern == pattern)
    row = tx.conn.execute(sa.select(table).where(where)).mappings().first()
    return None if row is None else AllowedCommand(**row)


def _found(tx: Tx, agent_id: str, pattern: str) -> AllowedCommand:
    found = _find(tx, agent_id, pattern)
    if found is None:
        raise AssertionError("it was just written")
    return found


def _account(tx: Tx, event: audit.Event, agent_id: str, pattern: str, by: str) -> None:
    call = audit.Call(agent_id=agent_id, tool="exec", text=pattern)
    audit.record(tx, event, call, rule="person", actor=by)
    # Who reads the trail need not be who may read the words; those stand in the account above.
    told = hashlib.sha256(pattern.encode()).hexdigest()[:16]
    trail.note(tx, f"approval.{event}", agent_id, by=by, pattern=f"sha256:{told}")
