"""What another's server says of a tool, as it may stand in a prompt: bounded, fenced, and known by its hash.

Pure. What a server says is claims: a person agrees to them once, and whatever differs later asks again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.context import Trust
from holdfast.context.fence import disarmed, fence, unfence
from holdfast.hidden_characters import make_visible
from holdfast.text import clean_json, clean_text, clip

MOST_TOOLS: Final = 200
DESCRIPTION: Final = 2_048
FIELD: Final = 400
SCHEMA: Final = 16_384
NAME: Final = 64
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")
_DEPTH: Final = 12


@dataclass(frozen=True, slots=True)
class Definition:
    """One tool of a server. `digest` names what was said of it, to the byte, as it was said."""

    server: str
    tool: str
    description: str
    parameters: Mapping[str, Any] = field(hash=False)
    reads_only: bool
    digest: str

    @property
    def name(self) -> str:
        """As the model calls it."""
        return prefixed(self.server, self.tool)

    @property
    def shown(self) -> str:
        """All that a model is told of it, for the person who is to agree to that."""
        reads = " (says that it only reads)" if self.reads_only else ""
        takes = json.dumps(self.parameters, ensure_ascii=False)
        return f"{self.name}{reads}: {unfence(self.description)}\n  {takes}"


def prefixed(server: str, tool: str) -> str:
    """A name of at most 64 letters that no tool of ours and of no other server has."""
    made = f"mcp_{_NOT_IN_NAMES.sub('_', server)}_{_NOT_IN_NAMES.sub('_', tool)}"
    plain = f"mcp_{server}_{tool}"
    if made == plain and len(made) <= NAME:
        return made
    return f"{made[: NAME - 9]}_{hashlib.sha256(plain.encode('utf-8', 'replace')).hexdigest()[:8]}"


def defined(
    server: str, tool: str, description: str, schema: Mapping[str, Any], hints: Mapping[str, Any]
) -> Definition | None:
    """A tool as it may be offered; None for one whose description of its input is too large or no object."""
    said = json.dumps([tool, description, schema, hints], sort_keys=True, default=str)
    digest = hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()
    parameters = _shown(clean_json(dict(schema)), 0)
    if not isinstance(parameters, dict) or parameters.get("type", "object") != "object":
        return None
    if len(json.dumps(parameters)) > SCHEMA or not tool or len(tool) > 256:
        return None
    text = clip(_plain(clean_text(description)).strip() or prefixed(server, tool), DESCRIPTION)
    return Definition(
        server=server,
        tool=tool,
        description=fence(text, Trust.OUTSIDE, f"mcp/{server}"),
        parameters={"type": "object", "properties": {}, **parameters},
        reads_only=hints.get("readOnlyHint") is True,
        digest=digest,
    )


def _plain(text: str) -> str:
    """Nothing that cannot be seen, and nothing that a terminal would obey."""
    return "".join(ch if ch.isprintable() or ch in "\n\t" else "\ufffd" for ch in make_visible(text))


def _shown(schema: Any, depth: int) -> Any:
    """A schema without what leads elsewhere, and with all its words bounded and defused."""
    if depth > _DEPTH:
        return {}
    if isinstance(schema, list):
        return [_shown(one, depth + 1) for one in schema]
    if isinstance(schema, str):
        return clip(disarmed(_plain(schema)), FIELD)
    if not isinstance(schema, dict):
        return schema
    if not str(schema.get("$ref", "#")).startswith("#"):
        return {}
    return {
        clip(disarmed(_plain(str(name))), FIELD): _shown(value, depth + 1) for name, value in schema.items()
    }


@dataclass(frozen=True, slots=True)
class Sorted:
    """What of a server's tools may be used, and what waits for a person: what is new, and what is other."""

    agreed: tuple[Definition, ...] = ()
    new: tuple[Definition, ...] = ()
    changed: tuple[Definition, ...] = ()

    @property
    def held(self) -> tuple[Definition, ...]:
        return (*self.new, *self.changed)


def sorted_by_pins(found: tuple[Definition, ...], pins: Mapping[str, str]) -> Sorted:
    """Hold each tool against what a person agreed to."""
    agreed = tuple(one for one in found if pins.get(one.tool) == one.digest)
    new = tuple(one for one in found if one.tool not in pins)
    changed = tuple(one for one in found if one.tool in pins and pins[one.tool] != one.digest)
    return Sorted(agreed, new, changed)
