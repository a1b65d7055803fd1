"""What a model is given, as plain values: each with its kind, its trust and where it came from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, Final, Literal, TypeAlias

from holdfast.errors import InvalidInput
from holdfast.log import FOR_OWNER, Audience


class Trust(IntEnum):
    """Whose words these are; the higher, the more they may ask of the model."""

    OUTSIDE = 0
    OTHER_SESSION = 1
    TOOL = 2
    MODEL = 3
    USER = 4
    OPERATOR = 5

    @property
    def label(self) -> str:
        return self.name.lower()

    @classmethod
    def parse(cls, text: str) -> Trust:
        try:
            return cls[text.upper()]
        except KeyError:
            raise InvalidInput(
                f"not a trust: {text[:40]!r}", hint=f"Use one of {', '.join(t.label for t in cls)}."
            ) from None


@dataclass(frozen=True, slots=True)
class Mark:
    """That a message is an entry of the log in a known form, so that its place in the log says it all."""

    entry_id: str
    revision: int
    form: str
    position: int
    digest: str
    tokens: int
    turn_id: str | None = None
    audience: Audience = FOR_OWNER
    leads: bool = False
    """Whether it stands before the words that its turn answers, though it was written after them."""

    @property
    def ref(self) -> str:
        return f"{self.entry_id}@{self.revision}/{self.form}"


@dataclass(frozen=True, slots=True)
class Image:
    """A picture, by address or as base64."""

    mime: str
    data: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    kind: ClassVar[Literal["tool_call"]] = "tool_call"
    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Named:
    """A host's own name for a message, and when it was said; the same name again is the same message."""

    key: str | None = None
    at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """`mark` is set by the projection alone and not copied by `replace`: a changed message has none."""

    text: str
    trust: Trust
    source: str
    named: Named = field(default=Named(), compare=False, repr=False)
    mark: Mark | None = field(default=None, init=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemMessage(_Message):
    """The stable instructions: the first message of a context, and the only one of its kind."""

    kind: ClassVar[Literal["system"]] = "system"
    trust: Trust = Trust.OPERATOR
    source: str = "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage(_Message):
    kind: ClassVar[Literal["user"]] = "user"
    trust: Trust = Trust.USER
    source: str = "user"
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage(_Message):
    kind: ClassVar[Literal["assistant"]] = "assistant"
    text: str = ""
    trust: Trust = Trust.MODEL
    source: str = "assistant"
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult(_Message):
    kind: ClassVar[Literal["tool_result"]] = "tool_result"
    trust: Trust = Trust.TOOL
    source: str = "tool"
    call_id: str
    name: str
    is_error: bool = False
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryMessage(_Message):
    """What stands for history that is no longer shown; the history itself stays in the log."""

    kind: ClassVar[Literal["summary"]] = "summary"
    trust: Trust = Trust.MODEL
    source: str = "summary"


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierMessage(_Message):
    """The one place for what changes every turn; it stands right before the user's words."""

    kind: ClassVar[Literal["carrier"]] = "carrier"
    trust: Trust = Trust.OPERATOR
    source: str = "carrier"


Message: TypeAlias = (
    SystemMessage | UserMessage | AssistantMessage | ToolResult | SummaryMessage | CarrierMessage
)

_ROLES: Final = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "tool_result": "toolResult",
    "summary": "user",
    "carrier": "user",
}


def wire(message: Message) -> dict[str, Any]:
    """The message as JSON: what is logged, hashed, replayed and sent to hosts that are not Python."""
    body: dict[str, Any] = {"role": _ROLES[message.kind], "kind": message.kind, "content": message.text}
    if isinstance(message, AssistantMessage) and message.calls:
        body["toolCalls"] = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in message.calls]
    if isinstance(message, ToolResult):
        body |= {"toolCallId": message.call_id, "toolName": message.name, "isError": message.is_error}
    if isinstance(message, (UserMessage, ToolResult)) and message.images:
        body["images"] = [{"mime": i.mime, "data": i.data} for i in message.images]
    return body


def encode(message: Message) -> str:
    """`wire` with trust and source as compact JSON: the exact form in which a message is kept."""
    return json.dumps(
        {**wire(message), "trust": message.trust.label, "source": message.source},
        ensure_ascii=False,
        separators=(",", ":"),
    )


def decode(text: str) -> Message:
    """The message again from `encode`."""
    found = json.loads(text)
    common = {"text": found["content"], "trust": Trust.parse(found["trust"]), "source": found["source"]}
    images = tuple(Image(i["mime"], i["data"]) for i in found.get("images", ()))
    match found["kind"]:
        case "system":
            return SystemMessage(**common)
        case "user":
            return UserMessage(**common, images=images)
        case "assistant":
            calls = (ToolCall(c["id"], c["name"], c["arguments"]) for c in found.get("toolCalls", ()))
            return AssistantMessage(**common, calls=tuple(calls))
        case "tool_result":
            return ToolResult(
                **common,
                call_id=found["toolCallId"],
                name=found["toolName"],
                is_error=found["isError"],
                images=images,
            )
        case "summary":
            return SummaryMessage(**common)
        case _:
            return CarrierMessage(**common)


def digest(message: Message) -> str:
    """128 bits of SHA-256 over the exact form."""
    return message.mark.digest if message.mark is not None else text_digest(encode(message))


def text_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def whole_digest(messages: Sequence[Message]) -> str:
    """One digest for a whole context: two are equal only if every byte of every message is."""
    return text_digest("".join(map(digest, messages)))


def context_digest(messages: Sequence[Message], tools: str | None) -> str:
    return text_digest(f"{whole_digest(messages)}\n{tools or ''}")
