"""Bringing plugins into a home and taking them out. Nothing of a plugin runs here: packages come as wheels,
folders are copied or linked, and what each may do is read from its manifest before anything is put in place.

Each plugin has a folder of its own in `plugins/` of the home, last on the path once it is loaded:
what Holdfast itself is made of cannot be replaced by it, and to uninstall is to delete a folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal

from packaging.requirements import InvalidRequirement, Requirement

from holdfast.clock import Clock, iso
from holdfast.errors import Conflict, InvalidInput, NotFound, Unavailable
from holdfast.home import Home
from holdfast.plugins.manifest import Found, Manifest, Origin, find_manifest, read_found

RECORD: Final = "installed.json"
_PIP_SECONDS: Final = 600
_SKIPPED: Final = shutil.ignore_patterns("__pycache__", "*.pyc", ".git", ".venv", "tests", "*.egg-info")

Kind = Literal["folder", "link", "wheel", "index"]


@dataclass(frozen=True, slots=True)
class Installed:
    """One line of the record: where a plugin came from, and what it was made of then."""

    id: str
    version: str
    kind: Kind
    source: str
    sha256: str
    installed_at: str


@dataclass(frozen=True, slots=True)
class Ready:
    """A plugin that was fetched and read, and is not in place yet. `needs` are packages that are not here."""

    found: Found
    manifest: Manifest
    kind: Kind
    source: str
    folder: Path
    needs: tuple[str, ...] = ()


@contextmanager
def fetched(source: str, *, link: bool = False) -> Iterator[Ready]:
    """What `source` names (a folder, a wheel or its address, a package of an index), read and no more."""
    place = Path(source).expanduser()
    if place.is_dir():
        yield _folder(place.resolve(), "link" if link else "folder")
        return
    if link:
        raise NotFound(f"there is no folder {source[:200]}", hint="Only a folder can be linked.")
    with tempfile.TemporaryDirectory(prefix="holdfast-plugin-") as held:
        is_wheel = source.endswith(".whl")
        if is_wheel and "://" not in source and not place.is_file():
            raise NotFound(f"there is no file {source[:200]}")
        if place.is_file() and not is_wheel:
            raise InvalidInput(
                f"{place.name} is no wheel", hint="Give a folder, a .whl, or a package's name."
            )
        wheel = place.resolve() if place.is_file() else _downloaded(source, Path(held))
        yield _unpacked(wheel, Path(held) / "unpacked", "wheel" if is_wheel else "index", source)


def install(home: Home, ready: Ready, clock: Clock) -> Installed:
    """Put it in place: whole, or not at all. One of the same id that was installed before is replaced."""
    id_ = ready.manifest.id
    target = home.plugins / id_
    home.plugins.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (target.exists() or target.is_symlink()) and id_ not in record(home):
        raise Conflict(
            f"there is a folder {target} that was not installed",
            hint="Move it away, or name it in plugins.load.paths.",
        )
    new = home.plugins / f".new-{id_}"
    _remove(new)
    try:
        if ready.kind == "link":
            new.symlink_to(ready.folder, target_is_directory=True)
        else:
            _copy(ready, new)
            _add_needed(ready.needs, new)
        _remove(target)
        os.replace(new, target)
    finally:
        _remove(new)
    made = Installed(
        id_,
        ready.manifest.version,
        ready.kind,
        ready.source,
        digest(target),
        iso(clock.now()),
    )
    _write_record(home, {**record(home), id_: made})
    return made


def uninstall(home: Home, id_: str) -> Installed:
    """Take out one that was installed here; its data stays in `plugins/.data`."""
    known = record(home)
    if id_ not in known:
        raise NotFound(
            f"no plugin {id_[:64]!r} was installed in this home", hint="See `holdfast plugins list`."
        )
    _remove(home.plugins / id_)
    _write_record(home, {name: one for name, one in known.items() if name != id_})
    return known[id_]


def record(home: Home) -> dict[str, Installed]:
    """What was installed, by id; nothing where the record cannot be read."""
    try:
        data = json.loads((home.plugins / RECORD).read_text("utf-8"))
        return {str(name): Installed(**one) for name, one in data.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def digest(folder: Path) -> str:
    """A hash over the names and bytes of all files, whatever order they lie in."""
    found = hashlib.sha256()
    for path in sorted(folder.resolve().rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            name = path.relative_to(folder.resolve()).as_posix()
            found.update(f"{len(name)}:{name}:".encode())
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def is_changed(home: Home, known: Installed) -> bool:
    """Whether it is made of other bytes than when it was installed; a linked one may always be."""
    folder = home.plugins / known.id
    return known.kind != "link" and folder.is_dir() and digest(folder) != known.sha256


def _folder(folder: Path, kind: Kind) -> Ready:
    """A flat folder, or a project with the package in it: what it needs stands in its `pyproject.toml`."""
    path = find_manifest(folder)
    if path is None:
        raise InvalidInput(
            f"there is no manifest in {folder}", code="no_manifest", hint="A plugin has holdfast.plugin.json."
        )
    found = read_found(path, Origin.HOME)
    return Ready(found, _manifest(found), kind, str(folder), folder, _unmet(_project_needs(folder)))


def _unpacked(wheel: Path, into: Path, kind: Kind, source: str) -> Ready:
    try:
        with zipfile.ZipFile(wheel) as archive:
            if any(Path(name).is_absolute() or ".." in Path(name).parts for name in archive.namelist()):
                raise InvalidInput(f"{wheel.name} holds paths that lead out of it")
            archive.extractall(into)
    except zipfile.BadZipFile as error:
        raise InvalidInput(f"{wheel.name} is no wheel") from error
    path = find_manifest(into)
    if path is None:
        raise InvalidInput(f"{wheel.name} carries no manifest of a plugin", code="no_manifest")
    found = read_found(path, Origin.HOME)
    wanted: list[str] = []
    for info in metadata.distributions(path=[str(into)]):
        wanted += info.requires or []
    return Ready(found, _manifest(found), kind, source, into, _unmet(wanted))


def _manifest(found: Found) -> Manifest:
    if found.manifest is None:
        raise InvalidInput(found.problem, code="bad_manifest")
    return found.manifest


def _project_needs(folder: Path) -> list[str]:
    try:
        data = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return []
    given = data.get("project", {}).get("dependencies", [])
    return [one for one in given if isinstance(one, str)]


def _unmet(wanted: Sequence[str]) -> tuple[str, ...]:
    """Those that this environment does not meet."""
    lacking: list[str] = []
    for text in wanted:
        try:
            need = Requirement(text)
            if need.marker is not None and not need.marker.evaluate({"extra": ""}):
                continue
            here = metadata.version(need.name)
            met = need.specifier.contains(here, prereleases=True)
        except InvalidRequirement as error:
            raise InvalidInput(f"it needs something that is no package: {text[:100]}") from error
        except metadata.PackageNotFoundError:
            met = False
        if not met:
            lacking.append(text)
    return tuple(lacking)


def _copy(ready: Ready, target: Path) -> None:
    """Of a project only the package with the manifest; of all else everything."""
    inner = ready.found.folder
    if ready.kind == "folder" and inner != ready.folder:
        shutil.copytree(inner, target / inner.name, ignore=_SKIPPED, symlinks=False)
    else:
        shutil.copytree(ready.folder, target, ignore=_SKIPPED, symlinks=False)


def _add_needed(needs: Sequence[str], target: Path) -> None:
    """Into the plugin's own folder, held to the versions that are here: what Holdfast has is not doubled."""
    if not needs:
        return
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as bounds:
        bounds.writelines(f"{one.name}=={one.version}\n" for one in metadata.distributions() if one.name)
        bounds.flush()
        _pip("install", "--target", str(target), "--constraint", bounds.name, *needs)


def _downloaded(source: str, into: Path) -> Path:
    """One wheel of a package. Sources are not taken: to build them is to run them."""
    if source.startswith("-"):
        raise InvalidInput(f"not a package: {source[:80]!r}")
    _pip("download", "--no-deps", "--dest", str(into), source)
    wheels = sorted(into.glob("*.whl"))
    if not wheels:
        raise Unavailable(f"nothing came for {source[:100]}")
    return wheels[0]


def _pip(command: str, *args: str) -> None:
    called = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", command]
    called += ["--only-binary", ":all:", "--quiet", *args]
    try:
        done = subprocess.run(called, capture_output=True, text=True, timeout=_PIP_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"pip took longer than {_PIP_SECONDS} seconds") from error
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip().startswith("ERROR")]
        last = (said or done.stderr.strip().splitlines() or ["pip failed"])[-1]
        raise InvalidInput(last.removeprefix("ERROR: ")[:300], code="pip_failed", hint="See `python -m pip`.")


def _remove(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def _write_record(home: Home, known: Mapping[str, Installed]) -> None:
    data: dict[str, Any] = {name: asdict(one) for name, one in sorted(known.items())}
    path = home.plugins / RECORD
    new = path.with_suffix(".new")
    new.write_text(json.dumps(data, indent=2), "utf-8")
    os.replace(new, path)
