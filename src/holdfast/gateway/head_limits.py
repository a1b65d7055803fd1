"""Time and size for the head of a request: who sends it a byte at a time, or without end, is hung up on.

uvicorn limits neither. The handshake of a WebSocket is such a head too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD: Final = 64 * 1024
NOT_SNIFFED: Final = ("X-Content-Type-Options", "nosniff")


class HeadLimits(HttpToolsProtocol):
    """One connection. A clock runs while a head is awaited that has begun, and from the first moment on."""

    def __init__(self, *args: Any, head_seconds: Callable[[], float], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._seconds = head_seconds
        self._clock: asyncio.TimerHandle | None = None
        self._in_head = True
        self._size = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._start()
            self._size += len(data)
        super().data_received(data)
        if self._size > MAX_HEAD:
            self._refuse("431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._start()

    def on_headers_complete(self) -> None:
        self._in_head, self._size = False, 0
        self._stop()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = True

    def _start(self) -> None:
        if self._clock is None:
            self._clock = self.loop.call_later(self._seconds(), self._refuse, "408 Request Timeout")

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _refuse(self, status: str) -> None:
        """In the middle of an answer to an earlier request there is nothing to say: then it just ends."""
        self._stop()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            lines = (f"HTTP/1.1 {status}", ": ".join(NOT_SNIFFED), "Content-Length: 0", "Connection: close")
            self.transport.write("\r\n".join([*lines, "", ""]).encode())
        self.transport.close()
