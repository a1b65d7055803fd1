"""A tool as the runtime holds it: what it takes, what it does to the world, and how it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel

from holdfast.agents.tools.events import Progress, nobody_follows
from holdfast.config import AgentSettings, Config
from holdfast.context import Image, ToolSpec, Trust
from holdfast.effects import Effect
from holdfast.log import FOR_OWNER, Reader, Session
from holdfast.memory.scope import Chat

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
