"""Which tools a model is told of: all of them where the window is large; else a core, and `tool_search`.

What may be used is for policy to say, and nothing here widens it. A tool that was found or called by name is
loaded: the model is given its whole description from the next call on, as long as the session uses it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from holdfast.context import Budgets, ToolSpec
from holdfast.context.request import Remembered, tools_text
from holdfast.context.tokens import raw_tokens

Mode = Literal["auto", "all", "core"]

SEARCH: Final = "tool_search"
CORE: Final = (
    "memory_search",
    "memory_write",
    # Permitted only where the context engine puts words aside: it tells the model to call them.
    "context_read",
    "context_search",
    "exec",
    "file_read",
    "file_write",
    "web_fetch",
    "file_edit",
    "skill_read",
    "memory_get",
    "web_search",
    "message",
    "continue_work",
    "clawboard_search",
    "sessions_spawn",
    "cron_create",
)
MOST_LOADED: Final = 16
UNUSED_TURNS: Final = 20
MOST_FOUND: Final = 8
_LOAD_AT_ONCE: Final = 3
_CORE_SHARE: Final = 0.7
_LIKE: Final = 0.75
_MOST_KEPT: Final = 5_000
_OPTIONAL_WORDS: Final = ("description", "default", "minimum", "maximum", "exclusiveMinimum", "pattern")


class SearchInput(BaseModel):
    """Find further tools by what they do, or by name. What is found can be called at once."""

    model_config = ConfigDict(extra="forbid")
    query: Annotated[str, Field(max_length=400, description="What you want to do; empty lists all.")] = ""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A tool that a session asked for, and the turn in which it last did."""

    name: str
    turn: int


@dataclass(frozen=True, slots=True)
class Listed:
    """What the model is told of: `tools` from the beginning on, `loaded` behind them in their order."""

    tools: tuple[ToolSpec, ...]
    loaded: tuple[ToolSpec, ...] = ()
    partial: bool = False

    @property
    def names(self) -> frozenset[str]:
        return frozenset(spec.name for spec in (*self.tools, *self.loaded))


def listed(
    permitted: Mapping[str, ToolSpec],
    search: ToolSpec | None,
    *,
    mode: Mode,
    budgets: Budgets,
    loaded: Sequence[Loaded] = (),
) -> Listed:
    """Pure. The same tools, window and loads give the same list, byte for byte."""
    every = tuple(permitted.values())
    fits = sum(map(cost, every)) <= budgets.tools and (budgets.may_list_all_tools or not budgets.brief_tools)
    if mode == "all" or (mode == "auto" and fits):
        return Listed(every)
    if not budgets.tools:
        return Listed((), partial=True)
    shown = _brief if budgets.brief_tools else _whole
    if mode == "auto" and sum(cost(shown(spec)) for spec in every) <= budgets.tools * _CORE_SHARE:
        return Listed(tuple(map(shown, every)))
    chosen = [] if search is None else [shown(search)]
    room = int(budgets.tools * _CORE_SHARE) - sum(map(cost, chosen))
    for name in CORE:
        spec = None if name not in permitted else shown(permitted[name])
        if spec is not None and cost(spec) <= room:
            chosen.append(spec)
            room -= cost(spec)
    core = {spec.name for spec in chosen}
    more = tuple(permitted[one.name] for one in loaded if one.name in permitted and one.name not in core)
    return Listed(tuple(chosen), more, partial=True)


def load(
    known: Sequence[Loaded], names: Iterable[str], *, turn: int, cost_of: Callable[[str], int], room: int
) -> tuple[Loaded, ...]:
    """Pure. What is loaded once these were asked for in a turn: those used longest ago make room.

    What is there keeps its place. Nothing is dropped unless something comes.
    """
    asked = list(dict.fromkeys(names))[:MOST_LOADED]
    kept = [replace(one, turn=turn) if one.name in asked else one for one in known]
    new = [Loaded(name, turn) for name in asked if name not in {one.name for one in known}]
    if not new:
        return tuple(kept)
    fresh = [one for one in kept if turn - one.turn < UNUSED_TURNS]
    leaving = [*sorted(fresh, key=lambda one: one.turn), *reversed(new)]
    found = [*fresh, *new]
    while sum(cost_of(one.name) for one in found) > room or len(found) > MOST_LOADED:
        found.remove(leaving.pop(0))
    return tuple(found)


def search(permitted: Mapping[str, ToolSpec], query: str) -> list[str]:
    """Pure. The tools that a query means, best first; all of them, by name, for an empty one."""
    wanted = _words(query)
    if not wanted:
        return list(permitted)
    texts = {name: f"{name} {spec.description}".lower() for name, spec in permitted.items()}
    rare = {word: 1 - sum(word in text for text in texts.values()) / len(texts) for word in wanted}
    scores = {name: _score(spec, rare, query) for name, spec in permitted.items()}
    found = sorted((name for name in permitted if scores[name] > 0), key=lambda name: (-scores[name], name))
    return found[:MOST_FOUND]


def to_load(permitted: Mapping[str, ToolSpec], query: str, found: Sequence[str]) -> list[str]:
    """Those that are loaded: all that the query names, else the best few."""
    if not query.strip():
        return []
    named = [name for name in found if name in re.findall(r"[A-Za-z0-9_]+", query)]
    return named or list(found[:_LOAD_AT_ONCE])


def line(spec: ToolSpec) -> str:
    """A tool in one line: what may be left out of a call is marked."""
    required = set(spec.parameters.get("required", ()))
    fields = [name if name in required else f"{name}?" for name in spec.parameters.get("properties", {})]
    return f"{spec.name}({', '.join(fields)}): {_first_sentence(spec.description)}"


def cost(spec: ToolSpec) -> int:
    """Its tokens, worked out once: they are asked for with every call of a model."""
    return _cost((spec,))


_cost: Remembered[ToolSpec, int] = Remembered(
    lambda specs: raw_tokens(tools_text(specs) or ""), most=_MOST_KEPT
)


def read_loaded(meta: Mapping[str, Any] | None) -> tuple[Loaded, ...]:
    """As it is kept with a session; what cannot be read counts as nothing."""
    kept = (meta or {}).get("tools")
    rows = kept if isinstance(kept, list) else []
    return tuple(Loaded(str(row[0]), int(row[1])) for row in rows if isinstance(row, list) and len(row) == 2)


def write_loaded(meta: Mapping[str, Any] | None, loaded: Sequence[Loaded]) -> dict[str, Any]:
    return {**(meta or {}), "tools": [[one.name, one.turn] for one in loaded]}


def _whole(spec: ToolSpec) -> ToolSpec:
    return spec


def brief(spec: ToolSpec) -> ToolSpec:
    """A tool in few words: its first sentence; of what may be left out, the names alone."""
    required = set(spec.parameters.get("required", ()))
    fields = {
        name: field if name in required else {k: v for k, v in field.items() if k not in _OPTIONAL_WORDS}
        for name, field in spec.parameters.get("properties", {}).items()
    }
    parameters = {**spec.parameters, **({"properties": fields} if fields else {})}
    return ToolSpec(spec.name, _first_sentence(spec.description), parameters)


def _brief(spec: ToolSpec) -> ToolSpec:
    """One object for each tool, since contexts remember tools by which objects they are."""
    return _in_brief((spec,))


_in_brief: Remembered[ToolSpec, ToolSpec] = Remembered(lambda specs: brief(specs[0]), most=_MOST_KEPT)


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?])\s", " ".join(text.split()), maxsplit=1)[0][:200]


def _words(text: str) -> list[str]:
    return [word for word in re.findall(r"[a-z0-9]+", text.lower()) if len(word) > 1]


def _score(spec: ToolSpec, wanted: Mapping[str, float], query: str) -> float:
    """Words of the name count most, then those of the description, then those of the fields; like words too,
    and words that most tools have hardly at all."""
    texts = (
        (4.0, _words(spec.name.replace("_", " "))),
        (2.0, _words(spec.description)),
        (1.0, _words(" ".join(spec.parameters.get("properties", {})))),
    )
    total = 10.0 if spec.name in query.lower() else 0.0
    for word, rare in wanted.items():
        best = max(
            weight * max((_likeness(word, own) for own in words), default=0.0) for weight, words in texts
        )
        total += rare * best
    return total


def _likeness(word: str, own: str) -> float:
    if word == own:
        return 1.0
    if len(word) < 4 or len(own) < 4:
        return 0.0
    if word.startswith(own) or own.startswith(word):
        return 0.8
    like = SequenceMatcher(None, word, own).ratio()
    return 0.5 * like if like >= _LIKE else 0.0
