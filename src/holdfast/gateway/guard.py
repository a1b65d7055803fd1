"""The gate before every route: size, content type, token. Deny by default; what is open is listed here."""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import Forbidden, HoldfastError, InvalidInput, TooLarge, Unauthorized, Unavailable
from holdfast.gateway import problems
from holdfast.gateway.cookies import COOKIE, Cookies
from holdfast.gateway.tokens import HOW_TO_LOG_IN, Principal, TokenBook
from holdfast.gateway.tokens import Scope as Allowed
from holdfast.log import Threads

if TYPE_CHECKING:
    from holdfast.gateway.context import Gateway

OPEN: Final = frozenset({"/healthz", "/api/login"})
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_TOKEN_HEADERS: Final = ("x-holdfast-token", "x-clawboard-token")


class Limits:
    """How many bytes a body may have, by path; read live from the config."""

    def __init__(self, entry_bytes: int, body_bytes: int) -> None:
        self.entry_bytes = entry_bytes
        self.body_bytes = body_bytes

    def of(self, path: str) -> int:
        return self.entry_bytes if path.startswith("/api/log") else self.body_bytes


class Guard:
    """Pure ASGI, so that it costs little; puts the caller into `scope["state"]["principal"]`."""

    def __init__(
        self, app: ASGIApp, *, book: TokenBook, cookies: Cookies, threads: Threads, limits: Limits
    ) -> None:
        self.app = app
        self._book = book
        self._cookies = cookies
        self._threads = threads
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        try:
            headers = Headers(scope=scope)
            if scope["path"] not in OPEN:
                principal = await self._principal(scope, headers)
                if scope.get("method", "GET") not in SAFE:
                    principal.require(Allowed.WRITE)
                scope.setdefault("state", {})["principal"] = principal
            if scope["type"] == "http":
                receive = self._measured(scope, headers, receive)
        except HoldfastError as error:
            await problems.of(error)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    async def _principal(self, scope: Scope, headers: Headers) -> Principal:
        if b"token=" in scope.get("query_string", b""):
            raise InvalidInput("a token does not belong in a URL", code="token_in_url", hint=HOW_TO_LOG_IN)
        text = _token_of(headers)
        if text is None:
            return await self._by_cookie(scope, headers)
        if self._book.is_warm:
            return self._book.principal(text)
        return await self._threads(self._book.principal, text)

    async def _by_cookie(self, scope: Scope, headers: Headers) -> Principal:
        value = _cookie_of(headers)
        if value is None:
            raise Unauthorized("no token was sent", code="no_token", hint=HOW_TO_LOG_IN)
        if scope.get("method", "GET") not in SAFE and not _same_origin(headers):
            raise Forbidden("a page of another origin may not write", code="cross_origin")
        id_ = self._cookies.read(value)
        return await self._threads(self._book.by_id, id_)

    def _measured(self, scope: Scope, headers: Headers, receive: Receive) -> Receive:
        """Refuse a body that is too large, at its header if it tells, else where it passes the limit."""
        if scope["method"] in SAFE:
            return receive
        most = self._limits.of(scope["path"])
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > most:
            raise _too_large(most)
        _check_type(headers)
        return _counted(receive, most)


def _token_of(headers: Headers) -> str | None:
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and rest.strip():
        return rest.strip()
    for name in _TOKEN_HEADERS:
        if headers.get(name):
            return headers[name]
    return None


def _cookie_of(headers: Headers) -> str | None:
    try:
        jar = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return None
    return jar[COOKIE].value if COOKIE in jar else None


def _same_origin(headers: Headers) -> bool:
    if headers.get("sec-fetch-site"):
        return headers["sec-fetch-site"] == "same-origin"
    origin = headers.get("origin", "")
    return origin.partition("://")[2] == headers.get("host", "")


def _check_type(headers: Headers) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    empty = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
    if empty or kind == "application/json" or kind.endswith("+json") or kind == "multipart/form-data":
        return
    raise UnsupportedMedia(f"the body is {kind or 'of no type'}, not JSON", hint="Send application/json.")


class UnsupportedMedia(InvalidInput):
    code = "unsupported_media_type"
    status = 415


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
        if scope["type"] == "http" and scope["method"] not in SAFE:
            services = self._gateway.services
            if services is not None and services.stopping.is_set():
                stopping = Unavailable("the gateway is stopping", code="stopping", hint="Try again soon.")
                await problems.of(stopping)(scope, receive, send)
                return
        await self.app(scope, receive, send)
