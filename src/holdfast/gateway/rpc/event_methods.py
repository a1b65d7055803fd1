"""`events.*` and `connect`: the change feed over the connection, and who it speaks for."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from holdfast.gateway.pages import MAX_NUMBER
from holdfast.gateway.rpc.methods import Methods
from holdfast.gateway.rpc.peer import Peer
from holdfast.gateway.scope import Ask
from holdfast.gateway.wire import Wire
from holdfast.log import changes

methods = Methods()


class NothingIn(Wire):
    """No parameters; a `token` that comes again with `connect` is not looked at."""


class SubscribeIn(Wire):
    """As `GET /api/stream`: with `sinceSeq`, what was missed comes first."""

    since_seq: Annotated[int, Field(ge=0, le=MAX_NUMBER)] | None = None
    space_id: Annotated[str, Field(max_length=256)] | None = None
    allowed_space_ids: Annotated[str, Field(max_length=65_536)] | None = None


class UnsubscribeIn(Wire):
    subscription_id: Annotated[str, Field(min_length=1, max_length=64)]


@methods.add("connect", NothingIn)
async def connect(peer: Peer, sent: NothingIn) -> dict[str, Any]:
    return peer.told()


@methods.add("events.subscribe", SubscribeIn)
async def subscribe(peer: Peer, sent: SubscribeIn) -> dict[str, Any]:
    """The place to begin at is fixed before the answer: whatever happens after it comes."""
    ask = Ask(sent.space_id, sent.allowed_space_ids)

    def look() -> int:
        with peer.here.read_as(peer.caller) as tx:
            ask.view(tx, peer.caller)
            return changes.bounds(tx)[1]

    head = await peer.here.hold.threads(look)
    after = head if sent.since_seq is None else sent.since_seq
    return {"subscriptionId": peer.subscribe(ask, after), "seq": after}


@methods.add("events.unsubscribe", UnsubscribeIn)
async def unsubscribe(peer: Peer, sent: UnsubscribeIn) -> dict[str, Any]:
    return {"subscriptionId": sent.subscription_id, "unsubscribed": peer.unsubscribe(sent.subscription_id)}
