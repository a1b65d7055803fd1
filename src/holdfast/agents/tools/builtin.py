"""The tools that come with Holdfast; those of memory, board, context and skills in the caller's name.

What they read may have been said anywhere, so that all of it is handed on as another session's words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from holdfast.agents.safe_files import opened
from holdfast.agents.sandbox import Backend
from holdfast.agents.skills import Skill, SkillRoom, Tier, location
from holdfast.agents.tools.commands import BackgroundCommands
from holdfast.agents.tools.exec_tool import ExecTool
from holdfast.agents.tools.fetching import Fetcher
from holdfast.agents.tools.file_tools import FileReading, FileWriting
from holdfast.agents.tools.outputs import Outputs
from holdfast.agents.tools.registry import Toolbox
from holdfast.agents.tools.session_tools import Courier, SessionTools
from holdfast.agents.tools.settings import cap_of, has_skills
from holdfast.agents.tools.types import Caller, Tool, ToolOutput, always, never
from holdfast.agents.tools.web_tools import WebFetch, WebSearch
from holdfast.board import tools as board_tools
from holdfast.board.context_room import Board
from holdfast.clock import Clock
from holdfast.context import Trust
from holdfast.context.lossless.recall import TOOLS, answer_tool
from holdfast.effects import DeclaredTool, Effect
from holdfast.errors import InvalidInput, TooLarge
from holdfast.home import Home
from holdfast.log import Store, Threads
from holdfast.memory import MemoryService
from holdfast.memory import tools as memory_tools

_MOST_SKILL_FILE: Final = 1024**2
# A page is written as JSON around it, and must not be cut for that.
_PAGE_SHARE: Final = 0.75

Call = Callable[[Caller, Mapping[str, Any]], Mapping[str, Any]]


def memory_adapters(memory: Callable[[], MemoryService], threads: Threads) -> list[Tool[Any]]:
    def call(name: str) -> Call:
        return lambda caller, given: memory_tools.call(
            memory(), name, given, agent=caller.agent_id, reader=caller.reader, chat=caller.chat
        )

    return [_adapter(name, tool, call(name), threads) for name, tool in memory_tools.TOOLS.items()]


def board_adapters(board: Callable[[], Board], threads: Threads) -> list[Tool[Any]]:
    def call(name: str) -> Call:
        return lambda caller, given: board_tools.call(board(), name, given, _who(caller))

    return [_adapter(name, tool, call(name), threads) for name, tool in board_tools.TOOLS.items()]


def _who(caller: Caller) -> board_tools.Caller:
    return board_tools.Caller(caller.agent_id, caller.reader, caller.session.key)


def context_adapters(store: Store, threads: Threads, offered: Callable[[str], bool]) -> list[Tool[Any]]:
    """Offered where the context engine of an agent says so: `legacy` has no tools."""

    def call(name: str) -> Call:
        return lambda caller, given: answer_tool(
            store, name, given, session=caller.session, most_chars=int(cap_of(caller) * _PAGE_SHARE)
        )

    made = (_adapter(name, tool, call(name), threads) for name, tool in TOOLS.items())
    return [replace(tool, offered=lambda caller: offered(caller.agent_id)) for tool in made]


class SkillInput(BaseModel):
    """Read how a skill is done before you use it."""

    model_config = ConfigDict(extra="forbid")
    name: Annotated[
        str | None,
        Field(min_length=1, max_length=64, description="As in the list of skills; unset: the list."),
    ] = None
    file: Annotated[
        str | None, Field(max_length=1024, description="Another file of the skill that it mentions.")
    ] = None


def skill_adapter(skills: SkillRoom, threads: Threads) -> Tool[SkillInput]:
    async def run(caller: Caller, given: SkillInput, _: str) -> ToolOutput:
        return await threads(_skill, skills, caller, given)

    return Tool(
        name="skill_read",
        input=SkillInput,
        run=run,
        effect=Effect.NONE,
        repeatable=True,
        for_others=has_skills,
    )


def _skill(skills: SkillRoom, caller: Caller, given: SkillInput) -> ToolOutput:
    if given.name is None:
        every = [one for one in skills.eligible(caller.agent_id) if one.model_invocable]
        lines = [f"{one.name}: {' '.join(one.description.split())}" for one in every]
        return ToolOutput(text="\n".join(lines) or "There are no skills.")
    skill = skills.read(caller.agent_id, given.name)
    if given.file is None:
        where = f"\nIts folder: {location(skill, Path.home())}" if caller.alone else ""
        return ToolOutput(text=f"# {skill.name}\n{skill.description}{where}\n\n{skill.body}")
    steps = [step for step in given.file.split("/") if step not in ("", ".")]
    if ".." in steps or not steps or given.file.startswith(("/", "~")) or "\0" in given.file:
        raise InvalidInput(f"{given.file[:200]!r} is not a path within the skill", code="path_refused")
    root, above = _from(skill, caller)
    with opened(root, (*above, *steps)) as stream:
        data = stream.read(_MOST_SKILL_FILE + 1)
    if len(data) > _MOST_SKILL_FILE or b"\0" in data[:8192]:
        raise TooLarge(f"{given.file!r} is not a text of at most {_MOST_SKILL_FILE} bytes")
    return ToolOutput(text=data.decode("utf-8", "replace"))


def _from(skill: Skill, caller: Caller) -> tuple[Path, tuple[str, ...]]:
    """Where a skill's files begin, and the steps to it that may not be links: all that an agent can make."""
    if skill.tier is not Tier.WORKSPACE:
        return skill.folder, ()
    return caller.workspace, skill.folder.relative_to(caller.workspace).parts


def _adapter(name: str, tool: DeclaredTool, call: Call, threads: Threads) -> Tool[Any]:
    trust = Trust.OTHER_SESSION if tool.effect is Effect.NONE else Trust.TOOL

    async def run(caller: Caller, given: BaseModel, _: str) -> ToolOutput:
        sent = given.model_dump(by_alias=True, exclude_unset=True)
        found = await threads(call, caller, sent)
        text = json.dumps(found, ensure_ascii=False, default=str)
        return ToolOutput(text=text, trust=trust)

    return Tool(
        name=name,
        input=tool.input,
        run=run,
        effect=tool.effect,
        repeatable=tool.repeatable,
        for_others=always if tool.for_others else never,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolParts:
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
    commands: BackgroundCommands = field(default_factory=BackgroundCommands)
    sandbox: Callable[[], Backend | None] = lambda: None
    """What starts the commands of sandboxed sessions in place of what the config names, if anything does."""

    def outputs(self) -> Outputs:
        return Outputs(self.home, self.clock)


def builtin_tools(parts: ToolParts) -> list[Tool[Any]]:
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


def builtin_toolbox(parts: ToolParts) -> Toolbox:
    """A toolbox with the built-in tools in it; other rooms `register` theirs."""
    toolbox = Toolbox(parts.threads, parts.store, parts.outputs())
    toolbox.register_all(builtin_tools(parts))
    return toolbox
