"""A run told as OpenAI tells completions: whole, or in chunks as it speaks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from holdfast.agents.loop import RunEvent
from holdfast.clock import Millis
from holdfast.context import NO_REPLY, is_silent
from holdfast.gateway.wire import dumps

Handed: TypeAlias = Sequence[Mapping[str, Any]]

_FINISHES: Final = {"length": "length", "refusal": "content_filter"}


@dataclass(frozen=True, slots=True)
class Head:
    """What every answer to one request begins with."""

    run_id: str
    model: str
    created_at: Millis

    def json(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self.run_id}",
            "object": kind,
            "created": self.created_at // 1000,
            "model": self.model,
        }


def completion(
    head: Head, reply: str, finish: str | None, usage: Mapping[str, Any], handed: Handed = ()
) -> dict[str, Any]:
    """`handed` are calls of the client's own tools: it runs them and sends the results."""
    message: dict[str, Any] = {"role": "assistant", "content": reply, "refusal": None}
    if handed:
        message |= {"content": reply or None, "tool_calls": [_call(call) for call in handed]}
    reason = finish_of(finish, handed)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    return {**head.json("chat.completion"), "choices": [choice], "usage": usage_json(usage)}


def finish_of(finish: str | None, handed: Handed = ()) -> str:
    return "tool_calls" if handed else _FINISHES.get(finish or "", "stop")


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    named = {"name": call["name"], "arguments": dumps(call["arguments"])}
    return {"id": call["id"], "type": "function", "function": named}


def usage_json(usage: Mapping[str, Any]) -> dict[str, Any]:
    """All calls of the run together; cached parts of prompts are counted within them."""
    given, made = int(usage.get("inputTokens") or 0), int(usage.get("outputTokens") or 0)
    return {
        "prompt_tokens": given,
        "completion_tokens": made,
        "total_tokens": given + made,
        "prompt_tokens_details": {"cached_tokens": int(usage.get("cacheReadTokens") or 0)},
    }


class Chunks:
    """Turns a run's events into chunks. Words between rounds of tool calls are told too, a blank line apart.

    What is told never has holes: a reader who lost deltas gets the rest of a message when it is whole.
    With `whole`, the reply is told at the end alone: only then it is known to have the form asked for.
    """

    def __init__(self, head: Head, *, with_usage: bool, whole: bool = False) -> None:
        self._at_the_end = whole
        self._frame = head.json("chat.completion.chunk") | ({"usage": None} if with_usage else {})
        self._with_usage = with_usage
        self._said = ""
        self._told = ""
        self._lost = False
        self._gap = False
        self._any = False
        self.broken = False
        """Whether words were told that do not count: this protocol cannot take them back, so it must end."""

    def begin(self) -> dict[str, Any]:
        return self._chunk({"role": "assistant", "content": ""})

    def of(self, event: RunEvent) -> Iterator[dict[str, Any]]:
        data = event.data
        if self._at_the_end:
            return
        if event.stream == "assistant" and data.get("kind") == "text":
            yield from self._delta(str(data["delta"]))
        elif event.stream == "assistant" and data.get("kind") == "message":
            yield from self._whole(str(data.get("text") or ""))
        elif event.stream == "lifecycle" and data.get("phase") == "lagged":
            self._lost = True
        elif event.stream == "lifecycle" and data.get("phase") == "restarted":
            self.broken = bool(self._told)
            self._next_message()

    def end(self, data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The last chunks, from the data of the event that ended the run."""
        text, handed = str(data.get("text") or ""), data.get("handed") or ()
        if not self._any and not is_silent(text):
            yield self._chunk({"content": text})
        for index, call in enumerate(handed):
            yield self._chunk({"tool_calls": [{"index": index, **_call(call)}]})
        yield self._chunk({}, finish_of(data.get("finish"), handed))
        if self._with_usage:
            yield {**self._frame, "choices": [], "usage": usage_json(data.get("usage") or {})}

    def _delta(self, text: str) -> Iterator[dict[str, Any]]:
        self._said += text
        if not self._lost and not NO_REPLY.startswith(self._said.strip()):
            yield from self._tell(self._said)

    def _whole(self, text: str) -> Iterator[dict[str, Any]]:
        if not is_silent(text):
            yield from self._tell(text)
        self._next_message()

    def _tell(self, text: str) -> Iterator[dict[str, Any]]:
        rest = text.removeprefix(self._told)
        if not rest or len(rest) + len(self._told) != len(text):
            return
        before = "\n\n" if self._gap and not self._told else ""
        self._told, self._any = text, True
        yield self._chunk({"content": before + rest})

    def _next_message(self) -> None:
        self._gap = self._gap or bool(self._told)
        self._said = self._told = ""
        self._lost = False

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**self._frame, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
