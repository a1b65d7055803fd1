"""Whether a heartbeat that is due takes a turn now. Pure: what is known decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal
from zoneinfo import ZoneInfo

from holdfast.agents.heartbeat import checklist
from holdfast.agents.heartbeat.checklist import Item
from holdfast.agents.heartbeat.hours import Hours
from holdfast.agents.heartbeat.state import State
from holdfast.agents.heartbeat.zones import day_of
from holdfast.config import Heartbeat

RETRY_MS: Final = 30_000
FLOOD_RUNS: Final = 5
FLOOD_MS: Final = 60_000

Reason = Literal["quiet_hours", "flood", "spend_cap", "busy", "nothing_due", "empty"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What there is to know when a heartbeat is due. `forced` is one that somebody asked for by hand; `items`
    is None where there is no checklist at all, so that the prompt alone says what to do."""

    now: int
    due_at: int
    settings: Heartbeat
    zone: ZoneInfo
    hours: Hours | None
    state: State
    items: tuple[Item, ...] | None
    busy: bool = False
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """Take a turn for these items; `next_at` is the heartbeat after it."""

    next_at: int
    due: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Skip:
    """Nothing now; the next heartbeat is at `next_at`."""

    next_at: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Defer:
    """The same heartbeat again, soon."""

    until: int
    reason: Reason


Verdict = Run | Skip | Defer


def decide(facts: Facts) -> Verdict:
    """Cheapest question first; whether there is anything to do comes before whether the session is free, so
    that an idle heartbeat leaves a busy session alone."""
    later = next_beat(facts.due_at, facts.now, int(facts.settings.every))
    if not facts.forced:
        if facts.hours is not None and not facts.hours.hold(facts.now):
            return Skip(facts.hours.next(facts.now), "quiet_hours")
        if _over_cap(facts):
            return Skip(later, "spend_cap")
    if _flooded(facts):
        return Skip(max(later, facts.now + FLOOD_MS), "flood")
    found = wanted(facts)
    if not found and not _prompt_alone(facts):
        return Skip(later, "nothing_due" if facts.items else "empty")
    if facts.busy:
        return Defer(facts.now + RETRY_MS, "busy")
    return Run(later, found)


def wanted(facts: Facts) -> tuple[Item, ...]:
    """What is to be looked after; who asks for a heartbeat by hand gets the whole list."""
    items = facts.items or ()
    if facts.forced:
        return tuple(item for item in items if not item.done)
    return checklist.due(items, facts.state.items, facts.now, facts.zone)


def next_beat(due_at: int, now: int, every: int) -> int:
    """Keeps the rhythm; what fell into a time when nobody was there is not made up for."""
    following = due_at + every
    return following if following > now else now + every


def _prompt_alone(facts: Facts) -> bool:
    """A prompt of the operator's own is a task by itself where no checklist says what is due."""
    return facts.settings.prompt is not None and (facts.items is None or facts.forced)


def _over_cap(facts: Facts) -> bool:
    tokens, cost = facts.state.spent(day_of(facts.now, facts.zone))
    most_tokens, most_cost = facts.settings.max_tokens_per_day, facts.settings.max_cost_per_day
    return bool(most_tokens and tokens >= most_tokens) or bool(most_cost and cost >= most_cost)


def _flooded(facts: Facts) -> bool:
    recent = [at for at in facts.state.ran_at if facts.now - at < FLOOD_MS]
    return len(recent) >= FLOOD_RUNS
