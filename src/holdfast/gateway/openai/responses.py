"""Responses: how they are asked for, and a run told as one, whole or in typed events as it speaks. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from holdfast.agents.loop import RunEvent, RunStatus
from holdfast.agents.loop.asks import ASK, Form
from holdfast.context import ToolSpec
from holdfast.errors import InvalidInput
from holdfast.gateway.contract import dumps
from holdfast.gateway.openai.chat import JsonSchemaIn, Speech
from holdfast.gateway.openai.requests import (
    MAX_MESSAGES,
    MAX_TOOLS,
    CallId,
    CallIn,
    Effort,
    Function,
    ImageUrl,
    MessageIn,
    ModelName,
    MostTokens,
    Part,
    Request,
    Sent,
    ToolChoice,
    UserName,
    said,
    thinking_of,
    tool_choice,
    unsupported,
)
from holdfast.gateway.wire import Text

ECHO: Final = "response"
"""The note of a turn that keeps what its answer repeats."""
_ID: Final = re.compile(r"(?:resp|msg|fc)_(turn-[0-9a-f-]{36})(?:_([0-9]{1,4}))?")
_TEXTS: Final = ("input_text", "output_text", "text", "refusal", "summary_text")
_IGNORED: Final = ("reasoning",)
_INCOMPLETE: Final = {"length": "max_output_tokens", "refusal": "content_filter"}
_STATES: Final = {"accepted": "queued", "running": "in_progress", "cancelled": "cancelled"}


class PartIn(Sent):
    type: str
    text: Text | None = None
    refusal: Text | None = None
    image_url: str | None = None

    def part(self) -> Part:
        if self.type in _TEXTS:
            return Part(type="text", text=self.text or self.refusal or "")
        if self.type == "input_image" and self.image_url is not None:
            return Part(type="image_url", image_url=ImageUrl(url=self.image_url))
        raise unsupported("input", f"a part of type {self.type[:40]!r} cannot be read", "Send text.")


class ItemIn(Sent):
    """A message, a call of a function, its output, or a reference to one of these."""

    type: Annotated[str, Field(max_length=64)] = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: Text | list[PartIn] | None = None
    id: Annotated[str, Field(max_length=256)] | None = None
    call_id: CallId | None = None
    name: Annotated[Text, Field(min_length=1, max_length=256)] | None = None
    arguments: str | None = None
    output: Text | list[PartIn] | None = None


class ToolIn(Sent):
    type: Annotated[str, Field(max_length=64)]
    name: Annotated[str, Field(max_length=64)] = ""
    description: Annotated[Text, Field(max_length=16_000)] | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def spec(self) -> ToolSpec:
        if self.type != "function":
            raise unsupported(
                "tools",
                f"a tool of type {self.type!r} cannot be had here",
                "Send functions; agents bring their own.",
            )
        if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", self.name) is None:
            raise InvalidInput("tools: a function needs a name of letters, digits, `_` and `-`")
        return ToolSpec(
            self.name, self.description or "", self.parameters or {"type": "object", "properties": {}}
        )


class AllowedTool(Sent):
    name: Annotated[str, Field(max_length=64)] = ""


class ChoiceIn(Sent):
    type: Annotated[str, Field(max_length=64)]
    name: Annotated[str, Field(max_length=64)] = ""
    mode: Literal["auto", "required"] = "auto"
    tools: Annotated[list[AllowedTool], Field(max_length=MAX_TOOLS)] | None = None


class FormatIn(JsonSchemaIn):
    type: Literal["text", "json_object", "json_schema"] = "text"

    @property
    def wanted(self) -> Form | None:
        match self.type:
            case "text":
                return None
            case "json_object":
                return Form()
        return self.form


class TextIn(Sent):
    format: FormatIn | None = None


class ReasoningIn(Sent):
    effort: Effort | None = None


class ResponsesIn(Sent):
    """What of a request counts here; sampling is the agent's own affair, and left out."""

    model: ModelName
    input: Text | Annotated[list[ItemIn], Field(min_length=1, max_length=MAX_MESSAGES)]
    instructions: Text | None = None
    previous_response_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    stream: bool | None = False
    store: bool | None = None
    background: bool | None = None
    conversation: Any = None
    prompt: Any = None
    tools: Annotated[list[ToolIn], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ChoiceIn | None = None
    text: TextIn | None = None
    reasoning: ReasoningIn | None = None
    max_output_tokens: MostTokens | None = None
    metadata: Annotated[dict[str, Annotated[str, Field(max_length=512)]], Field(max_length=16)] | None = None
    user: UserName | None = None

    @property
    def referred(self) -> frozenset[str]:
        """The runs whose items it refers to by their ids."""
        items = [] if isinstance(self.input, str) else self.input
        return frozenset(run_of(item.id or "") for item in items if item.type == "item_reference")

    def request(self, known: Mapping[str, RunStatus] | None = None) -> Request:
        """`known` are the runs that it refers to."""
        self._require_possible()
        form = None if self.text is None or self.text.format is None else self.text.format.wanted
        before = self.previous_response_id
        return Request(
            model=self.model,
            said=said(self._messages(known or {}), self.instructions),
            tools=self._tools(),
            form=form,
            thinking=thinking_of(None if self.reasoning is None else self.reasoning.effort),
            max_tokens=self.max_output_tokens,
            user=self.user,
            previous=None if before is None else run_of(before),
            stored=self.store is not False,
            stream=bool(self.stream),
            noted={ECHO: self._echo()},
        )

    def _require_possible(self) -> None:
        if self.background:
            raise unsupported(
                "background", "answers are waited for here", "Use POST /api/agent for runs to look after."
            )
        for name in ("conversation", "prompt"):
            if getattr(self, name) is not None:
                raise unsupported(name, "is not kept here", "Use previous_response_id and instructions.")

    def _tools(self) -> ToolChoice:
        specs = [tool.spec() for tool in self.tools or ()]
        choice = self.tool_choice
        if not isinstance(choice, ChoiceIn):
            return tool_choice(specs, choice, None)
        match choice.type:
            case "function":
                return tool_choice(specs, "required", [choice.name])
            case "allowed_tools":
                return tool_choice(specs, choice.mode, [tool.name for tool in choice.tools or ()])
        raise unsupported("tool_choice", f"{choice.type!r} cannot be had here", "Name a function of `tools`.")

    def _messages(self, known: Mapping[str, RunStatus]) -> list[MessageIn]:
        if isinstance(self.input, str):
            return [MessageIn(role="user", content=self.input)]
        found: list[MessageIn] = []
        for item in self.input:
            for message in _of_item(item, known):
                _add(found, message)
        return found

    def _echo(self) -> dict[str, Any]:
        """What the answer says again of the request, besides its instructions and tools."""
        chosen = self.tool_choice
        text = {} if self.text is None else self.text.model_dump(by_alias=True, exclude_none=True)
        return {
            "model": self.model,
            "metadata": self.metadata or {},
            "previous_response_id": self.previous_response_id,
            "tool_choice": chosen.model_dump(exclude_unset=True)
            if isinstance(chosen, ChoiceIn)
            else chosen or "auto",
            "text": text or {"format": {"type": "text"}},
            "reasoning": {
                "effort": None if self.reasoning is None else self.reasoning.effort,
                "summary": None,
            },
            "max_output_tokens": self.max_output_tokens,
            "user": self.user,
            "store": self.store is not False,
        }


def response_id(run_id: str) -> str:
    return f"resp_{run_id}"


def run_of(id_: str) -> str:
    """The run that an id of ours stands for; one that is none of ours names no run."""
    found = _ID.fullmatch(id_)
    return "" if found is None else found[1]


def _of_item(item: ItemIn, known: Mapping[str, RunStatus]) -> Iterator[MessageIn]:
    """An item as messages of the other form have it; what a reference stands for is what we answered then."""
    match item.type:
        case "message" if item.role is not None:
            yield MessageIn(role=item.role, content=_content(item.content))
        case "function_call" if item.call_id is not None and item.name is not None:
            yield _calling(item.call_id, item.name, item.arguments or "")
        case "function_call_output" if item.call_id is not None:
            yield MessageIn(role="tool", tool_call_id=item.call_id, content=_content(item.output))
        case "item_reference":
            yield from _referred(item.id or "", known)
        case _ if item.type in _IGNORED:
            return
        case _:
            raise unsupported(
                "input", f"an item of type {item.type!r} cannot be read", "Send messages and calls."
            )


def _content(sent: str | list[PartIn] | None) -> str | list[Part] | None:
    return [part.part() for part in sent] if isinstance(sent, list) else sent


def _calling(id_: str, name: str, arguments: str) -> MessageIn:
    return MessageIn(
        role="assistant", tool_calls=[CallIn(id=id_, function=Function(name=name, arguments=arguments))]
    )


def _referred(id_: str, known: Mapping[str, RunStatus]) -> Iterator[MessageIn]:
    status, found = known.get(run_of(id_)), _ID.fullmatch(id_)
    if status is None or found is None:
        raise InvalidInput(f"input: there is no item {id_[:80]!r}", hint="Send the item itself.")
    if id_.startswith("fc_"):
        handed = (status.meta.get("handed") or [])[int(found[2] or 0) :][:1]
        for call in handed:
            yield _calling(call["id"], call["name"], dumps(call["arguments"]))
    elif status.reply and not status.silent:
        yield MessageIn(role="assistant", content=status.reply)


def _add(found: list[MessageIn], message: MessageIn) -> None:
    """Calls of one answer that come as items of their own, and the words before them, are one message."""
    last = found[-1] if found else None
    if message.tool_calls and last is not None and last.role == "assistant":
        found[-1] = last.model_copy(update={"tool_calls": [*(last.tool_calls or ()), *message.tool_calls]})
    else:
        found.append(message)


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """What every event of one answer repeats."""

    run_id: str
    created_at: int
    echo: Mapping[str, Any]
    instructions: str | None = None
    tools: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def of(cls, status: RunStatus) -> ResponseHead:
        """From what is kept with the turn."""
        kept = status.meta.get(ASK) or {}
        echo = {"model": f"holdfast/{kept.get('agentId', '')}", **(status.meta.get(ECHO) or {})}
        tools = kept.get("tools") or ()
        return cls(status.run_id, status.accepted_at // 1000, echo, kept.get("instructions"), tools)

    def json(self, state: str, output: Sequence[Mapping[str, Any]] = (), **more: Any) -> dict[str, Any]:
        return {
            "id": response_id(self.run_id),
            "object": "response",
            "created_at": self.created_at,
            "status": state,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": self.instructions,
            "max_output_tokens": None,
            "metadata": {},
            "output": list(output),
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "temperature": None,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [{"type": "function", "strict": None, **tool} for tool in self.tools],
            "top_p": None,
            "truncation": "disabled",
            "usage": None,
            "user": None,
            **self.echo,
            **more,
        }

    def message(self, index: int, text: str, state: str = "completed") -> dict[str, Any]:
        parts = [_part(text)] if state == "completed" else []
        kind = {"id": f"msg_{self.run_id}_{index}", "type": "message", "role": "assistant"}
        return {**kind, "status": state, "content": parts}

    def call(self, index: int, call: Mapping[str, Any], state: str = "completed") -> dict[str, Any]:
        """`index` counts the calls that were handed over: by it a reference finds it again."""
        arguments = dumps(call["arguments"]) if state == "completed" else ""
        named = {"call_id": call["id"], "name": call["name"], "arguments": arguments}
        return {"id": f"fc_{self.run_id}_{index}", "type": "function_call", "status": state, **named}


def response(status: RunStatus) -> dict[str, Any]:
    """A run as it stands in the log."""
    head = ResponseHead.of(status)
    output = [] if status.silent or not status.reply else [head.message(0, status.reply)]
    output += [head.call(n, call) for n, call in enumerate(status.meta.get("handed") or ())]
    if not status.ended or status.status.value == "cancelled":
        return head.json(_STATES.get(status.status.value, "in_progress"), output)
    if not status.ok:
        told = {"code": "server_error", "message": status.error or "the run failed"}
        return head.json("failed", output, error=told)
    return _ended(head, output, status.meta.get("finish"), status.usage)


def _ended(
    head: ResponseHead, output: Sequence[Mapping[str, Any]], finish: str | None, usage: Mapping[str, Any]
) -> dict[str, Any]:
    why = _INCOMPLETE.get(finish or "")
    cut = {} if why is None else {"incomplete_details": {"reason": why}}
    return head.json("incomplete" if cut else "completed", output, usage=_usage(usage), **cut)


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    given, made = int(usage.get("inputTokens") or 0), int(usage.get("outputTokens") or 0)
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": int(usage.get("cacheReadTokens") or 0)},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": given + made,
    }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


@dataclass(slots=True)
class ResponseEvents:
    """Turns a run's events into those of a response: each message of the agent's is an item of its own."""

    head: ResponseHead
    whole: bool = False
    _speech: Speech = field(init=False)
    _output: list[dict[str, Any]] = field(default_factory=list)
    _open: str | None = None
    _number: int = 0

    def __post_init__(self) -> None:
        self._speech = Speech(whole=self.whole)

    @property
    def broken(self) -> bool:
        return self._speech.broken

    def begin(self) -> Iterator[str]:
        yield self._frame("response.created", response=self.head.json("in_progress"))
        yield self._frame("response.in_progress", response=self.head.json("in_progress"))

    def of(self, event: RunEvent) -> Iterator[str]:
        for piece in self._speech.of(event):
            if piece.begins:
                yield from self._close()
                yield from self._begin_message()
            yield from self._say(piece.text)

    def end(self, data: Mapping[str, Any]) -> Iterator[str]:
        """The last events, from the data of the event that ended the run."""
        for piece in self._speech.rest(str(data.get("text") or "")):
            yield from self._begin_message()
            yield from self._say(piece.text)
        yield from self._close()
        for index, call in enumerate(data.get("handed") or ()):
            yield from self._call(index, call)
        told = _ended(self.head, self._output, data.get("finish"), data.get("usage") or {})
        yield self._frame(f"response.{told['status']}", response=told)

    def failed(self, error: Mapping[str, Any]) -> Iterator[str]:
        yield from self._close()
        told = {"code": "server_error", "message": error["error"]["message"]}
        yield self._frame("response.failed", response=self.head.json("failed", self._output, error=told))

    def _begin_message(self) -> Iterator[str]:
        self._open = ""
        item = self.head.message(len(self._output), "", "in_progress")
        yield self._frame("response.output_item.added", output_index=len(self._output), item=item)
        yield self._frame("response.content_part.added", **self._place(), part=_part(""))

    def _say(self, text: str) -> Iterator[str]:
        self._open = (self._open or "") + text
        yield self._frame("response.output_text.delta", **self._place(), delta=text, logprobs=[])

    def _close(self) -> Iterator[str]:
        if self._open is None:
            return
        text, self._open = self._open, None
        yield self._frame("response.output_text.done", **self._place(), text=text, logprobs=[])
        yield self._frame("response.content_part.done", **self._place(), part=_part(text))
        yield from self._done(self.head.message(len(self._output), text))

    def _call(self, index: int, call: Mapping[str, Any]) -> Iterator[str]:
        place: dict[str, Any] = {"output_index": len(self._output)}
        yield self._frame(
            "response.output_item.added", **place, item=self.head.call(index, call, "in_progress")
        )
        whole = self.head.call(index, call)
        place |= {"item_id": whole["id"]}
        arguments = whole["arguments"]
        yield self._frame("response.function_call_arguments.delta", **place, delta=arguments)
        named = {"name": call["name"], "arguments": arguments}
        yield self._frame("response.function_call_arguments.done", **place, **named)
        yield from self._done(whole)

    def _done(self, item: dict[str, Any]) -> Iterator[str]:
        yield self._frame("response.output_item.done", output_index=len(self._output), item=item)
        self._output.append(item)

    def _place(self) -> dict[str, Any]:
        index = len(self._output)
        return {"item_id": f"msg_{self.head.run_id}_{index}", "output_index": index, "content_index": 0}

    def _frame(self, kind: str, **data: Any) -> str:
        body = {"type": kind, "sequence_number": self._number, **data}
        self._number += 1
        return f"event: {kind}\ndata: {dumps(body)}\n\n"
