"""Serving: uvicorn around the app, stopped so that nothing accepted is lost."""

from __future__ import annotations

import socket
from types import FrameType

import uvicorn

from holdfast.errors import Unavailable
from holdfast.gateway.app import create_app
from holdfast.runtime import Holdfast


class _Server(uvicorn.Server):
    """On a signal, live streams are told to end first; uvicorn then waits for what still answers."""

    def __init__(self, config: uvicorn.Config, hold_app: object) -> None:
        super().__init__(config)
        self._app = hold_app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        services = self._app.state.gateway.services  # type: ignore[attr-defined]
        if services is not None:
            services.begin_stop()
        super().handle_exit(sig, frame)


def listen(host: str, port: int) -> socket.socket:
    """A bound socket, or a clear word on why there is none. Port 0 takes any free one."""
    try:
        info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(info[0], socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(info[4])
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            code="port_taken",
            hint="Another program uses it (a running Holdfast?): choose another with --port.",
        ) from error
    return sock


def serve(hold: Holdfast, sock: socket.socket) -> None:
    """Serve until a signal; returns when all is written and closed."""
    app = create_app(hold)
    grace = hold.settings.gateway.shutdown_grace_seconds
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=grace,
        limit_concurrency=hold.settings.gateway.limits.max_connections,
        server_header=False,
        lifespan="on",
    )
    _Server(config, app).run(sockets=[sock])
