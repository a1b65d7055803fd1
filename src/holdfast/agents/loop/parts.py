"""What the turn loop is made of: the rooms it asks, each through the little that it needs of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.agents.models.types import ModelAbout, ModelEvent, ModelReply, ModelRequest
from holdfast.agents.plugin_hooks import NO_HOOKS, HookBus
from holdfast.agents.policy import Policy
from holdfast.agents.tools.catalogue import Listed
from holdfast.agents.tools.events import ToolEvent
from holdfast.agents.tools.types import Caller, Tool
from holdfast.config import AgentSettings, Config
from holdfast.context import ToolCall, ToolResult, ToolSpec
from holdfast.log import Store, Threads

if TYPE_CHECKING:
    from holdfast.agents.loop.hooks import TurnHook
    from holdfast.agents.models.retrying import Attempt
    from holdfast.agents.models.types import ModelRef
    from holdfast.agents.skills import SkillRoom
    from holdfast.board.context_room import Board
    from holdfast.context import ContextRoom
    from holdfast.context.debug import DebugOutputs

Build = Callable[[ModelAbout], Awaitable[ModelRequest]]


class Answered(Protocol):
    """A whole answer, the model that gave it, and what was tried on the way."""

    @property
    def reply(self) -> ModelReply: ...
    @property
    def about(self) -> ModelAbout: ...
    @property
    def attempts(self) -> Sequence[Attempt]: ...


class Answers(Protocol):
    """The models: which are asked, and one answer from the first of them that gives one."""

    def about(self, ref: ModelRef) -> ModelAbout: ...

    def choice(self, settings: AgentSettings, override: str | None = None) -> list[ModelRef]: ...

    async def answer(
        self,
        refs: Sequence[ModelRef],
        build: Build,
        *,
        agent_id: str,
        on_event: Callable[[ModelEvent], None],
        session_key: str | None = None,
    ) -> Answered: ...


class Toolset(Protocol):
    """The tools: what is on offer to a caller, and running what a model asked for."""

    def get(self, name: str) -> Tool[Any]: ...

    def offered(self, caller: Caller, policy: Policy | None = None) -> tuple[ToolSpec, ...]: ...

    def listed(self, caller: Caller, policy: Policy | None = None) -> Listed: ...

    async def run_all(
        self, caller: Caller, calls: Sequence[ToolCall], on_event: Callable[[ToolEvent], None]
    ) -> list[ToolResult]: ...

    def compacted(self, turn_id: str) -> None: ...

    def forget(self, turn_id: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything a turn is run with. Rooms are asked for when they are used, the config every time anew."""

    store: Store
    threads: Threads
    config: Callable[[], Config]
    workspace: Callable[[str], Path]
    context: Callable[[], ContextRoom]
    models: Answers
    tools: Toolset
    board: Callable[[], Board] | None = None
    skills: Callable[[], SkillRoom] | None = None
    debug: DebugOutputs | None = None
    hooks: Sequence[TurnHook] = ()
    plugin_hooks: HookBus = NO_HOOKS
    sleep: Callable[[float], Awaitable[None]] = field(default=asyncio.sleep)
