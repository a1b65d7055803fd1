"""The live stream: server-sent events from the change feed, for as long as a reader stays."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from holdfast.clock import iso
from holdfast.errors import HoldfastError, Unauthorized
from holdfast.gateway.live_access import while_live
from holdfast.gateway.scope import EVERYWHERE, Ask, visible_changes
from holdfast.gateway.tokens import Principal, TokenBook
from holdfast.gateway.views import Views
from holdfast.gateway.wire import change_json, dumps
from holdfast.log import Change, Feed, Ping, Reset, Store, Threads, changes

log = logging.getLogger(__name__)


class Stream:
    """One per gateway; each reader is a cursor over the feed."""

    def __init__(self, store: Store, threads: Threads, feed: Feed, views: Views, book: TokenBook) -> None:
        self._store = store
        self._threads = threads
        self._feed = feed
        self._views = views
        self._book = book

    async def events(
        self, principal: Principal, after: int | None, ask: Ask = EVERYWHERE
    ) -> AsyncIterator[str]:
        """The text of the stream. Ends when the gateway stops, or the caller's token or login does.

        The place to begin at is fixed before `ready` is sent: whatever happens after it comes.
        """
        start = await self._threads(self._head, principal) if after is None else after
        id_ = start if after is None else None
        yield frame({"type": "stream.ready", "eventTs": self._now()}, event="ready", id_=id_)
        try:
            live = while_live(self._book, self._threads, principal, self._feed.follow(start))
            async with aclosing(live) as follower:
                async for event in follower:
                    text = await self._text(principal, ask, event)
                    if text:
                        yield text
        except Unauthorized as error:
            yield frame({"type": "stream.ended", "code": error.code, "eventTs": self._now()})
            return
        except HoldfastError as error:
            log.warning("a live stream was broken off: %s", error.message)
            return
        yield frame({"type": "stream.shutdown", "eventTs": self._now()})

    async def _text(self, principal: Principal, ask: Ask, event: Change | Ping | Reset) -> str:
        match event:
            case Ping(seq=seq):
                return frame({"type": "stream.ping", "eventTs": self._now()}, id_=seq)
            case Reset(seq=seq):
                return frame({"type": "stream.reset", "seq": seq, "eventTs": self._now()}, id_=seq)
            case Change():
                seen = await self._threads(self._look, principal, ask, event)
                return "".join(frame(change_json(*one), id_=event.seq) for one in seen)

    def _look(
        self, principal: Principal, ask: Ask, change: Change
    ) -> list[tuple[Change, Mapping[str, Any] | None]]:
        """The change with its data, or nothing: what may be seen is decided as things stand now."""
        with self._store.read(principal.reader) as tx:
            return visible_changes(tx, self._views, principal, ask, [change])

    def _head(self, principal: Principal) -> int:
        with self._store.read(principal.reader) as tx:
            return changes.bounds(tx)[1]

    def _now(self) -> str:
        return iso(self._store.clock.now())


def frame(body: Any, *, id_: int | None = None, event: str | None = None) -> str:
    lines = [] if id_ is None else [f"id: {id_}"]
    if event is not None:
        lines.append(f"event: {event}")
    return "\n".join([*lines, f"data: {dumps(body)}", "", ""])
