"""What bounds a chain: its steps, its tokens, what may wait, and how wide one turn may scatter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from holdfast.config.autonomy import Continuation
from holdfast.continuation.chains import Chain
from holdfast.continuation.record import Kind, Phase, Record, Status

Cap = Literal["chain_length", "cost", "pending", "per_turn"]

MID_CHAIN: Final = frozenset(("continuation", "delegate"))
NEUTRAL: Final = frozenset(("flush", "evacuation", "command"))


@dataclass(frozen=True, slots=True)
class Capped:
    """Which bound was reached, and how it is told."""

    cap: Cap
    text: str


def resets(trigger: str) -> bool:
    """Whether a turn begins a new chain: all but wakes of the chain itself and the runtime's own upkeep."""
    return trigger not in MID_CHAIN and trigger not in NEUTRAL


def chain_cap(chain: Chain, settings: Continuation, *, ahead: int = 0) -> Capped | None:
    """What keeps one more step from being accepted, with `ahead` steps elected but not yet counted."""
    if chain.count + ahead >= settings.max_chain_length:
        return Capped("chain_length", f"the chain has had its {settings.max_chain_length} steps")
    if settings.cost_cap_tokens > 0 and chain.tokens > settings.cost_cap_tokens:
        most = f"{settings.cost_cap_tokens:,}"
        return Capped("cost", f"the chain has used {chain.tokens:,} tokens; {most} are the most")
    return None


def pending_cap(live: Sequence[Record], kind: Kind, settings: Continuation) -> Capped | None:
    """Whether as many wait as may; turns and delegates are counted apart."""
    work = kind is Kind.WORK
    waiting = sum(r.status is Status.QUEUED and (r.kind is Kind.WORK) is work for r in live)
    if waiting < settings.max_pending_work:
        return None
    return Capped(
        "pending", f"{waiting} continuations wait already; {settings.max_pending_work} are the most"
    )


def width_cap(live: Sequence[Record], turn_id: str, settings: Continuation) -> Capped | None:
    """Whether a turn has sent off as many delegates as it may; those of earlier turns do not count."""
    mine = sum(r.kind is not Kind.WORK and r.election.turn_id == turn_id for r in live)
    if mine < settings.max_delegates_per_turn:
        return None
    most = settings.max_delegates_per_turn
    return Capped("per_turn", f"this turn has sent off {mine} delegates; {most} are the most")


def ahead_of(live: Sequence[Record], turn_id: str) -> int:
    """Steps that a running turn has elected and that are counted when it ends."""
    return sum(r.phase is Phase.ELECTING and r.election.turn_id == turn_id for r in live)


def remaining(chain: Chain, settings: Continuation) -> int:
    return max(0, settings.max_chain_length - chain.count)
