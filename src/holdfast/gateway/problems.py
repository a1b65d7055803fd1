"""Errors as `application/problem+json` (RFC 9457), made in this one place."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from holdfast.config import InvalidConfig
from holdfast.errors import HoldfastError

log = logging.getLogger(__name__)

_TITLES = {
    400: "Bad request",
    401: "Not authorised",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    413: "Too large",
    415: "Unsupported media type",
    422: "Invalid input",
    429: "Busy",
    500: "Internal error",
    503: "Unavailable",
}
_MOST_ERRORS = 20
_CODES = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 415: "unsupported_media_type"}


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    hint: str = "",
    headers: dict[str, str] | None = None,
    **more: Any,
) -> Response:
    body = {"type": "about:blank", "title": _TITLES.get(status, "Error"), "status": status, "code": code}
    body |= {"detail": detail} | ({"hint": hint} if hint else {}) | more
    return Response(
        json.dumps(body, ensure_ascii=True),
        status,
        headers=headers,
        media_type="application/problem+json",
    )


def of(error: HoldfastError) -> Response:
    headers: dict[str, str] = {}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.status in (429, 503):
        headers["Retry-After"] = "1"
    more: dict[str, Any] = {}
    if isinstance(error, InvalidConfig):
        more["errors"] = [{"path": p.path, "expected": p.message} for p in error.problems[:_MOST_ERRORS]]
    return problem(error.status, error.code, error.message, hint=error.hint, headers=headers, **more)


def install(app: FastAPI) -> None:
    """Turn every error that can leave a route into a problem."""

    @app.exception_handler(HoldfastError)
    async def _ours(_: Request, error: HoldfastError) -> Response:
        return of(error)

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> Response:
        return _invalid_request(error)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        if isinstance(error.__cause__, HoldfastError):
            # FastAPI wraps what is raised while it reads a body.
            return of(error.__cause__)
        code = _CODES.get(error.status_code, "error")
        headers = dict(error.headers) if error.headers else None
        if error.status_code == 405:
            headers = {"Allow": _allowed(app, request)}
        return problem(error.status_code, code, str(error.detail), headers=headers)

    @app.exception_handler(Exception)
    async def _bug(request: Request, error: Exception) -> Response:
        log.error("a request to %s failed", request.url.path, exc_info=error)
        return problem(500, "internal", "Something in Holdfast failed; its log says what.")


def _allowed(app: FastAPI, request: Request) -> str:
    """Every method of the path: each is a route of its own, and the router names only those of one."""
    plain = {name: request.scope[name] for name in ("type", "path", "root_path", "headers", "app")}
    allowed = [
        method
        for method in ("DELETE", "GET", "PATCH", "POST", "PUT")
        if any(route.matches(plain | {"method": method})[0] is Match.FULL for route in app.router.routes)
    ]
    return ", ".join(allowed)


def _invalid_request(error: RequestValidationError) -> Response:
    faults = error.errors()
    if any(fault["type"] == "json_invalid" for fault in faults):
        return problem(400, "malformed_json", "The body is not valid JSON.")
    errors = [{"path": _path(fault["loc"]), "expected": words_of(fault)} for fault in faults[:_MOST_ERRORS]]
    first = errors[0]
    return problem(422, "invalid_input", f"{first['path']}: {first['expected']}", errors=errors)


def words_of(fault: Mapping[str, Any]) -> str:
    """What is wrong with a field, without the checker's own frame around it."""
    if fault["type"] in ("too_long", "too_short") and isinstance(fault.get("input"), str):
        least, most = fault["ctx"].get("min_length"), fault["ctx"].get("max_length")
        return f"has fewer than {least} characters" if most is None else f"has more than {most} characters"
    return str(fault["msg"]).removeprefix("Value error, ")


def _path(loc: tuple[str | int, ...]) -> str:
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc]
    return "".join(steps).lstrip(".").encode("ascii", "backslashreplace").decode()[:200]
