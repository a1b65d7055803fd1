"""What OpenAI's clients ask for, in whichever form: what came before, what is said now, on which terms."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Event

from holdfast.agents.loop.asks import MAX_IMAGES, Form
from holdfast.agents.loop.calling import require_schema
from holdfast.config.agents import Thinking
from holdfast.context import AssistantMessage, Image, Message, ToolCall, ToolResult, ToolSpec, UserMessage
from holdfast.errors import InvalidInput
from holdfast.gateway.asking import picture
from holdfast.gateway.bodies import parse
from holdfast.gateway.wire import Text

MAX_MESSAGES: Final = 2_000
MAX_TOOLS: Final = 128
CONTINUED: Final = "[The results of your calls are in. Go on.]"
_DATA_URL: Final = re.compile(r"data:(image/[a-z0-9.+-]{1,64});base64,([A-Za-z0-9+/]+={0,2})")
_EFFORTS: Final[dict[str, Thinking]] = {
    "none": "off",
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
}
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
ModelName = Annotated[Text, Field(min_length=1, max_length=256)]
UserName = Annotated[Text, Field(min_length=1, max_length=256)]
CallId = Annotated[Text, Field(min_length=1, max_length=256)]
ToolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
MostTokens = Annotated[int, Field(ge=1, le=10_000_000)]


class Sent(BaseModel):
    """What we do not know is ignored, as OpenAI's own servers grow."""

    model_config = ConfigDict(extra="ignore")


class ImageUrl(Sent):
    url: str


class Part(Sent):
    type: str
    text: Text | None = None
    refusal: Text | None = None
    image_url: ImageUrl | None = None


class Function(Sent):
    name: Annotated[Text, Field(min_length=1, max_length=256)]
    arguments: str = ""


class CallIn(Sent):
    id: CallId
    function: Function


class MessageIn(Sent):
    """A message in the form of chat completions; those of the other form are read into it."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | list[Part] | None = None
    tool_calls: Annotated[list[CallIn], Field(max_length=MAX_TOOLS)] | None = None
    tool_call_id: CallId | None = None

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


@dataclass(frozen=True, slots=True)
class Said:
    """A request taken apart: its instructions, what came before, the results of calls that it brings, and
    what the user says now."""

    instructions: str
    before: tuple[MessageIn, ...]
    results: tuple[MessageIn, ...]
    now: tuple[MessageIn, ...]

    @property
    def wordless(self) -> bool:
        """Whether nobody says anything: results alone ask to go on."""
        return not self.now

    @property
    def text(self) -> str:
        """The user's words, of one message or of several in a row; else what stands in for them."""
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

    def answers(self, known: Mapping[str, str] | None = None) -> list[Message]:
        """The results alone, for a session that knows the rest; `known` are calls that it handed over."""
        names = {call.id: call.function.name for m in self.before for call in m.tool_calls or ()}
        return list(_messages(self.results, {**(known or {}), **names}))


def said(messages: Sequence[MessageIn], instructions: str | None = None) -> Said:
    """What follows the last answer is new; instructions hold for the whole request, wherever they came."""
    told = [m.text for m in messages if m.role in ("system", "developer")]
    spoken = [m for m in messages if m.role not in ("system", "developer")]
    end = next((i for i in range(len(spoken), 0, -1) if spoken[i - 1].role == "assistant"), 0)
    if end == len(spoken):
        raise InvalidInput("the last message is not the user's", hint="End with a message of role `user`.")
    results = tuple(m for m in spoken[end:] if m.role == "tool")
    now = tuple(m for m in spoken[end:] if m.role == "user")
    asked = "\n\n".join(text for text in (instructions or "", *told) if text.strip())
    return Said(asked, tuple(spoken[:end]), results, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """Which of the client's tools are offered, and of which one has to be called."""

    tools: tuple[ToolSpec, ...] = ()
    must_call: tuple[str, ...] = ()


def tool_choice(tools: Iterable[ToolSpec], choice: str | None, only: Sequence[str] | None) -> ToolChoice:
    """`choice` is `none`, `auto` or `required`; `only` are those that may be called, where some are named."""
    found = {} if choice == "none" else {tool.name: tool for tool in tools}
    if only is not None:
        if choice != "none" and not found.keys() >= set(only):
            raise InvalidInput(
                "tool_choice: no such function in `tools`", hint="Name one that is sent along."
            )
        found = {name: tool for name, tool in found.items() if name in only}
    if choice == "required" and not found:
        raise InvalidInput("tool_choice: there are no tools to call", hint="Send `tools`, or use `auto`.")
    return ToolChoice(tools=tuple(found.values()), must_call=tuple(found) if choice == "required" else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, whichever form it came in. `previous` is the run that it goes on from; `noted` is what its
    answer repeats."""

    model: str
    said: Said
    tools: ToolChoice = field(default_factory=ToolChoice)
    form: Form | None = None
    thinking: Thinking | None = None
    max_tokens: int | None = None
    user: str | None = None
    previous: str | None = None
    stored: bool = True
    stream: bool = False
    noted: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.form is not None:
            require_schema(self.form)


def thinking_of(effort: Effort | None) -> Thinking | None:
    return None if effort is None else _EFFORTS[effort]


def unsupported(name: str, why: str, hint: str) -> InvalidInput:
    """What an agent cannot do is refused, rather than left out of the answer unsaid."""
    return InvalidInput(f"{name}: {why}", code="unsupported_parameter", hint=hint)


def _messages(sent: Iterable[MessageIn], names: dict[str, str]) -> Iterator[Message]:
    """What a client holds of a conversation."""
    for message in sent:
        match message.role:
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
            "a result answers no call before it",
            hint="Send the call as well: the assistant's message with its tool_calls, or the function_call.",
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
            raise unsupported("messages", f"a part of type {part.type[:40]!r} cannot be read", "Send text.")


def _image(part: Part) -> Image:
    found = None if part.image_url is None else _DATA_URL.fullmatch(part.image_url.url)
    if found is None:
        raise unsupported(
            "messages",
            "a picture must come with the message",
            "Send it as `data:image/…;base64,…`; addresses are not fetched.",
        )
    return picture(found[1], found[2])


_PREFIX: Final = "/v1/"
_PROBLEM: Final = b"application/problem+json"
_TYPES: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_AS_400: Final = frozenset({413, 415, 422})


class OpenAIErrors:
    """Stands before the guard, so that its refusals are told the same way."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(_PREFIX):
            await self.app(scope, receive, send)
            return
        begun: Event | None = None
        body = b""

        async def told(message: Event) -> None:
            nonlocal begun, body
            if message["type"] == "http.response.start" and _is_problem(message):
                begun = message
            elif begun is None:
                await send(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    await _send(begun, body, send)

        await self.app(scope, receive, told)


def error_json(status: int, problem: dict[str, Any]) -> dict[str, Any]:
    """The problem as OpenAI tells errors; what is wrong with one field names it in `param`."""
    errors = problem.get("errors") or [{}]
    path = str(errors[0].get("path") or "").removeprefix("body").lstrip(".")
    hint = problem.get("hint")
    return {
        "error": {
            "message": f"{problem['detail']} ({hint})" if hint else problem["detail"],
            "type": _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error"),
            "param": path or None,
            "code": problem["code"],
        }
    }


def _is_problem(message: Event) -> bool:
    return any(name.lower() == b"content-type" and value == _PROBLEM for name, value in message["headers"])


async def _send(begun: Event, body: bytes, send: Send) -> None:
    status = 400 if begun["status"] in _AS_400 else begun["status"]
    text = json.dumps(error_json(status, json.loads(body))).encode()
    own = (b"content-type", b"content-length")
    kept = [(name, value) for name, value in begun["headers"] if name.lower() not in own]
    headers = [*kept, (b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
    if status >= 409 and status not in (429, 503):
        # OpenAI's clients would ask again by themselves, and an agent would act twice.
        headers.append((b"x-should-retry", b"false"))
    await send({**begun, "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
