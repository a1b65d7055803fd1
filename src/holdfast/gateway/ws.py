"""`/ws`: where a WebSocket comes in, with its token in a header, as a cookie, or in its first message."""

from __future__ import annotations

from typing import Final, cast

from fastapi import APIRouter
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from holdfast.gateway.context import Gateway
from holdfast.gateway.page_sessions import COOKIE
from holdfast.gateway.rpc import Connection
from holdfast.gateway.tokens import Principal

PATH: Final = "/ws"
_TOKEN_HEADERS: Final = ("authorization", "x-holdfast-token", "x-clawboard-token")
_TRY_AGAIN: Final = 1013

router = APIRouter()


@router.websocket(PATH)
async def serve(socket: WebSocket) -> None:
    """JSON-RPC for a caller whom the guard knows."""
    gateway = cast("Gateway", socket.app.state.gateway)
    await _serve(gateway, socket, cast("Principal", socket.state.principal))


class FirstMessage:
    """Stands before the guard: browsers cannot set headers on a WebSocket, so one that shows no token at all
    may send it in its first message. Whatever else it shows is for the guard to judge."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self.app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        here = scope["type"] == "websocket" and scope["path"] == PATH and not scope.get("query_string")
        if here and not _shows_token(Headers(scope=scope)):
            await _serve(self._gateway, WebSocket(scope, receive, send), None)
            return
        await self.app(scope, receive, send)


def _shows_token(headers: Headers) -> bool:
    return any(name in headers for name in _TOKEN_HEADERS) or COOKIE in cookie_parser(
        headers.get("cookie", "")
    )


async def _serve(gateway: Gateway, socket: WebSocket, principal: Principal | None) -> None:
    services = gateway.services
    if services is None or services.stopping.is_set():
        await socket.close(_TRY_AGAIN, "stopping")
        return
    await Connection(gateway, socket, principal).serve(services.stopping)
