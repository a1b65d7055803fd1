"""Where plugins are found and what each says of itself: read and checked before anything of it runs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from importlib import metadata
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from holdfast.errors import ConfigError, InvalidInput

NAME: Final = "holdfast.plugin.json"
FOREIGN_NAME: Final = "openclaw.plugin.json"
MOST_BYTES: Final = 256 * 1024

Capability = Literal[
    "contextEngine",
    "tools",
    "memory",
    "sandbox",
    "channels",
    "providers",
    "embedders",
    "commands",
    "cli",
    "http",
    "services",
    "skills",
    "hooks",
]
Slot = Literal["contextEngine", "memory", "sandbox", "browser"]
SLOTS: Final[tuple[Slot, ...]] = get_args(Slot)
# What each capability lets a plugin do, in words for whoever is asked to agree.
MEANING: Final[Mapping[Capability, str]] = {
    "contextEngine": "build what the model sees",
    "tools": "give agents tools",
    "memory": "answer searches in memory",
    "sandbox": "run the commands of sandboxed sessions",
    "channels": "connect channels, and speak on them",
    "providers": "be asked as a model: it reads whole prompts",
    "embedders": "turn what is indexed into vectors: it reads all of it",
    "commands": "answer slash commands",
    "cli": "add commands to `holdfast`",
    "http": "answer HTTP calls under /plugins/<id>/",
    "services": "run in the background",
    "skills": "give agents skills",
    "hooks": "hear of messages, prompts, tools and sessions, and change some of them",
}


class InvalidManifest(InvalidInput):
    code = "bad_manifest"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, populate_by_name=True)


class ConfigSchema(_Part):
    """The JSON Schema of a plugin's settings, and what holds where none is given."""

    rules: dict[str, Any] = Field(default_factory=lambda: {"type": "object"}, alias="schema")
    defaults: dict[str, Any] = Field(default_factory=dict)


class Requirements(_Part):
    """What must be there for a plugin to be loaded."""

    holdfast: str = ""
    bins: Annotated[tuple[str, ...], Field(strict=False)] = ()
    env: Annotated[tuple[str, ...], Field(strict=False)] = ()


class Option(_Part):
    """One of a channel's options, as somebody who adds the channel is asked for it."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9]{0,63}$")
    ask: str = Field(max_length=400)
    secret: bool = False
    default: str | None = None


class Manifest(_Part):
    """One plugin, as its author describes it. Without a module it is data alone: skills, nothing that runs.

    `audience` bounds what its hooks hear of: the owner's plugin (the default) hears what the owner may read.
    `options` are what a channel of it needs to be connected. `foreign` is set for a manifest of OpenClaw,
    whose code cannot run here.
    """

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")
    name: str = Field(default="", max_length=200)
    version: str = Field(default="0", max_length=64)
    description: str = Field(default="", max_length=2000)
    module: str | None = Field(default=None, pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$", max_length=200)
    capabilities: Annotated[tuple[Capability, ...], Field(strict=False)] = ()
    slots: Annotated[tuple[Slot, ...], Field(strict=False)] = ()
    config: ConfigSchema = Field(default_factory=ConfigSchema)
    requires: Requirements = Field(default_factory=Requirements)
    skills: Annotated[tuple[str, ...], Field(strict=False)] = ()
    options: Annotated[tuple[Option, ...], Field(strict=False)] = ()
    audience: str = "owner"
    foreign: bool = False

    @field_validator("skills")
    @classmethod
    def _inside(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(Path(one).is_absolute() or ".." in Path(one).parts for one in value):
            raise ValueError("expected folders within the plugin's own")
        return value

    @property
    def title(self) -> str:
        return self.name or self.id

    def may(self) -> list[str]:
        """What it may do, a line each, for whoever has to agree."""
        said = [MEANING[one] for one in self.capabilities]
        said += [f"take the place of the built-in {slot}" for slot in self.slots]
        said += ["be read for its skills and settings; its code, of OpenClaw, cannot run here"] * self.foreign
        return said or ["nothing but be there"]

    def unmet(self, env: Mapping[str, str] = os.environ) -> str | None:
        """What it needs and is not here; None if nothing."""
        wanted = self.requires.holdfast
        here = version("holdfast")
        try:
            fits = not wanted or SpecifierSet(wanted).contains(here, prereleases=True)
        except InvalidSpecifier:
            return f"requires.holdfast is no version: {wanted[:40]!r}"
        if not fits:
            return f"it needs holdfast {wanted}, and this is {here}"
        bins = [name for name in self.requires.bins if shutil.which(name) is None]
        lacking = [f"the program {name}" for name in bins]
        lacking += [f"the variable {name}" for name in self.requires.env if not env.get(name)]
        return f"it needs {', '.join(lacking)}" if lacking else None

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Its settings, defaults filled in; `ConfigError` names the key that does not fit the schema."""
        import jsonschema_rs

        filled = _over(self.config.defaults, given)
        try:
            rules = jsonschema_rs.validator_for(self.config.rules, retriever=_nowhere)
            fault = next(iter(rules.iter_errors(filled)), None)
        except (jsonschema_rs.ValidationError, ValueError) as error:
            raise ConfigError(
                f"the schema in the manifest of {self.id} cannot be used: {error}"[:300]
            ) from None
        if fault is not None:
            at = ".".join(map(str, fault.instance_path))
            path = f"plugins.entries.{self.id}.config{'.' if at else ''}{at}"
            raise ConfigError(f"{path}: {fault.message}"[:300], hint="See `holdfast plugins info`.")
        return filled


def _over(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Objects are filled in key by key; everything else that is given holds as it is."""
    filled = dict(defaults)
    for name, value in given.items():
        below = filled.get(name)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        filled[name] = _over(below, value) if both and isinstance(below, Mapping) else value
    return filled


def _nowhere(uri: str) -> Any:
    raise ValueError(f"{uri[:200]} is not followed")


def read_manifest(path: Path) -> Manifest:
    """The manifest in a file; `InvalidManifest` says what is wrong with it."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InvalidManifest(f"{path}: it is larger than {MOST_BYTES} bytes")
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidManifest(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidManifest(f"{path}: it is no JSON: {error}"[:300]) from error
    if not isinstance(data, dict):
        raise InvalidManifest(f"{path}: expected an object")
    try:
        return _foreign(data) if path.name == FOREIGN_NAME else Manifest.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidManifest(f"{path}: {where}: {first['msg']}"[:400]) from None


def _foreign(data: Mapping[str, Any]) -> Manifest:
    """What is data in a manifest of OpenClaw: names, skills, the schema of its settings."""
    parts = data.get("capabilities")
    skills = data.get("skills") or (parts.get("skills") if isinstance(parts, Mapping) else None) or ()
    own = data.get("config")
    rules = data.get("configSchema") or (own.get("schema") if isinstance(own, Mapping) else None)
    defaults = own.get("defaults") if isinstance(own, Mapping) else None
    schema = {
        "schema": rules if isinstance(rules, Mapping) else {"type": "object"},
        "defaults": defaults if isinstance(defaults, Mapping) else {},
    }
    named = str(data.get("id") or data.get("name") or "").rpartition("/")[2].lower()
    return Manifest.model_validate(
        {
            "id": named,
            "name": str(data.get("name") or named),
            "version": str(data.get("version") or "0"),
            "description": str(data.get("description") or ""),
            "capabilities": ["skills"] if skills else [],
            "skills": [skills] if isinstance(skills, str) else list(skills),
            "config": schema,
            "foreign": True,
        }
    )


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
