"""Which waiting turns are not worth their model call any more. What runs is never among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.continuation.record import Kind, Phase, Record, Status

GRACE: Final = 2


def overdue(matured: Sequence[Record], now: int, max_delay_ms: int) -> list[Record]:
    """Of several that are due at once, those that are long overdue; the newest elected always stays."""
    work = [r for r in matured if r.kind is Kind.WORK and r.status is Status.QUEUED]
    if len(work) < 2:
        return []
    newest = max(work, key=lambda r: (r.election.elected_at, r.hop, r.id))
    line = now - GRACE * max_delay_ms
    return [r for r in work if r is not newest and r.due_at is not None and r.due_at < line]


def replaced(live: Sequence[Record], turn_id: str) -> list[Record]:
    """What waits for a busy session since earlier turns, once a new turn elects anew."""
    return [
        r for r in live if r.kind is Kind.WORK and r.phase is Phase.PARKED and r.election.turn_id != turn_id
    ]
