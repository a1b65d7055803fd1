"""How a terminal reaches an agent: what it asks of the other side, be that this process or a gateway."""

from __future__ import annotations

import getpass
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from holdfast.agents.models import Models
    from holdfast.config import Config
    from holdfast.home import Home

Decision = Literal["approve", "deny", "allow"]
Told = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """Whom one speaks to, as given: nothing is the default agent, its main session and its own model."""

    agent_id: str | None = None
    session_key: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class About:
    """Whom one speaks to, as it is. `builtin` says that no language model is connected."""

    agent_id: str
    session_key: str
    model: str
    builtin: bool
    where: str
    name: str | None = None


class Line(Protocol):
    """All answers are in the form that the gateway gives them."""

    async def about(self, target: Target) -> About: ...

    async def say(self, text: str, target: Target, *, steer: bool = False) -> Told:
        """Hand over a message; the word that it was accepted, with the `reply` of a command."""
        ...

    def events(self, run_id: str) -> AsyncGenerator[Told]:
        """What a run has said and says, to its end, however long that is and whatever breaks meanwhile."""
        ...

    async def status(self, run_id: str) -> Told: ...

    async def live(self, session_key: str) -> list[str]:
        """The runs of a session that have not ended, oldest first."""
        ...

    async def cancel(self, run_id: str) -> None: ...

    async def approval(self, id_: str) -> Told: ...

    async def decide(self, id_: str, decision: Decision) -> Told: ...


def named(target: Target, config: Config) -> tuple[str, str]:
    """The agent and the session that a target names; `NotFound` for an agent that is not configured."""
    from holdfast.ids import AgentId
    from holdfast.keys import MainKey, canonical_agent_id, canonical_key, parse_key

    key = None if target.session_key is None else canonical_key(target.session_key)
    given = None if target.agent_id is None else str(canonical_agent_id(target.agent_id))
    agent = (None if key is None else parse_key(key).agent_id) or given or config.default_agent_id
    config.agent(agent)
    return agent, str(key or MainKey(AgentId(agent)))


async def described(
    target: Target, home: Home, config: Config, models: Models, chosen: str | None, where: str
) -> About:
    """Who would answer; servers on this machine are asked first, since one of them may be it."""
    from holdfast.agents.models import RECALL
    from holdfast.cli.workspaces import workspace_of
    from holdfast.context import FileReader, Workspace

    agent, key = named(target, config)
    await models.discover()
    ref = models.choice(config.agent(agent), target.model or chosen)[0]
    files = Workspace(workspace_of(home, config, agent), FileReader())
    return About(agent, key, str(ref), ref == RECALL, where, files.identity(config.agent(agent)).name)


def who() -> str:
    """The person at this terminal, as approvals name them."""
    try:
        return f"cli:{getpass.getuser()}"
    except (OSError, KeyError):
        return "cli"
