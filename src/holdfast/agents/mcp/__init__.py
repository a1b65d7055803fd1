"""Servers of others, over the Model Context Protocol: their tools, held back until a person has seen them.

The SDK is in the extra `holdfast[mcp]`, and is loaded when a server is configured.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from holdfast.agents.approvals import ApprovalStatus, decision, requests
from holdfast.agents.approvals.requests import Approval, ApprovalRequest
from holdfast.agents.mcp.connection import Connection, Definition, Sorted, sorted_by_pins
from holdfast.agents.tools.checks import approved
from holdfast.agents.tools.registry import Toolbox
from holdfast.agents.tools.settings import tools_of
from holdfast.agents.tools.types import Caller, Tool, ToolOutput
from holdfast.clock import DAY_MS
from holdfast.config import Config
from holdfast.config.tools import McpServer
from holdfast.context import ToolSpec, Trust
from holdfast.effects import Effect
from holdfast.errors import HoldfastError
from holdfast.home import Home, private_opener
from holdfast.log import SYSTEM, Store, Threads, Tx
from holdfast.text import clip

__all__ = ["McpServers", "ServerState"]


log = logging.getLogger(__name__)

AGREE_DAYS: Final = 30
_QUESTION_CHARS: Final = 18_000
_ASKS: Final = "mcp"
"""What a question about a server's tools stands under, where those about calls have the tool's name."""


class Anything(BaseModel):
    """The server checks its own input; what a model sends is handed on as it is."""

    model_config = ConfigDict(extra="allow")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTool(Tool[Anything]):
    """A tool of another's server: what a model is told of it is the server's word, fenced."""

    definition: Definition

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.definition.description, dict(self.definition.parameters))


@dataclass(frozen=True, slots=True)
class ServerState:
    """How a server stands, for people."""

    name: str
    state: Literal["ready", "starting", "failing", "off"]
    tools: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    error: str | None = None
    restarts: int = 0


class Pins:
    """What a person agreed to, by server and tool, in a file of the home."""

    def __init__(self, home: Home) -> None:
        self._path = home.path / "mcp" / "pins.json"

    def of(self, server: str) -> dict[str, str]:
        found = self._read().get(server, {})
        return dict(found) if isinstance(found, dict) else {}

    def agree(self, server: str, tools: Mapping[str, str]) -> None:
        kept = self._read()
        kept[server] = {**self.of(server), **tools}
        self._write(kept)

    def forget(self, server: str) -> None:
        kept = self._read()
        if kept.pop(server, None) is not None:
            self._write(kept)

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, kept: Mapping[str, Any]) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._path.with_suffix(".draft")
        with open(draft, "w", opener=private_opener) as stream:
            json.dump(kept, stream, indent=1, sort_keys=True)
        draft.replace(self._path)


class McpServers:
    """The servers that the config names, as it stands now. `run` looks after them until it is cancelled."""

    def __init__(
        self, *, store: Store, threads: Threads, home: Home, config: Callable[[], Config], tools: Toolbox
    ) -> None:
        self._store = store
        self._threads = threads
        self._config = config
        self._tools = tools
        self._folder = home.path / "mcp"
        self.pins = Pins(home)
        self._running: dict[str, tuple[McpServer, Connection, asyncio.Task[None]]] = {}
        self._sorted: dict[str, Sorted] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._refused: set[str] = set()
        self._ending: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Follow the config: begin what it names, end what it names no more, and begin anew what changed."""
        try:
            while not stop.is_set():
                self._follow()
                with_pause = asyncio.create_task(stop.wait())
                await asyncio.wait({with_pause}, timeout=1.0)
                with_pause.cancel()
        finally:
            for name in list(self._running):
                self._end(name)
            await asyncio.gather(*self._ending, return_exceptions=True)

    def _follow(self) -> None:
        wanted = {name: one for name, one in self._config().mcp.servers.items() if one.enabled}
        for name, (settings, _, _) in list(self._running.items()):
            if wanted.get(name) != settings:
                self._end(name)
                if name not in wanted:
                    self._asking[name] = asyncio.create_task(self._threads(self._withdraw, name))
        for name, settings in wanted.items():
            if name not in self._running:
                self._begin(name, settings)

    def _begin(self, name: str, settings: McpServer) -> None:
        connection = Connection(name, settings, self._folder, lambda found: self._take(name, settings, found))
        self._running[name] = settings, connection, asyncio.create_task(connection.run())

    def _end(self, name: str) -> None:
        _, connection, task = self._running.pop(name)
        connection.end(task)
        self._until_ended(task)
        self._ask_no_more(name)

    def _ask_no_more(self, name: str) -> None:
        asking = self._asking.pop(name, None)
        if asking is not None:
            asking.cancel()
            self._until_ended(asking)

    def _until_ended(self, task: asyncio.Task[None]) -> None:
        """What ends is waited for when all ends: programs take a moment."""
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def states(self) -> list[ServerState]:
        """How each server of the config stands."""
        return [self._state(name, one) for name, one in self._config().mcp.servers.items()]

    def _state(self, name: str, settings: McpServer) -> ServerState:
        if not settings.enabled or name not in self._running:
            return ServerState(name, "off")
        connection = self._running[name][1]
        found = self._sorted.get(name, Sorted())
        state: Literal["ready", "starting", "failing"] = "starting" if connection.error is None else "failing"
        return ServerState(
            name,
            "ready" if connection.ready else state,
            tuple(one.name for one in found.agreed),
            tuple(one.name for one in found.held),
            connection.error,
            connection.restarts,
        )

    def _take(self, name: str, settings: McpServer, found: tuple[Definition, ...]) -> None:
        """What a server offers now: what a person agreed to goes into the toolbox, the rest is asked for."""
        taken = tuple(one for one in found if _matches(one.tool, settings.tools))
        parts = sorted_by_pins(taken, self.pins.of(name))
        self._sorted[name] = parts
        prefix = f"mcp_{name}_"
        self._tools.replace_all(prefix, [self._tool(one, settings) for one in parts.agreed])
        held = _fitting(tuple(one for one in parts.held if one.digest not in self._refused))
        if held:
            self._ask_no_more(name)
            asked = _held_request(name, held, parts.changed, self._config().default_agent_id)
            self._asking[name] = asyncio.create_task(self._ask(name, settings, taken, held, asked))

    async def _ask(
        self,
        name: str,
        settings: McpServer,
        taken: tuple[Definition, ...],
        held: tuple[Definition, ...],
        asked: ApprovalRequest,
    ) -> None:
        """Have a person agree to what is new or other; until then it is not there."""
        try:
            approval = await self._threads(self._requested_anew, asked)
            answer = await decision(self._store, self._threads, approval.id)
            if answer.status is ApprovalStatus.APPROVED:
                await self._threads(self._redeem, approval.id, asked)
                self.pins.agree(name, {one.tool: one.digest for one in held})
            if answer.status is ApprovalStatus.DENIED:
                self._refused |= {one.digest for one in held}
            self._asking.pop(name, None)
            self._take(name, settings, taken)
        except HoldfastError as error:
            log.warning("tools of the MCP server %s wait, and cannot be asked for: %s", name, error.message)

    def _requested_anew(self, asked: ApprovalRequest) -> Approval:
        """One question a server at a time: what it said before is not what would be agreed to."""

        def ask(tx: Tx) -> Approval:
            about = {"server": str(asked.arguments["server"])}
            requests.withdraw_about(tx, _ASKS, about, but=asked.digest)
            return requests.request(tx, asked, lasts_ms=AGREE_DAYS * DAY_MS)

        return self._store.run(SYSTEM, ask)

    def _withdraw(self, name: str) -> None:
        def withdraw(tx: Tx) -> None:
            requests.withdraw_about(tx, _ASKS, {"server": name})

        self._store.run(SYSTEM, withdraw)

    def _requested(self, asked: ApprovalRequest, lasts_ms: int) -> Approval:
        return self._store.run(SYSTEM, lambda tx: requests.request(tx, asked, lasts_ms=lasts_ms))

    def _redeem(self, id_: str, asked: ApprovalRequest) -> None:
        def use(tx: Tx) -> None:
            requests.use(tx, id_, asked)

        self._store.run(SYSTEM, use)

    def _tool(self, definition: Definition, settings: McpServer) -> ForeignTool:
        """Unknown tools are taken to change the world; only a trusted server's word says otherwise."""
        reads = settings.trusted and definition.reads_only
        unasked = reads or _matches(definition.tool, settings.unasked)

        async def run(caller: Caller, given: Anything, _: str) -> ToolOutput:
            arguments = dict(given.model_extra or {})
            if not unasked:
                await self._allowed(caller, definition, arguments)
            return await self._called(definition, arguments, settings)

        return ForeignTool(
            name=definition.name,
            input=Anything,
            run=run,
            effect=Effect.NONE if reads else Effect.WORLD,
            repeatable=reads,
            definition=definition,
        )

    async def _allowed(self, caller: Caller, definition: Definition, arguments: dict[str, Any]) -> None:
        asked = ApprovalRequest(
            agent_id=caller.agent_id,
            tool=definition.name,
            command=f"{definition.name} {json.dumps(arguments, ensure_ascii=False, default=str)}",
            arguments={"arguments": arguments, "definition": definition.digest},
            reason=f"a tool of the MCP server {definition.server}",
            session_key=caller.session.key,
            turn_id=caller.turn_id,
        )
        lasts = tools_of(caller).exec.ask_timeout_seconds * 1000
        waiting = await self._threads(self._requested, asked, lasts)
        await approved(self._store, self._threads, caller, waiting, "the call")
        await self._threads(self._redeem, waiting.id, asked)

    async def _called(
        self, definition: Definition, arguments: dict[str, Any], settings: McpServer
    ) -> ToolOutput:
        connection = self._running[definition.server][1]
        result = await connection.call(definition.tool, arguments)
        text = clip(answer_text(result), settings.max_chars)
        return ToolOutput(text=text, is_error=bool(result.is_error), trust=Trust.OUTSIDE)


def answer_text(result: Any) -> str:
    """What a result says, as text: of pictures and the like only that they are there."""
    parts = []
    for block in result.content:
        if block.type == "text":
            parts.append(block.text)
        elif block.type == "resource_link":
            parts.append(f"[resource {block.uri}]")
        elif block.type == "resource" and getattr(block.resource, "text", None) is not None:
            parts.append(block.resource.text)
        else:
            parts.append(f"[{block.type}]")
    text = "\n".join(parts)
    if not text.strip() and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return text or "(no answer)"


def _matches(name: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _fitting(held: tuple[Definition, ...]) -> tuple[Definition, ...]:
    """As many as can be shown whole in one question: nobody agrees to what they could not see."""
    count, chars = 0, 0
    for one in held:
        chars += len(one.shown)
        if count and chars > _QUESTION_CHARS:
            break
        count += 1
    return held[:count]


def _held_request(
    name: str, held: tuple[Definition, ...], changed: tuple[Definition, ...], agent_id: str
) -> ApprovalRequest:
    """One question for what a server has new or other, with all that it says of it."""
    lines = [f"{'changed' if one in changed else 'new'}: {one.name}" for one in held]
    said = "\n".join(one.shown for one in held)
    why = "it says something else of its tools now" if changed else "it was not used before"
    return ApprovalRequest(
        agent_id=agent_id,
        tool=_ASKS,
        command=f"use tools of the MCP server {name}:\n" + "\n".join(lines) + f"\n\n{said}",
        arguments={"server": name, "tools": {one.tool: one.digest for one in held}},
        reason=f"MCP server {name}: {why}",
        why_not_always="it is asked for once, and again when it changes",
    )
