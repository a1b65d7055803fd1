"""Following what a run says, event by event, without losing one while something is written."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from holdfast.agents.loop import Deliver, Hub, RunEvent
from holdfast.channels.connecting import Connected
from holdfast.channels.delivering import reply_key
from holdfast.log import Store, Threads, TurnStatus, Tx, rung, turns
from holdfast.log.outbox import Parcel
from holdfast.log.tables import outbox as table


@dataclass(frozen=True, slots=True)
class Attempt:
    """The attempt of a turn whose words are followed, and where they go."""

    turn_id: str
    number: int
    session_key: str
    to: Deliver


class Following(ABC):
    """Reads a run's events as they come, so that none is lost while something is written."""

    def __init__(self, store: Store, threads: Threads, attempt: Attempt, connected: Connected) -> None:
        self._store = store
        self._threads = threads
        self._attempt = attempt
        self._connected = connected
        self._events: list[RunEvent] = []
        self._bell = asyncio.Event()
        self._heard = False

    @property
    @abstractmethod
    def pause(self) -> float:
        """Seconds of silence after which `paused` is called."""

    async def begin(self) -> None:  # noqa: B027 - most have nothing to do before
        """Before the first event."""

    @abstractmethod
    async def take(self, event: RunEvent) -> None:
        """One event of the attempt."""

    @abstractmethod
    async def paused(self) -> None:
        """Nothing was said for a while."""

    async def run(self, hub: Hub) -> None:
        reading = asyncio.create_task(self._read(hub))
        try:
            await self.begin()
            over = False
            while not over:
                over = await self._round()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, hub: Hub) -> None:
        async with contextlib.aclosing(hub.follow(self._attempt.turn_id)) as events:
            async for event in events:
                self._events.append(event)
                self._bell.set()

    async def _round(self) -> bool:
        """All that has come, or a pause; True at the end of the run."""
        if not await rung(self._bell, self.pause):
            await self.paused()
            return False
        self._bell.clear()
        events, self._events = self._events, []
        for event in events:
            if not self._is_ours(event):
                continue
            await self.take(event)
            if event.final or event.data.get("phase") == "interrupted":
                return True
        return False

    def _is_ours(self, event: RunEvent) -> bool:
        """What earlier attempts said comes first; ours begins where its start is told."""
        if event.stream == "lifecycle" and event.data.get("phase") == "start":
            self._heard = event.data.get("attempt") == self._attempt.number
            return False
        return self._heard

    def _runs(self, tx: Tx) -> bool:
        """Whether there is something to follow; once the turn's delivery is posted, that is what is sent."""
        turn = turns.get(tx, self._attempt.turn_id)
        if turn.attempt != self._attempt.number:
            return False
        if turn.status is TurnStatus.COMMITTED:
            known = sa.select(table.c.id).where(table.c.key == reply_key(turn.id))
            return tx.conn.execute(known).first() is None
        return turn.status is TurnStatus.RUNNING

    def _parcel(self, key: str, body: dict[str, Any]) -> Parcel:
        attempt, to = self._attempt, self._attempt.to
        named = {"turnId": attempt.turn_id, "sessionKey": attempt.session_key}
        return Parcel(key=key, kind=to.kind, target=to.target, payload={**to.payload, **body, **named})


class Silent(Following):
    """A reply that is sent when it is whole: it is only waited for."""

    @property
    def pause(self) -> float:
        return 60.0

    async def take(self, event: RunEvent) -> None:
        """Nothing is sent before the end."""

    async def paused(self) -> None:
        """Nor then."""
