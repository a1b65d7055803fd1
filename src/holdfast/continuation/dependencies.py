"""What continuation is made of: the rooms it asks, each through the little that it needs of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from holdfast.agents.loop import Ask
from holdfast.agents.loop.asks import Terms
from holdfast.agents.subagents import Errand, Run, SpawnInput
from holdfast.agents.tools.types import Caller
from holdfast.config import Compaction, Config
from holdfast.config.agents import Continuation
from holdfast.context import CompactResult
from holdfast.continuation.attachments import Payloads
from holdfast.continuation.limits import Budget
from holdfast.errors import NotFound
from holdfast.log import Chain, Session, Store, Threads, Tx


class AcceptedRun(Protocol):
    @property
    def run_id(self) -> str: ...


class Spawner(Protocol):
    """The subagents' room: sends a delegate off in the given transaction."""

    def send_off(self, tx: Tx, caller: Caller, given: SpawnInput, errand: Errand) -> Run: ...

    def settle(self, tx: Tx, child_key: str) -> None:
        """Something ended that a child elected: with it, perhaps, the child's run."""
        ...


CallerOf = Callable[[Session, Terms], Caller]
StopTurn = Callable[[str, str], Awaitable[object]]
"""Stops a turn by its id, for a reason, and waits until it has ended if that is soon."""

Accept = Callable[[Tx, Ask], AcceptedRun]
Compact = Callable[[Session, int, int], Awaitable[CompactResult]]
Compacted = Callable[[Tx, Session], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """Everything a continuation is run with; the config is read every time anew."""

    store: Store
    threads: Threads
    config: Callable[[], Config]
    accept: Accept
    payloads: Payloads
    spawner: Spawner | None = None
    caller_of: CallerOf | None = None
    stop_turn: StopTurn | None = None
    compact: Compact | None = None
    workspace: Callable[[str], Path] | None = None

    def budget(self, chain: Chain, agent_id: str) -> Budget:
        return Budget.of(self.settings(chain.agent_id or agent_id), self.settings(agent_id))

    _known: dict[str, tuple[Config, Continuation]] = field(default_factory=dict, repr=False)

    def settings(self, agent_id: str) -> Continuation:
        """An agent's settings as they hold now; of one that is gone nothing is enabled."""
        config = self.config()
        known = self._known.get(agent_id)
        if known is None or known[0] is not config:
            known = self._known[agent_id] = (config, _settings(config, agent_id))
        return known[1]

    def compaction(self, agent_id: str) -> Compaction:
        """When an agent's history is compacted, which says how full its window is."""
        config = self.config()
        try:
            return config.agent(agent_id or config.default_agent_id).compaction
        except NotFound:
            return Compaction()


def _settings(config: Config, agent_id: str) -> Continuation:
    try:
        return config.agent(agent_id or config.default_agent_id).continuation
    except NotFound:
        return Continuation(enabled=False)
