"""The messages that came in, by the channels' own ids: what was here before is not seen to again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from holdfast.channels.inbound import Inbound, State, Verdict
from holdfast.channels.tables import channel_messages as table
from holdfast.clock import DAY_MS
from holdfast.errors import Busy
from holdfast.log import Tx

MINUTE: Final = 60_000
KEPT_MS: Final = 30 * DAY_MS


@dataclass(frozen=True, slots=True)
class Received:
    """What became of a message. `duplicate`: it was here before, and nothing was done again."""

    state: State
    reason: str
    run_id: str | None = None
    duplicate: bool = False


def find(tx: Tx, message: Inbound) -> Received | None:
    """What became of a message that was here before."""
    row = tx.conn.execute(sa.select(table).where(table.c.key == message.key)).mappings().first()
    return None if row is None else Received(row["state"], row["reason"], row["run_id"], duplicate=True)


def record(tx: Tx, message: Inbound, verdict: Verdict, run_id: str | None) -> None:
    values = {
        "key": message.key,
        "channel": message.surface.channel,
        "state": verdict.state,
        "reason": verdict.reason,
        "run_id": run_id,
        "received_at": tx.now,
    }
    insert = postgresql.insert(table) if tx.postgres else sqlite.insert(table)
    tx.conn.execute(insert.values(values).on_conflict_do_nothing(index_elements=["key"]))


def check_pace(tx: Tx, channel: str, most: int) -> None:
    recent = table.c.channel == channel, table.c.received_at > tx.now - MINUTE
    some = sa.select(table.c.key).where(*recent).limit(most).subquery()
    if (tx.conn.execute(sa.select(sa.func.count()).select_from(some)).scalar() or 0) >= most:
        raise Busy(
            f"channel {channel} takes {most} messages a minute",
            code="channel_busy",
            hint="Send it again later.",
        )


def last(tx: Tx, channel: str) -> int | None:
    newest = sa.select(sa.func.max(table.c.received_at)).where(table.c.channel == channel)
    return tx.conn.execute(newest).scalar()


def prune(tx: Tx, *, limit: int = 2_000) -> int:
    old = sa.select(table.c.key).where(table.c.received_at < tx.now - KEPT_MS).limit(limit)
    return tx.conn.execute(sa.delete(table).where(table.c.key.in_(old))).rowcount
