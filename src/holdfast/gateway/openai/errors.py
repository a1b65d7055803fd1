"""Errors under `/v1` in the form that OpenAI's clients read: problems are told anew, in this one place."""

from __future__ import annotations

import json
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PREFIX: Final = "/v1/"
_PROBLEM: Final = b"application/problem+json"
_TYPES: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_AS_400: Final = frozenset({413, 415, 422})


class OpenAIErrors:
    """Stands before the guard, so that its refusals are told the same way."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(_PREFIX):
            await self.app(scope, receive, send)
            return
        begun: Message | None = None
        body = b""

        async def told(message: Message) -> None:
            nonlocal begun, body
            if message["type"] == "http.response.start" and _is_problem(message):
                begun = message
            elif begun is None:
                await send(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    await _send(begun, body, send)

        await self.app(scope, receive, told)


def error_json(status: int, problem: dict[str, Any]) -> dict[str, Any]:
    """The problem as OpenAI tells errors; what is wrong with one field names it in `param`."""
    errors = problem.get("errors") or [{}]
    path = str(errors[0].get("path") or "").removeprefix("body").lstrip(".")
    hint = problem.get("hint")
    return {
        "error": {
            "message": f"{problem['detail']} ({hint})" if hint else problem["detail"],
            "type": _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error"),
            "param": path or None,
            "code": problem["code"],
        }
    }


def _is_problem(message: Message) -> bool:
    return any(name.lower() == b"content-type" and value == _PROBLEM for name, value in message["headers"])


async def _send(begun: Message, body: bytes, send: Send) -> None:
    status = 400 if begun["status"] in _AS_400 else begun["status"]
    text = json.dumps(error_json(status, json.loads(body))).encode()
    own = (b"content-type", b"content-length")
    kept = [(name, value) for name, value in begun["headers"] if name.lower() not in own]
    headers = [*kept, (b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
    if status >= 409 and status not in (429, 503):
        # OpenAI's clients would ask again by themselves, and an agent would act twice.
        headers.append((b"x-should-retry", b"false"))
    await send({**begun, "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
