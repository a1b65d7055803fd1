"""Whether a skill can be used here, and every reason why not."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.agents.skills.skill import Skill, Tier

if TYPE_CHECKING:
    from holdfast.config.parts import SkillsConfig


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a skill is measured against: this system, its programs, the environment and the config."""

    platform: str = sys.platform
    has_bin: Callable[[str], bool] = lambda name: shutil.which(name) is not None
    env: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a skill is not offered; `kind` for programs, `text` for people."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Checked:
    """A skill and what stands in its way; nothing: it is offered."""

    skill: Skill
    reasons: tuple[Reason, ...] = ()

    @property
    def eligible(self) -> bool:
        return not self.reasons


def check(
    skill: Skill, config: SkillsConfig, around: Surroundings, only: tuple[str, ...] | None = None
) -> Checked:
    """`always` skips what the skill asks of the system, not what the operator switched off."""
    held = [*_switched_off(skill, config, only)]
    if not skill.requires.always:
        held += _unmet(skill, config, around)
    return Checked(skill, tuple(held))


def _switched_off(skill: Skill, config: SkillsConfig, only: tuple[str, ...] | None) -> list[Reason]:
    reasons: list[Reason] = []
    entry = config.entries.get(skill.name)
    if entry is not None and not entry.enabled:
        reasons.append(Reason("disabled", f"skills.entries.{skill.name}.enabled is false"))
    bundled = config.allow_bundled
    if skill.tier is Tier.BUNDLED and bundled is not None and skill.name not in bundled:
        reasons.append(Reason("bundled", "skills.allowBundled does not name it"))
    if only is not None and skill.name not in only:
        reasons.append(Reason("agent", "the agent's skills do not name it"))
    return reasons


def _unmet(skill: Skill, config: SkillsConfig, around: Surroundings) -> list[Reason]:
    needs = skill.requires
    reasons: list[Reason] = []
    if needs.os and around.platform not in needs.os:
        reasons.append(Reason("os", f"made for {', '.join(needs.os)}, this is {around.platform}"))
    reasons += [Reason("bins", f"{name} is not installed") for name in needs.bins if not around.has_bin(name)]
    if needs.any_bins and not any(map(around.has_bin, needs.any_bins)):
        reasons.append(Reason("anyBins", f"none of {', '.join(needs.any_bins)} is installed"))
    reasons += [
        Reason("env", f"{name} is not set") for name in needs.env if not _has_env(skill, name, config, around)
    ]
    reasons += [
        Reason("config", f"{path} is not set in the config")
        for path in needs.config
        if not _is_set(around.config, path)
    ]
    return reasons


def _has_env(skill: Skill, name: str, config: SkillsConfig, around: Surroundings) -> bool:
    """Set in the environment, or in the skill's own entry of the config."""
    entry = config.entries.get(skill.name)
    if around.env.get(name) or entry is None:
        return bool(around.env.get(name))
    return name in entry.env or (entry.api_key is not None and name == skill.primary_env)


def _is_set(config: Mapping[str, Any], path: str) -> bool:
    value: Any = config
    for part in path.split("."):
        if not isinstance(value, Mapping):
            return False
        value = value.get(part)
    return bool(value)
