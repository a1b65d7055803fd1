"""Returns of runs that another room had spawned under a key of its own: told to that room, not announced."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.agents.subagents import due, registry
from holdfast.agents.subagents.registry import Run
from holdfast.log import SYSTEM, Store, Threads, Tx, agenda

Returned = Callable[[Tx, Run], None]
"""Takes a run's return in, in the transaction that ends the errand; a repeat must change nothing."""


class Returner:
    """Handles `subagent.return`: put on the agenda in the transaction in which the run ended."""

    def __init__(self, store: Store, threads: Threads, returned: Returned) -> None:
        self._store = store
        self._threads = threads
        self._returned = returned

    def kind(self) -> agenda.Kind:
        return agenda.Kind(self._handle, relative=True, limit=4)

    async def _handle(self, job: agenda.Job) -> None:
        await self._threads(self._store.run, SYSTEM, lambda tx: self._bring(tx, job))

    def _bring(self, tx: Tx, job: agenda.Job) -> None:
        self._returned(tx, registry.get(tx, str(job.item.payload["id"])))
        job.settle(tx)


def bring(tx: Tx, run: Run) -> None:
    key = f"{due.RETURN}:{run.id}:{run.round}"
    agenda.enqueue(tx, due.RETURN, {"id": run.id}, key=key, max_attempts=due.ATTEMPTS)
