"""A scripted server that speaks Anthropic's messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from holdfast.testing.script import Asked, Call, Calls, Fail, Say, Trouble, Used, pieces
from holdfast.testing.server import ScriptedServer

_TROUBLES: Final[dict[Trouble, tuple[int, str, str]]] = {
    "unauthorised": (401, "authentication_error", "invalid x-api-key"),
    "no_credit": (
        402,
        "billing_error",
        "Your credit balance is too low to access the API. Please go to Plans & Billing to add credits.",
    ),
    "rate_limited": (429, "rate_limit_error", "This request would exceed your rate limit."),
    "overloaded": (529, "overloaded_error", "Overloaded"),
    "not_found": (404, "not_found_error", "no such model"),
    "broken": (500, "api_error", "Internal server error"),
    "bad_request": (400, "invalid_request_error", "The request cannot be used."),
}


class ScriptedAnthropic(ScriptedServer):
    """`POST /v1/messages` and `GET /v1/models`, streaming and not."""

    api = "anthropic-messages"

    def answers(self, path: str) -> bool:
        return path == "/v1/messages"

    def failure(self, turn: Fail) -> tuple[int, dict[str, Any]]:
        if turn.trouble == "too_long":
            tokens, limit = turn.message.split("/")
            told = f"prompt is too long: {tokens} tokens > {limit} maximum"
            return turn.status, _error("invalid_request_error", told)
        status, kind, text = _TROUBLES[turn.trouble or "broken"]
        return turn.status or status, _error(kind if turn.trouble else "error", turn.message or text)

    def whole(self, asked: Asked, turn: Say | Calls) -> dict[str, Any]:
        return _message(asked, turn) | {"content": _content(turn), "usage": _usage(turn.used)}

    def malformed(self, payload: str) -> str:
        return f"event: content_block_delta\ndata: {payload}\n\n"

    def events(self, asked: Asked, turn: Say | Calls, *, ending: bool = True) -> Iterator[str]:
        started = _message(asked, turn) | {"stop_reason": None, "content": []}
        started["usage"] = _usage(turn.used) | {"output_tokens": 1}
        yield _event("message_start", {"message": started})
        blocks = _content(turn)
        for index, block in enumerate(blocks):
            yield from _block(index, block, turn, closed=ending or index + 1 < len(blocks))
        if not ending:
            return
        delta = {"stop_reason": _finish(turn), "stop_sequence": None}
        yield _event("message_delta", {"delta": delta, "usage": {"output_tokens": turn.used.output}})
        yield _event("message_stop", {})


def _block(index: int, block: dict[str, Any], turn: Say | Calls, *, closed: bool) -> Iterator[str]:
    count = turn.chunks if isinstance(turn, Say) else 2
    empty: dict[str, Any]
    match block["type"]:
        case "thinking":
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            deltas: list[dict[str, Any]] = [
                {"type": "thinking_delta", "thinking": part} for part in pieces(block["thinking"], count)
            ] + [{"type": "signature_delta", "signature": block["signature"]}]
        case "text":
            empty = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": part} for part in pieces(block["text"], count)]
        case _:
            empty = {**block, "input": {}}
            empty.pop("raw")
            deltas = [
                {"type": "input_json_delta", "partial_json": part} for part in ("", *pieces(block["raw"], 2))
            ]
    yield _event("content_block_start", {"index": index, "content_block": empty})
    for delta in deltas:
        yield _event("content_block_delta", {"index": index, "delta": delta})
    if closed:
        yield _event("content_block_stop", {"index": index})


def _content(turn: Say | Calls) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if turn.thinking:
        blocks.append({"type": "thinking", "thinking": turn.thinking, "signature": "scripted"})
    if turn.text:
        blocks.append({"type": "text", "text": turn.text})
    if isinstance(turn, Calls):
        blocks += [_call(i, call) for i, call in enumerate(turn.calls)]
    return blocks


def _call(index: int, call: Call) -> dict[str, Any]:
    raw = call.arguments if isinstance(call.arguments, str) else json.dumps(dict(call.arguments))
    return {
        "type": "tool_use",
        "id": call.id or f"toolu_{index}",
        "name": call.name,
        "input": {} if isinstance(call.arguments, str) else dict(call.arguments),
        "raw": raw,
    }


def _message(asked: Asked, turn: Say | Calls) -> dict[str, Any]:
    return {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "stop_reason": _finish(turn),
        "stop_sequence": None,
    }


def _finish(turn: Say | Calls) -> str:
    if isinstance(turn, Say):
        return turn.finish or "end_turn"
    return "tool_use"


def _usage(used: Used) -> dict[str, Any]:
    return {
        "input_tokens": used.input - used.cache_read - used.cache_write,
        "output_tokens": used.output,
        "cache_read_input_tokens": used.cache_read,
        "cache_creation_input_tokens": used.cache_write,
    }


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted"}


def _event(kind: str, body: dict[str, Any]) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **body})}\n\n"
