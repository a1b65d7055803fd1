"""The git repositories that a command would meet, found as git finds them, and what in them names programs.

Reads folders. A repository need not be called `.git`: any folder with a HEAD, objects and refs is one, and
`.git` may be a file that leads elsewhere.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MOST_FOLDERS: Final = 2_000
MOST_HOOKS: Final = 128


@dataclass(frozen=True, slots=True)
class Repository:
    """`settings` are the files with its settings, `hooks` those that it would run, `others` are read too."""

    settings: tuple[Path, ...]
    hooks: tuple[Path, ...] = ()
    others: tuple[Path, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        return (*self.settings, *self.hooks, *self.others)


def below(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents


def repositories(places: Iterable[Path], roots: Iterable[Path], homes: Iterable[Path]) -> list[Repository]:
    """Those around `places`, those that lie in them (git looks into submodules), and settings in `homes`."""
    found: dict[Path, Repository] = {}
    for place in dict.fromkeys(places):
        around = _around(place)
        if around is None:
            found[place] = Repository((place / ".git" / "config",))
            continue
        found[around] = _repository(around)
    if any(repository.others for repository in found.values()):
        for folder in (folder for root in roots for folder in _inside(root)):
            found.setdefault(folder, _repository(folder))
    users = tuple(home / name for home in homes for name in (".gitconfig", ".config/git/config"))
    return [*found.values(), *([Repository(users)] if users else [])]


def _around(place: Path) -> Path | None:
    """The folder, or one above it, that git would take for a repository or its working tree."""
    for folder in (place, *place.parents):
        if os.path.lexists(folder / ".git") or _is_bare(folder):
            return folder
    return None


def _is_bare(folder: Path) -> bool:
    parts = (folder / "objects", folder / "refs")
    return os.path.isfile(folder / "HEAD") and all(os.path.isdir(part) for part in parts)


def _inside(root: Path) -> Iterator[Path]:
    waiting, seen = deque((root,)), 0
    while waiting and seen < MOST_FOLDERS:
        folder = waiting.popleft()
        seen += 1
        try:
            with os.scandir(folder) as entries:
                names = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in names:
            if entry.name.lower() == ".git":
                yield folder
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(Path(entry.path))


def _repository(folder: Path) -> Repository:
    link = folder / ".git"
    own = link if link.is_dir() else _led_to(link, "gitdir:") if link.is_file() else folder
    common = _led_to(own / "commondir", "") if (own / "commondir").is_file() else own
    modules = sorted((common / "modules").rglob("config"))[:MOST_HOOKS]
    places = dict.fromkeys((own, common, *(module.parent for module in modules)))
    settings = [place / name for place in places for name in ("config", "config.worktree")]
    hooks = [hook for place in places for hook in _hooks(place / "hooks")]
    others = [common / "info" / "attributes", folder / ".gitattributes", folder / ".gitmodules"]
    if own != link:
        others.append(link)
    return Repository(tuple(settings), tuple(hooks), tuple(others))


def _led_to(file: Path, before: str) -> Path:
    try:
        with file.open(encoding="utf-8", errors="replace") as text:
            name = text.read(4096).strip().removeprefix(before).strip()
    except OSError:
        return file.parent
    return Path(os.path.normpath(file.parent / name))


def _hooks(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [folder / name for name in names if not name.endswith(".sample")][:MOST_HOOKS]
