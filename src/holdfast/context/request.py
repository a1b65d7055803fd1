"""What a build is asked for, and what it gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from holdfast.config import AgentSettings
from holdfast.config.memory import DailyLogs
from holdfast.context.budget import Budgets, Pressure
from holdfast.context.manifest import Manifest
from holdfast.context.messages import Message, Trust
from holdfast.context.workspace import Occasion
from holdfast.log import FOR_OWNER, Audience, Session

T = TypeVar("T")
R = TypeVar("R")

MOST: Final = 1_000


class Remembered(Generic[T, R]):
    """`make` for a run of objects, remembered by which objects they are; they must never change."""

    def __init__(self, make: Callable[[Sequence[T]], R], *, most: int = MOST) -> None:
        self._make = make
        self._most = most
        self._known: dict[tuple[int, ...], tuple[tuple[T, ...], R]] = {}

    def __call__(self, objects: Sequence[T]) -> R:
        """The objects are held with what was made of them, so that no other can have their identity."""
        key = tuple(map(id, objects))
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= self._most:
                self._known.clear()
            found = self._known[key] = (tuple(objects), self._make(objects))
        return found[1]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model is told of it; its parameters never change."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Text:
    """A named piece of text with its trust: stable instructions, or something for the carrier.

    Whoever makes it says who may read it; what is not said is the owner's alone, and stands in no other
    prompt.
    """

    name: str
    text: str
    trust: Trust = Trust.OPERATOR
    source: str = ""
    audience: Audience = FOR_OWNER


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The model that a context is for; `sent_as` is for the account alone."""

    name: str
    window: int
    sent_as: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """One model call of a turn. `input_id` is the entry of the user's words; `input` stands in for it where
    there is none (a heartbeat); `pending` is what this turn has said and done so far, not yet in the log.
    `opened_files` are those that the owner opened to a session that others hear too. `loaded_tools` stand
    behind the others in their own order: what was asked for in the course of the session."""

    session: Session
    turn_id: str
    number: int
    model: ModelFacts
    settings: AgentSettings
    workspace: Path
    call: int = 0
    occasion: Occasion = Occasion.MESSAGE
    tools: Sequence[ToolSpec] = ()
    loaded_tools: Sequence[ToolSpec] = ()
    instructions: Sequence[Text] = ()
    volatile: Sequence[Text] = ()
    input_id: str | None = None
    input: Message | None = None
    pending: Sequence[Message] = ()
    extra_files: Sequence[str] = ()
    opened_files: Sequence[str] = ()
    subagent_files: Sequence[str] | None = None
    citations_mode: str = "auto"
    daily_logs: DailyLogs = field(default_factory=DailyLogs)
    record: bool = True

    @property
    def budgets(self) -> Budgets:
        return Budgets.for_window(self.model.window, self.settings.compaction)


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A context, ready to be sent, and the account of it."""

    messages: tuple[Message, ...] = field(repr=False)
    tools: tuple[ToolSpec, ...]
    manifest: Manifest
    pressure: Pressure
    needs_compaction: bool
    notes: Mapping[str, Any] = field(default_factory=dict)


def ordered_tools(tools: Sequence[ToolSpec], loaded: Sequence[ToolSpec] = ()) -> tuple[ToolSpec, ...]:
    """By name, then those that were loaded later in the order of their loading, so that a list grows."""
    return (*sorted(tools, key=lambda t: t.name), *loaded)


def tools_text(tools: Sequence[ToolSpec], loaded: Sequence[ToolSpec] = ()) -> str | None:
    """The tools in one fixed form, so that equal tools give equal bytes."""
    return _written(ordered_tools(tools, loaded)) if tools or loaded else None


def _encode(tools: Sequence[ToolSpec]) -> str:
    listed = [{"name": t.name, "description": t.description, "parameters": t.parameters} for t in tools]
    return json.dumps(listed, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


_written: Remembered[ToolSpec, str] = Remembered(_encode, most=100)
