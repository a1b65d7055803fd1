"""Bringing results to who asked for them: one turn for all that came back while the requester was busy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.agents.loop.asks import Accepted, Ask, Deliver, Terms
from holdfast.agents.routing import Origin
from holdfast.agents.subagents import due, ending, registry, words
from holdfast.agents.subagents.registry import Announce, Run
from holdfast.context import Trust
from holdfast.errors import NotFound
from holdfast.keys import parse_key
from holdfast.log import SYSTEM, Session, Store, Threads, Tx, agenda, sessions

Accept = Callable[[Tx, Ask], Accepted]


class Waker:
    """Handles `subagent.wake`, which waits in the requester's own lane: it runs when no turn does."""

    def __init__(self, store: Store, threads: Threads, accept: Accept) -> None:
        self._store = store
        self._threads = threads
        self._accept = accept

    def kind(self) -> agenda.Kind:
        return agenda.Kind(self.handle, relative=True, limit=4)

    async def handle(self, job: agenda.Job) -> None:
        await self._threads(self._store.run, SYSTEM, lambda tx: self._wake(tx, job))

    def _wake(self, tx: Tx, job: agenda.Job) -> None:
        """What was found, the turn for it and the end of this look are one transaction."""
        job.settle(tx)
        key = str(job.item.payload["sessionKey"])
        runs = registry.announced(tx, key, (Announce.WAITING,))
        if not runs:
            return
        session = sessions.active(tx, key)
        if session is None or not _listens(tx, session):
            for run in runs:
                self._leave(tx, run)
            return
        if _turn_is_due(tx, key):
            due.wake(tx, key, due_at=tx.now)
            return
        for run in runs:
            if run.own_surface:
                self._ask_alone(tx, session, run)
        together = [run for run in runs if not run.own_surface]
        if together:
            self._ask(tx, session, together, words.RETURNED, Trust.OPERATOR)

    def _ask_alone(self, tx: Tx, session: Session, run: Run) -> None:
        """A turn for one result, which is its input; asked for again, it stands in the log already."""
        if run.asks or not session.reader.may_read(sessions.heard_in(tx, run.child_key)):
            self._ask(tx, session, [run], words.RETURNED, Trust.OPERATOR)
        else:
            self._ask(tx, session, [run], run.announcement or "", Trust.OTHER_SESSION)

    def _ask(self, tx: Tx, session: Session, runs: Sequence[Run], text: str, trust: Trust) -> None:
        """A turn in the name of who asked first, answered where they asked or where the child speaks."""
        first = runs[0]
        origin = Terms.read(first.origin, first.requester_agent)
        ask = Ask(
            text=text,
            session_key=session.key,
            agent_id=first.requester_agent,
            origin=None if origin.channel is None else Origin(origin.channel),
            sender=origin.sender,
            owner=origin.owner,
            deliver=origin.deliver if first.binding is None else Deliver(**first.binding),
            mode="queue",
            trigger=ending.RETURN,
            trust=trust,
            source={"channel": ending.KIND, "subagents": [run.id for run in runs]},
            key=f"{ending.RETURN}:{first.id}:{first.round}:{first.asks + 1}",
            commands=False,
            limited_to=origin.limited_to,
        )
        try:
            accepted = self._accept(tx, ask)
        except NotFound:  # its agent is no longer configured: nothing was written
            for run in runs:
                self._leave(tx, run)
            return
        for run in runs:
            registry.save(tx, run, announce=Announce.ASKED, announce_turn=accepted.run_id, asks=run.asks + 1)

    def _leave(self, tx: Tx, run: Run) -> None:
        """Nobody is there to be asked: the result waits under the requester's key for its next turn."""
        if run.own_surface:
            ending.leave_note(tx, run, run.announcement or "")
        registry.save(tx, run, announce=Announce.QUIET)


def _listens(tx: Tx, session: Session) -> bool:
    """A child whose own run is over is not woken again; one that stays for more is."""
    if not parse_key(session.key).is_subagent:
        return True
    run = registry.live_of_child(tx, session.key) or registry.newest_of_child(tx, session.key)
    return run is None or run.live or run.mode == "session"


def _turn_is_due(tx: Tx, key: str) -> bool:
    """Whether another turn of the session comes first anyway: it will be shown the results."""
    queued = agenda.listing(tx, statuses=[agenda.Status.QUEUED], lane=key, limit=50)
    return any(item.payload.get("turnId") and item.due_at <= tx.now for item in queued)
