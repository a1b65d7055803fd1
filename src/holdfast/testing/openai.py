"""A scripted server that speaks OpenAI's chat completions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from holdfast.testing.script import Asked, Call, Calls, Fail, Say, Trouble, Used, pieces
from holdfast.testing.server import ScriptedServer

_TROUBLES: Final[dict[Trouble, tuple[int, str, str, str]]] = {
    "unauthorised": (401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    "no_credit": (
        402,
        "insufficient_quota",
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    "rate_limited": (429, "requests", "rate_limit_exceeded", "Rate limit reached for requests."),
    "overloaded": (503, "server_error", "overloaded", "The engine is currently overloaded."),
    "not_found": (404, "invalid_request_error", "model_not_found", "The model does not exist."),
    "broken": (500, "server_error", "server_error", "The server had an error."),
    "bad_request": (400, "invalid_request_error", "invalid_value", "The request cannot be used."),
}


class ScriptedOpenAI(ScriptedServer):
    """`POST /v1/chat/completions` and `GET /v1/models`, streaming and not."""

    api = "openai-completions"

    @property
    def url(self) -> str:
        return f"{self.origin}/v1"

    def answers(self, path: str) -> bool:
        return path == "/v1/chat/completions"

    def failure(self, turn: Fail) -> tuple[int, dict[str, Any]]:
        if turn.trouble == "too_long":
            tokens, limit = turn.message.split("/")
            told = (
                f"This model's maximum context length is {limit} tokens. However, your messages resulted in "
                f"{tokens} tokens. Please reduce the length of the messages."
            )
            return turn.status, _error(told, "invalid_request_error", "context_length_exceeded")
        status, kind, code, text = _TROUBLES[turn.trouble or "broken"]
        if turn.trouble is None:
            kind, code = "error", str(turn.status)
        return turn.status or status, _error(turn.message or text, kind, code)

    def whole(self, asked: Asked, turn: Say | Calls) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
        if turn.thinking:
            message["reasoning_content"] = turn.thinking
        if isinstance(turn, Calls):
            message["tool_calls"] = [_call(i, c) for i, c in enumerate(turn.calls)]
        choice = {"index": 0, "message": message, "finish_reason": _finish(turn)}
        return {**_frame(asked, "chat.completion"), "choices": [choice], "usage": _usage(turn.used)}

    def events(self, asked: Asked, turn: Say | Calls, *, ending: bool = True) -> Iterator[str]:
        frame = _frame(asked, "chat.completion.chunk")
        deltas = list(_deltas(turn))
        for delta in deltas:
            yield _line(frame | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        if not ending:
            return
        yield _line(frame | {"choices": [{"index": 0, "delta": {}, "finish_reason": _finish(turn)}]})
        if (asked.body.get("stream_options") or {}).get("include_usage"):
            yield _line(frame | {"choices": [], "usage": _usage(turn.used)})
        yield "data: [DONE]\n\n"


def _deltas(turn: Say | Calls) -> Iterator[dict[str, Any]]:
    count = turn.chunks if isinstance(turn, Say) else 2
    yield {"role": "assistant", "content": ""}
    for text in pieces(turn.thinking, count):
        yield {"reasoning_content": text}
    for text in pieces(turn.text, count):
        yield {"content": text}
    if isinstance(turn, Calls):
        for index, call in enumerate(turn.calls):
            whole = _call(index, call)
            arguments = whole["function"]["arguments"]
            begun = whole["function"] | {"arguments": ""}
            yield {"tool_calls": [whole | {"index": index, "function": begun}]}
            for part in pieces(arguments, 2):
                yield {"tool_calls": [{"index": index, "function": {"arguments": part}}]}


def _call(index: int, call: Call) -> dict[str, Any]:
    raw = call.arguments if isinstance(call.arguments, str) else json.dumps(dict(call.arguments))
    return {
        "id": call.id or f"call_{index}",
        "type": "function",
        "function": {"name": call.name, "arguments": raw},
    }


def _finish(turn: Say | Calls) -> str:
    if isinstance(turn, Say):
        return turn.finish or "stop"
    return "tool_calls"


def _frame(asked: Asked, kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-scripted", "object": kind, "created": 0, "model": asked.model}


def _usage(used: Used) -> dict[str, Any]:
    return {
        "prompt_tokens": used.input,
        "completion_tokens": used.output,
        "total_tokens": used.input + used.output,
        "prompt_tokens_details": {"cached_tokens": used.cache_read},
    }


def _error(message: str, kind: str, code: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _line(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body)}\n\n"
