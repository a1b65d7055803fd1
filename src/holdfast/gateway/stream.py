"""The live stream: server-sent events from the change feed, for as long as a reader stays."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final, NoReturn, TypeVar

from holdfast.clock import iso
from holdfast.errors import HoldfastError, Unauthorized
from holdfast.gateway.contract import dumps
from holdfast.gateway.scope import EVERYWHERE, Ask, Views, visible_changes
from holdfast.gateway.tokens import Principal, TokenBook
from holdfast.gateway.wire import change_out
from holdfast.log import Change, Feed, Ping, Reset, Store, Threads, changes
from holdfast.log.threads import ringing

T = TypeVar("T")

_NO_MORE: Final[Any] = object()


async def require_live(book: TokenBook, threads: Threads, caller: Principal) -> None:
    """Nothing more for a caller whose token was revoked or has expired, or whose login has ended."""
    if book.is_warm:
        book.require_live(caller)
    else:
        await threads(book.require_live, caller)


async def until_ended(book: TokenBook, threads: Threads, caller: Principal) -> NoReturn:
    """Wait for the end of a caller's access, and raise it."""
    bell = asyncio.Event()
    unsubscribe = book.subscribe(ringing(bell.set))
    try:
        while True:
            bell.clear()
            await require_live(book, threads, caller)
            await bell.wait()
    finally:
        unsubscribe()


async def while_live(
    book: TokenBook, threads: Threads, caller: Principal, events: AsyncGenerator[T]
) -> AsyncGenerator[T]:
    """Each event as it comes; `Unauthorized` as soon as the caller's access ends, event or none."""
    ending = asyncio.ensure_future(until_ended(book, threads, caller))
    following: asyncio.Future[T] | None = None
    try:
        while True:
            following = asyncio.ensure_future(anext(events, _NO_MORE))
            await asyncio.wait({following, ending}, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                ending.result()
            event = following.result()
            if event is _NO_MORE:
                return
            await require_live(book, threads, caller)
            yield event
    finally:
        open_ = [task for task in (ending, following) if task is not None]
        for task in open_:
            task.cancel()
        await asyncio.gather(*open_, return_exceptions=True)
        await events.aclose()


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
                return "".join(frame(change_out(*one), id_=event.seq) for one in seen)

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
