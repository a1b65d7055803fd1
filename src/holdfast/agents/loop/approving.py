"""Calls of a run that wait for a person: telling of them, and letting go of them when the run has ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from holdfast.agents.approvals import SIGNAL, Approval, ApprovalStatus, requests
from holdfast.agents.loop.hooks import TurnHook
from holdfast.agents.loop.parts import Parts
from holdfast.agents.loop.telling import Teller
from holdfast.agents.tools.types import Caller
from holdfast.clock import iso
from holdfast.log import SYSTEM, Session, Tx, ringing


class ApprovalHook(TurnHook):
    """Nobody is asked to decide for a session that was stopped or left. A turn that was cut off, or whose
    asker waited no longer, may make the same call again, and then finds what was decided meanwhile."""

    name = "approvals"

    def stopped(self, tx: Tx, session: Session) -> None:
        requests.withdraw(tx, session.key)

    def reset(self, tx: Tx, left: Session) -> None:
        requests.withdraw(tx, left.key)


class ApprovalNews:
    """Looks only when an approval was asked for or decided anywhere, and tells of those of its own turn."""

    def __init__(self, parts: Parts, caller: Caller, teller: Teller) -> None:
        self._parts = parts
        self._agent = frozenset((caller.agent_id,))
        self._turn_id = caller.turn_id
        self._teller = teller
        self._told: dict[str, ApprovalStatus] = {}
        self._bell = asyncio.Event()
        self._rang = False

    @contextlib.asynccontextmanager
    async def told(self) -> AsyncIterator[None]:
        """Follow approvals for as long as the block lasts; all that was decided by its end is told."""
        unsubscribe = self._parts.store.signals.subscribe(SIGNAL, ringing(self._ring))
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            unsubscribe()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._rang:
            await self._look()

    def _ring(self) -> None:
        self._rang = True
        self._bell.set()

    async def _follow(self) -> None:
        while True:
            await self._bell.wait()
            self._bell.clear()
            await self._look()

    async def _look(self) -> None:
        """Each is told as asked for before it is told as decided, however quick the decision was."""
        for approval in await self._parts.threads(self._own):
            if approval.id not in self._told:
                self._tell(approval, ApprovalStatus.PENDING)
            if self._told[approval.id] is not approval.status:
                self._tell(approval, approval.status)

    def _tell(self, approval: Approval, status: ApprovalStatus) -> None:
        self._told[approval.id] = status
        self._teller.lifecycle(
            "approval",
            id=approval.id,
            status=status.value,
            tool=approval.tool,
            command=approval.command,
            reason=approval.reason,
            whyNotAlways=approval.why_not_always,
            expiresAt=iso(approval.expires_at),
        )

    def _own(self) -> list[Approval]:
        """Those of the turn among the newest, oldest first, and those that were told before."""
        with self._parts.store.read(SYSTEM) as tx:
            newest = requests.listing(tx, agent_ids=self._agent)
            own = [one for one in reversed(newest) if one.turn_id == self._turn_id]
            seen = {one.id for one in own}
            return [*own, *requests.get_many(tx, [id_ for id_ in self._told if id_ not in seen])]
