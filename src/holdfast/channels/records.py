"""What channels keep in the database: their tables, what came in, and which session a place is bound to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from holdfast.channels.inbound import Inbound, State, Verdict
from holdfast.channels.surface import Surface
from holdfast.clock import DAY_MS
from holdfast.errors import Busy
from holdfast.log import Tx, sessions
from holdfast.log.tables import Json, metadata

surface_bindings = sa.Table(
    "surface_bindings",
    metadata,
    sa.Column("surface", sa.Text, primary_key=True),
    sa.Column("session_key", sa.Text, nullable=False),
    sa.Column("bound_at", sa.BigInteger, nullable=False),
)

channel_messages = sa.Table(
    "channel_messages",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("run_id", sa.Text),
    sa.Column("received_at", sa.BigInteger, nullable=False),
)

channel_pairings = sa.Table(
    "channel_pairings",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("sender", sa.Text, nullable=False),
    sa.Column("label", sa.Text),
    sa.Column("surface", sa.Text, nullable=False),
    sa.Column("code", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("owner", sa.Boolean, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Column("decided_at", sa.BigInteger),
)

channel_streams = sa.Table(
    "channel_streams",
    metadata,
    sa.Column("turn_id", sa.Text, primary_key=True),
    sa.Column("said", sa.Text, nullable=False),
    sa.Column("fence", Json),
    sa.Column("blocks", sa.Integer, nullable=False),
    sa.Column("closed", sa.Boolean, nullable=False),
    sa.Column("preview", sa.Text),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)

channel_receipts = sa.Table(
    "channel_receipts",
    metadata,
    sa.Column("outbox_id", sa.Text, primary_key=True),
    sa.Column("piece", sa.Integer, primary_key=True),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("message_id", sa.Text),
    sa.Column("sent_at", sa.BigInteger, nullable=False),
)


MINUTE: Final = 60_000
KEPT_MS: Final = 30 * DAY_MS


@dataclass(frozen=True, slots=True)
class Received:
    """What became of a message. `duplicate`: it was here before, and nothing was done again."""

    state: State
    reason: str
    run_id: str | None = None
    duplicate: bool = False


def find_arrival(tx: Tx, message: Inbound) -> Received | None:
    """What became of a message that was here before."""
    row = (
        tx.conn.execute(sa.select(channel_messages).where(channel_messages.c.key == message.key))
        .mappings()
        .first()
    )
    return None if row is None else Received(row["state"], row["reason"], row["run_id"], duplicate=True)


def record_arrival(tx: Tx, message: Inbound, verdict: Verdict, run_id: str | None) -> None:
    values = {
        "key": message.key,
        "channel": message.surface.channel,
        "state": verdict.state,
        "reason": verdict.reason,
        "run_id": run_id,
        "received_at": tx.now,
    }
    insert = postgresql.insert(channel_messages) if tx.postgres else sqlite.insert(channel_messages)
    tx.conn.execute(insert.values(values).on_conflict_do_nothing(index_elements=["key"]))


def check_pace(tx: Tx, channel: str, most: int) -> None:
    recent = channel_messages.c.channel == channel, channel_messages.c.received_at > tx.now - MINUTE
    some = sa.select(channel_messages.c.key).where(*recent).limit(most).subquery()
    if (tx.conn.execute(sa.select(sa.func.count()).select_from(some)).scalar() or 0) >= most:
        raise Busy(
            f"channel {channel} takes {most} messages a minute",
            code="channel_busy",
            hint="Send it again later.",
        )


def last_arrival(tx: Tx, channel: str) -> int | None:
    newest = sa.select(sa.func.max(channel_messages.c.received_at)).where(
        channel_messages.c.channel == channel
    )
    return tx.conn.execute(newest).scalar()


def prune_arrivals(tx: Tx, *, limit: int = 2_000) -> int:
    old = (
        sa.select(channel_messages.c.key)
        .where(channel_messages.c.received_at < tx.now - KEPT_MS)
        .limit(limit)
    )
    return tx.conn.execute(sa.delete(channel_messages).where(channel_messages.c.key.in_(old))).rowcount


def bind_session(tx: Tx, surface: Surface, session_key: str) -> None:
    """Give a surface to a session; a surface has one at a time, so that the one before loses it."""
    values = {"surface": surface.address, "session_key": session_key, "bound_at": tx.now}
    insert = postgresql.insert(surface_bindings) if tx.postgres else sqlite.insert(surface_bindings)
    changed = {"session_key": session_key, "bound_at": tx.now}
    tx.conn.execute(insert.values(values).on_conflict_do_update(index_elements=["surface"], set_=changed))


def bound_session(tx: Tx, surface: Surface) -> str | None:
    """The session that has a surface, while that session is there."""
    query = sa.select(surface_bindings.c.session_key).where(surface_bindings.c.surface == surface.address)
    key: str | None = tx.conn.execute(query).scalar()
    return key if key is not None and sessions.active(tx, key) is not None else None


def release(tx: Tx, surface: Surface) -> None:
    tx.conn.execute(sa.delete(surface_bindings).where(surface_bindings.c.surface == surface.address))


def prune_bindings(tx: Tx, before: int, *, limit: int = 500) -> int:
    """Forget old bindings whose sessions are archived."""
    query = (
        sa.select(surface_bindings.c.surface, surface_bindings.c.session_key)
        .where(surface_bindings.c.bound_at < before)
        .limit(limit)
    )
    over = [row.surface for row in tx.conn.execute(query) if sessions.active(tx, row.session_key) is None]
    return (
        tx.conn.execute(sa.delete(surface_bindings).where(surface_bindings.c.surface.in_(over))).rowcount
        if over
        else 0
    )
