"""How a delegated run ends: outcome, announcement and the requester's waking are one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.agents.subagents import due, registry, returning, words
from holdfast.agents.subagents.registry import Announce, Outcome, Run, Status
from holdfast.board import supervision
from holdfast.context import Trust, is_silent
from holdfast.log import EntryFilter, NoteDraft, Turn, TurnStatus, Tx, entries, notes, sessions, turns

KIND: Final = "subagent"
RETURN: Final = "subagent-return"
PARENT_STOPPED: Final = "the turn that asked for it was stopped"
PARENT_ENDED: Final = "the run that asked for it has ended"

_SUPERVISED: Final = {
    Outcome.SUCCESS: supervision.RunStatus.DONE,
    Outcome.CANCELLED: supervision.RunStatus.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class Verdict:
    outcome: Outcome
    error: str | None = None


def verdict(turn: TurnStatus, said: str | None, run: Run, error: str | None = None) -> Verdict:
    """What the runtime makes of a run's last turn; a result that is waited for and missing is an error."""
    match turn:
        case TurnStatus.COMMITTED:
            missing = run.expects and is_silent(said or "")
            return Verdict(Outcome.ERROR, words.MISSING) if missing else Verdict(Outcome.SUCCESS)
        case TurnStatus.CANCELLED if run.stop_reason == due.TIMEOUT:
            return Verdict(Outcome.TIMEOUT, f"it took longer than {run.timeout_seconds} seconds")
        case TurnStatus.CANCELLED:
            return Verdict(Outcome.CANCELLED, run.stop_reason or error)
        case TurnStatus.INTERRUPTED:
            return Verdict(
                Outcome.INTERRUPTED, "the process that ran it ended; it is not begun again by itself"
            )
        case TurnStatus.FAILED:
            return Verdict(Outcome.ERROR, error or "the turn failed")
        case _:
            return Verdict(Outcome.UNKNOWN, f"its turn is {turn}")


def pending(tx: Tx, session_key: str) -> bool:
    """Whether a session still waits for results that it asked for."""
    awaited = any(run.expects for run in registry.children(tx, session_key, live=True))
    return awaited or bool(registry.announced(tx, session_key, (Announce.WAITING, Announce.ASKED)))


def close(tx: Tx, run: Run, found: Verdict) -> Run:
    """End a run and set its result on its way; one that has ended already is left as it is."""
    if not run.live:
        return run
    ended = registry.save(
        tx, run, status=Status.ENDED, outcome=found.outcome, error=found.error, ended_at=tx.now
    )
    if run.run_id is not None and supervision.find(tx, run.run_id) is not None:
        supervision.ended(tx, run.run_id, _SUPERVISED.get(found.outcome, supervision.RunStatus.FAILED))
    for child in registry.children(tx, run.child_key, live=True):
        if child.expects:
            due.stop(tx, child, PARENT_ENDED)
    due.sweep(tx, ended)
    return _announce(tx, ended)


def _announce(tx: Tx, run: Run) -> Run:
    """Leave the result for the requester, and ask for a turn where one is wanted."""
    text = words.announcement(run, tx.now)
    if run.on_errand:
        returning.bring(tx, run)
        return registry.save(tx, run, announcement=text, announce=Announce.NONE)
    asks = run.expects and not _stopped_on_purpose(run)
    if not (run.own_surface and asks):
        leave_note(tx, run, text)
    state = Announce.WAITING if asks else Announce.QUIET
    announced = registry.save(tx, run, announcement=text, announce=state)
    if asks:
        due.wake(tx, run.requester_key)
    else:
        release(tx, run.requester_key)
    return announced


def leave_note(tx: Tx, run: Run, text: str) -> None:
    notes.post(
        tx,
        NoteDraft(
            key=run.note_key,
            session_key=run.requester_key,
            audience=sessions.heard_in(tx, run.child_key),
            kind=KIND,
            text=text,
            trust=Trust.OTHER_SESSION.label,
            source=f"subagent/{run.child_key}",
        ),
    )


def release(tx: Tx, requester_key: str) -> None:
    """End a run that waited for its own children alone, once nothing more of theirs will wake it."""
    run = registry.live_of_child(tx, requester_key)
    if run is None or run.run_id is None or pending(tx, requester_key):
        return
    turn = turn_of(tx, run)
    if turn is not None and turn.status is TurnStatus.COMMITTED:
        close(tx, run, verdict(turn.status, run.said, run))


def turn_of(tx: Tx, run: Run) -> Turn | None:
    """The run's first turn, while the log has it."""
    found = turns.get_many(tx, [run.run_id]) if run.run_id is not None else []
    return found[0] if found else None


def note_turn(tx: Tx, run: Run, turn: Turn, said: str) -> Run:
    """Keep what a turn of the run said and used; silence never hides what was said before."""
    kept = run.said if is_silent(said) else said
    return registry.save(tx, run, said=kept, usage=added(run.usage, turn.usage))


def added(usage: Mapping[str, Any] | None, more: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Figures of both together."""
    both = {**(usage or {})}
    for name, value in (more or {}).items():
        both[name] = both.get(name, 0) + value if isinstance(value, int | float) else value
    return both or None


def last_words(tx: Tx, turn: Turn) -> str:
    """What the child had said in a turn that brought no reply."""
    newest = entries.listing(tx, EntryFilter(turn_id=turn.id), limit=20).entries
    said = (entry.content for entry in newest if entry.role == "assistant" and entry.content.strip())
    return next(said, "")


def _stopped_on_purpose(run: Run) -> bool:
    """Who stopped a run does not need to be told by a turn; that it ran out of time, they do."""
    return run.outcome is Outcome.CANCELLED and run.stop_reason is not None
