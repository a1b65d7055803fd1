"""The sessions of isolated runs, put away some time after their last run."""

from __future__ import annotations

from typing import Final

from holdfast.agents.cron.firing import TRIGGER, Parts
from holdfast.log import SYSTEM, Session, SessionStatus, Tx, agenda, sessions

KIND: Final = "cron.archive"


def plan(tx: Tx, session: Session, retention_ms: int) -> None:
    key = f"{KIND}:{session.id}"
    agenda.enqueue(
        tx, KIND, {"sessionId": session.id}, lane=key, key=key, due_at=tx.now + retention_ms, max_attempts=3
    )


class Archiver:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def kind(self) -> agenda.Kind:
        return agenda.Kind(self.handle, limit=1)

    async def handle(self, job: agenda.Job) -> None:
        await self._parts.threads(self._parts.store.run, SYSTEM, lambda tx: self._archive(tx, job))

    def _archive(self, tx: Tx, job: agenda.Job) -> None:
        """A session that someone talks in is theirs and stays."""
        job.settle(tx)
        session = sessions.get(tx, str(job.item.payload["sessionId"]))
        unused = session.last_external_at <= session.created_at and not agenda.listing(tx, lane=session.key)
        if session.status is SessionStatus.ACTIVE and unused:
            sessions.archive(tx, session, cause=TRIGGER)
