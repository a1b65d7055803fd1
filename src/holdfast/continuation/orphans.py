"""Whether elected work has lost the run that it was for. Only certainty reaps: a wrong reap loses work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from holdfast.log import Session, Tx

DEFAULT_CUTOFF_MS: Final = 2 * 3_600_000
GRACE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class ParentRun:
    """A run as its registry knows it now; never stored, since it may be different at the next look."""

    started_at: int
    ended_at: int | None = None
    timeout_ms: int | None = None


class Registry(Protocol):
    """The subagent room, as far as continuation asks it."""

    def run_of(self, tx: Tx, session: Session) -> str | None:
        """The run that a child session was spawned for; None for a session that nobody spawned."""
        ...

    def run(self, tx: Tx, run_id: str) -> ParentRun | None:
        """A run by its id; None if the registry has none, which says nothing about its life."""
        ...


def is_orphan(parent_run_id: str | None, run: ParentRun | None, now: int, cutoff_ms: int | None) -> bool:
    """True only if the parent run is over for certain."""
    if parent_run_id is None or run is None:
        return False
    if run.ended_at is not None:
        return True
    patience = max(cutoff_ms or DEFAULT_CUTOFF_MS, (run.timeout_ms or 0) + GRACE_MS if run.timeout_ms else 0)
    return now - run.started_at > patience
