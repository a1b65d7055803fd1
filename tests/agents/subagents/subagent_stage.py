"""A stage for delegated work: the real loop, toolbox and rooms, and a model that answers by what is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from builders import KEY, PATIENCE, soon
from holdfast.agents.loop import Ask, Deliver, LoopParts, Runs, RunStatus
from holdfast.agents.loop.asks import Terms
from holdfast.agents.loop.planning import caller_of
from holdfast.agents.models.failover import Models
from holdfast.agents.subagents import Run, SubagentParts, Subagents
from holdfast.agents.subagents.checks import SpawnInput
from holdfast.agents.tools.outputs import Outputs
from holdfast.agents.tools.registry import Toolbox
from holdfast.agents.tools.session_tools import SessionTools
from holdfast.agents.tools.types import Caller, Tool, ToolOutput
from holdfast.clock import ManualClock
from holdfast.config import Config
from holdfast.context import ContextRoom
from holdfast.effects import Effect
from holdfast.home import Home
from holdfast.log import (
    OWNER,
    Entry,
    EntryFilter,
    Session,
    Store,
    Threads,
    Turn,
    agenda,
    entries,
    sessions,
    turns,
)
from holdfast.log.agenda import Runner
from holdfast.testing import Call, Calls, Say, ScriptedOpenAI
from holdfast.testing.script import Asked
from holdfast.testing.script import Turn as Answer

MODEL = "scripted/scripted"
TO = Deliver(kind="chat", target="chat:42", payload={"room": "42"})
RETURN = "Delegated work came back."
THREAD = Deliver(kind="chat", target="chat:thread", payload={"thread": "t1"})


class Nothing(BaseModel):
    """Takes nothing."""


class World:
    """One gateway's worth of parts over a store; leave the context and build another for a restart."""

    def __init__(self, store: Store, threads: Threads, home: Path, **options: Any) -> None:
        self.store, self.clock = store, store.clock
        self.asked: list[Asked] = []
        self.answers: dict[str, Callable[[Asked], Answer]] = {}
        self.server = ScriptedOpenAI(self._answer, models=["scripted", "other"])
        place = Home(home)
        place.prepare()
        (home / "workspace").mkdir(exist_ok=True)
        self.settings = _config(self.server.url, options.pop("agents", []), options.pop("subagents", {}))
        self.gate, self.begun = asyncio.Event(), asyncio.Event()
        self.holding = 0
        self.context = ContextRoom(store, threads, place, lambda: self.settings)
        self.models = Models(place, lambda: self.settings, store.clock, {}, sleep=self._slept)
        self.parts = SubagentParts(
            store=store,
            threads=threads,
            config=lambda: self.settings,
            context=lambda: self.context,
            models=self.models,
            open_thread=self._thread if options.pop("thread", False) else None,
        )
        self.subagents = Subagents(self.parts)
        self.toolbox = Toolbox(threads, store, Outputs(place, store.clock))
        self.toolbox.register_all([*self.subagents.tools(), *SessionTools(store, threads).tools()])
        self.toolbox.register(
            Tool(name="hold", input=Nothing, run=self._hold, effect=Effect.OWN, repeatable=False)
        )
        self.runs = Runs(
            LoopParts(
                store=store,
                threads=threads,
                config=lambda: self.settings,
                workspace=lambda _: home / "workspace",
                context=lambda: self.context,
                models=self.models,
                tools=self.toolbox,
                hooks=(self.subagents.hook,),
            )
        )
        for command in self.subagents.commands:
            self.runs.commands.register(command)
        self.runner = Runner(store, threads, idle_seconds=0.02)
        self.runs.register(self.runner)
        self.subagents.register(self.runner, self.runs)

    async def __aenter__(self) -> World:
        self.server.start()
        self.subagents.recover()
        self._task = asyncio.create_task(self.runner.run())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.gate.set()
        await self.runner.stop(5.0)
        await self._task
        await self.models.aclose()
        self.server.close()

    def when(self, words: str, *answers: Answer) -> None:
        """What the model says to a request whose last user's words hold these; the last answer repeats."""
        left = list(answers)
        self.answers[words] = lambda *_: left.pop(0) if len(left) > 1 else left[0]

    async def say(self, text: str, **fields: Any) -> RunStatus:
        accepted = await self.runs.accept(
            Ask(text=text, session_key=fields.pop("session_key", KEY), **fields)
        )
        return await soon(self.runs.wait(accepted.run_id))

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(4 * PATIENCE):
            while not holds():
                await asyncio.sleep(0.01)

    async def settled(self, count: int = 1, key: str = KEY) -> list[Run]:
        """The runs of a session, oldest first, once so many are there and each has arrived or lies ready."""

        def there() -> bool:
            runs = self.children(key)
            return len(runs) >= count and all(run.announce in ("delivered", "quiet") for run in runs)

        await self.until(there)
        return self.children(key)

    async def live(self, count: int = 1) -> list[Run]:
        await self.until(lambda: sum(run.status == "running" for run in self.children()) >= count)
        return self.children()

    def children(self, key: str = KEY) -> list[Run]:
        return self.subagents.children(key)[::-1]

    def session(self, key: str = KEY) -> Session:
        with self.store.read(OWNER) as tx:
            return sessions.find(tx, key)

    def turns(self, key: str = KEY) -> list[Turn]:
        with self.store.read(OWNER) as tx:
            return turns.listing(tx, sessions.find(tx, key).id)[::-1]

    def log(self, key: str = KEY) -> list[Entry]:
        with self.store.read(OWNER) as tx:
            return entries.listing(tx, EntryFilter(session_key=key), limit=500).entries[::-1]

    def returns(self, key: str = KEY) -> list[Turn]:
        return [turn for turn in self.turns(key) if turn.trigger == "subagent-return"]

    async def spawned(self, task: str, **fields: Any) -> Run:
        """A child, sent off from beside the loop."""
        about = self.models.about(self.models.choice(self.settings.agent("main"))[0])
        caller = caller_of(self.settings, self.session(), Terms(agent_id="main"), Path("/"), about)
        return await self.subagents.spawner.spawn(caller, SpawnInput(task=task, **fields))

    def requests(self, words: str) -> list[str]:
        """Whole requests, as text, of turns that were asked with these words; `return`: on what came back."""
        return [json.dumps(a.messages, ensure_ascii=False) for a in self.asked if _is_about(a, words)]

    def tools_of(self, words: str) -> set[str]:
        found = next(a for a in self.asked if _is_about(a, words))
        return {tool["function"]["name"] for tool in found.body.get("tools", ())}

    def due(self, kind: str) -> list[int]:
        """When what waits of a kind falls due."""
        with self.store.read(OWNER) as tx:
            return [item.due_at for item in agenda.listing(tx, statuses=[agenda.Status.QUEUED], kinds=[kind])]

    def forward(self, ms: int) -> None:
        assert isinstance(self.clock, ManualClock)
        self.clock.advance(ms=ms)

    def _answer(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        for words, answer in self.answers.items():
            if _is_about(asked, words):
                return answer(asked)
        return Say(f"I have no words for: {_since_carrier(asked)}")

    async def _slept(self, seconds: float) -> None:
        return None

    async def _hold(self, caller: Caller, given: Nothing, call_id: str) -> ToolOutput:
        self.begun.set()
        self.holding += 1
        await self.gate.wait()
        return ToolOutput(text="held")

    async def _thread(self, session: Session, origin: Deliver | None, name: str) -> Deliver:
        return THREAD


def spawn(task: str, **fields: Any) -> Call:
    return Call("sessions_spawn", {"task": task, **fields})


def spawns(*tasks: str, **fields: Any) -> Calls:
    return Calls(*(spawn(task, **fields) for task in tasks))


def _is_about(asked: Asked, words: str) -> bool:
    carrier, *said = _since_carrier(asked)
    return words == "return" if RETURN in carrier else any(words in text for text in said)


def _since_carrier(asked: Asked) -> list[str]:
    """The carrier of the turn, and what a person, or someone in their place, said behind it."""
    texts = [_text(m["content"]) for m in asked.messages if m["role"] == "user"]
    last = max((n for n, text in enumerate(texts) if text.startswith("<holdfast:now>")), default=0)
    return texts[last:]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content)


def _config(url: str, agents: list[dict[str, Any]], subagents: dict[str, Any]) -> Config:
    models = [
        {"id": name, "contextWindow": 128_000, "cost": {"input": 1.0, "output": 2.0}}
        for name in ("scripted", "other")
    ]
    provider = {"baseUrl": url, "apiKey": "key", "api": "openai-completions", "models": models}
    defaults = {"model": MODEL, "userTimezone": "UTC", "subagents": subagents, "maxConcurrent": 8}
    return Config.model_validate(
        {
            "models": {"providers": {"scripted": provider}},
            "agents": {"defaults": defaults, "list": [{"id": "main"}, *agents]},
            "board": {"classifier": {"enabled": False}},
        }
    )
