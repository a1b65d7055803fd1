"""What is sent unasked over a connection: the events of runs, and the changes of the feed."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from holdfast.gateway.asking import serving
from holdfast.gateway.context import Gateway
from holdfast.gateway.live_access import require_live
from holdfast.gateway.rpc.protocol import notice
from holdfast.gateway.scope import Ask, visible_changes
from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import change_json
from holdfast.log import Change, Ping, Reset

log = logging.getLogger(__name__)


async def run_notices(here: Gateway, caller: Principal, run_id: str) -> AsyncIterator[str]:
    """A run's events, what it has said so far first; one that is read too slowly loses deltas and is told."""
    async with aclosing(here.hold.runs.subscribe(run_id)) as events:
        async for event in events:
            await require_live(here.book, here.hold.threads, caller)
            yield notice("agent.event", event.json())


async def change_notices(
    here: Gateway, caller: Principal, ask: Ask, after: int, id_: str
) -> AsyncIterator[str]:
    """The changes that the caller may see; `events.reset` says to start over."""

    def look(change: Change) -> list[tuple[Change, Mapping[str, Any] | None]]:
        with here.read_as(caller) as tx:
            return visible_changes(tx, here.views, caller, ask, [change])

    async with aclosing(serving(here).feed.follow(after)) as follower:
        async for event in follower:
            await require_live(here.book, here.hold.threads, caller)
            if isinstance(event, Ping):
                continue
            if isinstance(event, Reset):
                yield notice("events.reset", {"subscriptionId": id_, "seq": event.seq})
                continue
            for one in await here.hold.threads(look, event):
                yield notice("events.change", {"subscriptionId": id_, **change_json(*one)})
