"""Access that ends while something is open: streams and WebSockets learn of it at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final, NoReturn, TypeVar

from holdfast.gateway.tokens import Principal, TokenBook
from holdfast.log import Threads
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
