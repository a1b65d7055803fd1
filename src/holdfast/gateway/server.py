"""Serving: uvicorn around the app, stopped so that nothing accepted is lost."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import threading
import time
from functools import partial
from types import FrameType
from typing import Final

import uvicorn

from holdfast import logs
from holdfast.errors import Unavailable
from holdfast.gateway.bodies import NOT_SNIFFED, HeadLimits
from holdfast.runtime import Holdfast
from holdfast.services import Services

_MOST: Final = 3
_ALLOCATIONS: Final = 20_000
"""A search makes some ten thousand things that last until it is answered: looked through every 700, as Python
has it by itself, they cost a tenth of it, and none of them is garbage yet."""


class Settling:
    """After each of the first few full collections, all that survived it is taken as there to stay.

    Clients and rooms load at their first use, so that start-up has no sharp end. A full look at them all
    takes some quarter of a second, comes every few dozen turns, and finds nothing. What is taken as staying
    is still freed when nobody holds it; only a circle of such things would be kept for good.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._left = most

    def begin(self) -> None:
        gc.callbacks.append(self._collected)
        self._before = gc.get_threshold()
        gc.set_threshold(_ALLOCATIONS, *self._before[1:])

    def end(self) -> None:
        self._look_no_more()
        gc.set_threshold(*self._before)

    def _look_no_more(self) -> None:
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase != "stop" or info["generation"] < 2:
            return
        gc.freeze()
        self._left -= 1
        if self._left <= 0:
            self._look_no_more()


log = logging.getLogger(__name__)

BACKLOG: Final = 2048
FAILED: Final = 70  # as sysexits.h calls a fault of the program's own
GRACE_SECONDS: Final = 5.0
GOODBYE_SECONDS: Final = 1.5
KEPT_SECONDS: Final = 75  # longer than clients keep idle connections, so that none is closed as it is used


class _Server(uvicorn.Server):
    """On a signal, live streams are told to end first; uvicorn then waits for what still answers.

    The signal is not raised again afterwards, as uvicorn would: a stop that was asked for is no failure.
    """

    def __init__(self, config: uvicorn.Config, hold_app: object) -> None:
        super().__init__(config)
        self._app = hold_app
        self.failure: str | None = None

    @property
    def services(self) -> Services | None:
        found: Services | None = self._app.state.gateway.services  # type: ignore[attr-defined]
        return found

    def fail(self, reason: str) -> None:
        """Stop because a vital part does not work any more."""
        log.critical("the gateway ends: %s", reason)
        self.failure = reason
        if self.services is not None:
            self.services.begin_stop()
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.services is not None:
            self.services.begin_stop()
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """WebSockets say goodbye themselves: uvicorn would close them first, with a code of its own."""
        open_ones: set[asyncio.Task[None]] = self._app.state.gateway.sockets  # type: ignore[attr-defined]
        if open_ones:
            await asyncio.wait(open_ones, timeout=GOODBYE_SECONDS)
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, or a clear word on why there is none. Port 0 takes any free one.

    Who connects before the gateway serves waits for it instead of being turned away.
    """
    try:
        info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # Named as TCP, or asyncio leaves Nagle's algorithm on and every answer waits 40 ms.
        sock = socket.socket(info[0], socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(info[4])
        sock.listen(BACKLOG)
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            code="port_taken",
            hint="Another program uses it (a running Holdfast?): choose another with --port.",
        ) from error
    return sock


class Watchdog:
    """Ends the process when it cannot end itself: its loop stands still, or a failed gateway does not stop.

    On a thread of its own, for `serve` alone: who runs the server in their own program decides themselves.
    """

    def __init__(self, server: _Server, hold: Holdfast) -> None:
        self._server = server
        self._hold = hold
        self._over = threading.Event()
        self._failed_at: float | None = None

    def start(self) -> None:
        threading.Thread(target=self._watch, name="holdfast-watchdog", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            reason = self._reason(time.monotonic())
            if reason:
                log.critical("the process ends at once: %s", reason)
                logs.close()
                os._exit(FAILED)

    def _reason(self, now: float) -> str | None:
        options = self._hold.settings.gateway
        services, limit = self._server.services, options.health.exit_after_seconds
        if self._server.failure is not None:
            self._failed_at = self._failed_at or now
            late = now - self._failed_at > options.shutdown_grace_seconds + GRACE_SECONDS
            return f"{self._server.failure}, and it does not stop" if late else None
        stands = limit and services is not None and now - services.supervisor.looked > limit
        return f"its loop has stood still for {limit} seconds" if stands else None


def server_for(hold: Holdfast) -> _Server:
    """The server as `serve` runs it, for those who run it themselves."""
    from holdfast.gateway.app import create_app

    app = create_app(hold)
    options = hold.settings.gateway
    config = uvicorn.Config(
        app,
        http=partial(HeadLimits, head_seconds=lambda: hold.settings.gateway.limits.head_seconds),  # type: ignore[arg-type]
        headers=[NOT_SNIFFED],
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=options.shutdown_grace_seconds,
        limit_concurrency=options.limits.max_connections,
        timeout_keep_alive=KEPT_SECONDS,
        server_header=False,
        lifespan="on",
        proxy_headers=bool(options.auth.trusted_proxies),
        forwarded_allow_ips=list(options.auth.trusted_proxies),
    )
    # It would write URLs as they were sent, secrets in them too; `Measured` logs requests.
    logging.getLogger("uvicorn.access").disabled = True
    server = _Server(config, app)
    app.state.gateway.on_fatal = server.fail
    return server


def serve(hold: Holdfast, sock: socket.socket) -> None:
    """Serve until a signal; returns when all is written and closed."""
    logs.configure(hold.settings.logging, hold.home)
    unsubscribe = hold.config.subscribe(lambda config: logs.configure(config.logging, hold.home))
    server = server_for(hold)
    settling = Settling()
    settling.begin()
    watchdog = Watchdog(server, hold)
    watchdog.start()
    try:
        server.run(sockets=[sock])
    finally:
        watchdog.stop()
        settling.end()
        unsubscribe()
        logs.close()
    if server.failure is not None:
        raise Unavailable(
            f"the gateway ended: {server.failure}",
            code="part_failed",
            hint="Its log says why; start it again.",
        )
    if not server.started:
        raise Unavailable("the gateway could not start; its log says why", code="start_failed")
