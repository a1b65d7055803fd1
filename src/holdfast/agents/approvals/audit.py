"""The account of every decision on a tool call: what was asked, by which rule it went, who decided.

Commands are kept here with their secrets masked; the exact text is only in the approval that a person reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import sqlalchemy as sa

from holdfast.agents.approvals.tables import tool_audit as table
from holdfast.clock import DAY_MS, Millis
from holdfast.log import Tx
from holdfast.logs import Redact, redactor
from holdfast.text import clean_text, clip

Event = Literal[
    "run", "block", "requested", "approved", "denied", "expired", "used", "pattern", "unpattern", "shared"
]
MAX_COMMAND: Final = 2_000
MAX_PAGE: Final = 500
BATCH: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The tool call that a decision is about; `text` is what a person would read of it."""

    agent_id: str
    tool: str
    text: str
    session_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    seq: int
    event: Event
    agent_id: str
    session_key: str | None
    tool: str
    command: str
    rule: str
    reason: str
    actor: str | None
    approval_id: str | None
    created_at: Millis


def record(
    tx: Tx,
    event: Event,
    call: Call,
    *,
    rule: str,
    reason: str = "",
    actor: str | None = None,
    approval_id: str | None = None,
) -> None:
    row = {
        "event": event,
        "agent_id": call.agent_id,
        "session_key": call.session_key,
        "tool": call.tool,
        "command": masked(call.text),
        "rule": rule,
        "reason": masked(reason),
        "actor": actor,
        "approval_id": approval_id,
        "created_at": tx.now,
    }
    tx.conn.execute(sa.insert(table), row)


def listing(
    tx: Tx, *, agent_ids: frozenset[str] | None = None, before: int | None = None, limit: int = 100
) -> list[Record]:
    """The newest first."""
    query = sa.select(table).order_by(table.c.seq.desc()).limit(max(1, min(limit, MAX_PAGE)))
    if agent_ids is not None:
        query = query.where(table.c.agent_id.in_(sorted(agent_ids)))
    if before is not None:
        query = query.where(table.c.seq < before)
    return [Record(**row) for row in tx.conn.execute(query).mappings()]


def prune(tx: Tx, days: int) -> int:
    """Remove a batch of what is older; how many rows went."""
    old = sa.select(table.c.seq).where(table.c.created_at < tx.now - days * DAY_MS).limit(BATCH)
    return tx.conn.execute(sa.delete(table).where(table.c.seq.in_(old))).rowcount


def masked(text: str) -> str:
    """A text as it may be kept: clean, secrets masked, of bounded length."""
    return clip(_redactor()(clean_text(text)), MAX_COMMAND)


@cache
def _redactor() -> Redact:
    return redactor()
