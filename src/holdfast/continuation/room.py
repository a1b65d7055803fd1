"""Continuation as the rest of Holdfast uses it: tools and hook for the loop, work for the runner, a view."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from typing_extensions import TypedDict

from holdfast.agents.loop.asks import Terms
from holdfast.agents.subagents import registry
from holdfast.agents.tools.types import Tool
from holdfast.clock import Millis, iso
from holdfast.config import Config
from holdfast.continuation import attachments, compaction, dispatch, notices, records, wakes
from holdfast.continuation.attachments import Payloads
from holdfast.continuation.dependencies import (
    Accept,
    CallerOf,
    Compact,
    Compacted,
    Dependencies,
    Spawner,
    StopTurn,
)
from holdfast.continuation.dispatch import Dispatch, Recovered
from holdfast.continuation.hook import ContinuationHook
from holdfast.continuation.state import Record, Status, Stop
from holdfast.continuation.tools import ContinuationTools
from holdfast.errors import HoldfastError
from holdfast.log import SYSTEM, Session, Store, Threads, Turn, Tx, sessions
from holdfast.log.agenda import Runner
from holdfast.records import Iso, record
from holdfast.text import clip

log = logging.getLogger(__name__)


class Continuation:
    """One for a store and process. Off until an agent's config switches it on; then live, both ways.

    `spawner` sends delegates off, in whose name `caller_of` says; `stop_turn` stops a turn that runs.
    `compacted` is told of a compaction that an agent asked for; unset: this room's own hook alone.
    """

    def __init__(
        self,
        store: Store,
        threads: Threads,
        config: Callable[[], Config],
        accept: Accept,
        *,
        payloads: Path,
        spawner: Spawner | None = None,
        caller_of: CallerOf | None = None,
        stop_turn: StopTurn | None = None,
        compact: Compact | None = None,
        compacted: Compacted | None = None,
        workspace: Callable[[str], Path] | None = None,
    ) -> None:
        self._deps = Dependencies(
            store=store,
            threads=threads,
            config=config,
            accept=accept,
            payloads=Payloads(payloads),
            spawner=spawner,
            caller_of=caller_of,
            stop_turn=stop_turn,
            compact=compact,
            workspace=workspace,
        )
        store.signals.subscribe(records.SCRUB, self._sweep)
        self.hook = ContinuationHook(self._deps)
        self.dispatch = Dispatch(self._deps)
        self._compacting = compaction.Compacting(self._deps, compacted or self.hook.compacted)

    def tools(self) -> tuple[Tool[Any], ...]:
        return ContinuationTools(self._deps).tools()

    def register(self, runner: Runner) -> None:
        """Have this runner look after what is due."""
        runner.register(wakes.KIND, self.dispatch.kind())
        runner.register(compaction.KIND, self._compacting.kind())
        runner.on_clock_set_back(self._clock_set_back)

    def _clock_set_back(self, ms: int, since: int) -> None:
        """What waits for a delay waits no longer because the clock on the wall was set back."""
        self._deps.store.run(SYSTEM, lambda tx: records.bring_forward(tx, ms, since))

    async def recover(self) -> Recovered:
        """Once after a start: whatever was under way is looked after again."""
        deps = self._deps
        found = await deps.threads(deps.store.run, SYSTEM, lambda tx: dispatch.recover(tx, deps))
        await self._deps.threads(self._sweep)
        return found

    async def upkeep(self) -> int:
        """Remove what ended long ago, and files that nothing needs any more; how many records went."""
        gone = await self._deps.threads(self._deps.store.run, SYSTEM, records.prune)
        await self._deps.threads(self._sweep)
        return len(gone)

    def evacuate(self, tx: Tx, session: Session, turn: Turn, terms: Terms) -> Turn | None:
        """One silent turn before a compaction that nobody asked for."""
        return compaction.evacuate(tx, self._deps, session, turn, terms)

    async def listing(self, *, session_key: str | None = None, limit: int = 100) -> list[ContinuationOut]:
        """What is elected and has not ended, the next first."""

        def look() -> list[Record]:
            with self._deps.store.read(SYSTEM) as tx:
                return records.listing(tx, owner=session_key, limit=limit)

        return [told(record) for record in await self._deps.threads(look)]

    async def get(self, record_id: str) -> ContinuationOut:
        """One of them, ended or not."""

        def look() -> Record:
            with self._deps.store.read(SYSTEM) as tx:
                return records.get(tx, record_id)

        return told(await self._deps.threads(look))

    def look(self, tx: Tx, ids: Sequence[str]) -> dict[str, ContinuationOut]:
        """What a change of kind `continuation` is about."""
        return {record.id: told(record) for record in records.get_many(tx, ids)}

    async def cancel(self, record_id: str, *, reason: str = "cancelled") -> ContinuationOut:
        """Take an election back, whatever it is at: a turn that runs for it is stopped, a delegate ended."""

        def write(tx: Tx) -> Record:
            record = records.get(tx, record_id)
            if record.note_key is not None:
                notices.withdraw(tx, record.note_key)
            ended = records.apply(tx, record, Stop(reason))
            run = None if record.spawn_key is None else registry.by_spawn(tx, record.spawn_key)
            if run is not None and run.live:
                registry.stop_soon(tx, run, reason)
            if self._deps.spawner is not None:
                self._deps.spawner.settle(tx, record.owner)
            return ended

        ended = await self._deps.threads(self._deps.store.run, SYSTEM, write)
        if ended.turn_id is not None and self._deps.stop_turn is not None:
            await self._deps.stop_turn(ended.turn_id, reason)
        return told(ended)

    async def status_line(self, session_key: str) -> str:
        """One line for `/status`; empty if there is nothing to say."""
        return await self._deps.threads(self._status_line, session_key)

    def _status_line(self, session_key: str) -> str:
        with self._deps.store.read(SYSTEM) as tx:
            session = sessions.active(tx, session_key)
            return "" if session is None else self.hook.status_line(tx, session)

    def _sweep(self) -> None:
        """Remove the attachments of what has ended: rung for after every such end, and by the upkeep."""
        for id_ in self._deps.payloads.ids():
            try:
                self._scrub(id_)
            except HoldfastError as error:  # whoever ended it is done; the upkeep comes again
                log.warning("the attachments of %s are still there: %s", id_, error.message)

    def _scrub(self, id_: str) -> None:
        with self._deps.store.read(SYSTEM) as tx:
            record = records.find(tx, id_)
        over = self._deps.payloads.is_old(id_) if record is None else record.status.ended
        if not over:
            return
        try:
            if record is not None and self._deps.workspace is not None:
                attachments.remove(self._deps.workspace(record.agent_id), id_)
        finally:
            self._deps.payloads.scrub([id_])


@record
class ContinuationOut(TypedDict):
    id: str
    kind: Literal["work", "delegate", "post_compaction"]
    sessionKey: str
    agentId: str
    status: str
    phase: str
    text: str
    mode: str | None
    hop: int
    chainId: str | None
    childSessionKey: str | None
    retries: int
    busySkips: int
    error: str | None
    electedAt: Iso
    dueAt: Iso | None
    endedAt: Iso | None


def told(found: Record) -> ContinuationOut:
    """A record for people and programs."""
    due = found.due if found.status is Status.QUEUED else None
    return {
        "id": found.id,
        "kind": found.kind.value,
        "sessionKey": found.owner,
        "agentId": found.agent_id,
        "status": found.status.value,
        "phase": found.phase.value,
        "text": clip(found.election.text, 200),
        "mode": found.election.mode,
        "hop": found.hop,
        "chainId": found.chain_id,
        "childSessionKey": found.child_session_key,
        "retries": found.retry_count,
        "busySkips": found.busy_skips,
        "error": found.failure,
        "electedAt": iso(Millis(found.election.elected_at)),
        "dueAt": None if due is None else iso(Millis(due)),
        "endedAt": None if found.ended_at is None else iso(Millis(found.ended_at)),
    }
