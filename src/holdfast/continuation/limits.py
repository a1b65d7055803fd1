"""What bounds a chain, how long an election waits, and which ones are not worth their model call any more.

All of it pure. Only certainty reaps an orphan: a wrong reap loses work. What runs is never superseded.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeVar

from holdfast.agents.subagents import Run
from holdfast.config.agents import Continuation
from holdfast.context import is_silent
from holdfast.continuation.records import SessionState, Waiting
from holdfast.continuation.state import Kind, Phase, Record, Status
from holdfast.log import Chain

Cap = Literal["chain_length", "cost", "time", "stopped", "pending", "per_turn"]


@dataclass(frozen=True, slots=True)
class Capped:
    """Which bound was reached, and how it is told."""

    cap: Cap
    text: str


@dataclass(frozen=True, slots=True)
class Budget:
    """What a chain may come to: the narrower of what its first agent and the one that elects are given."""

    steps: int
    tokens: int
    dollars: float
    minutes: int

    @classmethod
    def of(cls, *given: Continuation) -> Budget:
        return cls(
            steps=min(one.max_chain_length for one in given),
            tokens=_least([one.cost_cap_tokens for one in given]),
            dollars=_least([one.cost_cap_dollars for one in given]),
            minutes=_least([one.max_chain_minutes for one in given]),
        )

    def left(self, chain: Chain) -> int:
        """The steps that may still be taken."""
        return max(0, self.steps - chain.steps)


Number = TypeVar("Number", int, float)


def _least(caps: list[Number]) -> Number:
    """The smallest cap; 0 is none."""
    return min((cap for cap in caps if cap), default=caps[0])


def chain_cap(chain: Chain, budget: Budget, now: int, *, ahead: int = 0) -> Capped | None:
    """What keeps one more step from being accepted, with `ahead` steps elected but not yet counted."""
    if chain.stopped:
        return Capped("stopped", f"the chain was stopped: {chain.stop_reason}")
    if chain.steps + ahead >= budget.steps:
        return Capped("chain_length", f"the chain has had its {budget.steps} steps")
    if budget.tokens and chain.tokens > budget.tokens:
        return Capped("cost", f"the chain has used {chain.tokens:,} tokens; {budget.tokens:,} are the most")
    if budget.dollars and chain.cost > budget.dollars:
        return Capped("cost", f"the chain has cost ${chain.cost:.4f}; ${budget.dollars:g} is the most")
    if budget.minutes and now - chain.started_at > budget.minutes * 60_000:
        return Capped("time", f"the chain began more than {budget.minutes} minutes ago")
    return None


def pending_cap(waiting: Waiting, kind: Kind, settings: Continuation) -> Capped | None:
    """Whether as many wait as may; turns and delegates are counted apart."""
    count = waiting.work if kind is Kind.WORK else waiting.delegates
    if count < settings.max_pending_work:
        return None
    return Capped("pending", f"{count} continuations wait already; {settings.max_pending_work} are the most")


def width_cap(waiting: Waiting, settings: Continuation) -> Capped | None:
    """Whether a turn has sent off as many delegates as it may; those of earlier turns do not count."""
    if waiting.sent < settings.max_delegates_per_turn:
        return None
    most = settings.max_delegates_per_turn
    return Capped("per_turn", f"this turn has sent off {waiting.sent} delegates; {most} are the most")


FOLD_CHECK_MS: Final = 30_000
DISABLED_RECHECK_MS: Final = 15_000
STALE_RUNNING_MS: Final = 60_000


def work_delay(requested_ms: int | None, settings: Continuation) -> int:
    """The delay of an elected turn; none asked for is the default, kept within the bounds too."""
    return delegate_delay(settings.default_delay_ms if requested_ms is None else requested_ms, settings)


def delegate_delay(requested_ms: int | None, settings: Continuation) -> int:
    """The delay of a delegate; nothing or less is at once."""
    if requested_ms is None or requested_ms <= 0:
        return 0
    return max(settings.min_delay_ms, min(requested_ms, settings.max_delay_ms))


def hedge_at(now: int, settings: Continuation) -> int:
    """When an election is due whose turn never says how it ended."""
    return now + settings.max_delay_ms


def busy_until(now: int, skips: int, settings: Continuation, *, event: bool) -> int:
    """When a due turn is looked at again. An event that will come early needs only the ceiling as a hedge."""
    backoff = settings.busy_skip_backoff
    ceiling = backoff.ceiling_ms or settings.max_delay_ms
    if event:
        return now + ceiling
    try:
        grown = backoff.base_ms * backoff.factor**skips
    except OverflowError:
        return now + ceiling
    return now + int(min(grown, ceiling))


def seconds(ms: int) -> int | float:
    """Milliseconds as a model is told them."""
    return ms // 1000 if ms % 1000 == 0 else ms / 1000


OVERDUE_GRACE: Final = 2


def overdue(matured: Sequence[Record], now: int, max_delay_ms: int) -> list[Record]:
    """Of several that are due at once, those that are long overdue; the newest elected always stays."""
    work = [r for r in matured if r.kind is Kind.WORK and r.status is Status.QUEUED]
    if len(work) < 2:
        return []
    newest = max(work, key=lambda r: (r.election.elected_at, r.hop, r.id))
    line = now - OVERDUE_GRACE * max_delay_ms
    return [r for r in work if r is not newest and r.due_at is not None and r.due_at < line]


def replaced(live: Sequence[Record], turn_id: str) -> list[Record]:
    """What waits for a busy session since earlier turns, once a new turn elects anew."""
    return [
        r for r in live if r.kind is Kind.WORK and r.phase is Phase.PARKED and r.election.turn_id != turn_id
    ]


MOST_IDLE_TURNS: Final = 4
IDLE_WITHIN_MS: Final = 300_000
_IDLE_TOOLS: Final = frozenset(("sessions_yield", "continue_work"))


def is_idle_turn(trigger: str, said: str, tools: Collection[str], *, rearmed: bool) -> bool:
    """Whether a woken turn did nothing but elect the next one."""
    quiet = all(name in _IDLE_TOOLS or name.startswith("message") for name in tools)
    return trigger == "continuation" and rearmed and is_silent(said) and quiet


def with_idle_turn(state: SessionState, idle: bool, now: int) -> SessionState:
    """The streak after a turn; anything real ends it, and so does a long pause."""
    if not idle:
        return replace(state, idle_turns=0, idle_at=None)
    going_on = state.idle_at is not None and now - state.idle_at <= IDLE_WITHIN_MS
    return replace(state, idle_turns=state.idle_turns + 1 if going_on else 1, idle_at=now)


def is_idling(state: SessionState, now: int) -> bool:
    recent = state.idle_at is not None and now - state.idle_at <= IDLE_WITHIN_MS
    return state.idle_turns >= MOST_IDLE_TURNS and recent


ORPHAN_CUTOFF_MS: Final = 2 * 3_600_000
ORPHAN_GRACE_MS: Final = 60_000


def is_orphan(parent_run_id: str | None, run: Run | None, now: int, cutoff_ms: int | None) -> bool:
    """True only if the parent run is over for certain; one that nobody knows may live."""
    if parent_run_id is None or run is None:
        return False
    if run.ended_at is not None:
        return True
    limit = run.timeout_seconds * 1000 + ORPHAN_GRACE_MS if run.timeout_seconds else 0
    return now - (run.started_at or run.created_at) > max(cutoff_ms or ORPHAN_CUTOFF_MS, limit)
