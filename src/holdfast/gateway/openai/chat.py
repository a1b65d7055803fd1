"""Chat completions: how they are sent, and a run told as one, whole or in chunks as it speaks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from holdfast.agents.loop import RunEvent, RunStatus
from holdfast.agents.loop.asks import Form
from holdfast.clock import Millis
from holdfast.context import NO_REPLY, ToolSpec, is_silent
from holdfast.gateway.contract import dumps
from holdfast.gateway.openai.requests import (
    MAX_MESSAGES,
    MAX_TOOLS,
    Effort,
    MessageIn,
    ModelName,
    MostTokens,
    Request,
    Sent,
    ToolName,
    UserName,
    said,
    thinking_of,
    tool_choice,
    unsupported,
)
from holdfast.gateway.wire import Text

Handed: TypeAlias = Sequence[Mapping[str, Any]]

_FINISHES: Final = {"length": "length", "refusal": "content_filter"}


class FunctionIn(Sent):
    name: ToolName
    description: Annotated[Text, Field(max_length=16_000)] | None = None
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description or "", self.parameters)


class ToolIn(Sent):
    type: Literal["function"]
    function: FunctionIn


class StreamOptions(Sent):
    include_usage: bool = False


class JsonSchemaIn(Sent):
    name: ToolName = "answer"
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None

    @property
    def form(self) -> Form:
        """A schema that is left out is any object's."""
        return (
            Form() if self.schema_ is None else Form(schema=self.schema_, name=self.name, strict=self.strict)
        )


class ResponseFormat(Sent):
    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchemaIn | None = None

    @property
    def form(self) -> Form | None:
        """What the reply has to be."""
        if self.type == "text":
            return None
        return Form() if self.type == "json_object" or self.json_schema is None else self.json_schema.form


class Named(Sent):
    name: Annotated[str, Field(min_length=1, max_length=64)]


class ChoiceIn(Sent):
    """A named function."""

    type: Literal["function"]
    function: Named


class ChatIn(Sent):
    """What of a request counts here; sampling is the agent's own affair, and left out."""

    model: ModelName
    messages: Annotated[list[MessageIn], Field(min_length=1, max_length=MAX_MESSAGES)]
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: UserName | None = None
    n: int | None = 1
    reasoning_effort: Effort | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[ToolIn], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ChoiceIn | None = None
    max_completion_tokens: MostTokens | None = None
    max_tokens: MostTokens | None = None
    store: bool | None = None

    @property
    def with_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def request(self) -> Request:
        if self.n not in (None, 1):
            raise unsupported("n", "an agent gives one answer", "Leave out `n`.")
        named = self.tool_choice.function.name if isinstance(self.tool_choice, ChoiceIn) else None
        choice = "required" if isinstance(self.tool_choice, ChoiceIn) else self.tool_choice
        specs = [tool.function.spec for tool in self.tools or ()]
        return Request(
            model=self.model,
            said=said(self.messages),
            tools=tool_choice(specs, choice, None if named is None else [named]),
            form=None if self.response_format is None else self.response_format.form,
            thinking=thinking_of(self.reasoning_effort),
            max_tokens=self.max_completion_tokens or self.max_tokens,
            user=self.user,
            stored=self.store is not False,
            stream=bool(self.stream),
        )


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


def completion(head: Head, status: RunStatus) -> dict[str, Any]:
    """`handed` are calls of the client's own tools: it runs them and sends the results."""
    reply = "" if status.silent else (status.reply or "")
    handed: Handed = status.meta.get("handed") or ()
    message: dict[str, Any] = {"role": "assistant", "content": reply, "refusal": None}
    if handed:
        message |= {"content": reply or None, "tool_calls": [_call(call) for call in handed]}
    reason = _finish(status.meta.get("finish"), handed)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    return {**head.json("chat.completion"), "choices": [choice], "usage": _usage(status.usage)}


def _finish(finish: str | None, handed: Handed = ()) -> str:
    return "tool_calls" if handed else _FINISHES.get(finish or "", "stop")


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    named = {"name": call["name"], "arguments": dumps(call["arguments"])}
    return {"id": call["id"], "type": "function", "function": named}


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """All calls of the run together; cached parts of prompts are counted within them."""
    given, made = int(usage.get("inputTokens") or 0), int(usage.get("outputTokens") or 0)
    return {
        "prompt_tokens": given,
        "completion_tokens": made,
        "total_tokens": given + made,
        "prompt_tokens_details": {"cached_tokens": int(usage.get("cacheReadTokens") or 0)},
    }


@dataclass(frozen=True, slots=True)
class Piece:
    """Some words. A message of its own `begins` with them; `apart` from others that were told before it."""

    text: str
    begins: bool
    apart: bool = False


class Speech:
    """The words of a run, as they can be told to somebody who cannot take anything back.

    What is told never has holes: a reader who lost deltas gets the rest of a message when it is whole.
    With `whole`, the reply is told at the end alone: only then it is known to have the form asked for.
    """

    def __init__(self, *, whole: bool = False) -> None:
        self._at_the_end = whole
        self._said = ""
        self._told = ""
        self._lost = False
        self._any = False
        self.broken = False
        """Whether words were told that do not count: neither form can take them back, so it must end."""

    def of(self, event: RunEvent) -> Iterator[Piece]:
        data = event.data
        if self._at_the_end:
            return
        if event.stream == "assistant" and data.get("kind") == "text":
            self._said += str(data["delta"])
            if not self._lost and not NO_REPLY.startswith(self._said.strip()):
                yield from self._tell(self._said)
        elif event.stream == "assistant" and data.get("kind") == "message":
            text = str(data.get("text") or "")
            if not is_silent(text):
                yield from self._tell(text)
            self._next_message()
        elif event.stream == "lifecycle" and data.get("phase") == "lagged":
            self._lost = True
        elif event.stream == "lifecycle" and data.get("phase") == "restarted":
            self.broken = bool(self._told)
            self._next_message()

    def rest(self, text: str) -> Iterator[Piece]:
        """The reply, if nothing was told on the way to it."""
        if not self._any and text and not is_silent(text):
            self._any = True
            yield Piece(text, begins=True)

    def _tell(self, text: str) -> Iterator[Piece]:
        rest = text.removeprefix(self._told)
        if not rest or len(rest) + len(self._told) != len(text):
            return
        begins = not self._told
        piece = Piece(rest, begins, apart=begins and self._any)
        self._told, self._any = text, True
        yield piece

    def _next_message(self) -> None:
        self._said = self._told = ""
        self._lost = False


class Chunks:
    """Turns a run's events into chunks. Words between rounds of calls are told too, a blank line apart."""

    def __init__(self, head: Head, *, with_usage: bool, whole: bool = False) -> None:
        self._frame = head.json("chat.completion.chunk") | ({"usage": None} if with_usage else {})
        self._with_usage = with_usage
        self._speech = Speech(whole=whole)

    @property
    def broken(self) -> bool:
        return self._speech.broken

    def begin(self) -> Iterator[dict[str, Any]]:
        yield self._chunk({"role": "assistant", "content": ""})

    def of(self, event: RunEvent) -> Iterator[dict[str, Any]]:
        for piece in self._speech.of(event):
            yield self._chunk({"content": "\n\n" * piece.apart + piece.text})

    def end(self, data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The last chunks, from the data of the event that ended the run."""
        handed = data.get("handed") or ()
        for piece in self._speech.rest(str(data.get("text") or "")):
            yield self._chunk({"content": piece.text})
        for index, call in enumerate(handed):
            yield self._chunk({"tool_calls": [{"index": index, **_call(call)}]})
        yield self._chunk({}, _finish(data.get("finish"), handed))
        if self._with_usage:
            yield {**self._frame, "choices": [], "usage": _usage(data.get("usage") or {})}

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**self._frame, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


class ChatFrames:
    """Chunks as a stream of server-sent events has them."""

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks

    @property
    def broken(self) -> bool:
        return self._chunks.broken

    def begin(self) -> Iterator[str]:
        yield from map(_frame, self._chunks.begin())

    def of(self, event: RunEvent) -> Iterator[str]:
        yield from map(_frame, self._chunks.of(event))

    def end(self, data: Mapping[str, Any]) -> Iterator[str]:
        yield from map(_frame, self._chunks.end(data))
        yield "data: [DONE]\n\n"

    def failed(self, error: Mapping[str, Any]) -> Iterator[str]:
        yield _frame(error)


def _frame(body: Mapping[str, Any]) -> str:
    return f"data: {dumps(body)}\n\n"
