"""A gate that lets few in at once and turns away who would wait too long."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress

from holdfast.errors import Busy


class Gate:
    """Places are given in the order of asking; how many there are is read each time, so it may change."""

    def __init__(self, places: Callable[[], int], wait_ms: Callable[[], int]) -> None:
        self._places = places
        self._wait_ms = wait_ms
        self._lock = threading.Lock()
        self._inside = 0
        self._waiting: deque[Future[None]] = deque()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Inside for as long as the block runs; `Busy` when no place came free in time."""
        ticket = self._ask()
        try:
            ticket.result(self._wait_ms() / 1000)
        except TimeoutError:
            self._give_up(ticket)
            raise _busy() from None
        try:
            yield
        finally:
            self._leave()

    @asynccontextmanager
    async def entering(self) -> AsyncIterator[None]:
        """The same for asynchronous code: waiting takes no thread."""
        ticket = self._ask()
        try:
            if not ticket.done():
                await asyncio.wait_for(asyncio.wrap_future(ticket), self._wait_ms() / 1000)
        except (TimeoutError, asyncio.CancelledError) as error:
            self._give_up(ticket)
            if isinstance(error, TimeoutError):
                raise _busy() from None
            raise
        try:
            yield
        finally:
            self._leave()

    def _ask(self) -> Future[None]:
        ticket: Future[None] = Future()
        with self._lock:
            self._waiting.append(ticket)
        self._admit()
        return ticket

    def _give_up(self, ticket: Future[None]) -> None:
        """Stop waiting; a place that was given in the same moment is handed on."""
        with self._lock:
            waited = ticket in self._waiting
            if waited:
                self._waiting.remove(ticket)
        if not waited:
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._inside -= 1
        self._admit()

    def _admit(self) -> None:
        admitted: list[Future[None]] = []
        with self._lock:
            while self._waiting and self._inside < self._places():
                self._inside += 1
                admitted.append(self._waiting.popleft())
        for ticket in admitted:
            # Someone who gave up in this very moment has cancelled it, and hands the place on himself.
            with suppress(Exception):
                ticket.set_result(None)


def _busy() -> Busy:
    return Busy(
        "too many searches run at once", code="search_busy", hint="Try again in a moment, or type slower."
    )
