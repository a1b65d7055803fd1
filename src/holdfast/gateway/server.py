"""Serving: uvicorn around the app, stopped so that nothing accepted is lost."""

from __future__ import annotations

import logging
import signal
import socket
from functools import partial
from types import FrameType
from typing import Final

import uvicorn

from holdfast import logs
from holdfast.errors import Unavailable
from holdfast.gateway.app import create_app
from holdfast.gateway.head_limits import NOT_SNIFFED, HeadLimits
from holdfast.gateway.settling import Settling
from holdfast.runtime import Holdfast

BACKLOG: Final = 2048
KEPT_SECONDS: Final = 75  # longer than clients keep idle connections, so that none is closed as it is used


class _Server(uvicorn.Server):
    """On a signal, live streams are told to end first; uvicorn then waits for what still answers.

    The signal is not raised again afterwards, as uvicorn would: a stop that was asked for is no failure.
    """

    def __init__(self, config: uvicorn.Config, hold_app: object) -> None:
        super().__init__(config)
        self._app = hold_app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        services = self._app.state.gateway.services  # type: ignore[attr-defined]
        if services is not None:
            services.begin_stop()
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


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


def server_for(hold: Holdfast) -> uvicorn.Server:
    """The server as `serve` runs it, for those who run it themselves."""
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
    return _Server(config, app)


def serve(hold: Holdfast, sock: socket.socket) -> None:
    """Serve until a signal; returns when all is written and closed."""
    logs.configure(hold.settings.logging, hold.home)
    unsubscribe = hold.config.subscribe(lambda config: logs.configure(config.logging, hold.home))
    server = server_for(hold)
    settling = Settling()
    settling.begin()
    try:
        server.run(sockets=[sock])
    finally:
        settling.end()
        unsubscribe()
        logs.close()
    if not server.started:
        raise Unavailable("the gateway could not start; its log says why", code="start_failed")
