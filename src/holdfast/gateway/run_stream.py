"""A run's events for a reader far away: with signs of life between, to the end of the run or the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from holdfast.agents.loop import RunEvent, RunStatus
from holdfast.clock import iso
from holdfast.errors import Unauthorized
from holdfast.gateway.asking import serving
from holdfast.gateway.context import Gateway
from holdfast.gateway.stream import frame, while_live
from holdfast.gateway.tokens import Principal

PING = ": ping\n\n"


async def paced(
    events: AsyncGenerator[RunEvent], seconds: float, stopping: asyncio.Event | None = None
) -> AsyncGenerator[RunEvent | None]:
    """Each event as it comes, None where nothing came for so long; ends with the events, or the stop."""

    async def step() -> RunEvent | None:
        return await anext(events, None)

    stop = asyncio.ensure_future((stopping or asyncio.Event()).wait())
    following: asyncio.Task[RunEvent | None] | None = None
    try:
        while True:
            following = following or asyncio.create_task(step())
            await asyncio.wait({following, stop}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                event, following = following.result(), None
                if event is None:
                    return
                yield event
            elif stop.done():
                return
            else:
                yield None
    finally:
        waiting = [task for task in (stop, following) if task is not None]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await events.aclose()


def live_events(here: Gateway, caller: Principal, run_id: str) -> AsyncGenerator[RunEvent | None]:
    """A run's events and signs of life, for as long as the gateway serves and the caller may see them."""
    ping = here.hold.settings.gateway.stream.ping_seconds
    events = paced(here.hold.runs.subscribe(run_id), ping, serving(here).stopping)
    return while_live(here.book, here.hold.threads, caller, events)


async def sse(here: Gateway, caller: Principal, run_id: str, after: int) -> AsyncIterator[str]:
    """The text of an event stream. What was said before is told first, its deltas joined.

    A delta that stands for several, some of them told before the reader broke off, has `joined: true`: it
    takes the place of what the reader has of that message.
    """
    last = 0
    try:
        async with aclosing(live_events(here, caller, run_id)) as events:
            async for event in events:
                if event is None:
                    yield PING
                    continue
                if event.seq > after:
                    yield frame(_told(event, last, after), id_=event.seq)
                last = event.seq
                if event.final:
                    return
    except Unauthorized as error:
        yield frame({"type": "stream.ended", "code": error.code, "eventTs": iso(here.hold.clock.now())})
        return
    yield frame({"type": "stream.shutdown", "eventTs": iso(here.hold.clock.now())})


def _told(event: RunEvent, last: int, after: int) -> dict[str, Any]:
    overlaps = event.passing and "delta" in event.data and last < after < event.seq
    return event.json() | ({"joined": True} if overlaps else {})


async def ended(here: Gateway, run_id: str, seconds: float) -> RunStatus:
    """The run once it has ended; as it stands when the time is up or the gateway stops."""
    stop = asyncio.ensure_future(serving(here).stopping.wait())
    waiting = asyncio.ensure_future(here.hold.runs.wait(run_id, seconds))
    try:
        await asyncio.wait({stop, waiting}, return_when=asyncio.FIRST_COMPLETED)
        return waiting.result() if waiting.done() else await here.hold.runs.status(run_id)
    finally:
        stop.cancel()
        waiting.cancel()
        await asyncio.gather(stop, waiting, return_exceptions=True)
