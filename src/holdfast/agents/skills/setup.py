"""Installing the programs that a skill needs: planned, shown, and run only when a person agreed to it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.agents.skills.gating import Surroundings
from holdfast.agents.skills.skill import InstallSpec, Skill
from holdfast.errors import Forbidden, NotFound, Unavailable

if TYPE_CHECKING:
    from holdfast.config.parts import SkillInstall

TIMEOUT_SECONDS: Final = 900
_WHAT: Final = re.compile(r"[A-Za-z0-9@][A-Za-z0-9@/._+:~^=-]{0,199}")
_PROGRAMS: Final = {"brew": "brew", "apt": "apt-get", "uv": "uv", "go": "go"}


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
