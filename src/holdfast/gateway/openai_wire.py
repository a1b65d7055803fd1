"""Chat completions as OpenAI's clients send them, read into what an agent is asked and what came before."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from holdfast.agents.loop.asks import MAX_IMAGES, Form
from holdfast.agents.loop.calling import require_schema
from holdfast.config.agents import Thinking
from holdfast.context import AssistantMessage, Image, Message, ToolCall, ToolResult, ToolSpec, UserMessage
from holdfast.errors import InvalidInput
from holdfast.gateway.asking import picture
from holdfast.gateway.bodies import parse
from holdfast.gateway.wire import Text

MAX_MESSAGES: Final = 2_000
CONTINUED: Final = "The results of these calls are in: go on."
_DATA_URL: Final = re.compile(r"data:(image/[a-z0-9.+-]{1,64});base64,([A-Za-z0-9+/]+={0,2})")
_EFFORTS: Final[dict[str, Thinking]] = {
    "none": "off",
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
}


class _Sent(BaseModel):
    """What we do not know is ignored, as OpenAI's own servers grow."""

    model_config = ConfigDict(extra="ignore")


class ImageUrl(_Sent):
    url: str


class Part(_Sent):
    type: str
    text: Text | None = None
    refusal: Text | None = None
    image_url: ImageUrl | None = None


class Function(_Sent):
    name: Annotated[Text, Field(min_length=1, max_length=256)]
    arguments: str = ""


class CallIn(_Sent):
    id: Annotated[Text, Field(min_length=1, max_length=256)]
    function: Function


class MessageIn(_Sent):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | list[Part] | None = None
    tool_calls: Annotated[list[CallIn], Field(max_length=128)] | None = None
    tool_call_id: Annotated[Text, Field(min_length=1, max_length=256)] | None = None

    @property
    def text(self) -> str:
        if not isinstance(self.content, list):
            return self.content or ""
        _require_readable(self.content)
        return "\n".join(part.text or part.refusal or "" for part in self.content if part.type != "image_url")

    @property
    def images(self) -> tuple[Image, ...]:
        parts = self.content if isinstance(self.content, list) else []
        return tuple(_image(part) for part in parts if part.type == "image_url")


class FunctionIn(_Sent):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: Annotated[Text, Field(max_length=16_000)] | None = None
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})


class ToolIn(_Sent):
    type: Literal["function"]
    function: FunctionIn


class StreamOptions(_Sent):
    include_usage: bool = False


class JsonSchemaIn(_Sent):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] = "answer"
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = None


class ResponseFormat(_Sent):
    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchemaIn | None = None

    @property
    def form(self) -> Form | None:
        """What the reply has to be; a schema that is left out is any object's."""
        if self.type == "text":
            return None
        wanted = self.json_schema if self.type == "json_schema" else None
        if wanted is None or wanted.schema_ is None:
            return Form()
        return Form(schema=wanted.schema_, name=wanted.name, strict=wanted.strict)


class Named(_Sent):
    name: Annotated[str, Field(min_length=1, max_length=64)]


class ChoiceIn(_Sent):
    """A named function."""

    type: Literal["function"]
    function: Named


class ChatIn(_Sent):
    """What of a request counts here; sampling is the agent's own affair, and left out."""

    model: Annotated[Text, Field(min_length=1, max_length=256)]
    messages: Annotated[list[MessageIn], Field(min_length=1, max_length=MAX_MESSAGES)]
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: Annotated[Text, Field(min_length=1, max_length=256)] | None = None
    n: int | None = 1
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[ToolIn], Field(max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ChoiceIn | None = None

    @property
    def form(self) -> Form | None:
        return None if self.response_format is None else self.response_format.form

    @property
    def must_call(self) -> tuple[str, ...]:
        """The client's tools of which one has to be called."""
        if isinstance(self.tool_choice, ChoiceIn):
            return (self.tool_choice.function.name,)
        return tuple(spec.name for spec in self.specs) if self.tool_choice == "required" else ()

    @property
    def thinking(self) -> Thinking | None:
        return None if self.reasoning_effort is None else _EFFORTS[self.reasoning_effort]

    @property
    def with_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def require_possible(self) -> None:
        """What an agent cannot do is refused, rather than left out of the answer unsaid."""
        if self.n not in (None, 1):
            raise _unsupported("n", "an agent gives one answer", "Leave out `n`.")
        if self.form is not None:
            require_schema(self.form)
        named = {tool.function.name for tool in self.tools or ()}
        if isinstance(self.tool_choice, ChoiceIn) and self.tool_choice.function.name not in named:
            raise InvalidInput(
                "tool_choice: no such function in `tools`", hint="Name one that is sent along."
            )
        if self.tool_choice == "required" and not named:
            raise InvalidInput("tool_choice: there are no tools to call", hint="Send `tools`, or use `auto`.")

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools that the client runs, each name once."""
        given = [] if self.tool_choice == "none" else self.tools or []
        if isinstance(self.tool_choice, ChoiceIn):
            given = [tool for tool in given if tool.function.name == self.tool_choice.function.name]
        found = {tool.function.name: tool.function for tool in given}
        return tuple(ToolSpec(f.name, f.description or "", f.parameters) for f in found.values())


@dataclass(frozen=True, slots=True)
class Said:
    """A request taken apart: what came before, the results of calls it brings, and what the user says now."""

    before: tuple[MessageIn, ...]
    results: tuple[MessageIn, ...]
    now: tuple[MessageIn, ...]

    @property
    def text(self) -> str:
        """The user's words, of one message or of several in a row; results alone ask to go on."""
        return "\n\n".join(message.text for message in self.now) if self.now else CONTINUED

    @property
    def images(self) -> tuple[Image, ...]:
        found = tuple(image for message in self.now for image in message.images)
        if len(found) > MAX_IMAGES:
            raise InvalidInput(f"there are {len(found)} pictures; {MAX_IMAGES} are the most")
        return found

    def history(self) -> list[Message]:
        """All but what is said now, for a session that knows nothing yet."""
        return list(_messages([*self.before, *self.results], {}))

    def answers(self) -> list[Message]:
        """The results alone, for a session that knows the rest."""
        names = {call.id: call.function.name for m in self.before for call in m.tool_calls or ()}
        return list(_messages(self.results, names))


def said(messages: Sequence[MessageIn]) -> Said:
    """What follows the last answer is new; instructions stand before everything, wherever they came."""
    told = [m for m in messages if m.role in ("system", "developer")]
    spoken = [m for m in messages if m.role not in ("system", "developer")]
    end = next((i for i in range(len(spoken), 0, -1) if spoken[i - 1].role == "assistant"), 0)
    if end == len(spoken):
        raise InvalidInput("the last message is not the user's", hint="End with a message of role `user`.")
    results = tuple(m for m in spoken[end:] if m.role == "tool")
    now = tuple(m for m in spoken[end:] if m.role == "user")
    return Said((*told, *spoken[:end]), results, now)


def _messages(sent: Iterable[MessageIn], names: dict[str, str]) -> Iterator[Message]:
    """What a client holds of a conversation. Its instructions are a user's words here."""
    for message in sent:
        match message.role:
            case "system" | "developer" if message.text.strip():
                yield UserMessage(text=f"For this conversation I ask of you:\n{message.text}")
            case "user" if message.text.strip() or message.images:
                yield UserMessage(text=message.text, images=message.images)
            case "assistant":
                calls = tuple(_call(call) for call in message.tool_calls or ())
                names |= {call.id: call.name for call in calls}
                if message.text.strip() or calls:
                    yield AssistantMessage(text=message.text, calls=calls)
            case "tool":
                yield _result(message, names)


def _result(message: MessageIn, names: Mapping[str, str]) -> ToolResult:
    id_ = message.tool_call_id
    if id_ is None or id_ not in names:
        raise InvalidInput(
            "a message of role `tool` answers no call before it",
            hint="Send the assistant's message with its tool_calls, too.",
        )
    return ToolResult(text=message.text, call_id=id_, name=names[id_], images=message.images)


def _call(sent: CallIn) -> ToolCall:
    try:
        found = parse(sent.function.arguments.encode()) if sent.function.arguments.strip() else {}
    except InvalidInput:
        found = None
    arguments = found if isinstance(found, dict) else {"arguments": sent.function.arguments}
    return ToolCall(sent.id, sent.function.name, arguments)


def _require_readable(parts: Sequence[Part]) -> None:
    for part in parts:
        if part.type not in ("text", "image_url", "refusal"):
            raise _unsupported("messages", f"a part of type {part.type[:40]!r} cannot be read", "Send text.")


def _image(part: Part) -> Image:
    found = None if part.image_url is None else _DATA_URL.fullmatch(part.image_url.url)
    if found is None:
        raise _unsupported(
            "messages",
            "a picture must come with the message",
            "Send it as `data:image/…;base64,…`; addresses are not fetched.",
        )
    return picture(found[1], found[2])


def _unsupported(name: str, why: str, hint: str) -> InvalidInput:
    return InvalidInput(f"{name}: {why}", code="unsupported_parameter", hint=hint)
