"""Whether a heartbeat that is due takes a turn, what it asks, and what the reply means. Pure.

A wall clock that skips or repeats an hour needs no rule of its own: what it shows is compared. An hour that
comes twice counts twice, and one that is skipped begins, if the window covers the time after it, at the jump.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, Self
from zoneinfo import ZoneInfo

from holdfast.agents.heartbeat import checklist
from holdfast.agents.heartbeat.checklist import Item
from holdfast.agents.heartbeat.state import State
from holdfast.clock import Millis
from holdfast.config import AgentSettings, Heartbeat
from holdfast.context import HEARTBEAT_OK, NO_REPLY, SILENT_WORDS
from holdfast.log.reset import local_zone, zone

if TYPE_CHECKING:
    from holdfast.config import ActiveHours


MINUTE: Final = 60_000
_DAY_MINUTES: Final = 24 * 60
_FURTHEST: Final = 4 * _DAY_MINUTES


@dataclass(frozen=True, slots=True)
class Hours:
    """Minutes of the day from `start` up to, and without, `end`; an end before the start is over midnight."""

    start: int
    end: int
    zone: ZoneInfo

    @classmethod
    def of(cls, config: ActiveHours, zone: ZoneInfo) -> Self:
        return cls(_minutes(config.start or "00:00"), _minutes(config.end or "24:00"), zone)

    def hold(self, at: int) -> bool:
        """Whether the wall clock shows a time within the hours."""
        shown = datetime.fromtimestamp(at // 1000, UTC).astimezone(self.zone)
        now = shown.hour * 60 + shown.minute
        if self.start < self.end:
            return self.start <= now < self.end
        return now >= self.start or now < self.end % _DAY_MINUTES

    def next(self, at: int) -> Millis:
        """The first moment from `at` on that lies within; `at` itself if it does."""
        if self.hold(at):
            return Millis(at)
        minute = at - at % MINUTE
        for later in range(1, _FURTHEST + 1):
            if self.hold(minute + later * MINUTE):
                return Millis(minute + later * MINUTE)
        raise AssertionError("hours that never come")


def _minutes(text: str) -> int:
    hour, _, minute = text.partition(":")
    return int(hour) * 60 + int(minute)


def zone_of(name: str, agent: AgentSettings) -> ZoneInfo:
    """`user` is the agent's user, `local` this machine, else the zone of that name."""
    if name == "user":
        name = agent.user_timezone
    return local_zone() if name == "local" else zone(name)


def day_of(at: int, where: ZoneInfo) -> str:
    """The date that a wall clock there shows."""
    return datetime.fromtimestamp(at // 1000, UTC).astimezone(where).date().isoformat()


__all__ = ["HEARTBEAT_OK", "NO_REPLY", "Reply", "digest", "understood"]

_MARKS: Final = " \t\r\n`*_~\"'.,:;!?>()[]-–—"


@dataclass(frozen=True, slots=True)
class Reply:
    """`text` is the report without the word; empty where there is nothing to tell."""

    text: str

    @property
    def is_ack(self) -> bool:
        return not self.text


def understood(said: str, most: int) -> Reply:
    """A reply that begins or ends with the word and has at most `most` characters besides is no report."""
    rest = _without_last(_without_first(said))
    bare = rest.strip(_MARKS)
    if not bare or (rest != said and len(bare) <= most):
        return Reply("")
    return Reply(rest.strip())


def digest(text: str) -> str:
    """The same for texts that a person would call the same."""
    plain = " ".join(re.sub(r"[\W_]+", " ", text.casefold()).split()) or text
    return hashlib.sha256(plain.encode()).hexdigest()[:32]


def _without_first(said: str) -> str:
    bare = said.lstrip(_MARKS)
    for word in SILENT_WORDS:
        if bare.startswith(word) and not bare[len(word) :][:1].isalnum():
            return bare[len(word) :].lstrip(_MARKS)
    return said


def _without_last(said: str) -> str:
    bare = said.rstrip(_MARKS)
    for word in SILENT_WORDS:
        if bare.endswith(word) and not bare[: -len(word)][-1:].isalnum():
            return bare[: -len(word)].rstrip(" \t\r\n`*_\"'([-–—")
    return said


_CONTRACT: Final = (
    f"If nothing needs the user's attention, answer {HEARTBEAT_OK} and nothing else; "
    "whatever else you answer is sent to them."
)
_BEAT: Final = (
    "Heartbeat wake: look after your checklist, HEARTBEAT.md. Do what it says and no more; "
    "old tasks from the conversation are not taken up again."
)
BOOT_PROMPT: Final = (
    "Holdfast has started. Follow BOOT.md. If there is nothing to tell the user, "
    f"answer {NO_REPLY} and nothing else; whatever else you answer is sent to them."
)


def beat_prompt(prompt: str | None, due: Sequence[Item], *, all_due: bool) -> str:
    """The prompt of one heartbeat; where only some of the list is due, it says which."""
    parts = [prompt or _BEAT]
    if due and not all_due:
        parts.append("Due now, and nothing else of the list:\n" + "\n".join(f"- {item.text}" for item in due))
    return "\n\n".join((*parts, _CONTRACT))


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
