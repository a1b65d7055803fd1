"""Whether elected work has lost the run that it was for. Only certainty reaps: a wrong reap loses work."""

from __future__ import annotations

from typing import Final

from holdfast.agents.subagents import Run

DEFAULT_CUTOFF_MS: Final = 2 * 3_600_000
GRACE_MS: Final = 60_000


def is_orphan(parent_run_id: str | None, run: Run | None, now: int, cutoff_ms: int | None) -> bool:
    """True only if the parent run is over for certain; one that nobody knows may live."""
    if parent_run_id is None or run is None:
        return False
    if run.ended_at is not None:
        return True
    limit = run.timeout_seconds * 1000 + GRACE_MS if run.timeout_seconds else 0
    return now - (run.started_at or run.created_at) > max(cutoff_ms or DEFAULT_CUTOFF_MS, limit)
