"""One WebSocket: its caller, the calls under way on it, and what is sent to it. All of it bounded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final, cast

from fastapi import APIRouter
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from holdfast import __version__
from holdfast.errors import Busy, HoldfastError, NotFound, TooLarge, Unauthorized
from holdfast.gateway.asking import serving
from holdfast.gateway.context import Gateway
from holdfast.gateway.page_sessions import COOKIE
from holdfast.gateway.rpc import protocol
from holdfast.gateway.rpc.methods import Method, methods
from holdfast.gateway.rpc.protocol import Call, Refused, notice
from holdfast.gateway.scope import Ask, visible_changes
from holdfast.gateway.stream import require_live, until_ended
from holdfast.gateway.tokens import HOW_TO_LOG_IN, Principal
from holdfast.gateway.wire import change_out
from holdfast.ids import uuid7
from holdfast.log import Change, Ping, Reset

log = logging.getLogger(__name__)


async def run_notices(here: Gateway, caller: Principal, run_id: str) -> AsyncIterator[str]:
    """A run's events, what it has said so far first; one that is read too slowly loses deltas and is told."""
    async with aclosing(here.hold.runs.subscribe(run_id)) as events:
        async for event in events:
            await require_live(here.book, here.hold.threads, caller)
            yield notice("agent.event", event.json())


async def change_notices(
    here: Gateway, caller: Principal, ask: Ask, after: int, id_: str
) -> AsyncIterator[str]:
    """The changes that the caller may see; `events.reset` says to start over."""

    def look(change: Change) -> list[tuple[Change, Mapping[str, Any] | None]]:
        with here.read_as(caller) as tx:
            return visible_changes(tx, here.views, caller, ask, [change])

    async with aclosing(serving(here).feed.follow(after)) as follower:
        async for event in follower:
            await require_live(here.book, here.hold.threads, caller)
            if isinstance(event, Ping):
                continue
            if isinstance(event, Reset):
                yield notice("events.reset", {"subscriptionId": id_, "seq": event.seq})
                continue
            for one in await here.hold.threads(look, event):
                yield notice("events.change", {"subscriptionId": id_, **change_out(*one)})


METHODS: Final[dict[str, Method]] = methods.table
CONNECT_SECONDS: float = 5.0
CLOSE_SECONDS: Final = 1.0
MAX_TRIES: Final = 3
MAX_CALLS: Final = 32
MAX_FOLLOWED: Final = 64
MAX_WAITING: Final = 256

GOING_AWAY: Final = 1001
NOT_TEXT: Final = 1003
POLICY: Final = 1008
INTERNAL: Final = 1011


class Closed(Exception):
    """The connection is to be closed, with this code and reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Connection:
    """Serves one peer. A slow reader slows what is sent to it, and nobody else."""

    def __init__(self, here: Gateway, socket: WebSocket, principal: Principal | None) -> None:
        self.here = here
        self._socket = socket
        self._principal = principal
        self._out: asyncio.Queue[str] = asyncio.Queue(MAX_WAITING)
        self._calls: set[asyncio.Task[None]] = set()
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connected = asyncio.Event()
        self._tries = 0

    async def serve(self, stopping: asyncio.Event) -> None:
        """Until the peer hangs up, the gateway stops, or the peer must be shown out."""
        await self._socket.accept()
        if self._principal is not None:
            self._connected.set()
        own = [
            asyncio.create_task(self._read()),
            asyncio.create_task(self._write()),
            asyncio.create_task(self._stop(stopping)),
            asyncio.create_task(self._watch_access()),
        ]
        code, reason = GOING_AWAY, ""
        try:
            done, _ = await asyncio.wait({*own, self._broken}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except Closed as closed:
            code, reason = closed.code, closed.reason
        except WebSocketDisconnect:
            return
        finally:
            await self._close(code, reason)
            await self._end([*own, *self._calls, *self._followed.values()])

    @property
    def caller(self) -> Principal:
        if self._principal is None:
            raise Unauthorized("no token was sent", code="no_token", hint='Call "connect" with one first.')
        return self._principal

    def told(self) -> dict[str, Any]:
        caller = self.caller
        return {
            "name": caller.name,
            "scope": caller.scope.name.lower(),
            "version": __version__,
            "methods": sorted(METHODS),
        }

    def follow_run(self, run_id: str) -> None:
        if run_id not in self._followed:
            self._follow(run_id, run_notices(self.here, self.caller, run_id))

    def unfollow_run(self, run_id: str) -> bool:
        return self._unfollow(run_id)

    def subscribe(self, ask: Ask, after: int) -> str:
        id_ = f"sub-{uuid7()}"
        self._follow(id_, change_notices(self.here, self.caller, ask, after, id_))
        return id_

    def unsubscribe(self, id_: str) -> bool:
        return id_.startswith("sub-") and self._unfollow(id_)

    async def _read(self) -> None:
        most = self.here.hold.settings.gateway.limits.body_bytes
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message.get("code", GOING_AWAY))
            text = message.get("text")
            if text is None:
                raise Closed(NOT_TEXT, "binary_frame")
            if len(text) > most or len(text.encode("utf-8", "replace")) > most:
                large = TooLarge(f"the message is larger than {most} bytes", hint="Split it.")
                await self._out.put(protocol.failure(None, large))
                continue
            await self._take(text)

    async def _take(self, text: str) -> None:
        """Begin one call; the next is read while it runs."""
        try:
            call = protocol.read(text)
        except Refused as refused:
            await self._out.put(protocol.failure(refused.id, refused.error, refused.code))
            return
        if self._principal is None:
            await self._connect(call)
        elif len(self._calls) >= MAX_CALLS:
            busy = Busy(f"{MAX_CALLS} calls are under way on this connection", hint="Wait for some of them.")
            await self._answer(call, protocol.failure(call.id, busy))
        else:
            task = asyncio.create_task(self._run(call))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)

    async def _connect(self, call: Call) -> None:
        """The first call of a peer that showed no token: it has a few tries, and little time."""
        token = call.params.get("token")
        if call.method != "connect" or not isinstance(token, str) or not token:
            missing = Unauthorized(
                "no token was sent", code="no_token", hint=f'Call "connect" with a token. {HOW_TO_LOG_IN}'
            )
            await self._out.put(protocol.failure(call.id, missing))
            return
        try:
            self._principal = await self.here.hold.threads(self.here.book.principal, token)
        except Unauthorized as error:
            self._tries += 1
            if self._tries >= MAX_TRIES:
                raise Closed(POLICY, error.code) from error
            await self._out.put(protocol.failure(call.id, error))
            return
        self._connected.set()
        await self._answer(call, protocol.result(call.id, self.told()))

    async def _run(self, call: Call) -> None:
        try:
            text = protocol.result(call.id, await self._called(call))
        except Unauthorized as error:
            self._break(Closed(POLICY, error.code))
            return
        except NotFound as error:
            code = protocol.NO_METHOD if error.code == "unknown_method" else None
            text = protocol.failure(call.id, error, code)
        except HoldfastError as error:
            text = protocol.failure(call.id, error)
        except Exception:
            # A boundary: a fault in one call is logged and told, and the others go on.
            log.exception("a call of %s failed", call.method[:80])
            fault = HoldfastError("Something in Holdfast failed; its log says what.", code="internal")
            text = protocol.failure(call.id, fault, protocol.INTERNAL)
        await self._answer(call, text)

    async def _called(self, call: Call) -> Any:
        await require_live(self.here.book, self.here.hold.threads, self.caller)
        method = METHODS.get(call.method)
        if method is None:
            raise NotFound(f"no method {call.method[:80]!r}", code="unknown_method")
        self.caller.require(method.scope)
        return await method.run(self, protocol.params_of(method.params, call.params))

    async def _answer(self, call: Call, text: str) -> None:
        if not call.notification:
            await self._out.put(text)

    def _follow(self, name: str, notices: AsyncIterator[str]) -> None:
        if len(self._followed) >= MAX_FOLLOWED:
            raise Busy(
                f"this connection follows {MAX_FOLLOWED} streams already", hint="Unsubscribe from some."
            )
        task = asyncio.create_task(self._send_all(notices))
        self._followed[name] = task
        task.add_done_callback(lambda done: self._forget(name, done))

    def _forget(self, name: str, done: asyncio.Task[None]) -> None:
        if self._followed.get(name) is done:
            del self._followed[name]

    def _unfollow(self, name: str) -> bool:
        task = self._followed.pop(name, None)
        return task is not None and task.cancel()

    async def _send_all(self, notices: AsyncIterator[str]) -> None:
        try:
            async for text in notices:
                await self._out.put(text)
        except Unauthorized as error:
            self._break(Closed(POLICY, error.code))
        except HoldfastError as error:
            log.warning("a stream on a WebSocket was broken off: %s", error.message)
            self._break(Closed(INTERNAL, error.code))

    async def _write(self) -> None:
        while True:
            await self._socket.send_text(await self._out.get())

    async def _stop(self, stopping: asyncio.Event) -> None:
        await stopping.wait()
        raise Closed(GOING_AWAY, "stopping")

    async def _watch_access(self) -> None:
        """A peer has little time to show a token; once it, or the login, has ended, so has the connection."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._connected.wait()
        except TimeoutError as error:
            raise Closed(POLICY, "no_token") from error
        try:
            await until_ended(self.here.book, self.here.hold.threads, self.caller)
        except HoldfastError as error:
            raise Closed(POLICY if isinstance(error, Unauthorized) else INTERNAL, error.code) from error

    def _break(self, why: Closed) -> None:
        if not self._broken.done():
            self._broken.set_exception(why)

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _close(self, code: int, reason: str) -> None:
        """Before anything else, so that the peer learns why; one that reads nothing is not waited for."""
        states = (self._socket.application_state, self._socket.client_state)
        if states != (WebSocketState.CONNECTED, WebSocketState.CONNECTED):
            return
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._socket.close(code, reason[:120])
        except (RuntimeError, WebSocketDisconnect, TimeoutError):
            log.debug("a WebSocket was gone before it was closed")


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
    talk = asyncio.create_task(Connection(gateway, socket, principal).serve(services.stopping))
    gateway.sockets.add(talk)
    talk.add_done_callback(gateway.sockets.discard)
    await talk
