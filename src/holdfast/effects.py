"""What a tool does to the world. Declared beside each tool, in its own room; nothing is assumed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel


class Effect(StrEnum):
    """What a call may change; calls of one reply run side by side only if none of them changes anything."""

    NONE = "none"
    OWN = "own"
    WORLD = "world"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTool:
    """A tool as a room below the agents declares it; see `holdfast.agents.tools.Tool`."""

    input: type[BaseModel]
    effect: Effect
    repeatable: bool
    for_others: bool = False
