"""How far a turn's words were sent: written in the transaction that posts a block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from holdfast.channels.chunking import Fence
from holdfast.channels.records import channel_receipts as receipts
from holdfast.channels.records import channel_streams as table
from holdfast.channels.speech import Mark
from holdfast.log import Tx
from holdfast.log.tables import outbox


@dataclass(frozen=True, slots=True)
class Streamed:
    """A turn's stream: its mark, how many blocks were posted, and the message that previews stand in.

    `followed` is whether its words are sent while they are written.
    """

    turn_id: str
    mark: Mark = field(default_factory=Mark)
    blocks: int = 0
    preview: str | None = None
    followed: bool = False


def get(tx: Tx, turn_id: str) -> Streamed:
    row = tx.conn.execute(sa.select(table).where(table.c.turn_id == turn_id)).mappings().first()
    if row is None:
        return Streamed(turn_id)
    mark = Mark(row["said"], Fence.read(row["fence"]), row["closed"])
    return Streamed(turn_id, mark, row["blocks"], row["preview"], followed=True)


def save(tx: Tx, stream: Streamed) -> None:
    mark = stream.mark
    values: dict[str, Any] = {
        "turn_id": stream.turn_id,
        "said": mark.said,
        "fence": None if mark.fence is None else mark.fence.json(),
        "blocks": stream.blocks,
        "closed": mark.closed,
        "preview": stream.preview,
        "updated_at": tx.now,
    }
    _put(tx, table, values, ["turn_id"])


def sent(tx: Tx, outbox_id: str) -> int:
    """How many pieces of a delivery the service has taken."""
    query = sa.select(sa.func.count()).where(receipts.c.outbox_id == outbox_id)
    return int(tx.conn.execute(query).scalar() or 0)


def receipt(tx: Tx, outbox_id: str, piece: int, channel: str, message_id: str | None) -> None:
    values = {"outbox_id": outbox_id, "piece": piece, "channel": channel, "message_id": message_id}
    _put(tx, receipts, {**values, "sent_at": tx.now}, ["outbox_id", "piece"])


def is_ours(tx: Tx, channel: str, message_id: str) -> bool:
    """Whether a message of a channel is one that we sent."""
    where = receipts.c.channel == channel, receipts.c.message_id == message_id
    return tx.conn.execute(sa.select(receipts.c.piece).where(*where).limit(1)).first() is not None


def newest_on(tx: Tx, target: str) -> str | None:
    """The id of the last message that was sent to a surface."""
    sent_there = receipts.join(outbox, outbox.c.id == receipts.c.outbox_id)
    newest = (
        sa.select(receipts.c.message_id)
        .select_from(sent_there)
        .where(outbox.c.target == target, receipts.c.message_id.is_not(None))
        .order_by(receipts.c.sent_at.desc(), receipts.c.outbox_id.desc(), receipts.c.piece.desc())
    )
    return tx.conn.execute(newest.limit(1)).scalar()


def last_sent(tx: Tx, channel: str) -> int | None:
    return tx.conn.execute(
        sa.select(sa.func.max(receipts.c.sent_at)).where(receipts.c.channel == channel)
    ).scalar()


def prune(tx: Tx, before: int, *, limit: int = 2_000) -> int:
    """Forget what was sent before a moment."""
    old = sa.select(table.c.turn_id).where(table.c.updated_at < before).limit(limit)
    gone = tx.conn.execute(sa.delete(table).where(table.c.turn_id.in_(old))).rowcount
    aged = sa.select(receipts.c.outbox_id).where(receipts.c.sent_at < before).limit(limit)
    return gone + tx.conn.execute(sa.delete(receipts).where(receipts.c.outbox_id.in_(aged))).rowcount


def _put(tx: Tx, into: sa.Table, values: Mapping[str, Any], keys: list[str]) -> None:
    insert = postgresql.insert(into) if tx.postgres else sqlite.insert(into)
    rest = {name: value for name, value in values.items() if name not in keys}
    tx.conn.execute(insert.values(dict(values)).on_conflict_do_update(index_elements=keys, set_=rest))
