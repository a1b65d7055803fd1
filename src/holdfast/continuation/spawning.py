"""Spawning that takes more than a transaction: put on the agenda there, carried out once by its run id."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from holdfast.continuation import attaching, delegating, records
from holdfast.continuation.parts import Parts, Spawned, SpawnOrder
from holdfast.continuation.record import Phase
from holdfast.continuation.state import Named
from holdfast.errors import Busy, Conflict, HoldfastError, Unavailable
from holdfast.log import SYSTEM, Tx, agenda, sessions

log = logging.getLogger(__name__)

KIND: Final = "continuation.spawn"
ATTEMPTS: Final = 8

Carry = Callable[[SpawnOrder], Awaitable[Spawned]]


class SpawnQueue:
    """A `Spawner` over an asynchronous one, which must find what it made when asked again with the same run
    id: after a crash nobody knows how far it came."""

    def __init__(self, carry: Carry) -> None:
        self._carry = carry
        self._parts: Parts | None = None

    def bind(self, parts: Parts) -> None:
        self._parts = parts

    @property
    def parts(self) -> Parts:
        assert self._parts is not None
        return self._parts

    def kind(self) -> agenda.Kind:
        return agenda.Kind(self.run, relative=True, limit=4, on_interrupt=self._given_up)

    def spawn(self, tx: Tx, order: SpawnOrder) -> Spawned:
        facts = {"recordId": order.record_id, "runId": order.run_id, "hop": order.hop}
        payload = {**facts, "sessionId": order.owner.id, "traceparent": order.traceparent}
        agenda.enqueue(tx, KIND, payload, key=order.run_id, max_attempts=ATTEMPTS)
        return Spawned(None)

    async def run(self, job: agenda.Job) -> None:
        """What passes is tried again by the agenda; what will not is a return that says so."""
        order = await self.parts.threads(self._order, job.item)
        if order is None:
            await self._ended(job, "", "cancelled")
            return
        try:
            child = await self._carry(await self.parts.threads(self._equipped, order))
        except (Busy, Unavailable, Conflict):
            raise
        except HoldfastError as error:
            log.warning("delegate %s was not spawned: %s", order.run_id, error.message)
            await self._ended(job, f"It could not be spawned: {error.message}", "error")
            return
        await self.parts.threads(
            self.parts.store.run, SYSTEM, lambda tx: self._spawned(tx, job, order, child)
        )

    def _equipped(self, order: SpawnOrder) -> SpawnOrder:
        """With its files where the child will find them."""
        if not order.attachments or self.parts.workspace is None:
            return order
        folder = self.parts.workspace(str(order.terms.get("agentId") or order.owner.agent_id or ""))
        placed = attaching.place(folder, order.record_id, order.attachments, order.mount_path)
        return replace(order, task=attaching.told(order.task, placed))

    def _spawned(self, tx: Tx, job: agenda.Job, order: SpawnOrder, child: Spawned) -> None:
        record = records.get(tx, order.record_id)
        if record.phase is Phase.HANDED_OFF and child.child_session_key is not None:
            records.apply(tx, record, Named(child.child_session_key))
        job.settle(tx)

    def _order(self, item: agenda.Item) -> SpawnOrder | None:
        """What is to be spawned; None if it was taken back meanwhile."""
        with self.parts.store.read(SYSTEM) as tx:
            record = records.find(tx, str(item.payload["recordId"]))
            if (
                record is None
                or record.phase is not Phase.HANDED_OFF
                or record.cancel_requested_at is not None
            ):
                return None
            owner = sessions.get(tx, str(item.payload["sessionId"]))
        return delegating.order_of(
            self.parts, owner, record, int(item.payload["hop"]), item.payload.get("traceparent")
        )

    async def _ended(self, job: agenda.Job, text: str, status: str) -> None:
        def write(tx: Tx) -> None:
            delegating.returned(tx, self.parts, str(job.item.payload["recordId"]), text, status)
            job.settle(tx)

        await self.parts.threads(self.parts.store.run, SYSTEM, write)

    def _given_up(self, tx: Tx, item: agenda.Item) -> None:
        if item.status.ended:
            why = f"It could not be spawned: {item.error or 'interrupted'}"
            delegating.returned(tx, self.parts, str(item.payload["recordId"]), why, "error")
