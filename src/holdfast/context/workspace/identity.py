"""Who the agent is: what the config says of it, and beside that its own IDENTITY.md."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Final

from holdfast.config import AgentEntry

_LINE: Final = re.compile(r"([A-Za-z][\w-]*)[ \t]*:(?:[ \t]+(.*))?")
_QUOTED: Final = re.compile(r"""(?:"((?:[^"\\]|\\.)*)"|'((?:[^']|'')*)')[ \t]*(?:#.*)?""")
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


def frontmatter(text: str) -> tuple[dict[str, str], str]:
    """The `key: value` lines between two `---` lines at the top, and the text behind them.

    Only flat text values are read: that is all an identity has, and it needs no YAML library.
    """
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        return {}, text
    for end, line in enumerate(lines[1:], 1):
        if line.rstrip() in ("---", "..."):
            values = (_LINE.fullmatch(row.rstrip()) for row in lines[1:end])
            found = {m[1].lower(): _value(m[2] or "") for m in values if m is not None}
            return found, "\n".join(lines[end + 1 :])
    return {}, text


def identity_of(text: str) -> AgentIdentity:
    """What IDENTITY.md says, in its frontmatter or else in a list (`- Name: Logic`), as the template has it;
    anything missing, empty or strange is None."""
    found, body = frontmatter(text)
    listed = {m[1].lower(): m[2].strip() for m in map(_LISTED.match, body.splitlines()) if m is not None}
    asked = {name: value for name, value in listed.items() if not value.startswith("(")}
    said = asked | {name: value for name, value in found.items() if value}
    names = (f.name for f in fields(AgentIdentity))
    return AgentIdentity(**{name: said.get(name, "")[:_LONGEST] or None for name in names})


def configured_identity(agent: AgentEntry) -> AgentIdentity:
    """What the config says of an agent; `identity.name` before `name`."""
    own = {f.name: getattr(agent.identity, f.name) or None for f in fields(AgentIdentity)}
    return AgentIdentity(**{**own, "name": own["name"] or agent.name or None})


def merged(first: AgentIdentity, other: AgentIdentity) -> AgentIdentity:
    """Field by field the first, and the other where it says nothing."""
    names = (f.name for f in fields(AgentIdentity))
    return AgentIdentity(**{name: getattr(first, name) or getattr(other, name) for name in names})


def _value(text: str) -> str:
    text = text.strip()
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        inner = quoted[1]
        return quoted[2].replace("''", "'") if inner is None else re.sub(r"\\(.)", r"\1", inner)
    plain = re.split(r"\s#", text, maxsplit=1)[0].rstrip()
    return "" if plain in ("~", "null") or (plain[:1] in "#[{|>&*" and plain) else plain
