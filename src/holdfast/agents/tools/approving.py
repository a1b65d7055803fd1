"""Waiting for a person in the middle of a call: what surfaces are told, and what the model learns of a no."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from holdfast.agents.approvals import Approval, ApprovalStatus, decision
from holdfast.agents.tools.events import AskedApproval
from holdfast.agents.tools.types import Caller
from holdfast.errors import Conflict, Forbidden
from holdfast.log import Store, Threads

T = TypeVar("T")
_LOOK_SECONDS: Final = 0.1


async def approved(store: Store, threads: Threads, caller: Caller, asked: Approval, what: str) -> Approval:
    """The approval once it was given; `Forbidden` where it was not. It is still to be spent."""
    not_always = f" (only once: {asked.why_not_always})" if asked.why_not_always else ""
    caller.progress(f"waiting for approval {asked.id}: {asked.reason}{not_always}", told(asked))
    approval = await unless_cancelled(caller, decision(store, threads, asked.id))
    assert approval is not None
    if approval.status is not ApprovalStatus.APPROVED:
        caller.progress(f"not approved: {approval.status}", told(approval))
        how = "nobody answered in time" if approval.status is ApprovalStatus.EXPIRED else "it was denied"
        raise Forbidden(
            f"{what} was not approved: {how} ({asked.id})",
            code="not_approved",
            hint="Do not try the same again; say what you wanted it for.",
        )
    return approval


def told(approval: Approval) -> AskedApproval:
    return AskedApproval(
        id=approval.id,
        tool=approval.tool,
        command=approval.command,
        reason=approval.reason,
        why_not_always=approval.why_not_always,
        status=approval.status.value,
        expires_at=approval.expires_at,
    )


async def unless_cancelled(
    caller: Caller, awaitable: Coroutine[Any, Any, T], *, seconds: float | None = None
) -> T | None:
    """What is awaited, given up once the turn is cancelled by its flag; None if `seconds` pass before."""
    loop = asyncio.get_running_loop()
    until = None if seconds is None else loop.time() + seconds
    task = loop.create_task(awaitable)
    try:
        while until is None or loop.time() < until:
            pause = _LOOK_SECONDS if until is None else min(_LOOK_SECONDS, until - loop.time())
            done, _ = await asyncio.wait({task}, timeout=pause)
            if done:
                return task.result()
            if caller.cancelled():
                raise Conflict("the turn was cancelled", code="cancelled")
        return None
    finally:
        task.cancel()
