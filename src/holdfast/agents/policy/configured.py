"""The policy of an agent as its config has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.agents.policy.tools import Elevation, Policy, Rules
from holdfast.config.section import overlay

if TYPE_CHECKING:
    from holdfast.config import Config, ToolPolicy, ToolsConfig
    from holdfast.config.tools import Exec, ToolLayer


def policy_of(config: Config, agent_id: str) -> Policy:
    """What `tools` says for all agents, and what this agent's own `tools` says over it."""
    scopes = _scopes(config, agent_id)
    by_provider: dict[str, tuple[Rules, ...]] = {}
    for place, tools in scopes:
        for name, rules in tools.by_provider.items():
            by_provider[name] = (
                *by_provider.get(name, ()),
                _rules(f"{place}.byProvider.{name}", rules),
            )
    return Policy(
        scopes=tuple(_rules(place, tools) for place, tools in scopes),
        by_provider=by_provider,
        owner_only=tuple(dict.fromkeys(name for _, tools in scopes for name in tools.owner_only)),
        elevation=tuple(
            Elevation(f"{place}.elevated", tools.elevated.enabled, dict(tools.elevated.allow_from))
            for place, tools in scopes
            if place == "tools" or "elevated" in tools.model_fields_set
        ),
        sandbox=tuple(_restriction(f"{place}.sandbox.tools", tools.sandbox) for place, tools in scopes),
        subagents=tuple(_restriction(f"{place}.subagents.tools", tools.subagents) for place, tools in scopes),
    )


def exec_settings(config: Config, agent_id: str) -> Exec:
    """How this agent's commands are approved: its own settings over those of all."""
    own = config.agent(agent_id).tools
    return config.tools.exec if own is None else overlay(config.tools.exec, own.exec)


def _scopes(config: Config, agent_id: str) -> list[tuple[str, ToolsConfig]]:
    own = config.agent(agent_id).tools
    shared: list[tuple[str, ToolsConfig]] = [("tools", config.tools)]
    return shared if own is None else [*shared, (f"agents.{agent_id}.tools", own)]


def _rules(place: str, tools: ToolPolicy) -> Rules:
    return Rules(place, tools.profile, tools.allow, tools.also_allow, tools.deny)


def _restriction(place: str, layer: ToolLayer) -> Rules:
    return Rules(place, allow=layer.tools.allow, deny=layer.tools.deny)
