"""A scripted server that speaks OpenAI's responses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from holdfast.testing.openai import ScriptedOpenAI
from holdfast.testing.script import Asked, Calls, Say, Used, pieces


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
        "usage": _usage(turn.used) if status == "completed" else None,
    }


def _usage(used: Used) -> dict[str, Any]:
    return {
        "input_tokens": used.input,
        "input_tokens_details": {"cached_tokens": used.cache_read, "cache_write_tokens": used.cache_write},
        "output_tokens": used.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": used.input + used.output,
    }
