"""A skill: a folder whose SKILL.md says what it is for, what it needs, and how it is done."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from holdfast.errors import InvalidInput
from holdfast.frontmatter import BadFrontmatter, Frontmatter, read_frontmatter
from holdfast.text import clean_text

FILE: Final = "SKILL.md"
MAX_BYTES: Final = 256 * 1024
MAX_DESCRIPTION: Final = 1_024
MAX_NAME: Final = 64
MAX_LOOSE: Final = 8_000
_TRUE: Final = frozenset(("true", "yes", "on", "1"))
_FALSE: Final = frozenset(("false", "no", "off", "0", ""))
# The names under which OpenClaw has gone, and its registry; the first that has a field says it.
_VENDORS: Final = ("holdfast", "openclaw", "clawdbot", "moltbot", "clawdis", "clawdhub", "clawhub")
_FIELDS: Final = frozenset(
    ("always", "os", "requires", "install", "primaryEnv", "skillKey", "emoji", "homepage")
)
_SAME_NEED: Final = {"bin": "bins", "binaries": "bins", "commands": "bins", "envs": "env"}
_NEEDS: Final = ("bins", "anyBins", "env", "config", "os")
_SYSTEMS: Final = {"macos": "darwin", "osx": "darwin", "mac": "darwin", "windows": "win32", "win": "win32"}


class Tier(IntEnum):
    """Where a skill lies; of two with one name the higher is used."""

    EXTRA = 0
    BUNDLED = 1
    PLUGIN = 2
    MANAGED = 3
    STORE = 4
    WORKSPACE = 5

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Requirements:
    """What must be there before the skill is offered."""

    always: bool = False
    os: tuple[str, ...] = ()
    bins: tuple[str, ...] = ()
    any_bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    config: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InstallSpec:
    """One way to install what a skill needs; run only when a person agreed to the very command."""

    kind: str
    what: str
    bins: tuple[str, ...] = ()
    label: str = ""
    os: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skill:
    name: str
    description: str
    path: Path
    tier: Tier
    body: str = field(repr=False)
    homepage: str | None = None
    version: str | None = None
    user_invocable: bool = True
    model_invocable: bool = True
    dispatch_tool: str | None = None
    emoji: str | None = None
    primary_env: str | None = None
    key: str | None = None
    requires: Requirements = Requirements()
    install: tuple[InstallSpec, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return self.path.parent


def parse_skill(text: str, path: Path, tier: Tier) -> Skill:
    """Read a SKILL.md; `BadFrontmatter` says what is wrong with it, and in which line."""
    found = read_frontmatter(text)
    try:
        return _skill(found, path, tier)
    except _BadField as error:
        raise BadFrontmatter(error.message, found.line(error.key), hint=error.hint) from error


class _BadField(InvalidInput):
    def __init__(self, key: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.key = key


def _skill(found: Frontmatter, path: Path, tier: Tier) -> Skill:
    values = found.values
    extra = _extension(values)
    requires, notes = _requirements(extra)
    return Skill(
        name=_name(values.get("name"), path),
        description=_description(values.get("description")),
        path=path,
        tier=tier,
        body=clean_text(found.body),
        homepage=_homepage(values.get("homepage") or extra.get("homepage")),
        version=_text(values.get("version"))[:40] or None,
        user_invocable=_flag(values, "user-invocable", default=True),
        model_invocable=not _flag(values, "disable-model-invocation", default=False),
        dispatch_tool=_dispatch(values),
        emoji=_text(extra.get("emoji"))[:16] or None,
        primary_env=_text(extra.get("primaryEnv"))[:100] or None,
        key=_text(extra.get("skillKey"))[:MAX_NAME] or None,
        requires=requires,
        install=tuple(spec for item in _list(extra.get("install")) if (spec := _install(item)) is not None),
        notes=(*found.notes, *notes),
    )


def _extension(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a skill asks of its runtime, wherever it says so; a skill for OpenClaw works here, and ours there.

    Under a vendor's name in the metadata, as `metadata.openclaw` at the top, or bare at either level. No
    need is lost for standing under a name that we do not know.
    """
    metadata = _object(values.get("metadata"))
    places = [metadata.get(name) for name in _VENDORS]
    places += [values.get(f"metadata.{name}") for name in _VENDORS]
    named = [_object(place) for place in places if place is not None]
    named += [_mapping(other) for other in metadata.values() if "requires" in _mapping(other)]
    bare = [{key: of[key] for key in _FIELDS & of.keys()} for of in (metadata, values)]
    return ChainMap(*map(dict, (*named, *bare)))


def _object(value: Any) -> Mapping[str, Any]:
    """A map, also one that is written as a text of JSON."""
    if isinstance(value, str) and value.strip():
        import json5

        try:
            value = json5.loads(value) if len(value) <= MAX_LOOSE else None
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise _BadField("metadata", "metadata is not a map", "Write it as YAML or as one JSON object.")
    return _mapping(value)


def _requirements(extra: Mapping[str, Any]) -> tuple[Requirements, list[str]]:
    """What must be there, and what the skill asks for that is not looked at here."""
    given = extra.get("requires")
    needs = {_SAME_NEED.get(key, key): value for key, value in _mapping(given).items()}
    unknown = [key for key in needs if key not in _NEEDS and not key.lower().startswith("optional")]
    notes = [f"requires.{key[:40]} is not checked here" for key in unknown]
    if given and not _mapping(given):
        notes.append("requires is not a map of bins, anyBins, env and config, and is not checked")
    systems = _names(extra.get("os")) or _names(needs.get("os"))
    requires = Requirements(
        always=_flag(extra, "always", default=False),
        os=tuple(_SYSTEMS.get(name.lower(), name.lower()) for name in systems),
        bins=_names(needs.get("bins")),
        any_bins=_names(needs.get("anyBins")),
        env=_names(needs.get("env")),
        config=_names(needs.get("config")),
    )
    return requires, notes


_WHAT: Final = {
    "brew": "formula",
    "apt": "package",
    "uv": "package",
    "node": "package",
    "go": "module",
    "download": "url",
}


def _install(item: Any) -> InstallSpec | None:
    """A kind that we do not know is left out: it could not be run anyway."""
    if not isinstance(item, dict) or item.get("kind") not in _WHAT:
        return None
    kind = str(item["kind"])
    what = _text(item.get(_WHAT[kind]) or item.get("package"))
    label, bins = _text(item.get("label"))[:200], _names(item.get("bins"))
    return InstallSpec(kind, what, bins, label, _names(item.get("os"))) if what else None


def _dispatch(found: Mapping[str, Any]) -> str | None:
    """The tool that the slash command calls directly, with what was typed behind it as its argument."""
    if _text(found.get("command-dispatch")) != "tool":
        return None
    tool = _text(found.get("command-tool"))
    if not tool:
        raise _BadField("command-dispatch", "command-dispatch is tool, but command-tool does not say which")
    return tool[:100]


def _name(value: Any, path: Path) -> str:
    """As written, spaces and all; the folder's name where the skill has none of its own."""
    name = " ".join(_text(value).split()) or path.parent.name
    if not 0 < len(name) <= MAX_NAME or name[0] in ".-" or not name.isprintable() or set(name) & set("/\\"):
        raise _BadField(
            "name", f"not the name of a skill: {name[:64]!r}", f"At most {MAX_NAME} characters, no slashes."
        )
    return name


def _description(value: Any) -> str:
    text = " ".join(_text(value).split())
    if not text:
        raise _BadField("description", "description is missing", "Say in a line what the skill is for.")
    return text[:MAX_DESCRIPTION]


def _homepage(value: Any) -> str | None:
    text = _text(value)[:500]
    return text if text.startswith(("https://", "http://")) else None


def _flag(values: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = values.get(key)
    if value is None:
        return default
    text = str(value).strip().lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise _BadField(key, f"{key} is neither true nor false: {text[:40]!r}")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return clean_text(value).strip() if isinstance(value, str) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    return tuple(text[:200] for item in _list(value)[:50] if (text := _text(item)))
