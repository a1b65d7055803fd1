"""What the doctor looks at in tools: names in the policy that stand for none, and missing sandboxes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.cli.findings import Finding, Patient

if TYPE_CHECKING:
    from holdfast.config import Config


def check_tools(patient: Patient) -> Iterator[Finding]:
    """A misspelt name in a deny list forbids nothing, and nobody would notice."""
    config = patient.config
    if config is None:
        yield Finding("warn", "tools were not looked at: the config cannot be used", "See `config` above.")
        return
    found = [*_unknown(config), *_sandboxes(config)]
    yield from found
    if not found:
        yield Finding("ok", "every name in the tool policy is a tool's")


def _unknown(config: Config) -> Iterator[Finding]:
    from holdfast.agents.policy import policy_of, unknown_names

    every = [one for agent in config.agent_list for one in unknown_names(policy_of(config, agent.id))]
    for place, name in dict.fromkeys((one.place, one.name) for one in every):
        said = f"{place} names {name!r}, which is no tool and no group"
        yield Finding("warn", said, "Correct it; until then it allows and forbids nothing.")


def _sandboxes(config: Config) -> Iterator[Finding]:
    from holdfast.agents.sandbox import backend_of
    from holdfast.errors import Unavailable

    for agent in config.agent_list:
        sandbox = config.agent(agent.id).sandbox
        if sandbox.mode == "off":
            continue
        try:
            backend = backend_of(sandbox)
        except Unavailable as error:
            yield Finding("fail", f"agent {agent.id}: {error.message}", error.hint)
        else:
            yield Finding("ok", f"agent {agent.id}: sandboxed by {backend.name}")
