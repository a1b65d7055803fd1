"""What continuation is made of: the rooms it asks, each through the little that it needs of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from holdfast.agents.loop import Ask
from holdfast.config import Compaction, Config
from holdfast.config.autonomy import Continuation
from holdfast.context import CompactResult
from holdfast.continuation.orphans import Registry
from holdfast.continuation.payloads import Attachment, Payloads
from holdfast.errors import NotFound
from holdfast.log import Session, Store, Threads, Tx


class AcceptedRun(Protocol):
    @property
    def run_id(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnOrder:
    """A delegate to spawn. `run_id` is its own and never used twice; `terms` are in whose name it runs."""

    run_id: str
    record_id: str
    owner: Session
    task: str
    terms: Mapping[str, Any]
    hop: int
    model: str | None = None
    attachments: tuple[Attachment, ...] = ()
    mount_path: str | None = None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Spawned:
    """The child's session; None while it is not known yet."""

    child_session_key: str | None


class Spawner(Protocol):
    """The subagent room. What it writes is in the given transaction: a claim and its child are one."""

    def spawn(self, tx: Tx, order: SpawnOrder) -> Spawned:
        """Raises before anything is written, or the child's run is accepted."""
        ...


Accept = Callable[[Tx, Ask], AcceptedRun]
Compact = Callable[[Session, int, int], Awaitable[CompactResult]]
Compacted = Callable[[Tx, Session], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything a continuation is run with; the config is read every time anew."""

    store: Store
    threads: Threads
    config: Callable[[], Config]
    accept: Accept
    payloads: Payloads
    spawner: Spawner | None = None
    registry: Registry | None = None
    compact: Compact | None = None
    workspace: Callable[[str], Path] | None = None

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
