"""Who the agent says it is: the frontmatter of IDENTITY.md."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from holdfast.frontmatter import BadFrontmatter, read_frontmatter

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
    """What IDENTITY.md says; anything missing, empty or strange is None."""
    try:
        values = read_frontmatter(text).values
    except BadFrontmatter:  # no reason to stop a turn; `holdfast doctor` tells it
        return AgentIdentity()
    found = {key.lower(): value for key, value in values.items()}
    return AgentIdentity(**{field.name: _plain(found.get(field.name)) for field in fields(AgentIdentity)})


def _plain(value: Any) -> str | None:
    return value.strip()[:_LONGEST] or None if isinstance(value, str) else None
