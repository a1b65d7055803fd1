"""The replies that are sent while they are written: one task for each, on the loop that turns run on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from holdfast.agents.loop import Hub
from holdfast.channels.blocks import Blocks
from holdfast.channels.connecting import Connected
from holdfast.channels.following import Attempt, Silent
from holdfast.channels.previews import Previews
from holdfast.channels.surface import Surface
from holdfast.errors import HoldfastError
from holdfast.log import Store, Threads

log = logging.getLogger(__name__)
TYPING_SECONDS: Final = 4.0


class Streams:
    """The replies that are being sent while they are written, in this process."""

    def __init__(self, store: Store, threads: Threads, hub: Callable[[], Hub]) -> None:
        self._store = store
        self._threads = threads
        self._hub = hub
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self) -> None:
        """From now on follow what runs; called on the loop that turns run on."""
        self._loop = asyncio.get_running_loop()

    def follow(self, attempt: Attempt, connected: Connected) -> None:
        """Begin, from any thread. Where no loop serves, the whole reply is delivered with its commit."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody follows any more
                self._loop.call_soon_threadsafe(self._start, attempt, connected)

    async def aclose(self) -> None:
        tasks, self._loop = tuple(self._tasks), None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, attempt: Attempt, connected: Connected) -> None:
        task = asyncio.create_task(self._run(attempt, connected), name=f"stream {attempt.turn_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, attempt: Attempt, connected: Connected) -> None:
        kind = Silent if not connected.streams else Previews if connected.previews else Blocks
        stream = kind(self._store, self._threads, attempt, connected)
        typing = asyncio.create_task(_typing(connected, Surface.parse(attempt.to.target)))
        try:
            await stream.run(self._hub())
        except HoldfastError as error:
            log.warning("the stream of turn %s ended early: %s", attempt.turn_id, error.message)
        finally:
            typing.cancel()
            await asyncio.gather(typing, return_exceptions=True)


async def _typing(connected: Connected, surface: Surface) -> None:
    """Show that an answer is being written for as long as one is. Nobody waits for that to work."""
    while connected.channel.abilities.types:
        with contextlib.suppress(HoldfastError):
            await connected.channel.typing(surface)
        await asyncio.sleep(TYPING_SECONDS)
