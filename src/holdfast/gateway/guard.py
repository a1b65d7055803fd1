"""The gate before every route: size, content type, token. Deny by default; what is open is listed here.

The files of the pages are open too: `Site` answers for those, and no route ever sees such a request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.agents.cron import SIGNATURE_HEADERS
from holdfast.config.runtime import GatewayLimits
from holdfast.errors import Forbidden, HoldfastError, InvalidInput, TooLarge, Unauthorized, Unavailable
from holdfast.gateway import problems
from holdfast.gateway.bodies import UnsupportedMedia, is_json
from holdfast.gateway.page_sessions import COOKIE
from holdfast.gateway.site import is_page
from holdfast.gateway.tokens import HOW_TO_LOG_IN, Principal, TokenBook
from holdfast.gateway.tokens import Scope as Allowed
from holdfast.log import Origin, Pace, Threads

if TYPE_CHECKING:
    from holdfast.gateway.context import Gateway


MCP: Final = "/mcp"
# What clients of `/mcp` read before they have a token.
WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
OPEN: Final = frozenset(
    {"/healthz", "/api/login", "/api/invitations/accept", WELL_KNOWN, f"{WELL_KNOWN}{MCP}"}
    | {"/api/oidc/login", "/api/oidc/callback"}
)
# Whoever could log in can log out, and sees to their own logins.
LOGOUT: Final = "/api/logout"
ONESELF: Final = "/api/me/"
# Each tool is called through a route of its own, which asks for what it needs.
FOR_READERS: Final = frozenset({LOGOUT, MCP, "/api/oidc/refresh", "/api/oidc/logout"})
HOOKS: Final = "/api/hooks/"
CHANNELS: Final = "/api/channels/"
INBOUND: Final = "/inbound"
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_TOKEN_HEADERS: Final = ("x-holdfast-token", "x-clawboard-token")
_TOKEN_NAMES: Final = frozenset({"token", "access_token", "auth_token", "api_key", *_TOKEN_HEADERS})
_MAX_FIELDS: Final = 200
_POLICY_VIOLATION: Final = 1008


class Limits:
    """How many bytes a body may have, by path; read live from the config."""

    def __init__(
        self, current: Callable[[], GatewayLimits], uploads: Callable[[], int] | None = None
    ) -> None:
        self._current = current
        self._uploads = uploads

    def of(self, path: str) -> int:
        if path == "/api/attachments" and self._uploads is not None:
            return self._uploads()
        limits = self._current()
        one_entry = path == "/api/log" or path.startswith("/api/log/")
        return limits.entry_bytes if one_entry else limits.body_bytes


class HookPath:
    """Webhooks answer where `hooks.path` says, besides their own place; a call there is one to that."""

    def __init__(self, app: ASGIApp, path: Callable[[], str]) -> None:
        self.app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            path, place = scope["path"], f"{self._path()}/"
            if path.startswith(place) and not path.startswith("/api/"):
                moved = HOOKS + path.removeprefix(place)
                scope = {**scope, "path": moved, "raw_path": moved.encode()}
        await self.app(scope, receive, send)


class Guard:
    """Pure ASGI, so that it costs little; puts the caller into `scope["state"]["principal"]`."""

    def __init__(
        self, app: ASGIApp, *, book: TokenBook, threads: Threads, limits: Limits, pace: Pace
    ) -> None:
        self.app = app
        self._book = book
        self._threads = threads
        self._limits = limits
        self._pace = pace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        try:
            headers = Headers(scope=scope)
            _check_address(scope)
            if is_page(scope, headers):
                scope.setdefault("state", {})["page"] = True
            elif scope["path"] not in OPEN and not _is_signed_call(scope, headers):
                principal = replace(await self._principal(scope, headers), origin=_origin(scope, headers))
                path = scope["path"]
                for_readers = path in FOR_READERS or path.startswith(ONESELF)
                if scope.get("method", "GET") not in SAFE and not for_readers:
                    principal.require(Allowed.WRITE)
                scope.setdefault("state", {})["principal"] = principal
            if scope["type"] == "http":
                receive = self._measured(scope, headers, receive)
        except HoldfastError as error:
            await _refuse(error, scope, receive, send)
            return
        self._pace.beat()
        await self.app(scope, receive, send)
        self._pace.beat()

    async def _principal(self, scope: Scope, headers: Headers) -> Principal:
        text = _token_of(headers)
        if text is None:
            return await self._by_cookie(scope, headers)
        known = self._book.at_once(text)
        return known if known is not None else await self._threads(self._book.principal, text)

    async def _by_cookie(self, scope: Scope, headers: Headers) -> Principal:
        value = _cookie_of(headers)
        if value is None:
            raise Unauthorized("no token was sent", code="no_token", hint=HOW_TO_LOG_IN)
        reads = scope["type"] == "http" and scope["method"] in SAFE
        if not reads and not _same_origin(headers):
            raise Forbidden("a page of another origin may not write", code="cross_origin")
        known = self._book.by_cookie_at_once(value)
        principal = known if known is not None else await self._threads(self._book.by_cookie, value)
        if self._book.wants_touch(principal):
            await self._threads(self._book.touch, principal)
        return principal

    def _measured(self, scope: Scope, headers: Headers, receive: Receive) -> Receive:
        """Refuse a body that is too large, at its header if it tells, else where it passes the limit."""
        if scope["method"] in SAFE:
            return receive
        most = self._limits.of(scope["path"])
        length = headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 18 or int(length) > most):
            raise _too_large(most)
        _check_type(headers)
        return _counted(receive, most)


def _is_signed_call(scope: Scope, headers: Headers) -> bool:
    """A signed call of a webhook or a channel needs no token: its route lets it in only if that holds."""
    path = scope["path"]
    if scope["type"] != "http" or scope["method"] != "POST" or not path.startswith((HOOKS, CHANNELS)):
        return False
    if path.startswith(CHANNELS) and not path.endswith(INBOUND):
        return False
    name = path.removeprefix(HOOKS).removeprefix(CHANNELS).removesuffix(INBOUND)
    return bool(name) and "/" not in name and any(header in headers for header in SIGNATURE_HEADERS)


def _origin(scope: Scope, headers: Headers) -> Origin:
    """Where a call comes from: a page is known by its cookie, without a token."""
    return Origin("page" if _token_of(headers) is None else "api", address_of(scope))


def address_of(scope: Scope) -> str | None:
    client = scope.get("client")
    return None if client is None else str(client[0])


def _token_of(headers: Headers) -> str | None:
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and rest.strip():
        return rest.strip()
    for name in _TOKEN_HEADERS:
        if headers.get(name):
            return headers[name]
    return None


def _cookie_of(headers: Headers) -> str | None:
    return cookie_parser(headers.get("cookie", "")).get(COOKIE) or None


def _same_origin(headers: Headers) -> bool:
    if headers.get("sec-fetch-site"):
        return headers["sec-fetch-site"] == "same-origin"
    origin = headers.get("origin", "")
    return origin.partition("://")[2] == headers.get("host", "")


def _check_type(headers: Headers) -> None:
    kind = headers.get("content-type", "")
    empty = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
    if empty or is_json(kind) or kind.lower().startswith("multipart/form-data"):
        return
    raise UnsupportedMedia("the body is not JSON", hint="Send application/json.")


def _check_address(scope: Scope) -> None:
    """No token in a URL, which ends up in logs and histories; and no NUL, which no database takes."""
    query = scope.get("query_string", b"")
    if "\0" in scope["path"] or b"%00" in query:
        raise InvalidInput("a NUL does not belong in a URL")
    if not query:
        return
    try:
        fields = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError as error:
        raise InvalidInput(f"a URL takes at most {_MAX_FIELDS} fields") from error
    if any(name.lower() in _TOKEN_NAMES for name, _ in fields):
        raise InvalidInput("a token does not belong in a URL", code="token_in_url", hint=HOW_TO_LOG_IN)


async def _refuse(error: HoldfastError, scope: Scope, receive: Receive, send: Send) -> None:
    """A problem; a WebSocket whose server cannot carry one is closed before it opens."""
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": error.code})
        return
    answer = problems.of(error)
    if error.status == 401 and scope["path"] == MCP:
        where = f"{base_url(scope)}{WELL_KNOWN}{MCP}"
        answer.headers["WWW-Authenticate"] = f'Bearer resource_metadata="{where}", scope="read write"'
    await answer(scope, receive, send)


def base_url(scope: Scope, public: str | None = None) -> str:
    """The address by which the gateway was called, unless the config says how others reach it."""
    host = re.sub(r"[^A-Za-z0-9.:\[\]_-]", "", Headers(scope=scope).get("host", ""))
    return (public or f"{scope.get('scheme', 'http')}://{host or 'localhost'}").rstrip("/")


def same_origin(scope: Scope) -> bool:
    """Whether a request comes from a page of the gateway's own, or from no page."""
    return _same_origin(Headers(scope=scope))


def _too_large(most: int) -> TooLarge:
    return TooLarge(
        f"the body is larger than {most} bytes", hint="Split it, or raise gateway.limits in the config."
    )


def _counted(receive: Receive, most: int) -> Receive:
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > most:
                raise _too_large(most)
        return message

    return counted


class Draining:
    """Once the gateway stops it takes no new work: writes are refused, reads still answered."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self.app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        opens = scope["type"] == "websocket"
        if opens or (scope["type"] == "http" and scope["method"] not in SAFE):
            services = self._gateway.services
            if services is not None and services.stopping.is_set():
                stopping = Unavailable("the gateway is stopping", code="stopping", hint="Try again soon.")
                await _refuse(stopping, scope, receive, send)
                return
        await self.app(scope, receive, send)


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
