"""The subagents room: all that delegating takes, ready to be wired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from holdfast.agents.commands import Command
from holdfast.agents.loop.asks import Accepted, Ask
from holdfast.agents.subagents import due, handlers, registry
from holdfast.agents.subagents.commands import SubagentCommands
from holdfast.agents.subagents.ending import Watcher
from holdfast.agents.subagents.handlers import Launcher, RegistryRuns, Stopper, Sweeper, Waker
from holdfast.agents.subagents.hook import SubagentHook
from holdfast.agents.subagents.registry import Run
from holdfast.agents.subagents.spawning import Parts, Spawner
from holdfast.agents.subagents.tools import SubagentTools
from holdfast.agents.tools.types import Tool
from holdfast.board import supervision
from holdfast.log import SYSTEM, Tx
from holdfast.log.agenda import Runner


class Turns(Protocol):
    """What this room asks of the turn loop."""

    def accept_in(self, tx: Tx, ask: Ask) -> Accepted: ...

    async def stop_items(self, ids: Sequence[str], reason: str) -> None: ...


class Subagents:
    """Built before the loop, whose tools and hook it gives; `register` hands its work to the runner."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.spawner = Spawner(parts)
        self.hook = SubagentHook(parts)
        self.supervised = RegistryRuns()
        self._tools = SubagentTools(parts, self.spawner)
        self._commands = SubagentCommands(parts)

    def tools(self) -> tuple[Tool[Any], ...]:
        return self._tools.tools()

    @property
    def commands(self) -> tuple[Command, ...]:
        return self._commands.commands()

    def watch(self, watcher: Watcher) -> None:
        """Have another room take part in how runs end."""
        self._parts.watchers.append(watcher)

    def register(self, runner: Runner, turns: Turns) -> None:
        """Have this runner begin runs, wake requesters, stop runs, clear up and supervise."""
        parts = self._parts
        runner.register(due.LAUNCH, Launcher(parts, self.spawner).kind())
        runner.register(due.WAKE, Waker(parts.store, parts.threads, turns.accept_in).kind())
        runner.register(due.STOP, Stopper(parts, turns.stop_items).kind())
        runner.register(due.SWEEP, Sweeper(parts).kind())
        supervisor = supervision.Supervisor(
            parts.store, parts.threads, lambda: parts.config().board, runs=self.supervised
        )
        runner.register(supervision.KIND, supervisor.kind())

    def recover(self) -> int:
        """At start-up, before the runner: how many runs were found over and are told of now."""

        def write(tx: Tx) -> int:
            ended = handlers.recover(tx, self._parts.watchers)
            supervision.recover(tx, self._parts.config().board.supervision)
            return ended

        return self._parts.store.run(SYSTEM, write)

    def children(self, session_key: str, *, live: bool | None = None) -> list[Run]:
        """What a session delegated, newest first."""
        with self._parts.store.read(SYSTEM) as tx:
            return registry.children(tx, session_key, live=live)
