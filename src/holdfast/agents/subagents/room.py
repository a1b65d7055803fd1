"""The subagents room: all that delegating takes, ready to be wired."""

from __future__ import annotations

from typing import Any, Protocol

from holdfast.agents.commands import Command
from holdfast.agents.loop.asks import Accepted, Ask
from holdfast.agents.loop.runs import RunStatus
from holdfast.agents.subagents import due, recovering, registry
from holdfast.agents.subagents.clearing import Stopper, Sweeper
from holdfast.agents.subagents.commands import SubagentCommands
from holdfast.agents.subagents.hook import SubagentHook
from holdfast.agents.subagents.registry import Run
from holdfast.agents.subagents.returning import Returned, Returner
from holdfast.agents.subagents.spawning import Parts, Spawner
from holdfast.agents.subagents.supervising import RegistryRuns
from holdfast.agents.subagents.tools import SubagentTools
from holdfast.agents.subagents.waking import Waker
from holdfast.agents.tools.types import Tool
from holdfast.board import supervision
from holdfast.log import SYSTEM, Tx
from holdfast.log.agenda import Runner


class Turns(Protocol):
    """What this room asks of the turn loop."""

    def accept_in(self, tx: Tx, ask: Ask) -> Accepted: ...

    async def cancel(self, run_id: str, *, reason: str = "cancelled") -> RunStatus: ...


class Subagents:
    """Built before the loop, whose tools and hook it gives; `register` hands its work to the runner."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.spawner = Spawner(parts)
        self.hook = SubagentHook(parts.config)
        self.supervised = RegistryRuns()
        self._tools = SubagentTools(parts, self.spawner)
        self._commands = SubagentCommands(parts)

    def tools(self) -> tuple[Tool[Any], ...]:
        return self._tools.tools()

    @property
    def commands(self) -> tuple[Command, ...]:
        return self._commands.commands()

    def register(self, runner: Runner, turns: Turns, returned: Returned = lambda tx, run: None) -> None:
        """Have this runner wake requesters, stop runs, clear up and supervise.

        `returned` takes in what comes back to another room, which spawned it under a key of its own.
        """
        parts = self._parts

        async def cancel(run_id: str, reason: str) -> None:
            await turns.cancel(run_id, reason=reason)

        runner.register(due.WAKE, Waker(parts.store, parts.threads, turns.accept_in).kind())
        runner.register(due.STOP, Stopper(parts, cancel).kind())
        runner.register(due.SWEEP, Sweeper(parts).kind())
        runner.register(due.RETURN, Returner(parts.store, parts.threads, returned).kind())
        supervisor = supervision.Supervisor(
            parts.store, parts.threads, lambda: parts.config().board, runs=self.supervised
        )
        runner.register(supervision.KIND, supervisor.kind())

    def recover(self) -> int:
        """At start-up, before the runner: how many runs were found over and are told of now."""

        def write(tx: Tx) -> int:
            ended = recovering.recover(tx)
            supervision.recover(tx, self._parts.config().board.supervision)
            return ended

        return self._parts.store.run(SYSTEM, write)

    def children(self, session_key: str, *, live: bool | None = None) -> list[Run]:
        """What a session delegated, newest first."""
        with self._parts.store.read(SYSTEM) as tx:
            return registry.children(tx, session_key, live=live)
