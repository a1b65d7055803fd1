"""A scripted server that speaks Google's generative language API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from holdfast.testing.script import Asked, Calls, Fail, Say, Trouble, Used, pieces
from holdfast.testing.server import ScriptedServer

_TROUBLES: Final[dict[Trouble, tuple[int, str, str]]] = {
    "unauthorised": (401, "UNAUTHENTICATED", "API key not valid. Please pass a valid API key."),
    "no_credit": (402, "FAILED_PRECONDITION", "Billing is not enabled for this project."),
    "rate_limited": (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted."),
    "overloaded": (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    "not_found": (404, "NOT_FOUND", "no such model"),
    "broken": (500, "INTERNAL", "An internal error has occurred."),
    "bad_request": (400, "INVALID_ARGUMENT", "The request cannot be used."),
}


class ScriptedGoogle(ScriptedServer):
    """`POST /v1/models/<model>:streamGenerateContent` and `:generateContent`."""

    api = "google-generative-ai"

    def answers(self, path: str) -> bool:
        return "/models/" in path and path.endswith((":generateContent", ":streamGenerateContent"))

    def streams(self, asked: Asked) -> bool:
        return asked.path.endswith(":streamGenerateContent")

    def failure(self, turn: Fail) -> tuple[int, dict[str, Any]]:
        status, name, text = _TROUBLES.get(turn.trouble or "bad_request", _TROUBLES["bad_request"])
        message = turn.message or text
        if turn.trouble == "too_long":
            tokens, limit = turn.message.split("/")
            message = (
                f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({limit})."
            )
        code = turn.status or status
        return code, {"error": {"code": code, "message": message, "status": name}}

    def whole(self, asked: Asked, turn: Say | Calls) -> dict[str, Any]:
        return _body(_parts(turn, 1), _finish(turn)) | {"usageMetadata": _usage(turn.used)}

    def events(self, asked: Asked, turn: Say | Calls, *, ending: bool = True) -> Iterator[str]:
        for part in _parts(turn, turn.chunks if isinstance(turn, Say) else 2):
            yield _line(_body([part], None))
        if ending:
            yield _line(_body([], _finish(turn)) | {"usageMetadata": _usage(turn.used)})


def _parts(turn: Say | Calls, count: int) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"text": text, "thought": True} for text in pieces(turn.thinking, count)]
    parts += [{"text": text} for text in pieces(turn.text, count)]
    for index, call in enumerate(turn.calls if isinstance(turn, Calls) else ()):
        given = {} if isinstance(call.arguments, str) else dict(call.arguments)
        parts.append({"functionCall": {"id": call.id or f"call_{index}", "name": call.name, "args": given}})
    return parts


def _body(parts: list[dict[str, Any]], finish: str | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts}}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "responseId": "scripted"}


def _finish(turn: Say | Calls) -> str:
    return (turn.finish if isinstance(turn, Say) else None) or "STOP"


def _usage(used: Used) -> dict[str, Any]:
    return {
        "promptTokenCount": used.input,
        "candidatesTokenCount": used.output,
        "totalTokenCount": used.input + used.output,
        "cachedContentTokenCount": used.cache_read,
    }


def _line(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body)}\r\n\r\n"
