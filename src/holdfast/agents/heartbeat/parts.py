"""What heartbeats are made of, and where an agent's heartbeat runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.agents.heartbeat import checklist
from holdfast.agents.heartbeat.surfaces import HeardAt, nobody_knows
from holdfast.config import AgentSettings, Config
from holdfast.context.workspace import FileReader
from holdfast.errors import InvalidInput, NotFound
from holdfast.ids import AgentId
from holdfast.keys import MainKey, canonical_key, parse_key
from holdfast.log import Store, Threads, Tx, agenda


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The config is asked for every time anew, so that a reload takes effect."""

    store: Store
    threads: Threads
    config: Callable[[], Config]
    workspace: Callable[[str], Path]
    heard_at: HeardAt = nobody_knows
    reader: FileReader = field(default_factory=FileReader)

    def items(self, agent_id: str, name: str) -> tuple[checklist.Item, ...] | None:
        """What a workspace file lists; None where there is no such file."""
        found = self.reader.read(self.workspace(agent_id), name)
        return None if found.problem is not None else checklist.parse(found.text)

    def settings(self, agent_id: str) -> AgentSettings:
        """An agent's settings; for one that is no longer there those of any."""
        config = self.config()
        try:
            return config.agent(agent_id)
        except NotFound:
            return config.agents.defaults


def session_key(named: str, agent_id: str) -> str:
    """`main`, the rest of a key of the agent's own, or a key in full; never another agent's."""
    if named == "main":
        return str(MainKey(AgentId(agent_id)))
    own = named.startswith(("agent:", "clawboard:", "channel:"))
    key = canonical_key(named if own else f"agent:{agent_id}:{named}")
    if parse_key(key).agent_id not in (None, agent_id):
        raise InvalidInput(
            f"session {key!r} is another agent's than {agent_id}",
            hint='Use "main", or a session key of this agent.',
        )
    return key


def is_busy(tx: Tx, key: str) -> bool:
    """Whether something runs in a session's lane, or is due there and waits."""
    found = agenda.listing(tx, lane=key, limit=20)
    return any(item.status is agenda.Status.RUNNING or item.due_at <= tx.now for item in found)
