"""All skills of an agent: found in their tiers, overridden by name, read again when a file changes."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.agents.opening import opened
from holdfast.agents.skills.skill import FILE, MAX_BYTES, Skill, Tier, parse_skill
from holdfast.errors import HoldfastError, InvalidInput, NotFound
from holdfast.frontmatter import BadFrontmatter

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
