"""Pages of other origins that the config names may call; their browsers ask first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
SENT: Final = (
    "Authorization",
    "Content-Type",
    "Last-Event-ID",
    "X-Clawboard-Token",
    "X-Holdfast-Token",
    "X-Idempotency-Key",
)
SHOWN: Final = ("Retry-After", "X-Next-Cursor")


class Cors:
    """Follows the config: without origins, as by default, no other page learns anything.

    A cookie is never taken from another origin: such a page brings a token of its own.
    """

    def __init__(self, app: ASGIApp, origins: Callable[[], Sequence[str]]) -> None:
        self.app = app
        self._origins = origins
        self._made: tuple[tuple[str, ...], CORSMiddleware] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origins = tuple(self._origins())
        serve = self._middleware(origins) if origins and scope["type"] == "http" else self.app
        await serve(scope, receive, send)

    def _middleware(self, origins: tuple[str, ...]) -> CORSMiddleware:
        if self._made is None or self._made[0] != origins:
            made = CORSMiddleware(
                self.app,
                allow_origins=origins,
                allow_methods=METHODS,
                allow_headers=SENT,
                expose_headers=SHOWN,
            )
            self._made = origins, made
        return self._made[1]
