"""The book of costs: what a summary took is put down to the turn that made it needed."""

from __future__ import annotations

from holdfast.agents.models.types import Usage
from holdfast.errors import NotFound
from holdfast.log import SYSTEM, Store, Threads, sessions, turns


class Costs:
    """The `Ledger` of the model that summarises, over the log."""

    def __init__(self, store: Store, threads: Threads) -> None:
        self._store = store
        self._threads = threads

    async def agent_of(self, session_id: str) -> str | None:
        return await self._threads(self._agent_of, session_id)

    async def spent(self, session_id: str, usage: Usage) -> None:
        await self._threads(self._store.run, SYSTEM, lambda tx: turns.charge(tx, session_id, usage.json()))

    def _agent_of(self, session_id: str) -> str | None:
        with self._store.read(SYSTEM) as tx:
            try:
                return sessions.get(tx, session_id).agent_id
            except NotFound:
                return None
