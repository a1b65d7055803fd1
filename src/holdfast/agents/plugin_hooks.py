"""What plugins hear of, and what they may change: an event for each hook, and a value for each change.

Events are frozen, and what a handler gives back is checked here before it counts. An event says who may read
what it tells; a plugin hears of it only if its own audience may.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Final, Protocol, Self, TypeVar

from holdfast.errors import InvalidInput
from holdfast.log import FOR_OWNER, Session
from holdfast.log.audience import parse_audience
from holdfast.text import clean_json, clean_text, clip

MOST_ADDED: Final = 16_000
MOST_SAID: Final = 100_000
MOST_PARAMS: Final = 256 * 1024
MOST_REASON: Final = 300


@dataclass(frozen=True, slots=True)
class Blocked:
    """Who stopped something, and why."""

    plugin: str
    reason: str

    def __str__(self) -> str:
        return f"plugin {self.plugin}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEvent:
    """Something that happens. `change` is what its handlers may give back; None: they only hear of it."""

    hook: ClassVar[str] = ""
    change: ClassVar[type | None] = None
    audience: str = FOR_OWNER

    def changed(self, change: Any, plugin: str) -> Self:
        """The event with a change made; `TypeError` or `ValueError` for one that it does not allow."""
        raise TypeError(f"{self.hook} changes nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayStart(HookEvent):
    hook = "gateway_start"
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayStop(HookEvent):
    hook = "gateway_stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class _InSession(HookEvent):
    session_key: str
    session_id: str = ""
    agent_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStart(_InSession):
    """The first turn of a session begins."""

    hook = "session_start"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnd(_InSession):
    """A session is over: it was left by hand, or a later one of the same key has begun."""

    hook = "session_end"
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived(_InSession):
    """Words from outside were accepted."""

    hook = "message_received"
    text: str
    run_id: str
    channel: str | None = None
    sender: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageChange:
    """Other words, or none: `cancel` says why nothing is sent."""

    text: str | None = None
    cancel: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSending(HookEvent):
    """A message is about to go out on a channel."""

    hook = "message_sending"
    change = MessageChange
    target: str
    channel: str
    text: str
    session_key: str | None = None
    blocked: Blocked | None = None

    def changed(self, change: MessageChange, plugin: str) -> Self:
        if change.cancel is not None:
            return replace(self, blocked=_blocked(plugin, change.cancel))
        if change.text is None:
            return self
        text = _words(change.text, MOST_SAID)
        if not text.strip():
            raise ValueError("text is empty: say `cancel` to send nothing")
        return replace(self, text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSent(HookEvent):
    """A message went out on a channel, or failed to for good."""

    hook = "message_sent"
    target: str
    channel: str
    text: str
    ok: bool = True
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptAddition:
    """Words for the prompt. They stand there as the plugin's own section, fenced as data.

    They are left out of every prompt whose reply somebody may see who is not of this `audience`.
    """

    text: str
    audience: str = FOR_OWNER


@dataclass(frozen=True, slots=True)
class Added:
    plugin: str
    text: str
    audience: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforePromptBuild(_InSession):
    """A turn is about to be built. `prompt` is what it answers."""

    hook = "before_prompt_build"
    change = PromptAddition
    turn_id: str
    trigger: str
    prompt: str
    added: tuple[Added, ...] = ()

    def changed(self, change: PromptAddition, plugin: str) -> Self:
        text = _words(change.text, MOST_ADDED)
        who = _audience(change.audience)
        return replace(self, added=(*self.added, Added(plugin, text, who))) if text.strip() else self


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallChange:
    """Why the model is not to be called: the turn fails with that."""

    block: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeModelCall(_InSession):
    """A model is about to be called with a prompt of about so many tokens."""

    hook = "before_model_call"
    change = ModelCallChange
    turn_id: str
    model: str
    call: int
    prompt_tokens: int
    tools: tuple[str, ...] = ()
    blocked: Blocked | None = None

    def changed(self, change: ModelCallChange, plugin: str) -> Self:
        return self if change.block is None else replace(self, blocked=_blocked(plugin, change.block))


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterModelCall(_InSession):
    """A model answered."""

    hook = "after_model_call"
    turn_id: str
    model: str
    text: str
    tools: tuple[str, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallChange:
    """Other arguments, which policy and approvals then judge; or why the tool is not run."""

    params: Mapping[str, Any] | None = None
    block: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeToolCall(_InSession):
    """A model asked for a tool. Nothing was decided on it yet."""

    hook = "before_tool_call"
    change = ToolCallChange
    turn_id: str
    tool: str
    call_id: str
    params: Mapping[str, Any] = field(default_factory=dict)
    blocked: Blocked | None = None
    changed_by: tuple[str, ...] = ()

    def changed(self, change: ToolCallChange, plugin: str) -> Self:
        if change.block is not None:
            return replace(self, blocked=_blocked(plugin, change.block))
        if change.params is None or change.params == self.params:
            return self
        params = _params(change.params)
        return replace(self, params=params, changed_by=(*self.changed_by, plugin))


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterToolCall(_InSession):
    """A tool was run, or refused; `result` is what the model reads."""

    hook = "after_tool_call"
    turn_id: str
    tool: str
    call_id: str
    params: Mapping[str, Any] = field(default_factory=dict)
    result: str = ""
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeCompaction(_InSession):
    """The runtime has a session's history compacted."""

    hook = "before_compaction"
    reason: str = ""


def before_compaction(session: Session, reason: str) -> BeforeCompaction:
    return BeforeCompaction(
        audience=session.audience,
        session_key=session.key,
        session_id=session.id,
        agent_id=session.agent_id,
        reason=reason,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterCompaction(_InSession):
    """A session's history was compacted, whoever asked for it."""

    hook = "after_compaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnChange:
    """Why a subagent is not sent off."""

    block: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentSpawning(_InSession):
    """A session is about to send a subagent off; `session_key` is the one that asks."""

    hook = "subagent_spawning"
    change = SpawnChange
    task: str
    blocked: Blocked | None = None

    def changed(self, change: SpawnChange, plugin: str) -> Self:
        return self if change.block is None else replace(self, blocked=_blocked(plugin, change.block))


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentSpawned(_InSession):
    """A subagent is on its way; `session_key` is the one that asked."""

    hook = "subagent_spawned"
    child_key: str
    run_id: str
    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentEnded(_InSession):
    """A subagent has ended; `session_key` is the one that asked for it."""

    hook = "subagent_ended"
    child_key: str
    run_id: str
    outcome: str = ""


EVENTS: Final[Mapping[str, type[HookEvent]]] = MappingProxyType(
    {
        kind.hook: kind
        for kind in (
            *(GatewayStart, GatewayStop, SessionStart, SessionEnd),
            *(MessageReceived, MessageSending, MessageSent),
            *(BeforePromptBuild, BeforeModelCall, AfterModelCall, BeforeToolCall, AfterToolCall),
            *(BeforeCompaction, AfterCompaction, SubagentSpawning, SubagentSpawned, SubagentEnded),
        )
    }
)
E = TypeVar("E", bound=HookEvent)


class HookBus(Protocol):
    """Where the runtime tells plugins of what happens. Cheap where nobody listens: ask `wants` first."""

    def wants(self, event: type[HookEvent]) -> bool: ...

    async def ask(self, event: E) -> E:
        """The event as the handlers leave it, one after another; never raises, and takes bounded time."""
        ...

    def tell(self, event: HookEvent) -> None:
        """Tell handlers, in the order of events, off the caller's path; from any thread."""
        ...


class NoHooks:
    """Nobody listens."""

    def wants(self, event: type[HookEvent]) -> bool:
        return False

    async def ask(self, event: E) -> E:
        return event

    def tell(self, event: HookEvent) -> None:
        return None


NO_HOOKS: Final = NoHooks()


def _blocked(plugin: str, reason: object) -> Blocked:
    return Blocked(plugin, clip(" ".join(_words(reason, 10_000).split()), MOST_REASON) or "it gave no reason")


def _words(text: object, most: int) -> str:
    if not isinstance(text, str):
        raise TypeError(f"expected text, found {type(text).__name__}")
    if len(text) > most:
        raise ValueError(f"{len(text)} characters are more than {most}")
    return clean_text(text)


def _audience(text: object) -> str:
    try:
        return parse_audience(_words(text, 1000))
    except InvalidInput as error:
        raise ValueError(error.message) from None


def _params(given: object) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise TypeError(f"expected params to be an object, found {type(given).__name__}")
    try:
        text = json.dumps(dict(given), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"params are no JSON: {error}") from None
    if len(text) > MOST_PARAMS:
        raise ValueError(f"params are larger than {MOST_PARAMS} characters")
    found: dict[str, Any] = clean_json(json.loads(text))
    return found
