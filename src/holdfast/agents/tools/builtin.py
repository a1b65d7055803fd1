"""The tools that come with Holdfast, built from the parts that they need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.agents.sandbox import Backend
from holdfast.agents.skills import SkillRoom
from holdfast.agents.tools.adapters import board_adapters, context_adapters, memory_adapters, skill_adapter
from holdfast.agents.tools.commands import Commands
from holdfast.agents.tools.exec_tool import ExecTool
from holdfast.agents.tools.fetching import Fetcher
from holdfast.agents.tools.file_reading import FileReading
from holdfast.agents.tools.file_writing import FileWriting
from holdfast.agents.tools.outputs import Outputs
from holdfast.agents.tools.registry import Toolbox
from holdfast.agents.tools.session_tools import Courier, SessionTools
from holdfast.agents.tools.types import Tool
from holdfast.agents.tools.web_fetch import WebFetch
from holdfast.agents.tools.web_search import WebSearch
from holdfast.board.context_room import Board
from holdfast.clock import Clock
from holdfast.home import Home
from holdfast.log import Store, Threads
from holdfast.memory import MemoryService


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the built-in tools work on. Memory and board are opened when a tool first asks for them.

    `commands` must be closed when the gateway stops: that ends what still runs.
    """

    store: Store
    threads: Threads
    home: Home
    clock: Clock
    memory: Callable[[], MemoryService]
    board: Callable[[], Board]
    skills: SkillRoom
    courier: Courier | None = None
    recalls: Callable[[str], bool] = lambda agent_id: True
    """Whether an agent's context engine has tools that read back what it no longer shows."""
    fetcher: Fetcher = field(default_factory=Fetcher)
    commands: Commands = field(default_factory=Commands)
    sandbox: Callable[[], Backend | None] = lambda: None
    """What starts the commands of sandboxed sessions in place of what the config names, if anything does."""

    def outputs(self) -> Outputs:
        return Outputs(self.home, self.clock)


def builtin_tools(parts: Parts) -> list[Tool[Any]]:
    """All of them; which are offered is for policy and config to say."""
    store, threads, home = parts.store, parts.threads, parts.home
    return [
        FileReading(home, threads, parts.outputs()).tool(),
        *FileWriting(home, threads, store).tools(),
        ExecTool(store, threads, home, parts.commands, parts.skills.env, parts.sandbox).tool(),
        WebFetch(threads, parts.fetcher).tool(),
        WebSearch().tool(),
        *SessionTools(store, threads, parts.courier).tools(),
        *memory_adapters(parts.memory, threads),
        *board_adapters(parts.board, threads),
        *context_adapters(store, threads, parts.recalls),
        skill_adapter(parts.skills, threads),
    ]


def builtin_toolbox(parts: Parts) -> Toolbox:
    """A toolbox with the built-in tools in it; other rooms `register` theirs."""
    toolbox = Toolbox(parts.threads, parts.store, parts.outputs())
    toolbox.register_all(builtin_tools(parts))
    return toolbox
