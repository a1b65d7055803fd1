"""A stage for chains: two processes on one store, each with the real runner, loop and rooms.

Only what a model would say is played, one line at a time, and time passes by hand. A process dies between two
transactions.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

import pytest

from builders import PATIENCE
from holdfast.agents.loop import Ask, LoopParts, Runs, parts
from holdfast.agents.loop import run_status as run_status_module
from holdfast.agents.loop import runs as runs_module
from holdfast.agents.loop import turn as turn_module
from holdfast.agents.loop.asks import Terms
from holdfast.agents.loop.journal import Journal
from holdfast.agents.models.types import ModelRef, ModelReply, Usage
from holdfast.agents.subagents import SubagentParts, Subagents, handlers, spawning
from holdfast.agents.tools.types import Caller, Tool
from holdfast.clock import ManualClock
from holdfast.config import Config
from holdfast.context import FileReader, ShownData, ToolCall, ToolResult, Workspace
from holdfast.continuation import Continuation
from holdfast.errors import HoldfastError, Unavailable
from holdfast.log import OWNER, Session, Store, Turn, Tx, agenda, chains, turns
from holdfast.log import leases as owners
from holdfast.log.turns import Committed
from holdfast.memory.scope import Chat

T = TypeVar("T")
A, B = "agent:main:main", "agent:main:main|thread:7"
STEPS, SENT = 4, 3
CONTINUATION: Final = {
    "enabled": True,
    "maxChainLength": STEPS,
    "maxPendingWork": 3,
    "crossSessionTargeting": "enabled",
}
CONFIG: Final = Config.model_validate(
    {
        "agents": {
            "defaults": {
                "continuation": CONTINUATION,
                "subagents": {"maxSpawnDepth": 2, "maxPerChain": SENT, "archiveAfterMinutes": 0},
                "heartbeat": {"every": "0m"},
            }
        },
        "board": {"enabled": False},
    }
)
_SCRIPTED: Final = ModelRef("scripted", "scripted")


class Dead(OSError):
    """The process is no more: nothing that it still does reaches the store."""


class Mortal:
    """Runs what a process writes, one after another, giving way before each; then the process may die."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def __call__(self, work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        await asyncio.sleep(0)
        process = self._process
        if process.dead:
            raise Dead
        process.world.at_work = process.name
        done = work(*args, **kwargs)
        process.writes_left -= 1
        if process.writes_left == 0:
            process.dead = True
            raise Dead
        return done

    def close(self) -> None:
        """Nothing was opened."""


@dataclass
class Line:
    """What the model does next in a turn: call a tool, say its last words, or fail."""

    tool: str | None = None
    given: dict[str, Any] = field(default_factory=dict)
    says: str | None = None
    tokens: int = 0


@dataclass
class Playing:
    """A turn that runs, and waits for its next line."""

    turn: Turn
    process: Process
    lines: asyncio.Queue[Line] = field(default_factory=asyncio.Queue)
    waits: bool = False


class Played(turn_module._Attempt):
    """An attempt of the real loop whose model is played."""

    async def _work(self, settled: Any, journal: Journal, reporter: Any) -> Committed:
        process = cast("Process", settled.process)
        playing = Playing(journal.turn, process)
        process.world.begins(journal.turn)
        process.world.playing[journal.turn.id] = playing
        try:
            while True:
                playing.waits = True
                line = await playing.lines.get()
                playing.waits = False
                journal.spent += Usage(input=line.tokens)
                if line.tool is not None:
                    await self._call(process, journal, line)
                elif line.says is None:
                    raise Unavailable("the model is gone")
                elif (done := await self._say(process, journal, line)) is not None:
                    return done
        except Exception as error:
            if not isinstance(error, HoldfastError | Dead):
                process.world.faults.append(error)
            raise
        finally:
            if process.world.playing.get(journal.turn.id) is playing:
                del process.world.playing[journal.turn.id]

    async def _call(self, process: Process, journal: Journal, line: Line) -> None:
        assert line.tool is not None
        tool, id_ = process.tools[line.tool], f"call-{next(process.world.numbers)}"
        try:
            given = tool.input(**line.given)
            text = (
                await tool.run(process.caller(journal.session, self.terms, journal.turn.id), given, id_)
            ).text
        except HoldfastError as error:
            text = error.message
        call = ToolCall(id=id_, name=line.tool, arguments=line.given)
        reply = ModelReply(model=_SCRIPTED, calls=(call,), finish="tool_calls")
        result = ToolResult(text=text, call_id=id_, name=line.tool, is_error=False)

        def write(tx: Tx) -> None:
            journal.whole_round(tx, reply, [result])
            tx.on_commit(lambda: process.world.billed(journal.turn, line.tokens))

        await self._parts.threads(self._parts.store.run, OWNER, write)

    async def _say(self, process: Process, journal: Journal, line: Line) -> Committed | None:
        heard = parts.listen(self._parts.hooks, line.says or "", self.terms, ShownData())
        reply = ModelReply(model=_SCRIPTED, text=heard.text) if heard.text.strip() else None
        model = SimpleNamespace(
            last=None, built=None, pressure=None, prompt_tokens=None, number=1, attempts=()
        )

        def write() -> Committed | None:
            done = self._commit(journal, cast("Any", model), reply, heard)
            process.world.billed(journal.turn, line.tokens)
            return done

        return await self._parts.threads(write)


class Counting(agenda.Runner):
    """The runner of a process, which counts what it has begun."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.world.store, process.threads, owner=process.name)
        self._process = process

    def _start(self, item: agenda.Item) -> None:
        self._process.begun += 1
        super()._start(item)


class Process:
    """One gateway's worth of rooms around a runner of its own."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.dead, self.writes_left, self.begun = False, 0, 0
        self.threads = cast("Any", Mortal(self))
        common: dict[str, Any] = {"store": world.store, "threads": self.threads, "config": lambda: CONFIG}
        workspace = Workspace(world.folder, FileReader())
        context = cast(
            "Any",
            SimpleNamespace(
                prepare_subagent_spawn=_nothing, subagent_ended=_nothing, workspace=lambda _: workspace
            ),
        )
        self.subagents = Subagents(SubagentParts(**common, context=lambda: context, models=cast("Any", None)))
        told: list[parts.TurnHook] = [self.subagents.hook]
        self.runs = Runs(
            LoopParts(
                **common,
                workspace=lambda _: world.folder,
                context=lambda: context,
                models=cast("Any", None),
                tools=cast("Any", SimpleNamespace(forget=lambda _: None)),
                hooks=told,
                sleep=_never,
            )
        )
        self.runs.loop._planner = cast("Any", SimpleNamespace(plan=self._plan))
        self.room = Continuation(
            **common,
            accept=self.runs.accept_in,
            payloads=world.folder / "files",
            spawner=self.subagents.spawner,
            caller_of=lambda session, terms: self.caller(session, terms, ""),
            stop_turn=lambda id_, reason: self.runs.cancel(id_, reason=reason),
            workspace=lambda _: world.folder,
        )
        self.subagents.watch(self.room.hook)
        told.insert(0, self.room.hook)
        for command in self.subagents.commands:
            self.runs.commands.register(command)
        rooms = (*self.room.tools(), *self.subagents.tools())
        self.tools: dict[str, Tool[Any]] = {tool.name: tool for tool in rooms}
        self.runner = Counting(self)
        self.runs.register(self.runner)
        self.subagents.register(self.runner, self.runs)
        self.room.register(self.runner)
        self._keeping = contextlib.AsyncExitStack()

    async def start(self) -> None:
        """As a gateway starts: what others left is looked after, then what is due."""
        await self._keeping.enter_async_context(self.runner._leases_kept())
        await self.threads(self.subagents.recover)
        await self.room.recover()
        await self.runner.recover()

    async def end(self) -> None:
        """The process is gone, with all that ran in it."""
        self.dead = self.runner._stopping = True
        while tasks := [task for _, task in self.runner._jobs.values()]:
            for task in tasks:
                task.cancel()
            await asyncio.sleep(0)
        await self._keeping.aclose()

    async def step(self) -> None:
        """Do all that is due and can be done, until every turn that runs waits for its model."""
        with contextlib.suppress(Dead):
            await self.runner._heed_clock()
            begun = -1
            while begun != self.begun:
                begun = self.begun
                await self.runner._dispatch()
                await self.settle()
        await self.settle()

    async def settle(self) -> None:
        while not self.dead and any(not self._waits(job) for job, _ in list(self.runner._jobs.values())):
            await asyncio.sleep(0)

    def _waits(self, job: agenda.Job) -> bool:
        playing = self.world.playing.get(str(job.item.payload.get("turnId")))
        return playing is not None and playing.process is self and playing.waits and playing.lines.empty()

    async def _plan(self, *_: Any) -> Any:
        return SimpleNamespace(timeout_seconds=1.0, process=self)

    def caller(self, session: Session, terms: Terms, turn_id: str) -> Caller:
        depth = int((session.meta or {}).get("depth", 0))
        return Caller(
            config=CONFIG,
            settings=CONFIG.agent("main"),
            agent_id="main",
            session=session,
            turn_id=turn_id,
            chat=Chat.of(session.key),
            workspace=self.world.folder,
            owner=terms.owner,
            sender=terms.sender,
            depth=depth,
        )


class World:
    """The store, the clock and the processes, with an account of its own of what happened."""

    def __init__(self, store: Store, clock: ManualClock, folder: Path) -> None:
        self.store, self.clock, self.folder = store, clock, folder
        self.loop = asyncio.new_event_loop()
        self.playing: dict[str, Playing] = {}
        self.numbers = itertools.count(1)
        self.bills: Counter[str] = Counter()
        self.begun_late: list[str] = []
        self.stopped: set[str] = set()
        self.halted = False
        self.faults: list[BaseException] = []
        self.meanwhile: Process | None = None
        self.at_work = ""
        self._dead: set[str] = set()
        self.processes = [self._opened(), self._opened()]
        for process in self.processes:
            self.run(process.start())

    def _opened(self) -> Process:
        return Process(self, f"process-{next(self.numbers)}")

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, PATIENCE))

    def close(self) -> None:
        for process in self.processes:
            self.run(process.end())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        self.store.close()

    def begins(self, turn: Turn) -> None:
        """A turn came to its model: that must not be where someone was told that all or its chain stands."""
        if self.halted or turn.chain_id in self.stopped:
            self.begun_late.append(turn.id)

    def billed(self, turn: Turn, tokens: int) -> None:
        self.bills[turn.chain_id or turn.id] += tokens

    def is_dead(self, owner: str) -> bool:
        return owner in self._dead

    def say(self, key: str, text: str = "hello") -> str:
        process = self.processes[0]
        return str(self.run(process.runs.accept(Ask(text=text, session_key=key))).run_id)

    def command(self, key: str, text: str, which: int = 0) -> str:
        return (
            self._with_others(self.processes[which].runs.accept(Ask(text=text, session_key=key))).reply or ""
        )

    def stop_chain(self, id_: str, which: int) -> None:
        self._with_others(self.processes[which].runs.stop_chain(id_))

    def halt(self, which: int) -> None:
        self._with_others(self.processes[which].runs.halt())
        self.halted = True

    def release(self, which: int) -> None:
        self.halted = False
        self.run(self.processes[which].runs.release())

    def _with_others(self, work: Coroutine[Any, Any, T]) -> T:
        """Something somebody asks for, while another process may be at work."""
        other = self.meanwhile

        async def both() -> T:
            task = asyncio.ensure_future(work)
            if other is not None:
                await other.step()
            return await task

        done = self.run(both())
        with self.store.read(OWNER) as tx:
            self.stopped |= {chain.id for chain in chains.listing(tx, limit=200) if chain.stopped}
        return done

    def wind_up(self) -> None:
        """Give what was asked to end the time for it."""

        async def turns_of_the_loop() -> None:
            for _ in range(50):
                await asyncio.sleep(0)

        self.run(turns_of_the_loop())
        for process in self.processes:
            self.run(process.settle())

    def renew(self) -> None:
        """As every third of a lease."""
        for process in self.processes:
            self.run(process.runner._renew_all())
            self.run(process.settle())

    def take_over(self, which: int) -> None:
        """As after every renewal: what nobody has renewed is taken back; who slept hears of it later."""
        self.run(self.processes[which].runner.recover())
        self.renew()

    def heed_clock(self) -> None:
        for process in self.processes:
            self.run(process.runner._heed_clock())

    def step(self, which: int) -> None:
        self.run(self.processes[which].step())
        self.bury()

    def play(self, playing: Playing, line: Line) -> None:
        """One line of a turn, to where it waits for the next or has ended."""
        playing.lines.put_nowait(line)
        self.step(self.processes.index(playing.process))

    def die(self, which: int) -> None:
        self.processes[which].dead = True
        self.bury()

    def bury(self) -> None:
        """Who died is missed by the other, and replaced."""
        for which, process in enumerate(self.processes):
            if not process.dead:
                continue
            self.run(process.end())
            self._dead.add(process.name)
            for id_ in [id_ for id_, one in self.playing.items() if one.process is process]:
                del self.playing[id_]
            other = self.processes[1 - which]
            if not other.dead:
                self.run(other.runner.recover())
            self.processes[which] = self._opened()
            self.run(self.processes[which].start())

    def turns_of(self, chain_id: str) -> list[Turn]:
        with self.store.read(OWNER) as tx:
            return turns.get_many(tx, chains.turns_of(tx, chain_id))


def staged(patch: pytest.MonkeyPatch, world: Callable[[], World]) -> None:
    """Have the loop play its models, and processes be told apart by their names."""
    patch.setattr(turn_module, "_Attempt", Played)
    patch.setattr(runs_module, "STOP_SECONDS", 0.2)
    patch.setattr(run_status_module, "_PAUSE_SECONDS", 0.0)
    patch.setattr(owners, "is_dead", lambda owner: world().is_dead(owner))
    patch.setattr(handlers, "is_dead", lambda owner: world().is_dead(owner))
    patch.setattr(spawning, "this_process", lambda: world().at_work)


async def _nothing(*_: Any, **__: Any) -> None:
    """The context room has nothing to do here."""


async def _never(_: float) -> None:
    await asyncio.Event().wait()
