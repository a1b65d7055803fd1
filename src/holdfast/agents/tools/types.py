"""What a tool is, who calls it, and what is told of a call while it goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

from pydantic import BaseModel

from holdfast.clock import iso
from holdfast.config import AgentSettings, Config
from holdfast.context import Image, ToolCall, ToolSpec, Trust
from holdfast.effects import Effect
from holdfast.log import FOR_OWNER, Reader, Session
from holdfast.logs import Redact
from holdfast.memory.scope import Chat
from holdfast.text import clean_text, clip


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedApproval:
    """A call that waits for a person, or what they decided: enough to ask them without looking it up."""

    id: str
    tool: str
    command: str
    reason: str
    why_not_always: str | None = None
    status: str
    expires_at: int

    def json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "tool": self.tool,
            "command": self.command,
            "reason": self.reason,
            "whyNotAlways": self.why_not_always,
            "status": self.status,
            "expiresAt": iso(self.expires_at),
        }


class Progress(Protocol):
    """How a tool says how far it is, and that a person has to decide."""

    def __call__(self, text: str, approval: AskedApproval | None = None, /) -> None: ...


def nobody_follows(text: str, approval: AskedApproval | None = None, /) -> None:
    """For callers without a surface."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEvent:
    """`text` is the arguments at the start, a line of progress, and the beginning of the result at the end.

    `ends_turn`, at the end alone, asks that the model makes no further call in this turn. `approval` is there
    when a person has to decide, and once they did.
    """

    kind: Literal["start", "progress", "end"]
    call_id: str
    name: str
    text: str = ""
    is_error: bool = False
    ends_turn: bool = False
    approval: AskedApproval | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


OnEvent: TypeAlias = Callable[[ToolEvent], None]


def nobody_listens(_: ToolEvent) -> None:
    """For callers without a surface."""


Input = TypeVar("Input", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """In whose name a tool runs: the turn, its session and agent, and the rules that hold for them now.

    `images` says whether the model can look at pictures, `owner_sent` that the owner began the turn,
    `one_off` that the session ends with it, so that nothing can be sent off that comes back. Of a turn that
    is not `stored` nothing may be left, so that it has no tools that change anything.
    """

    config: Config
    settings: AgentSettings
    agent_id: str
    session: Session
    turn_id: str
    workspace: Path
    chat: Chat
    provider: str = ""
    model: str = ""
    window: int = 128_000
    images: bool = False
    owner: bool = True
    owner_sent: bool = False
    limited_to: tuple[str, ...] | None = None
    one_off: bool = False
    stored: bool = True
    sender: str | None = None
    channel: str | None = None
    subagent: bool = False
    depth: int = 0
    progress: Progress = field(default=nobody_follows, repr=False)
    cancelled: Callable[[], bool] = field(default=lambda: False, repr=False)

    @property
    def reader(self) -> Reader:
        """What its tools may read: what everyone who hears the session may, and who asked for the turn."""
        return self.session.reader_for(self.limited_to)

    @property
    def alone(self) -> bool:
        """Whether nobody but the owner hears what is said here."""
        return self.session.audience == FOR_OWNER


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """What the model gets to read, and what pages may show. `ends_turn` asks that no further call is made."""

    text: str
    is_error: bool = False
    trust: Trust = Trust.TOOL
    images: tuple[Image, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    ends_turn: bool = False


def always(_: Caller) -> bool:
    return True


def never(_: Caller) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool(Generic[Input]):
    """One tool. The docstring of `input` is its description, its fields are the schema.

    `repeatable` says that running it again after a crash does no harm; others are never repeated unasked.
    Neither it nor `effect` has a default: who adds a tool says what it does. Where others than the owner hear
    the session, only tools that say so (`for_others`) are there: they read as `Caller.reader` and reach
    nothing that is not that chat's.
    """

    name: str
    input: type[Input]
    run: Callable[[Caller, Input, str], Awaitable[ToolOutput]] = field(repr=False)
    effect: Effect
    repeatable: bool
    offered: Callable[[Caller], bool] = field(default=always, repr=False)
    for_others: Callable[[Caller], bool] = field(default=never, repr=False)

    def is_there(self, caller: Caller) -> bool:
        """Whether the tool makes sense for the caller now, and is theirs to use."""
        lasting = self.effect is not Effect.NONE and not caller.stored
        return not lasting and self.offered(caller) and (caller.alone or self.for_others(caller))

    @property
    def spec(self) -> ToolSpec:
        schema = dict(_schema(self.input))
        description = schema.pop("description", "")
        return ToolSpec(self.name, description, schema)


@cache
def _schema(input_: type[BaseModel]) -> dict[str, Any]:
    """Some five milliseconds a tool, and the same for every home that a process opens."""
    schema = input_.model_json_schema()
    found: dict[str, Any] = lean(schema, schema.get("$defs", {}))
    return found


_NO_WORDS: Final = (
    "title",
    "$defs",
    "additionalProperties",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
)


def lean(schema: Any, defs: Mapping[str, Any]) -> Any:
    """A schema without what tells a model nothing: titles, limits of length, `null` for what may be left out,
    references to parts that stand elsewhere. What a call may hold is checked by the input itself."""
    if isinstance(schema, list):
        return [lean(item, defs) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    if "$ref" in schema:
        named = defs[str(schema["$ref"]).rpartition("/")[2]]
        schema = {**named, **{name: value for name, value in schema.items() if name != "$ref"}}
    kinds = schema.get("anyOf")
    if isinstance(kinds, list) and {"type": "null"} in kinds and schema.get("default", ...) is None:
        others = [kind for kind in kinds if kind != {"type": "null"}]
        rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
        return lean({**others[0], **rest} if len(others) == 1 else {"anyOf": others, **rest}, defs)
    found = {name: lean(value, defs) for name, value in schema.items() if name not in _NO_WORDS}
    if isinstance(schema.get("properties"), Mapping):  # names there are fields, whatever they are called
        found["properties"] = {name: lean(field, defs) for name, field in schema["properties"].items()}
    return found


SHOWN: Final = 2_000


_MASKED: Final = 4 * SHOWN


_ENDLESS: Final = re.compile(r"[\w+.-]{300,}")


@dataclass(frozen=True, slots=True)
class Teller:
    """Tells surfaces of one call, secrets masked."""

    call: ToolCall
    on_event: OnEvent
    redact: Redact

    def __call__(self, kind: Any, text: str, approval: AskedApproval | None = None) -> None:
        asked = None
        if approval is not None:
            asked = replace(approval, command=_asked_for(approval.command, self.redact))
        shown = self._shown(text)
        self.on_event(
            ToolEvent(kind=kind, call_id=self.call.id, name=self.call.name, text=shown, approval=asked)
        )

    def end(self, output: ToolOutput, text: str) -> None:
        self.on_event(
            ToolEvent(
                kind="end",
                call_id=self.call.id,
                name=self.call.name,
                text=self._shown(text),
                is_error=output.is_error,
                ends_turn=output.ends_turn,
                details=_masked(output.details, self.redact),
            )
        )

    def _shown(self, text: str) -> str:
        """Masked before it is clipped, so that no half of a secret is left over."""
        return clip(masked_text(text[:_MASKED], self.redact), SHOWN)


def call_text(call: ToolCall) -> str:
    return json.dumps(dict(call.arguments), ensure_ascii=False, default=str)[:_MASKED]


def masked_text(text: str, redact: Redact) -> str:
    """Masked for show. Endless words, which nobody reads and which take long to search, are only counted."""
    return redact(_ENDLESS.sub(lambda run: f"[{len(run[0])} characters]", clean_text(text)))


def _asked_for(command: str, redact: Redact) -> str:
    """A command that a person decides on; that there is more of it must not escape them."""
    more = len(command) - _MASKED
    told = f" [… {more} more characters: look at the approval itself]" if more > 0 else ""
    return f"{_masked(command, redact)}{told}"


def _masked(value: Any, redact: Redact) -> Any:
    if isinstance(value, str):
        return masked_text(value[:_MASKED], redact)
    if isinstance(value, Mapping):
        return {str(name): _masked(item, redact) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(item, redact) for item in value]
    return value
