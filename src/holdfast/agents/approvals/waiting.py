"""Waiting for a person: woken by the decision, wherever it was made, or by the end of its time."""

from __future__ import annotations

import asyncio
from typing import Final

from holdfast.agents.approvals import requests
from holdfast.agents.approvals.requests import SIGNAL, Approval, ApprovalStatus
from holdfast.log import SYSTEM, Store, Threads, Waiter, agenda, ringing

LONGEST_SECONDS: Final = 60.0


async def decision(store: Store, threads: Threads, id_: str, *, waiter: Waiter | None = None) -> Approval:
    """The approval once it is decided or has run out of time. Cancelling it leaves the approval waiting.

    A turn that asked for it gives its place to another until then: people take their time.
    """
    bell = asyncio.Event()
    unsubscribe = store.signals.subscribe(SIGNAL, ringing(bell.set))
    try:
        async with agenda.waiting():
            while True:
                bell.clear()
                approval, left = await threads(_look, store, id_)
                if approval.status is not ApprovalStatus.PENDING:
                    return approval
                await (waiter or Waiter()).wait(bell, min(left, LONGEST_SECONDS))
    finally:
        unsubscribe()


def _look(store: Store, id_: str) -> tuple[Approval, float]:
    """The approval and the seconds it has left; one that has none is marked on the way."""
    with store.read(SYSTEM) as tx:
        approval, now = requests.get(tx, id_), tx.now
    if approval.status is ApprovalStatus.PENDING and approval.expires_at <= now:
        with store.write(SYSTEM) as tx:
            requests.expire(tx)
            approval = requests.get(tx, id_)
    return approval, max(0.001, (approval.expires_at - now) / 1000)
