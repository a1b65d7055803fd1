"""What the doctor looks at in tools and skills: names in the policy that stand for none, missing sandboxes,
and files of skills and identities that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from holdfast.cli.findings import Finding, Patient

if TYPE_CHECKING:
    from holdfast.config import Config

_MOST_FILES: Final = 10
_MOST_IDENTITY: Final = 256 * 1024


def check_tools(patient: Patient) -> Iterator[Finding]:
    """A misspelt name in a deny list forbids nothing, and nobody would notice."""
    config = patient.config
    if config is None:
        yield Finding("warn", "tools were not looked at: the config cannot be used", "See `config` above.")
        return
    found = [*_unknown(patient, config), *_sandboxes(patient, config)]
    yield from found
    if not found:
        yield Finding("ok", "every name in the tool policy is a tool's")


def _unknown(patient: Patient, config: Config) -> Iterator[Finding]:
    from holdfast.agents.policy import policy_of, unknown_names
    from holdfast.cli.plugin_checks import may_bring

    every = [one for agent in config.agent_list for one in unknown_names(policy_of(config, agent.id))]
    plugins = ", ".join(may_bring(patient.home, config, "tools")) if every else ""
    unless = f"Correct it, unless it is a tool of a plugin's ({plugins}: see `holdfast plugins doctor`)."
    mend = unless if plugins else "Correct it; until then it allows and forbids nothing."
    for place, name in dict.fromkeys((one.place, one.name) for one in every):
        yield Finding("warn", f"{place} names {name!r}, which is no tool and no group", mend)


def _sandboxes(patient: Patient, config: Config) -> Iterator[Finding]:
    from holdfast.agents.sandbox import backend_of
    from holdfast.cli.plugin_checks import slot_holder
    from holdfast.errors import Unavailable

    for agent in config.agent_list:
        sandbox = config.agent(agent.id).sandbox
        if sandbox.mode == "off":
            continue
        plugin = slot_holder(patient.home, config, "sandbox")
        if plugin is not None:
            yield Finding("ok", f"agent {agent.id}: sandboxed by plugin {plugin}")
            continue
        try:
            backend = backend_of(sandbox)
        except Unavailable as error:
            yield Finding("fail", f"agent {agent.id}: {error.message}", error.hint)
        else:
            yield Finding("ok", f"agent {agent.id}: sandboxed by {backend.name}")


def check_skills(patient: Patient) -> Iterator[Finding]:
    """A skill that cannot be read is one that an agent does not have, and nobody would notice."""
    config = patient.config
    if config is None:
        return
    broken = [one for agent in config.agent_list for one in _broken_files(patient, config, agent.id)]
    for path, (reason, hint) in list(dict(broken).items())[:_MOST_FILES]:
        yield Finding("warn", f"{path}: {reason}", hint or "Correct it; see `holdfast skills check`.")
    more = len(dict(broken)) - _MOST_FILES
    if more > 0:
        yield Finding("warn", f"{more} more cannot be read", "See `holdfast skills check`.")
    if not broken:
        yield Finding("ok", "every skill and identity can be read")


def _broken_files(patient: Patient, config: Config, agent_id: str) -> Iterator[tuple[str, tuple[str, str]]]:
    from holdfast.cli.plugin_checks import skills_of
    from holdfast.cli.workspaces import workspace_of
    from holdfast.frontmatter import BadFrontmatter, read_frontmatter

    for one in skills_of(patient.home, config).found(agent_id).broken:
        yield str(one.path), (one.reason, one.hint)
    identity = workspace_of(patient.home, config, agent_id) / "IDENTITY.md"
    text = identity.read_text("utf-8", "replace")[:_MOST_IDENTITY] if identity.is_file() else ""
    if text.lstrip("\ufeff").startswith("---"):
        try:
            read_frontmatter(text)
        except BadFrontmatter as error:
            yield str(identity), (error.message, error.hint)
