"""Managed skills: put there from a registry, updated, and never overwritten where someone edited them."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from holdfast.agents.skills import archive
from holdfast.agents.skills.registry import Registry, Release, version_order
from holdfast.agents.skills.skill import FILE, Skill, Tier, parse_skill
from holdfast.errors import Conflict, HoldfastError, InvalidInput, NotFound, Unavailable

MARK: Final = ".registry.json"


@dataclass(frozen=True, slots=True)
class Installed:
    """Where a managed skill came from, and what it was then."""

    name: str
    version: str
    registry: str
    sha256: str
    digest: str


@dataclass(frozen=True, slots=True)
class Update:
    """What an update did, or why it did not."""

    name: str
    before: str
    after: str
    error: str | None = None


def install(
    registry: Registry, managed: Path, name: str, *, version: str | None = None, force: bool = False
) -> Skill:
    """Fetch, check and put in place, in one step; nothing of the skill is run.

    A skill of that name which did not come from a registry, or was edited since, is a `Conflict`.
    """
    release = registry.find(name, version)
    if not force:
        _require_unedited(managed, release.name)
    return _place(managed, release, registry.download(release), registry.url)


def update(registry: Registry, managed: Path, name: str, *, force: bool = False) -> Update:
    """Bring one skill to its newest version."""
    mark = mark_of(managed, name)
    if mark is None:
        raise NotFound(f"{name} did not come from a registry", hint="See `holdfast skills list`.")
    release = registry.find(name)
    if version_order(release.version) > version_order(mark.version):
        install(registry, managed, name, version=release.version, force=force)
        return Update(name, mark.version, release.version)
    return Update(name, mark.version, mark.version)


def update_all(registry: Registry, managed: Path, *, force: bool = False) -> list[Update]:
    """Bring every skill that came from a registry up to date; one that fails does not stop the rest."""
    done: list[Update] = []
    for mark in installed(managed):
        try:
            done.append(update(registry, managed, mark.name, force=force))
        except HoldfastError as error:
            done.append(Update(mark.name, mark.version, mark.version, error.message))
    return done


def installed(managed: Path) -> list[Installed]:
    """The skills that came from a registry, by name."""
    try:
        names = sorted(path.name for path in managed.iterdir() if path.is_dir())
    except OSError:
        return []
    return [mark for name in names if (mark := mark_of(managed, name)) is not None]


def mark_of(managed: Path, name: str) -> Installed | None:
    try:
        return Installed(**json.loads((managed / name / MARK).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _require_unedited(managed: Path, name: str) -> None:
    if not (managed / name).exists():
        return
    mark = mark_of(managed, name)
    if mark is None:
        raise Conflict(
            f"there is a skill {name} that did not come from a registry",
            hint="Move it away, or use --force to replace it.",
        )
    if archive.digest(managed / name) != mark.digest:
        raise Conflict(f"{name} was edited since it was installed", hint="Use --force to lose the edits.")


def _place(managed: Path, release: Release, data: bytes, registry: str) -> Skill:
    """Unpacked beside its place and moved there whole."""
    managed.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=managed, prefix=".new-") as draft:
        folder = Path(draft) / release.name
        archive.unpack(data, folder)
        skill = _read(folder, release.name)
        mark = Installed(release.name, release.version, registry, release.sha256, archive.digest(folder))
        (folder / MARK).write_text(json.dumps(asdict(mark), indent=2) + "\n", "utf-8")
        target = managed / release.name
        _swap(folder, target, Path(draft) / "old")
    return parse_skill((target / FILE).read_text("utf-8"), target / FILE, skill.tier)


def _swap(new: Path, target: Path, old: Path) -> None:
    """Put the new in place of what is there; if that fails, what was there comes back."""
    try:
        if target.exists():
            target.rename(old)
        new.rename(target)
    except OSError as error:
        if old.exists() and not target.exists():
            old.rename(target)
        raise Unavailable(f"{target} cannot be written: {error.strerror}") from error


def _read(folder: Path, name: str) -> Skill:
    try:
        skill = parse_skill((folder / FILE).read_text("utf-8"), folder / FILE, Tier.MANAGED)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{FILE} is not UTF-8", code="bad_archive") from error
    if skill.name != name:
        raise InvalidInput(
            f"the archive holds {skill.name!r}, not {name!r}",
            code="bad_archive",
            hint="Tell whoever keeps the registry.",
        )
    return skill
