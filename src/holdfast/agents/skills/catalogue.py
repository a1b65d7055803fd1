"""Which skills an agent has: what each needs, and the list of them that a prompt shows.

A command is planned, shown, and run only when a person agreed to it.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from holdfast.agents.safe_files import opened
from holdfast.agents.skills.skill import FILE, MAX_BYTES, InstallSpec, Skill, Tier, parse_skill
from holdfast.errors import Forbidden, HoldfastError, InvalidInput, NotFound, Unavailable
from holdfast.frontmatter import BadFrontmatter

if TYPE_CHECKING:
    from holdfast.config.extensions import SkillEntry, SkillInstall, SkillsConfig


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


MAX_FOLDERS: Final = 1_000
_BUNDLED: Final = Path(__file__).parents[2] / "skills_bundled"


@dataclass(frozen=True, slots=True)
class Root:
    """A folder of skills and the tier that it stands for."""

    tier: Tier
    path: Path


@dataclass(frozen=True, slots=True)
class Broken:
    """A SKILL.md that could not be read: why, in which line where that is known, and how to mend it."""

    path: Path
    tier: Tier
    reason: str
    line: int | None = None
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """The skills in force by name, those that they hide, and what is broken."""

    skills: tuple[Skill, ...]
    hidden: tuple[Skill, ...] = ()
    broken: tuple[Broken, ...] = ()

    def get(self, name: str) -> Skill:
        for skill in self.skills:
            if skill.name == name:
                return skill
        raise NotFound(f"no skill {name[:64]!r}", code="unknown_skill", hint="See `holdfast skills list`.")


def roots(
    *,
    workspace: Path | None,
    managed: Path,
    shared: Path | None = None,
    plugins: Iterable[Path] = (),
    extra: Iterable[Path] = (),
) -> tuple[Root, ...]:
    """The folders in which an agent's skills lie, highest tier first."""
    own = () if workspace is None else (Root(Tier.WORKSPACE, workspace / "skills"),)
    return (
        *own,
        *(() if shared is None else (Root(Tier.STORE, shared),)),
        Root(Tier.MANAGED, managed),
        *(Root(Tier.PLUGIN, path) for path in plugins),
        Root(Tier.BUNDLED, _BUNDLED),
        *(Root(Tier.EXTRA, path) for path in extra),
    )


class Catalogue:
    """Reads skills and keeps what it read for as long as the file is the same. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: dict[str, tuple[tuple[int, int, int], Skill | Broken]] = {}

    def load(self, places: Iterable[Root]) -> Found:
        """What there is now. A skill of a higher tier hides one of the same name; equals go by order."""
        chosen: dict[str, Skill] = {}
        hidden: list[Skill] = []
        broken: list[Broken] = []
        ordered = sorted(places, key=lambda root: -root.tier)
        for found in (each for root in ordered for each in self._in_root(root)):
            if isinstance(found, Broken):
                broken.append(found)
            elif found.name in chosen:
                hidden.append(found)
            else:
                chosen[found.name] = found
        by_name = sorted(chosen.values(), key=lambda skill: skill.name)
        return Found(tuple(by_name), tuple(hidden), tuple(broken))

    def _in_root(self, root: Root) -> Iterator[Skill | Broken]:
        paths = _files(root.path)
        self._forget_all_but(paths, root)
        for path in paths:
            found = self._file(path, root)
            if found is not None:
                yield found

    def _forget_all_but(self, paths: list[str], root: Root) -> None:
        """An agent may write and delete skills without end; what is gone is not kept."""
        there, within = set(paths), os.path.join(root.path, "")
        with self._lock:
            for path in [known for known in self._read if known.startswith(within) and known not in there]:
                del self._read[path]

    def _file(self, path: str, root: Root) -> Skill | Broken | None:
        try:
            found_at = os.stat(path)
        except OSError:
            return None
        if not stat.S_ISREG(found_at.st_mode):
            return None
        stamp = (found_at.st_ino, found_at.st_mtime_ns, found_at.st_size)
        with self._lock:
            known = self._read.get(path)
        if known is not None and known[0] == stamp and known[1].tier is root.tier:
            return known[1]
        found = _parsed(Path(path), root)
        with self._lock:
            self._read[path] = (stamp, found)
        return found


def _files(root: Path) -> list[str]:
    """Where a skill may be: `<root>/<skill>/SKILL.md`, by name, or the root itself if it is one.

    Looked through for every turn, so that paths are plain text here.
    """
    if own := _skill_file(str(root)):
        return [own]
    try:
        folders = sorted(name for name in os.listdir(root) if not name.startswith("."))
    except OSError:
        return []
    return [path for name in folders[:MAX_FOLDERS] if (path := _skill_file(os.path.join(root, name)))]


def _skill_file(folder: str) -> str | None:
    """Its SKILL.md, or `skill.md`, which the public registry takes too."""
    paths = (os.path.join(folder, name) for name in (FILE, FILE.lower()))
    return next((path for path in paths if os.path.isfile(path)), None)


def _parsed(path: Path, root: Root) -> Skill | Broken:
    try:
        return parse_skill(_text(path, root), path, root.tier)
    except BadFrontmatter as error:
        return Broken(path, root.tier, error.message, error.line, error.hint)
    except HoldfastError as error:
        return Broken(path, root.tier, error.message, hint=error.hint)


def _text(path: Path, root: Root) -> str:
    try:
        with _opened(path, root) as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise InvalidInput(f"it is larger than {MAX_BYTES} bytes")
        return data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"it cannot be read: {error}") from error


def _opened(path: Path, root: Root) -> AbstractContextManager[BinaryIO]:
    """An agent writes to its workspace: a link out of there would let it show any file as a skill.

    The folder of skills may be no link itself; those in it are found first and then no link is followed, so
    that one which is put in place meanwhile leads nowhere.
    """
    if root.tier is not Tier.WORKSPACE:
        return path.open("rb")
    workspace, real = root.path.parent.resolve(), path.resolve()
    if not real.is_relative_to(workspace / root.path.name):
        raise InvalidInput("it is a link to outside its folder")
    return opened(workspace, real.relative_to(workspace).parts)
