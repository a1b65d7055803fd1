"""The MCP server on stdio: over the gateway that runs for this home, else over the home itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
import httpx2
from anyio.abc import TaskGroup
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.runner import serve_dual_era_loop
from mcp.server.stdio import stdio_server
from mcp_types import PROTOCOL_VERSION_META_KEY, JSONRPCNotification, JSONRPCRequest

from holdfast.errors import Unavailable
from holdfast.mcp_server.api import Answer, Query, Remote, remote_client
from holdfast.mcp_server.server import Handlers, HoldfastServer, told_of_changes

if TYPE_CHECKING:
    from fastapi import FastAPI

    from holdfast.gateway.mcp_door import Inside
    from holdfast.runtime import Holdfast

IDLE_SECONDS: Final = 10.0
"""A home that nobody asked for so long is closed, so that a gateway can have its index."""
_AGAIN_SECONDS: Final = 5.0


class HomeApi:
    """The interface of a home, wherever it is to be had at the moment of a call.

    `locate` says where its gateway listens, None if none runs; `open_home` opens it here. `token` limits
    what is read and written to what that token may, in either case; without one it is the owner's.
    """

    def __init__(
        self, locate: Callable[[], str | None], open_home: Callable[[], Holdfast], token: str | None
    ) -> None:
        self._locate = locate
        self._open_home = open_home
        self._token = token
        self._clients: dict[str, httpx2.AsyncClient] = {}
        self._lock = anyio.Lock()
        self._hold: Holdfast | None = None
        self._app: FastAPI | None = None
        self._busy = 0
        self._used = 0.0

    async def call(
        self, method: str, path: str, query: Query | None = None, body: Mapping[str, Any] | None = None
    ) -> Answer:
        url = self._locate()
        if url is not None:
            try:
                return await Remote(self._client(url)).call(method, path, query, body)
            except Unavailable as error:
                if not isinstance(error.__cause__, httpx2.ConnectError) or self._locate() is not None:
                    raise
        self._busy += 1
        try:
            return await (await self._inside()).call(method, path, query, body)
        finally:
            self._busy -= 1
            self._used = anyio.current_time()

    async def changes(self) -> AsyncIterator[Mapping[str, Any]]:
        """Of a running gateway; while none runs, nobody is told."""
        while True:
            url = self._locate()
            if url is not None:
                with suppress(httpx2.HTTPError):
                    live = Remote(self._client(url)).changes()
                    async with aclosing(live) as found:  # type: ignore[type-var]
                        async for change in found:
                            yield change
            await anyio.sleep(_AGAIN_SECONDS)

    async def close_when_idle(self) -> None:
        while True:
            await anyio.sleep(IDLE_SECONDS / 2)
            if self._hold is not None and anyio.current_time() - self._used > IDLE_SECONDS:
                await self.close_home()

    async def close_home(self) -> None:
        async with self._lock:
            if self._busy or self._hold is None:
                return
            hold, app, self._hold, self._app = self._hold, self._app, None, None
            if app is not None:
                app.state.gateway.readers.close()
            await anyio.to_thread.run_sync(hold.close)

    async def aclose(self) -> None:
        await self.close_home()
        for client in self._clients.values():
            await client.aclose()

    def _client(self, url: str) -> httpx2.AsyncClient:
        if url not in self._clients:
            self._clients[url] = remote_client(url, self._token or "")
        return self._clients[url]

    async def _inside(self) -> Inside:
        """The routes of a gateway that listens nowhere and runs nothing."""
        from holdfast.gateway.app import create_app
        from holdfast.gateway.mcp_door import Inside
        from holdfast.gateway.tokens import TokenBook

        async with self._lock:
            if self._hold is None:
                self._hold = await anyio.to_thread.run_sync(self._open_home)
                self._app = create_app(self._hold)
            assert self._app is not None
            # Not the gateway's own book: to that whatever stands in the environment is the owner's.
            book = TokenBook(self._hold.store, [self._hold.home.admin_token()])
            caller = await anyio.to_thread.run_sync(book.principal, self._token or "")
            return Inside(self._app, caller)


async def serve(api: HomeApi) -> None:
    """Answer on stdin and stdout until stdin ends."""
    server = Handlers(lambda _: api).server()
    try:
        async with stdio_server() as (incoming, outgoing), anyio.create_task_group() as group:
            group.start_soon(api.close_when_idle)
            server.middleware.append(_Telling(api, group))
            await _both_eras(server, incoming, outgoing)
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await api.aclose()


async def _both_eras(server: HoldfastServer, incoming: Any, outgoing: Any) -> None:
    """Serve a client that changes its mind: some ask in the newer way, shake hands when they had to wait, and
    then go on in the newer way, all on one pipe. Each era has a loop of its own."""
    newer, to_newer = _pipe()
    older, to_older = _pipe()
    shared = _Shared(outgoing)

    async def sort() -> None:
        async with to_newer, to_older:
            async for item in incoming:
                for loop in _loops_for(item, to_newer, to_older):
                    await loop.send(item)

    async def loop(stream: Any) -> None:
        options = server.create_initialization_options()
        await serve_dual_era_loop(server, stream, shared, lifespan_state={}, init_options=options)

    async with incoming, outgoing, anyio.create_task_group() as group:
        group.start_soon(sort)
        group.start_soon(loop, newer)
        group.start_soon(loop, older)


def _pipe() -> tuple[Any, Any]:
    send, receive = anyio.create_memory_object_stream[Any]()
    return receive, send


def _loops_for(item: Any, newer: Any, older: Any) -> tuple[Any, ...]:
    """Which loop a message is for: a request says so itself, an answer is to the older, the rest to both."""
    message = getattr(item, "message", None)
    if isinstance(message, JSONRPCRequest):
        meta = (message.params or {}).get("_meta") or {}
        return (newer,) if PROTOCOL_VERSION_META_KEY in meta and message.method != "initialize" else (older,)
    if isinstance(message, JSONRPCNotification) and message.method != "notifications/initialized":
        return (newer, older)
    return (older,)


class _Shared:
    """A stream that two loops write to; neither closes it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def send(self, item: Any, /) -> None:
        await self._stream.send(item)

    async def aclose(self) -> None:
        return None

    async def __aenter__(self) -> _Shared:
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None


class _Telling:
    """Begins to tell a client of the older era what changed, once it has said that it is ready."""

    def __init__(self, api: HomeApi, group: TaskGroup) -> None:
        self._api = api
        self._group = group
        self._begun = False

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method == "notifications/initialized" and not self._begun:
            self._begun = True
            self._group.start_soon(self._tell, ctx)
        return result

    async def _tell(self, ctx: ServerRequestContext[Any, Any]) -> None:
        async def tell() -> None:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                await ctx.session.send_resource_list_changed()

        await told_of_changes(self._api, tell)
