"""What delegated work puts on the agenda: beginning a run, waking its requester, stopping and clearing up."""

from __future__ import annotations

from typing import Final

from holdfast.agents.subagents.registry import Run
from holdfast.log import Tx, agenda

LAUNCH: Final = "subagent.launch"
WAKE: Final = "subagent.wake"
STOP: Final = "subagent.stop"
SWEEP: Final = "subagent.sweep"

TIMEOUT: Final = "timeout"
ATTEMPTS: Final = 8
_ALWAYS_ROOM: Final = 1_000_000


def launch(tx: Tx, run: Run, traceparent: str | None) -> None:
    """Begin a run that was reserved in this transaction, whatever becomes of this process."""
    payload = {"id": run.id, "traceparent": traceparent}
    agenda.enqueue(tx, LAUNCH, payload, key=launch_key(run), max_attempts=ATTEMPTS)


def launch_key(run: Run) -> str:
    return f"{LAUNCH}:{run.id}"


def wake(tx: Tx, requester_key: str, *, due_at: int | None = None) -> None:
    """Look after the requester's results when its lane is free: one look for all that came back by then."""
    agenda.enqueue(
        tx,
        WAKE,
        {"sessionKey": requester_key},
        lane=requester_key,
        key=f"{WAKE}:{requester_key}",
        due_at=due_at,
        max_attempts=ATTEMPTS,
        most_waiting=_ALWAYS_ROOM,
    )


def stop(tx: Tx, run: Run, reason: str) -> None:
    """End a run soon, wherever it runs."""
    payload = {"id": run.id, "round": run.round, "reason": reason}
    agenda.enqueue(tx, STOP, payload, key=f"{STOP}:{run.id}:{run.round}", max_attempts=ATTEMPTS)


def time_limit(tx: Tx, run: Run) -> None:
    """End a run that takes too long; counted from its first turn's beginning."""
    if run.timeout_seconds:
        agenda.enqueue(
            tx,
            STOP,
            {"id": run.id, "round": run.round, "reason": TIMEOUT},
            key=f"{STOP}.{TIMEOUT}:{run.id}:{run.round}",
            due_at=int(tx.now) + run.timeout_seconds * 1000,
            max_attempts=ATTEMPTS,
        )


def sweep(tx: Tx, run: Run) -> None:
    """Tell the engine that the child has ended, and archive its session in its time."""
    key = f"{SWEEP}:{run.id}:{run.round}"
    payload = {"id": run.id, "round": run.round}
    agenda.enqueue(tx, SWEEP, payload, lane=key, key=key, max_attempts=ATTEMPTS)
