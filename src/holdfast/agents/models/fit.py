"""Between plan and model: a request in the form that a model's server takes, and its answer read back.

Pure: the same messages, tools and `ModelFit` give the same bytes, so what a manifest accounts for is what is
sent, and a prefix that is stable before is stable after.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import replace
from typing import Any, Final

from holdfast.agents.models.types import (
    INVALID_ARGUMENTS,
    CallDelta,
    Finish,
    ModelEvent,
    ModelFit,
    ModelReply,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
)
from holdfast.agents.models.wire import BEGINS
from holdfast.context import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from holdfast.ids import uuid7

PAUSE: Final = "(I have read the result.)"
OPENS: Final = "<tool_call>"
_CLOSES: Final = "</tool_call>"
_THINKS: Final = "<think>"
_THOUGHT: Final = "</think>"
_JOINT: Final = "\n\n"
_BLOCK: Final = re.compile(rf"{OPENS}\s*(.*?)\s*(?:{_CLOSES}|\Z)", re.DOTALL)
_NAME: Final = re.compile(r'"name"\s*:\s*"([^"\\]{1,64})"')
_MARKS: Final = re.compile(r"<(?=\s*/?\s*tool_(?:call|result)\b)", re.IGNORECASE)
_HOW: Final = (
    "You can use tools. To use one, write a block of this form at the end of your answer, and nothing after "
    f'it:\n{OPENS}\n{{"name": "the tool\'s name", "arguments": {{"its": "arguments"}}}}\n{_CLOSES}\n'
    "What it gave follows in the next message, in a tool_result block. Use a tool only if it is needed; "
    "otherwise answer in plain words. The tools:"
)


def fitted(request: ModelRequest, fit: ModelFit) -> ModelRequest:
    """The request as the server takes it; a plain one is handed on as it is."""
    spelled = fit.tools != "native"
    if not (spelled or fit.alternates or not fit.system):
        return request
    tools = request.tools if fit.tools == "prompt" else ()
    messages = _shaped(request.messages, tools, fit)
    stable = _same(messages, _shaped(request.messages[: request.stable], tools, fit))
    if spelled and request.must_call:
        asked = f"[Call {' or '.join(request.must_call)} now, with a block as described.]"
        messages = _merged([*messages, UserMessage(text=asked)])
    return replace(
        request,
        messages=messages,
        stable=stable,
        tools=() if spelled else request.tools,
        must_call=() if spelled else request.must_call,
    )


def _shaped(messages: Sequence[Message], tools: Sequence[ToolSpec], fit: ModelFit) -> list[Message]:
    shaped = list(messages)
    if fit.tools != "native":
        shaped = _merged(list(_spelled(_described(shaped, tools))))
    if not fit.system:
        shaped = _folded(shaped)
    return _alternating(shaped) if fit.alternates else shaped


def _same(one: Sequence[Message], other: Sequence[Message]) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _described(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Message]:
    """With the tools in the system prompt, in a fixed order."""
    if not tools:
        return list(messages)
    told = "\n".join(_told(tool) for tool in sorted(tools, key=lambda tool: tool.name))
    before = messages[0].text + _JOINT if messages and isinstance(messages[0], SystemMessage) else ""
    return [SystemMessage(text=f"{before}{_HOW}\n{told}"), *messages[1 if before else 0 :]]


def _told(tool: ToolSpec) -> str:
    schema = json.dumps(tool.parameters, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return f"- {tool.name}: {tool.description.strip()}\n  arguments: {schema}"


def _spelled(messages: Sequence[Message]) -> Iterator[Message]:
    """Calls and results in words. Nothing that others wrote can pass for such a block."""
    for message in messages:
        match message:
            case AssistantMessage(calls=calls) if calls:
                blocks = [_written(call) for call in calls]
                yield AssistantMessage(text="\n".join([_defused(message.text), *blocks]).strip())
            case ToolResult():
                yield UserMessage(text=_result(message), images=message.images, trust=message.trust)
            case SystemMessage():
                yield message
            case _ if _MARKS.search(message.text):
                yield replace(message, text=_defused(message.text))
            case _:
                yield message


def _written(call: ToolCall) -> str:
    body = {"name": call.name, "arguments": dict(call.arguments)}
    return f"{OPENS}\n{json.dumps(body, ensure_ascii=False, default=str)}\n{_CLOSES}"


def _result(result: ToolResult) -> str:
    failed = ' failed="true"' if result.is_error else ""
    return f'<tool_result name="{_defused(result.name)}"{failed}>\n{_defused(result.text)}\n</tool_result>'


def _defused(text: str) -> str:
    return _MARKS.sub("‹", text)


def _folded(messages: Sequence[Message]) -> list[Message]:
    """Without a system role: its text stands before the first words of the user."""
    told = _JOINT.join(m.text for m in messages if isinstance(m, SystemMessage) and m.text)
    rest: list[Message] = [m for m in messages if not isinstance(m, SystemMessage)]
    if not told:
        return rest
    if rest and not isinstance(rest[0], AssistantMessage | ToolResult):
        return [_joined(UserMessage(text=told), rest[0]), *rest[1:]]
    return [UserMessage(text=told), *rest]


def _alternating(messages: Sequence[Message]) -> list[Message]:
    """The user and the model by turns, the user first; a round of native tool calls does not count."""
    made: list[Message] = []
    for message in _merged([m for m in messages if not _is_empty(m)]):
        begun = any(not isinstance(m, SystemMessage) for m in made)
        if isinstance(message, AssistantMessage) and not begun:
            made.append(UserMessage(text=BEGINS))
        if _is_users(message) and made and isinstance(made[-1], ToolResult):
            made.append(AssistantMessage(text=PAUSE))
        made.append(message)
    return made


def _is_empty(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and not message.text.strip() and not message.calls


def _is_users(message: Message) -> bool:
    return not isinstance(message, SystemMessage | AssistantMessage | ToolResult)


def _merged(messages: Sequence[Message]) -> list[Message]:
    """Neighbours of one role as one message."""
    made: list[Message] = []
    for message in messages:
        last = made[-1] if made else None
        if last is not None and _is_users(last) and _is_users(message):
            made[-1] = _joined(last, message)
        elif isinstance(last, AssistantMessage) and isinstance(message, AssistantMessage) and not last.calls:
            made[-1] = replace(message, text=_JOINT.join(t for t in (last.text, message.text) if t))
        else:
            made.append(message)
    return made


def _joined(one: Message, other: Message) -> UserMessage:
    """Two of the user's messages as one; it is trusted as the less trusted of them."""
    images = tuple(i for m in (one, other) if isinstance(m, UserMessage) for i in m.images)
    text = _JOINT.join(t for t in (one.text, other.text) if t)
    return UserMessage(text=text, images=images, trust=min(one.trust, other.trust))


def calls_in(text: str) -> tuple[str, tuple[ToolCall, ...]]:
    """The words of an answer without the calls that are spelled out in it, and those calls."""
    calls: list[ToolCall] = []

    def taken(found: re.Match[str]) -> str:
        call = _read(found[1])
        if call is None:
            return found[0]
        calls.append(call)
        return ""

    words = _BLOCK.sub(taken, text)
    return (words.strip(), tuple(calls)) if calls else (text, ())


def _read(body: str) -> ToolCall | None:
    """A call as it was written; one whose arguments cannot be read is handed on, so that it can be told."""
    id_ = f"call_{uuid7()}".replace("-", "")[:40]
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError):
        name = _NAME.search(body)
        return None if name is None else ToolCall(id_, name[1], {INVALID_ARGUMENTS: body})
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        return None
    arguments = found.get("arguments", found.get("parameters", {}))
    given = arguments if isinstance(arguments, dict) else {INVALID_ARGUMENTS: json.dumps(arguments)}
    return ToolCall(id_, found["name"], given)


async def read_back(events: AsyncIterator[ModelEvent], *, calls: bool) -> AsyncGenerator[ModelEvent]:
    """A model's events with the thoughts that lead its words as thoughts, and with `calls` the calls in them
    as calls; neither a tag nor its beginning is shown as words."""
    words = _Words(calls)
    async with aclosing(events) if isinstance(events, AsyncGenerator) else nullcontext(events) as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                for delta in words.more(event.text):
                    yield delta
                continue
            if isinstance(event, ModelReply):
                event = _apart(event, calls)
                for call in event.calls if calls else ():
                    yield CallDelta(call.id, call.name)
            yield event


class _Words:
    """The text of an answer as it comes, and what of it can be shown as what."""

    def __init__(self, calls: bool) -> None:
        self._calls = calls
        self._waiting = ""
        self._thinks: bool | None = None

    def more(self, text: str) -> Iterator[ModelEvent]:
        self._waiting += text
        if self._thinks is None:
            begun = self._waiting.lstrip()
            if begun.startswith(_THINKS):
                self._thinks, self._waiting = True, begun.removeprefix(_THINKS)
            elif not _THINKS.startswith(begun):
                self._thinks = False
        if self._thinks:
            yield from self._thought()
        if self._thinks is False:
            end = _before(self._waiting, OPENS) if self._calls else len(self._waiting)
            if end:
                yield TextDelta(self._waiting[:end])
            self._waiting = self._waiting[end:]

    def _thought(self) -> Iterator[ModelEvent]:
        end = _before(self._waiting, _THOUGHT)
        if end:
            yield ThinkingDelta(self._waiting[:end])
        self._waiting = self._waiting[end:]
        if self._waiting.startswith(_THOUGHT):
            self._thinks, self._waiting = False, self._waiting.removeprefix(_THOUGHT).lstrip()


def _apart(reply: ModelReply, calls: bool) -> ModelReply:
    """The whole answer, taken apart."""
    begun = reply.text.lstrip()
    if begun.startswith(_THINKS):
        thought, _, words = begun.removeprefix(_THINKS).partition(_THOUGHT)
        told = _JOINT.join(filter(None, (reply.thinking, thought.strip())))
        reply = replace(reply, text=words.lstrip(), thinking=told)
    words, found = calls_in(reply.text) if calls else (reply.text, ())
    if not found:
        return reply
    finish: Finish = "length" if reply.finish == "length" else "tool_calls"
    return replace(reply, text=words, calls=(*reply.calls, *found), finish=finish)


def _before(said: str, tag: str) -> int:
    """How much of a text stands before a tag, or before what may become one, whatever follows."""
    found = said.find(tag)
    if found >= 0:
        return found
    most = min(len(said), len(tag) - 1)
    return len(said) - next((n for n in range(most, 0, -1) if said.endswith(tag[:n])), 0)
