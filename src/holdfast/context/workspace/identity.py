"""Who the agent is: what the config says of it, and beside that its own IDENTITY.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from holdfast.config import AgentEntry
from holdfast.frontmatter import BadFrontmatter, read_frontmatter

_LISTED: Final = re.compile(r"[-*]\s+\**([A-Za-z]+)\**\s*:\**\s*(.*)")
_LONGEST: Final = 500


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    name: str | None = None
    emoji: str | None = None
    creature: str | None = None
    vibe: str | None = None
    theme: str | None = None
    avatar: str | None = None


def identity_of(text: str) -> AgentIdentity:
    """What IDENTITY.md says, in its frontmatter or else in a list (`- Name: Logic`), as the template has it;
    anything missing, empty or strange is None."""
    values, body = _parts(text)
    listed = {m[1].lower(): m[2] for m in map(_LISTED.match, body.splitlines()) if m is not None}
    asked = {name: value for name, value in listed.items() if not value.startswith("(")}
    found = {key.lower(): value for key, value in values.items()}
    names = (field.name for field in fields(AgentIdentity))
    return AgentIdentity(**{name: _plain(found.get(name)) or _plain(asked.get(name)) for name in names})


def configured_identity(agent: AgentEntry) -> AgentIdentity:
    """What the config says of an agent; `identity.name` before `name`."""
    own = agent.identity
    return AgentIdentity(
        name=own.name or agent.name or None,
        emoji=own.emoji or None,
        creature=own.creature or None,
        vibe=own.vibe or None,
        theme=own.theme or None,
        avatar=own.avatar or None,
    )


def merged(first: AgentIdentity, other: AgentIdentity) -> AgentIdentity:
    """Field by field the first, and the other where it says nothing."""
    names = (f.name for f in fields(AgentIdentity))
    return AgentIdentity(**{name: getattr(first, name) or getattr(other, name) for name in names})


def _parts(text: str) -> tuple[Mapping[str, Any], str]:
    """The frontmatter, if any can be read, and the rest; `holdfast doctor` tells of a bad one."""
    try:
        read = read_frontmatter(text)
    except BadFrontmatter:
        return {}, text
    return read.values, read.body


def _plain(value: Any) -> str | None:
    return value.strip()[:_LONGEST] or None if isinstance(value, str) else None
