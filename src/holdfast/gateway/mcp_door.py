"""`/mcp` in the gateway: streamable HTTP behind the gateway's own tokens, and what clients look for before.

Nothing is kept of a client between two requests, in either era: a gateway that was restarted goes on with the
clients of the one before.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import Forbidden, HoldfastError, Unavailable
from holdfast.gateway import problems
from holdfast.gateway.context import Here
from holdfast.gateway.contract import foreign
from holdfast.gateway.guard import MCP, SAFE, WELL_KNOWN, base_url, same_origin
from holdfast.gateway.tokens import Principal
from holdfast.gateway.tokens import Scope as Allowed
from holdfast.mcp_server.api import Answer, Query, answer_of, as_bytes, encoded

if TYPE_CHECKING:
    from fastapi import FastAPI
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from holdfast.gateway.context import Gateway
    from holdfast.mcp_server.server import Handlers

log = logging.getLogger(__name__)
router = APIRouter(tags=["mcp"])
MISSING: Final = "pip install 'holdfast[mcp]', then start the gateway again."
_SESSION: Final = b"mcp-session-id"
_LIST_CHANGED: Final = {"jsonrpc": "2.0", "method": "notifications/resources/list_changed"}


@router.get(WELL_KNOWN, include_in_schema=True)
@router.get(f"{WELL_KNOWN}/mcp", include_in_schema=True)
async def resource_metadata(here: Here, request: Request) -> Response:
    """What a client of `/mcp` needs to know before it logs in (RFC 9728): with a token of the home's own."""
    return foreign(
        {
            "resource": f"{base_url(request.scope, here.hold.settings.gateway.public_url)}{MCP}",
            "resource_name": "Holdfast",
            "bearer_methods_supported": ["header"],
            "scopes_supported": ["read", "write", "admin"],
        }
    )


class Door:
    """Serves `/mcp`. The SDK is loaded, and its task begun, when the first client knocks."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._lock = asyncio.Lock()
        self._manager: StreamableHTTPSessionManager | None = None
        self._handlers: Handlers | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def route(self) -> Route:
        return Route(MCP, endpoint=_Endpoint(self), methods=["GET", "POST"])

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        gateway: Gateway = self._app.state.gateway
        headers = dict(scope["headers"])
        try:
            origin = headers.get(b"origin", b"").decode("latin-1")
            if origin and not same_origin(scope) and origin not in gateway.hold.settings.gateway.cors_origins:
                raise Forbidden("pages of this origin may not call", code="cross_origin")
            manager = await self._opened(gateway)
            if scope["method"] != "POST":
                await self._listening(scope, headers)(scope, receive, send)
                return
        except HoldfastError as error:
            await problems.of(error)(scope, receive, send)
            return
        # Who hangs up in the middle of a request is owed no answer.
        with suppress(ClientDisconnect):
            await manager.handle_request(scope, receive, send if _SESSION in headers else _named(send))

    def _listening(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Response:
        """What a client of the older era listens to. It needs no session: whose token it is says it all."""
        if scope["method"] != "GET" or b"text/event-stream" not in headers.get(b"accept", b""):
            raise HTTPException(405)
        told = self._told(Inside(self._app, scope["state"]["principal"]))
        unbuffered = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(told, media_type="text/event-stream", headers=unbuffered)

    async def _told(self, api: Inside) -> AsyncIterator[str]:
        from holdfast.mcp_server.server import list_changes

        async with aclosing(list_changes(api)) as changes:  # type: ignore[type-var]
            async for changed in changes:
                yield f"data: {json.dumps(_LIST_CHANGED)}\n\n" if changed else ": listening\n\n"

    async def _opened(self, gateway: Gateway) -> StreamableHTTPSessionManager:
        async with self._lock:
            if self._manager is not None:
                return self._manager
            self._handlers, manager = await gateway.hold.threads(self._made)
            began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._run(manager, gateway, began))
            await began
            self._manager = manager
            return manager

    def _made(self) -> tuple[Handlers, StreamableHTTPSessionManager]:
        try:
            from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

            from holdfast.mcp_server.server import Handlers
        except ImportError as error:
            raise Unavailable("MCP is not installed here", code="mcp_missing", hint=MISSING) from error

        def inside(ctx: Any) -> Inside:
            return Inside(self._app, ctx.request.state.principal)

        handlers = Handlers(inside)
        # The gate has checked size, token and origin already; no session is kept, so that none can be lost.
        manager = StreamableHTTPSessionManager(handlers.server(), stateless=True, json_response=False)
        return handlers, manager

    async def _run(
        self, manager: StreamableHTTPSessionManager, gateway: Gateway, began: asyncio.Future[None]
    ) -> None:
        """The SDK's own tasks are begun and ended in this one, until the gateway stops."""
        async with manager.run():
            began.set_result(None)
            services = gateway.services
            if services is not None:
                await services.stopping.wait()
                self.end_streams()
            await asyncio.Event().wait()

    def end_streams(self) -> None:
        if self._handlers is not None:
            self._handlers.close()

    async def close(self) -> None:
        """End what is open. A gateway that begins again begins this again."""
        task, self._task, self._manager = self._task, None, None
        self.end_streams()
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _named(send: Send) -> Send:
    """Gives a client a session's name: many listen only if they have one. Nothing is kept under it."""
    name = uuid4().hex.encode()

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            message = {**message, "headers": [*message["headers"], (_SESSION, name)]}
        await send(message)

    return sent


class _Endpoint:
    """An ASGI app as a route's endpoint."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._door.serve(scope, receive, send)


class Inside:
    """The routes of the gateway in this process, called as somebody whom its gate let in."""

    def __init__(self, app: FastAPI, caller: Principal) -> None:
        self._app = app
        self._caller = caller

    async def call(
        self, method: str, path: str, query: Query | None = None, body: Mapping[str, Any] | None = None
    ) -> Answer:
        if method not in SAFE:
            self._caller.require(Allowed.WRITE)
        status, headers, content = await self._answered(method, path, encoded(query), as_bytes(body))
        return answer_of(status, headers.get(b"x-next-cursor", b"").decode() or None, content)

    async def _answered(
        self, method: str, path: str, query: bytes, body: bytes
    ) -> tuple[int, dict[bytes, bytes], bytes]:
        headers: dict[bytes, bytes] = {}
        status, parts = 500, [b""]

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers.update(message["headers"])
            else:
                parts.append(message.get("body", b""))

        await _routes(self._app)(self._scope(method, path, query), receive, send)
        return status, headers, b"".join(parts)

    def _scope(self, method: str, path: str, query: bytes) -> dict[str, Any]:
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query,
            "headers": [(b"host", b"holdfast"), (b"content-type", b"application/json")],
            "client": None,
            "server": None,
            "app": self._app,
            "state": {"principal": self._caller},
        }

    async def changes(self) -> AsyncIterator[Mapping[str, Any]]:
        gateway: Gateway = self._app.state.gateway
        if gateway.stream is None:
            return
        async with aclosing(gateway.stream.events(self._caller, None)) as frames:  # type: ignore[type-var]
            async for frame in frames:
                for line in frame.splitlines():
                    if line.startswith("data: "):
                        yield json.loads(line.removeprefix("data: "))


def _routes(app: FastAPI) -> ASGIApp:
    """The routes with their errors turned into problems, behind the gate and what else stands before it."""
    found: ASGIApp | None = getattr(app.state, "routes", None)
    if found is None:
        from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
        from starlette.middleware.exceptions import ExceptionMiddleware

        handlers = {kind: handle for kind, handle in app.exception_handlers.items() if kind is not Exception}
        found = ExceptionMiddleware(AsyncExitStackMiddleware(app.router), handlers)
        app.state.routes = found
    return found
