"""Where plugins are found, without running any of them: the first of an id is the one that counts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from holdfast.errors import InvalidInput
from holdfast.plugins.manifest import FOREIGN_NAME, NAME, Manifest, read_manifest

GROUP: Final = "holdfast.plugins"
BUNDLED: Final = Path(__file__).parents[1] / "plugins_bundled"
MOST_PLUGINS: Final = 500


class Origin(IntEnum):
    """Where a plugin was found; the lower goes before."""

    CONFIG = 0
    WORKSPACE = 1
    HOME = 2
    PACKAGE = 3
    BUNDLED = 4

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Found:
    """A manifest and where it lies. `root` is what has to be on the path for its module to be found;
    `attribute` is the function that registers it. `problem` says why there is no manifest to be used."""

    id: str
    origin: Origin
    folder: Path
    manifest: Manifest | None = None
    root: Path | None = None
    attribute: str = "register"
    problem: str = ""

    @property
    def skill_folders(self) -> tuple[Path, ...]:
        if self.manifest is None:
            return ()
        folders = [self.folder / name for name in self.manifest.skills]
        return tuple(path for path in folders if path.resolve().is_relative_to(self.folder.resolve()))


def discover(
    *, paths: Sequence[str], workspaces: Iterable[Path], home: Path
) -> tuple[list[Found], list[Found]]:
    """The plugins that there are, and those that lie below another of the same id."""
    every = [
        *(found for path in paths for found in _at(Path(path).expanduser(), Origin.CONFIG)),
        *(found for one in workspaces for found in _beneath(one / "plugins", Origin.WORKSPACE)),
        *_beneath(home, Origin.HOME),
        *_packages(),
        *bundled_plugins(),
    ]
    first: dict[str, Found] = {}
    hidden: list[Found] = []
    for found in every[:MOST_PLUGINS]:
        if found.id in first:
            hidden.append(found)
        else:
            first[found.id] = found
    return list(first.values()), hidden


def bundled_plugins() -> list[Found]:
    """Those that come with Holdfast, whether anything uses them or not."""
    return [replace(found, root=None) for found in _beneath(BUNDLED, Origin.BUNDLED)]


def find_manifest(folder: Path) -> Path | None:
    """The manifest of a folder: in it, or in the one package that it holds. Ours goes before another's."""
    for name in (NAME, FOREIGN_NAME):
        if (folder / name).is_file():
            return folder / name
        for pattern in (f"*/{name}", f"src/*/{name}"):
            inner = sorted(folder.glob(pattern))
            if inner:
                return inner[0]
    return None


def read_found(path: Path, origin: Origin) -> Found:
    """What a manifest's file tells; one that cannot be used is told of by the name of its folder."""
    folder = path.parent
    try:
        manifest = read_manifest(path)
    except InvalidInput as error:
        return Found(folder.name.lower()[:64], origin, folder, problem=error.message)
    return Found(manifest.id, origin, folder, manifest, _root(folder, manifest))


def _root(folder: Path, manifest: Manifest) -> Path:
    """A module beside its manifest, or the package that the manifest lies in."""
    top = (manifest.module or "").partition(".")[0]
    within = folder.name == top and (folder / "__init__.py").is_file()
    return folder.parent if within else folder


def _at(folder: Path, origin: Origin) -> Iterator[Found]:
    """The plugin of a folder, or each of those that lie in it."""
    if not folder.is_dir():
        yield Found(folder.name.lower()[:64], origin, folder, problem=f"there is no folder {folder}")
        return
    manifest = find_manifest(folder) if not _holds_several(folder) else None
    if manifest is not None:
        yield read_found(manifest, origin)
    else:
        yield from _beneath(folder, origin)


def _holds_several(folder: Path) -> bool:
    inner = sum(1 for one in folder.iterdir() if one.is_dir() and (one / NAME).is_file())
    return inner > 1 and not (folder / NAME).is_file()


def _beneath(folder: Path, origin: Origin) -> Iterator[Found]:
    if not folder.is_dir():
        return
    for one in sorted(folder.iterdir()):
        if one.is_dir() and not one.name.startswith((".", "_")):
            manifest = find_manifest(one)
            if manifest is not None:
                yield read_found(manifest, origin)


def _packages() -> Iterator[Found]:
    """Installed packages that name themselves in the entry point group; nothing of them is imported."""
    for point in _entry_points(tuple((path, _changed_at(path)) for path in sys.path)):
        folder = _folder_of(point.module)
        manifest = None if folder is None else folder / NAME
        if manifest is None or not manifest.is_file():
            problem = f"the package of entry point {point.name} carries no {NAME}"
            yield Found(point.name.lower()[:64], Origin.PACKAGE, folder or Path("."), problem=problem)
            continue
        yield replace(read_found(manifest, Origin.PACKAGE), root=None, attribute=point.attr or "register")


@lru_cache(maxsize=4)
def _entry_points(_: tuple[tuple[str, int], ...]) -> tuple[metadata.EntryPoint, ...]:
    """To find them, a file of every installed package is read: once, until something is installed."""
    return tuple(sorted(metadata.entry_points(group=GROUP), key=lambda one: one.name))


def _changed_at(path: str) -> int:
    try:
        return os.stat(path or ".").st_mtime_ns
    except OSError:
        return 0


def _folder_of(module: str) -> Path | None:
    """Where the top package of a module lies; looking for that imports nothing."""
    try:
        spec = find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    for place in spec.submodule_search_locations or ():
        return Path(place)
    return Path(spec.origin).parent if spec.origin else None
