"""How channels, deliveries and pairings are shown: on the wire, on the command line."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from holdfast.channels import arrivals, marks, pairing, web
from holdfast.channels.connecting import Connections
from holdfast.channels.pairing import Pairing
from holdfast.clock import iso
from holdfast.config.channels import WEB, ChannelConfig
from holdfast.log import Tx
from holdfast.log.outbox import Delivery
from holdfast.log.tables import outbox as table

MOST_COUNTED: Final = 1_000


def channel_json(tx: Tx, name: str, config: ChannelConfig, connections: Connections) -> dict[str, Any]:
    """One channel as it stands; a count stops at a thousand."""
    adapter = connections.adapter(name)
    state = "disabled" if not config.enabled else "connected" if adapter is not None else "unconnected"
    return {
        "name": name,
        "state": state,
        "adapter": adapter,
        "streaming": config.streaming,
        "dmPolicy": config.dm_policy,
        "groupPolicy": config.group_policy,
        "accounts": sorted(config.accounts),
        "lastInboundAt": _iso(web.last_inbound(tx) if name == WEB else arrivals.last(tx, name)),
        "lastOutboundAt": _iso(marks.last_sent(tx, name)),
        "pendingDeliveries": pending(tx, name),
        "waitingPairings": len(pairing.listing(tx, channel=name)),
    }


def pending(tx: Tx, channel: str) -> int:
    waiting = table.c.status == sa.literal_column("'pending'"), table.c.kind == channel
    some = sa.select(table.c.id).where(*waiting).limit(MOST_COUNTED)
    return int(tx.conn.execute(sa.select(sa.func.count()).select_from(some.subquery())).scalar() or 0)


def delivery_json(delivery: Delivery) -> dict[str, Any]:
    """The state of a delivery; not its words, which are in the log."""
    return {
        "id": delivery.id,
        "key": delivery.key,
        "channel": delivery.kind,
        "target": delivery.target,
        "status": delivery.status.value,
        "attempts": delivery.attempts,
        "error": delivery.error,
        "receipt": delivery.receipt,
        "turnId": delivery.payload.get("turnId"),
        "createdAt": iso(delivery.created_at),
        "updatedAt": iso(delivery.updated_at),
        "deliveredAt": _iso(delivery.delivered_at),
    }


def pairing_json(pair: Pairing) -> dict[str, Any]:
    return {
        "channel": pair.channel,
        "sender": pair.sender,
        "label": pair.label,
        "surface": pair.surface,
        "code": pair.code or None,
        "status": pair.status.value,
        "owner": pair.owner,
        "createdAt": iso(pair.created_at),
        "expiresAt": iso(pair.expires_at),
        "decidedAt": _iso(pair.decided_at),
    }


def _iso(at: int | None) -> str | None:
    return None if at is None else iso(at)
