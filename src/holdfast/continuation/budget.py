"""What bounds a chain: its steps, its cost, its age, what may wait, and how wide one turn may scatter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

from holdfast.config.autonomy import Continuation
from holdfast.continuation.record import Kind
from holdfast.continuation.records import Waiting
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
