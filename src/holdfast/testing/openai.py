"""Scripted servers that speak OpenAI's chat completions and responses."""

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


class ScriptedResponses(ScriptedOpenAI):
    """`POST /v1/responses`, streaming and not; errors as in chat completions.

    A call of `space/name` is one of a tool in a namespace.
    """

    api = "openai-responses"

    def answers(self, path: str) -> bool:
        return path == "/v1/responses"

    def whole(self, asked: Asked, turn: Say | Calls) -> dict[str, Any]:
        return _response(asked, turn, "completed", _items(turn))

    def events(self, asked: Asked, turn: Say | Calls, *, ending: bool = True) -> Iterator[str]:
        bodies: list[dict[str, Any]] = [
            {"type": "response.created", "response": _response(asked, turn, "in_progress", [])}
        ]
        for index, item in enumerate(_items(turn)):
            bodies += _item_events(index, item, turn, closed=ending)
        if ending:
            done = _response(asked, turn, "completed", _items(turn))
            kind = "response.completed"
            if isinstance(turn, Say) and turn.finish is not None:
                kind = "response.incomplete"
                done |= {"status": "incomplete", "incomplete_details": {"reason": turn.finish}}
            bodies.append({"type": kind, "response": done})
        for number, body in enumerate(bodies):
            yield f"event: {body['type']}\ndata: {json.dumps({**body, 'sequence_number': number})}\n\n"


def _item_events(
    index: int, item: dict[str, Any], turn: Say | Calls, *, closed: bool
) -> list[dict[str, Any]]:
    at = {"output_index": index, "item_id": item["id"]}
    count = turn.chunks if isinstance(turn, Say) else 2
    if item["type"] == "function_call":
        empty = item | {"arguments": "", "status": "in_progress"}
        name, parts = "response.function_call_arguments.delta", pieces(item["arguments"], 2)
        found: list[dict[str, Any]] = []
    else:
        empty = item | {"content": [], "status": "in_progress"}
        name, parts = "response.output_text.delta", pieces(item["content"][0]["text"], count)
        at = at | {"content_index": 0}
        part = {"type": "output_text", "text": "", "annotations": []}
        found = [{"type": "response.content_part.added", "part": part, **at}]
    found = [{"type": "response.output_item.added", "output_index": index, "item": empty}, *found]
    found += [{"type": name, "delta": delta, "logprobs": [], **at} for delta in parts]
    done = {"type": "response.output_item.done", "output_index": index, "item": item}
    return [*found, done] if closed else found


def _items(turn: Say | Calls) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if turn.text:
        content = [{"type": "output_text", "text": turn.text, "annotations": []}]
        items.append(
            {
                "type": "message",
                "id": "msg_0",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        )
    for index, call in enumerate(turn.calls if isinstance(turn, Calls) else ()):
        raw = call.arguments if isinstance(call.arguments, str) else json.dumps(dict(call.arguments))
        space, _, name = call.name.rpartition("/")
        made = {
            "type": "function_call",
            "id": f"fc_{index}",
            "call_id": call.id or f"call_{index}",
            "name": name,
            "arguments": raw,
            "status": "completed",
        }
        items.append(made | {"namespace": space} if space else made)
    return items


def _response(asked: Asked, turn: Say | Calls, status: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": "resp_scripted",
        "object": "response",
        "created_at": 0,
        "status": status,
        "model": asked.model,
        "output": items,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": _responses_usage(turn.used) if status == "completed" else None,
    }


def _responses_usage(used: Used) -> dict[str, Any]:
    return {
        "input_tokens": used.input,
        "input_tokens_details": {"cached_tokens": used.cache_read, "cache_write_tokens": used.cache_write},
        "output_tokens": used.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": used.input + used.output,
    }
