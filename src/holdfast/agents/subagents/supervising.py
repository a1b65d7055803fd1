"""Delegated runs as the board's supervision asks about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from holdfast.agents.subagents import ending, registry, words
from holdfast.agents.subagents.registry import Outcome, Status
from holdfast.board.supervision import Observed, RunStatus
from holdfast.board.supervision import Run as Supervised
from holdfast.context import Trust, UserMessage, draft_of
from holdfast.log import EntryFilter, TurnStatus, Tx, agenda, entries, turns

_ENDED: Final = {Outcome.SUCCESS: RunStatus.DONE, Outcome.CANCELLED: RunStatus.CANCELLED}


class RegistryRuns:
    """`board.supervision.Runs` over the registry."""

    def observe(self, tx: Tx, run: Supervised) -> Observed | None:
        """A run that has not begun is not silent: it waits for a place."""
        known = registry.by_run(tx, run.run_id)
        if known is None:
            return None
        if not known.live:
            return Observed(_ENDED.get(known.outcome or Outcome.UNKNOWN, RunStatus.FAILED))
        if known.status is not Status.RUNNING or known.started_at is None:
            return Observed(RunStatus.RUNNING)
        newest = entries.listing(tx, EntryFilter(session_key=known.child_key), limit=1).entries
        heard = max([int(known.started_at), *(int(entry.created_at) for entry in newest), *_heard(tx, known)])
        return Observed(RunStatus.RUNNING, heard)

    def nudge(self, tx: Tx, run: Supervised) -> None:
        """A word into the running turn, once for each check."""
        known = registry.by_run(tx, run.run_id)
        turn = None if known is None else ending.turn_of(tx, known)
        if turn is None or turn.status is not TurnStatus.RUNNING:
            return
        spoken = draft_of(UserMessage(text=words.NUDGE, trust=Trust.OPERATOR))
        turns.join(tx, turn, replace(spoken, idempotency_key=f"subagent-nudge:{run.run_id}:{run.step}"))


def _heard(tx: Tx, run: registry.Run) -> list[int]:
    """When its running turn was last heard: what a model streams and tools tell stands in no entry yet."""
    running = agenda.listing(tx, statuses=[agenda.Status.RUNNING], lane=run.child_key)
    return [int(item.updated_at) for item in running]
