"""A stage for the turn loop: real rooms, real model clients against a scripted server, tools of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from builders import KEY, soon
from holdfast.agents.approvals import ApprovalRequest, decision, requests
from holdfast.agents.loop import Ask, LoopParts, RunEvent, Runs, RunStatus, TurnHook
from holdfast.agents.models.failover import Models
from holdfast.agents.skills import SkillRoom
from holdfast.agents.tools.outputs import Outputs
from holdfast.agents.tools.registry import Toolbox
from holdfast.agents.tools.types import Caller, Tool, ToolOutput
from holdfast.board.context_room import Board
from holdfast.config import Config
from holdfast.context import ContextRoom, Trust
from holdfast.context.debug import DebugOutputs
from holdfast.effects import Effect
from holdfast.home import Home
from holdfast.log import OWNER, Entry, EntryFilter, Session, Store, Threads, Turn, entries, sessions, turns
from holdfast.log.agenda import Runner
from holdfast.testing import Script, ScriptedOpenAI

MODEL = "scripted/scripted"


class Word(BaseModel):
    """Takes a word."""

    word: str = ""


class Stage:
    """Everything that a turn needs, over one store. Use it as an asynchronous context."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        home: Path,
        script: Script = (),
        *,
        config: dict[str, Any] | None = None,
        window: int = 128_000,
        board: bool = False,
        env: dict[str, str] | None = None,
        url: str | None = None,
    ) -> None:
        self.store = store
        self.server = ScriptedOpenAI(script, models=["scripted", "other"])
        self.place = Home(home)
        self.place.prepare()
        self.workspace = home / "workspace"
        self.workspace.mkdir(exist_ok=True)
        for name in ("AGENTS.md", "TOOLS.md"):
            (self.workspace / name).write_text(f"Rules of {name}.\n")
        self.settings = _config(config or {}, url or self.server.url, window)
        self.waits: list[float] = []
        self.timeouts: list[asyncio.Event] = []
        self.limits: list[float] = []
        self.toolbox = Toolbox(threads, store, Outputs(self.place, store.clock))
        self.ran: list[str] = []
        self.gate = asyncio.Event()
        self.begun = asyncio.Event()
        self.toolbox.register_all(self._tools())
        self.models = Models(
            self.place,
            lambda: self.settings,
            store.clock,
            {},
            sleep=self._paused,
        )
        self.context = ContextRoom(store, threads, self.place, lambda: self.settings)
        self.skills = SkillRoom(self.place, lambda: self.settings, lambda _: self.workspace)
        self.board = Board(store, lambda: self.settings.board) if board else None
        self.hooks: list[TurnHook] = []
        self.parts = LoopParts(
            store=store,
            threads=threads,
            config=lambda: self.settings,
            workspace=lambda _: self.workspace,
            context=lambda: self.context,
            models=self.models,
            tools=self.toolbox,
            board=None if self.board is None else (lambda: self.board),  # type: ignore[return-value,arg-type]
            skills=lambda: self.skills,
            debug=DebugOutputs(self.place.logs, store.clock, env or {}),
            sleep=self._timeout,
            hooks=self.hooks,
        )
        self.runner = Runner(store, threads, idle_seconds=0.5)
        self.runs = Runs(self.parts)
        self.runs.register(self.runner)

    async def __aenter__(self) -> Stage:
        self.server.start()
        self._task = asyncio.create_task(self.runner.run())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.gate.set()
        await self.runner.stop(5.0)
        await self._task
        await self.models.aclose()
        self.server.close()
        if self.board is not None:
            self.board.close()

    async def say(self, text: str, **fields: Any) -> RunStatus:
        """A message, and how its run ended."""
        accepted = await self.runs.accept(ask(text, **fields))
        return await soon(self.runs.wait(accepted.run_id))

    async def events(self, run_id: str) -> list[RunEvent]:
        async def read() -> list[RunEvent]:
            return [event async for event in self.runs.subscribe(run_id)]

        return await soon(read())

    def session(self, key: str = KEY) -> Session:
        with self.store.read(OWNER) as tx:
            return sessions.find(tx, key)

    def turns(self, key: str = KEY) -> list[Turn]:
        with self.store.read(OWNER) as tx:
            return turns.listing(tx, sessions.find(tx, key).id)[::-1]

    def log(self, key: str = KEY) -> list[Entry]:
        with self.store.read(OWNER) as tx:
            found = entries.listing(tx, EntryFilter(session_key=key), limit=1000, raw=True).entries
        return sorted(found, key=lambda entry: entry.position)

    def spoken(self, key: str = KEY) -> list[tuple[str | None, str]]:
        """Role and words of what models are shown."""
        return [(e.role, e.content) for e in self.log(key) if e.type != "system"]

    async def _paused(self, seconds: float) -> None:
        self.waits.append(seconds)

    async def _timeout(self, seconds: float) -> None:
        """The limit of a run is an event that a test sets."""
        bell = asyncio.Event()
        self.timeouts.append(bell)
        self.limits.append(seconds)
        await bell.wait()

    def _tools(self) -> Sequence[Tool[Any]]:
        async def look(caller: Caller, given: Word, call_id: str) -> ToolOutput:
            self.ran.append(f"look {given.word}")
            return ToolOutput(text=f"seen {given.word}")

        async def act(caller: Caller, given: Word, call_id: str) -> ToolOutput:
            self.ran.append(f"act {given.word}")
            caller.progress("half")
            return ToolOutput(text=f"done {given.word}")

        async def wait(caller: Caller, given: Word, call_id: str) -> ToolOutput:
            self.ran.append(f"wait {given.word}")
            self.begun.set()
            await self.gate.wait()
            return ToolOutput(text=f"waited {given.word}")

        async def fetch(caller: Caller, given: Word, call_id: str) -> ToolOutput:
            return ToolOutput(text=f"from outside: {given.word}", trust=Trust.OUTSIDE)

        async def finish(caller: Caller, given: Word, call_id: str) -> ToolOutput:
            return ToolOutput(text="ended", ends_turn=True)

        async def asking(caller: Caller, given: Word, call_id: str) -> ToolOutput:
            request = ApprovalRequest(
                agent_id=caller.agent_id,
                tool="asking",
                command=given.word,
                arguments={},
                reason="because",
                session_key=caller.session.key,
                turn_id=caller.turn_id,
            )
            with self.store.write(OWNER) as tx:
                id_ = requests.request(tx, request, lasts_ms=60_000).id
            return ToolOutput(text=str((await decision(self.store, self.parts.threads, id_)).status))

        async def broken(caller: Caller, given: Word, call_id: str) -> ToolOutput:
            raise RuntimeError("a fault")

        return [
            Tool(name="look", input=Word, run=look, effect=Effect.NONE, repeatable=True),
            Tool(name="fetch", input=Word, run=fetch, effect=Effect.NONE, repeatable=True),
            Tool(name="broken", input=Word, run=broken, effect=Effect.NONE, repeatable=True),
            Tool(name="act", input=Word, run=act, effect=Effect.WORLD, repeatable=False),
            Tool(name="wait", input=Word, run=wait, effect=Effect.WORLD, repeatable=False),
            Tool(name="asking", input=Word, run=asking, effect=Effect.WORLD, repeatable=False),
            Tool(name="finish", input=Word, run=finish, effect=Effect.OWN, repeatable=False),
        ]


def ask(text: str, **fields: Any) -> Ask:
    return Ask(text=text, session_key=fields.pop("session_key", KEY), **fields)


@contextlib.asynccontextmanager
async def staged(
    store: Store, threads: Threads, home: Path, script: Script = (), **options: Any
) -> AsyncIterator[Stage]:
    async with Stage(store, threads, home, script, **options) as stage:
        yield stage


def _config(given: dict[str, Any], url: str, window: int) -> Config:
    entry = {"contextWindow": window, "cost": {"input": 1.0, "output": 2.0}}
    models = [{"id": "scripted", **entry}, {"id": "other", **entry}]
    provider = {"baseUrl": url, "apiKey": "key", "api": "openai-completions", "models": models}
    agents = {"defaults": {"model": MODEL, "userTimezone": "UTC", **given.pop("defaults", {})}}
    return Config.model_validate({"models": {"providers": {"scripted": provider}}, "agents": agents, **given})
