"""What the config says for the caller of a tool: the agent's own settings over those of all."""

from __future__ import annotations

from holdfast.agents.guests import open_to
from holdfast.agents.policy import Situation
from holdfast.agents.sandbox import is_sandboxed
from holdfast.agents.tools.types import Caller
from holdfast.config import ToolsConfig
from holdfast.config.agents import Sandbox
from holdfast.config.section import overlay


def tools_of(caller: Caller) -> ToolsConfig:
    """Settings of tools as they hold for this agent; the lists of the policy are not merged here."""
    own = caller.config.agent(caller.agent_id).tools
    return caller.config.tools if own is None else overlay(caller.config.tools, own)


def sandbox_of(caller: Caller) -> Sandbox:
    """The sandbox of the caller's session. Where others than the owner hear it, there is always one, with a
    folder of that session and nothing else."""
    own = caller.settings.sandbox
    if caller.alone:
        return own
    return own.model_copy(update={"mode": "all", "scope": "session", "workspace_access": "none"})


def sandboxed(caller: Caller) -> bool:
    return is_sandboxed(sandbox_of(caller), caller.session.key)


def has_folder(caller: Caller) -> bool:
    """Whether the owner gave those who hear the session a folder of their own."""
    return open_to(caller.config, caller.session.audience).folder


def has_skills(caller: Caller) -> bool:
    return open_to(caller.config, caller.session.audience).skills


def situation_of(caller: Caller, *, elevated: bool = False) -> Situation:
    """The caller as the policy looks at it."""
    return Situation(
        provider=caller.provider or None,
        model=caller.model or None,
        channel=caller.channel,
        sender=caller.sender,
        is_owner=caller.owner,
        sandboxed=sandboxed(caller),
        subagent=caller.subagent,
        may_spawn=caller.depth < caller.settings.subagents.max_spawn_depth,
        elevated=elevated,
    )
