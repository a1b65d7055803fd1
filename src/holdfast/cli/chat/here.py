"""Turns in this process, where no gateway runs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.chat.line import About, Decision, Target, Told, described, named, who
from holdfast.log import OWNER

if TYPE_CHECKING:
    from holdfast.agents.approvals import Approval
    from holdfast.runtime import Holdfast

GRACE_SECONDS: Final = 2.0


class Here:
    """The rooms of an open home, asked directly."""

    def __init__(self, hold: Holdfast) -> None:
        self._hold = hold

    async def about(self, target: Target) -> About:
        hold = self._hold
        _, key = named(target, hold.settings)
        chosen = await hold.threads(self._chosen, key)
        return await described(
            target, hold.home, hold.settings, hold.agency.models, chosen, "in this process"
        )

    async def say(self, text: str, target: Target, *, steer: bool = False) -> Told:
        from holdfast.agents.loop import Ask
        from holdfast.agents.models import ModelRef

        if target.model is None:
            await self._hold.agency.models.discover()
        else:
            ModelRef.parse(target.model)
        ask = Ask(
            text=text,
            agent_id=target.agent_id,
            session_key=target.session_key,
            model=target.model,
            sender=who(),
            mode="steer" if steer else None,
        )
        return (await self._hold.runs.accept(ask)).json()

    async def events(self, run_id: str) -> AsyncGenerator[Told]:
        async with contextlib.aclosing(self._hold.runs.subscribe(run_id)) as said:
            async for event in said:
                yield event.json()

    async def status(self, run_id: str) -> Told:
        return (await self._hold.runs.status(run_id)).json()

    async def live(self, session_key: str) -> list[str]:
        return await self._hold.threads(self._live, session_key)

    async def cancel(self, run_id: str) -> None:
        await self._hold.runs.cancel(run_id)

    async def approval(self, id_: str) -> Told:
        return _told(await self._hold.threads(self._approval, id_))

    async def decide(self, id_: str, decision: Decision) -> Told:
        return _told(await self._hold.threads(self._decide, id_, decision))

    def _chosen(self, key: str) -> str | None:
        """The model that was chosen for a session with `/model`."""
        from holdfast.log import sessions

        with self._hold.store.read(OWNER) as tx:
            session = sessions.active(tx, key)
        chosen: Any = None if session is None else (session.meta or {}).get("model")
        return chosen if isinstance(chosen, str) else None

    def _live(self, session_key: str) -> list[str]:
        from holdfast.log import agenda, turns

        with self._hold.store.read(OWNER) as tx:
            items = agenda.listing(tx, kinds=turns.KINDS, lane=session_key)
        return [str(item.payload["turnId"]) for item in items]

    def _approval(self, id_: str) -> Approval:
        from holdfast.agents.approvals import requests

        with self._hold.store.read(OWNER) as tx:
            return requests.get(tx, id_)

    def _decide(self, id_: str, decision: Decision) -> Approval:
        from holdfast.agents.approvals import allow_always, requests

        with self._hold.store.write(OWNER) as tx:
            if decision == "allow":
                return allow_always(tx, id_, by=who())
            return (requests.approve if decision == "approve" else requests.deny)(tx, id_, by=who())


@contextlib.asynccontextmanager
async def serving(hold: Holdfast) -> AsyncIterator[Here]:
    """Everything that a gateway would run, for a conversation: turns, sorting, the index."""
    from holdfast.services import Services

    async with Services(hold).running():
        yield Here(hold)


@contextlib.asynccontextmanager
async def turns_only(hold: Holdfast) -> AsyncIterator[Here]:
    """Turns and nothing else, for one of them; what follows from it waits on the agenda for who serves it."""
    import asyncio

    from holdfast.log import Bridge
    from holdfast.log.agenda import Runner

    options = hold.settings.agenda
    runner = Runner(hold.store, hold.threads, lease_ms=options.lease_seconds * 1000)
    hold.runs.register(runner)
    bridge = Bridge(hold.store)
    bridge.start()
    task = asyncio.create_task(runner.run(), name="runner")
    try:
        yield Here(hold)
    finally:
        await runner.stop(GRACE_SECONDS)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await hold.aclose()
        bridge.stop()


def _told(approval: Approval) -> Told:
    from holdfast.cli.commands.approvals import approval_json

    return approval_json(approval)
