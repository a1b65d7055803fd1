"""The live stream: server-sent events from the change feed, for as long as a reader stays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from holdfast.clock import iso
from holdfast.gateway.tokens import Principal
from holdfast.gateway.views import Views, may_see
from holdfast.gateway.wire import change_json, dumps
from holdfast.log import Change, Feed, Ping, Reset, Store, Threads


class Stream:
    """One per gateway; each reader is a cursor over the feed."""

    def __init__(self, store: Store, threads: Threads, feed: Feed, views: Views) -> None:
        self._store = store
        self._threads = threads
        self._feed = feed
        self._views = views

    async def events(self, principal: Principal, after: int | None) -> AsyncIterator[str]:
        """The text of the stream. Ends by itself when the gateway stops."""
        yield frame({"type": "stream.ready", "eventTs": self._now()}, event="ready")
        async with aclosing(self._feed.follow(after)) as follower:
            async for event in follower:
                text = await self._text(principal, event)
                if text:
                    yield text
        yield frame({"type": "stream.shutdown", "eventTs": self._now()})

    async def _text(self, principal: Principal, event: Change | Ping | Reset) -> str:
        match event:
            case Ping():
                return frame({"type": "stream.ping", "eventTs": self._now()})
            case Reset(seq=seq):
                return frame({"type": "stream.reset", "seq": seq, "eventTs": self._now()}, id_=seq)
            case Change():
                data = await self._threads(self._look, event)
                if may_see(principal, event, data):
                    return frame(change_json(event, data), id_=event.seq)
                return ""

    def _look(self, change: Change) -> Any:
        with self._store.read() as tx:
            return self._views.of(tx, [change])[change.seq]

    def _now(self) -> str:
        return iso(self._store.clock.now())


def frame(body: Any, *, id_: int | None = None, event: str | None = None) -> str:
    lines = [] if id_ is None else [f"id: {id_}"]
    if event is not None:
        lines.append(f"event: {event}")
    return "\n".join([*lines, f"data: {dumps(body)}", "", ""])
