"""After a restart: what is over is told, what was never begun is taken back, and nothing is begun again."""

from __future__ import annotations

from holdfast.agents.subagents import due, ending, registry
from holdfast.agents.subagents.registry import Outcome, Run, Status
from holdfast.agents.subagents.spawning import abandon
from holdfast.log import Tx, agenda
from holdfast.log.owner import is_dead


def recover(tx: Tx) -> int:
    """Bring every unended run in line with what the log knows of its turn; how many were ended by this."""
    ended = sum(reconcile(tx, registry.get(tx, run.id)) for run in registry.unended(tx))
    for key in registry.waiting_requesters(tx):
        due.wake(tx, key)
    return ended


def reconcile(tx: Tx, run: Run) -> bool:
    """End a run that nothing will end any more; a turn that still waits or runs is left to the agenda."""
    if not run.live:
        return False
    if run.status is Status.PREPARING:
        return is_dead(run.owner) and abandon(tx, run.id, "interrupted before it was begun")
    turn = ending.turn_of(tx, run)
    if turn is None:
        ending.close(tx, run, ending.Verdict(Outcome.UNKNOWN, "its turn is no longer in the log"))
        return True
    item = None if turn.agenda_id is None else agenda.find(tx, turn.agenda_id)
    waits = item is not None and not item.status.ended
    if not turn.status.ended or waits or ending.pending(tx, run.child_key):
        return False
    said = run.said or ending.last_words(tx, turn)
    found = ending.verdict(turn.status, said, run, turn.error)
    ending.close(tx, ending.note_turn(tx, run, turn, said), found)
    return True
