"""A skill: a folder whose SKILL.md says what it is for, what it needs, and how it is done."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from holdfast.agents.skills import frontmatter
from holdfast.errors import InvalidInput
from holdfast.text import clean_text

FILE: Final = "SKILL.md"
MAX_BYTES: Final = 256 * 1024
MAX_DESCRIPTION: Final = 1_024
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_TRUE: Final = frozenset(("true", "yes", "on", "1"))
_FALSE: Final = frozenset(("false", "no", "off", "0", ""))


class Tier(IntEnum):
    """Where a skill lies; of two with one name the higher is used."""

    EXTRA = 0
    BUNDLED = 1
    PLUGIN = 2
    MANAGED = 3
    WORKSPACE = 4

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
    requires: Requirements = Requirements()
    install: tuple[InstallSpec, ...] = ()

    @property
    def folder(self) -> Path:
        return self.path.parent


def parse_skill(text: str, path: Path, tier: Tier) -> Skill:
    """Read a SKILL.md; `InvalidInput` says what is wrong with it."""
    head, body = frontmatter.split(text)
    found = frontmatter.read(head)
    extra = _extension(found.get("metadata"))
    return Skill(
        name=_name(found.get("name")),
        description=_description(found.get("description")),
        path=path,
        tier=tier,
        body=clean_text(body),
        homepage=_homepage(found.get("homepage") or extra.get("homepage")),
        version=_text(found.get("version"))[:40] or None,
        user_invocable=_flag(found.get("user-invocable"), "user-invocable", default=True),
        model_invocable=not _flag(
            found.get("disable-model-invocation"), "disable-model-invocation", default=False
        ),
        dispatch_tool=_dispatch(found),
        emoji=_text(extra.get("emoji"))[:16] or None,
        primary_env=_text(extra.get("primaryEnv"))[:100] or None,
        requires=_requirements(extra),
        install=tuple(spec for item in _list(extra.get("install")) if (spec := _install(item)) is not None),
    )


def _extension(metadata: Any) -> Mapping[str, Any]:
    """Our part of the metadata, or OpenClaw's; a skill for either works with both."""
    if isinstance(metadata, str) and metadata.strip():
        try:
            metadata = json.loads(metadata)
        except ValueError as error:
            raise InvalidInput("metadata is not JSON") from error
    if not isinstance(metadata, dict):
        return {}
    found = [metadata[name] for name in ("holdfast", "openclaw", "clawdbot") if name in metadata]
    return found[0] if found and isinstance(found[0], dict) else {}


def _requirements(extra: Mapping[str, Any]) -> Requirements:
    needs = extra.get("requires")
    needs = needs if isinstance(needs, dict) else {}
    return Requirements(
        always=extra.get("always") is True,
        os=_names(extra.get("os")),
        bins=_names(needs.get("bins")),
        any_bins=_names(needs.get("anyBins")),
        env=_names(needs.get("env")),
        config=_names(needs.get("config")),
    )


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
        raise InvalidInput("command-dispatch is tool, but command-tool does not say which")
    return tool[:100]


def _name(value: Any) -> str:
    name = _text(value)
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"not the name of a skill: {name[:64]!r}", hint="Use letters, digits, dash, dot and underscore."
        )
    return name


def _description(value: Any) -> str:
    text = " ".join(_text(value).split())
    if not text:
        raise InvalidInput("description is missing", hint="Say in a line what the skill is for.")
    return text[:MAX_DESCRIPTION]


def _homepage(value: Any) -> str | None:
    text = _text(value)[:500]
    return text if text.startswith(("https://", "http://")) else None


def _flag(value: Any, name: str, *, default: bool) -> bool:
    if value is None:
        return default
    text = str(value).strip().lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise InvalidInput(f"{name} is neither true nor false: {text[:40]!r}")


def _text(value: Any) -> str:
    return clean_text(value).strip() if isinstance(value, str) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    return tuple(text[:200] for item in _list(value)[:50] if (text := _text(item)))
