"""What a skill needs: every reason why it cannot be used here, and the one command that would install it.

A command is planned, shown, and run only when a person agreed to it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from holdfast.agents.skills.skill import InstallSpec, Skill, Tier
from holdfast.errors import Forbidden, NotFound, Unavailable

if TYPE_CHECKING:
    from holdfast.config.parts import SkillEntry, SkillInstall, SkillsConfig

TIMEOUT_SECONDS: Final = 900
_WHAT: Final = re.compile(r"[A-Za-z0-9@][A-Za-z0-9@/._+:~^=-]{0,199}")
_PROGRAMS: Final = {"brew": "brew", "apt": "apt-get", "uv": "uv", "go": "go"}


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


def entry_of(skill: Skill, config: SkillsConfig) -> SkillEntry | None:
    """Its settings, by its name or by the key that it asks for."""
    return config.entries.get(skill.name) or config.entries.get(skill.key or "")


def _switched_off(skill: Skill, config: SkillsConfig, only: tuple[str, ...] | None) -> list[Reason]:
    reasons: list[Reason] = []
    entry = entry_of(skill, config)
    if entry is not None and not entry.enabled:
        reasons.append(Reason("disabled", f"skills.entries.{skill.key or skill.name}.enabled is false"))
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
    entry = entry_of(skill, config)
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


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """The one command that would be run, for a person to read first."""

    skill: str
    kind: str
    argv: tuple[str, ...]
    bins: tuple[str, ...]

    @property
    def text(self) -> str:
        import shlex

        return shlex.join(self.argv)


def plan(skill: Skill, settings: SkillInstall, around: Surroundings) -> InstallPlan:
    """The best way to install what is missing, by the operator's order of installers."""
    usable = [spec for spec in skill.install if _usable(spec, settings, around)]
    order: Sequence[str] = (("brew",) if settings.prefer_brew else ()) + settings.prefer
    for kind in order:
        for spec in usable:
            if spec.kind == kind:
                return InstallPlan(skill.name, kind, _argv(spec, settings), spec.bins)
    raise NotFound(
        f"{skill.name} has no installer that works here",
        code="no_installer",
        hint=f"Install {', '.join(skill.requires.bins) or 'what it needs'} by hand.",
    )


def carry_out(chosen: InstallPlan, *, agreed: str, run: Callable[[Sequence[str]], int] | None = None) -> None:
    """Run a plan. `agreed` is the text that the person saw and said yes to; another one is refused."""
    if agreed != chosen.text:
        raise Forbidden("nobody agreed to this command", code="no_consent", hint="Show the plan and ask.")
    code = (run or _run)(chosen.argv)
    if code != 0:
        raise Unavailable(f"{chosen.argv[0]} failed with {code}", code="install_failed")


def _usable(spec: InstallSpec, settings: SkillInstall, around: Surroundings) -> bool:
    """A download has no checksum to hold it to, so that it is shown to people and never run."""
    if spec.kind == "download" or not _WHAT.fullmatch(spec.what):
        return False
    if spec.kind == "apt" and spec.what.endswith("-"):  # which would remove it
        return False
    program = settings.node_manager if spec.kind == "node" else _PROGRAMS[spec.kind]
    return (not spec.os or around.platform in spec.os) and around.has_bin(program)


def _argv(spec: InstallSpec, settings: SkillInstall) -> tuple[str, ...]:
    commands: Mapping[str, tuple[str, ...]] = {
        "brew": ("brew", "install", spec.what),
        "apt": (*_as_root(), "apt-get", "install", "-y", "--no-install-recommends", spec.what),
        "uv": ("uv", "tool", "install", spec.what),
        "go": ("go", "install", spec.what if "@" in spec.what else f"{spec.what}@latest"),
        "node": _node(settings.node_manager, spec.what),
    }
    return commands[spec.kind]


def _node(manager: str, package: str) -> tuple[str, ...]:
    verb = {"yarn": ("global", "add"), "pnpm": ("add", "-g"), "bun": ("add", "-g")}
    return (manager, *verb.get(manager, ("install", "-g")), "--ignore-scripts", package)


def _as_root() -> tuple[str, ...]:
    return () if os.geteuid() == 0 else ("sudo",)


def _run(argv: Sequence[str]) -> int:
    try:
        return subprocess.run(argv, timeout=TIMEOUT_SECONDS, check=False).returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{argv[0]} did not run to its end: {error}", code="install_failed") from error
