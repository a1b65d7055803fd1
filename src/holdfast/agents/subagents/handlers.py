"""The agenda's side of delegated work: begun, brought back, stopped, cleared up, watched, and after a restart
brought in line with what the log knows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from holdfast.agents import Origin
from holdfast.agents.loop.accepting import of_the_runtime
from holdfast.agents.loop.asks import Accepted, Ask, Deliver, Terms
from holdfast.agents.subagents import ending, registry
from holdfast.agents.subagents.ending import Watcher
from holdfast.agents.subagents.registry import Announce, Outcome, Run, Status
from holdfast.agents.subagents.spawning import Spawner, SubagentParts
from holdfast.board.supervision import Observed, RunStatus
from holdfast.board.supervision import Run as Supervised
from holdfast.context import SubagentEndedParams, Trust, UserMessage, draft_of
from holdfast.errors import Busy, Conflict, HoldfastError, NotFound, Unavailable
from holdfast.keys import parse_key
from holdfast.log import (
    SYSTEM,
    ChainStopped,
    EntryFilter,
    Session,
    SessionStatus,
    Store,
    Threads,
    TurnStatus,
    Tx,
    agenda,
    entries,
    sessions,
    turns,
)
from holdfast.log.agenda import PostponeJob
from holdfast.log.leases import is_dead

Accept = Callable[[Tx, Ask], Accepted]
StopTurns = Callable[[Sequence[str], str], Awaitable[Any]]
"""Stops turns by their agenda items, for a reason."""

MINUTE_MS: Final = 60_000
_ENDED: Final = {Outcome.SUCCESS: RunStatus.DONE, Outcome.CANCELLED: RunStatus.CANCELLED}


class Launcher:
    """Handles `subagent.launch`: begins a run that was reserved in somebody else's transaction."""

    def __init__(self, parts: SubagentParts, spawner: Spawner) -> None:
        self._parts = parts
        self._spawner = spawner

    def kind(self) -> agenda.Kind:
        return agenda.Kind(self.handle, limit=4, on_interrupt=self._given_up, relative=True, halts=True)

    async def handle(self, job: agenda.Job) -> None:
        """What passes is tried again by the agenda; what will not ends the run, which says so."""
        id_ = str(job.item.payload["id"])
        try:
            await self._spawner.launch(id_, job.item.payload.get("traceparent"))
        except ChainStopped as error:
            await self._abandon(id_, error.message)
        except (Busy, Unavailable, Conflict):
            raise
        except HoldfastError as error:
            await self._abandon(id_, f"It could not be spawned: {error.message}")

    async def _abandon(self, id_: str, why: str) -> None:
        parts = self._parts
        await parts.threads(parts.store.run, SYSTEM, lambda tx: ending.abandon(tx, parts.watchers, id_, why))

    def _given_up(self, tx: Tx, item: agenda.Item) -> None:
        if item.status.ended:
            why = f"It could not be spawned: {item.error or 'interrupted'}"
            ending.abandon(tx, self._parts.watchers, str(item.payload["id"]), why)


class Waker:
    """Handles `subagent.wake`, which waits in the requester's own lane: it runs when no turn does."""

    def __init__(self, store: Store, threads: Threads, accept: Accept) -> None:
        self._store = store
        self._threads = threads
        self._accept = accept

    def kind(self) -> agenda.Kind:
        return agenda.Kind(self.handle, limit=4, relative=True, halts=True)

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
            registry.wake_requester(tx, key, due_at=tx.now)
            return
        for run in runs:
            if run.own_surface:
                self._ask_alone(tx, session, run)
        together = [run for run in runs if not run.own_surface]
        if together:
            self._ask_for_one_chain(tx, session, together)

    def _ask_for_one_chain(self, tx: Tx, session: Session, runs: Sequence[Run]) -> None:
        """A turn belongs to one chain; results of others that it is shown need none of their own."""
        first = runs[0].chain_id
        self._ask(tx, session, [r for r in runs if r.chain_id == first], ending.RETURNED, Trust.OPERATOR)
        if any(run.chain_id != first for run in runs):
            registry.wake_requester(tx, session.key, due_at=tx.now)

    def _ask_alone(self, tx: Tx, session: Session, run: Run) -> None:
        """A turn for one result, which is its input; asked for again, it stands in the log already."""
        said = ending.result_text(run)
        readable = session.reader.may_read(sessions.heard_in(tx, run.child_key))
        if readable and not run.asks:
            ending.leave_account(tx, run)
        if said and readable and not run.asks:
            self._ask(tx, session, [run], said, Trust.OTHER_SESSION)
        else:
            self._ask(tx, session, [run], ending.RETURNED, Trust.OPERATOR)

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
            chain_id=first.chain_id,
        )
        try:
            accepted = self._accept(tx, ask)
        except (NotFound, ChainStopped):  # its agent is gone, or its chain was stopped: nothing was written
            for run in runs:
                self._leave(tx, run)
            return
        for run in runs:
            registry.save(tx, run, announce=Announce.ASKED, announce_turn=accepted.run_id, asks=run.asks + 1)

    def _leave(self, tx: Tx, run: Run) -> None:
        """Nobody is there to be asked: the result waits under the requester's key for its next turn."""
        if run.own_surface:
            ending.leave_notes(tx, run)
        registry.save(tx, run, announce=Announce.QUIET)


class Stopper:
    """Handles `subagent.stop`: asked for by someone, or due because the time is over."""

    def __init__(self, parts: SubagentParts, stop_turns: StopTurns) -> None:
        self._parts = parts
        self._stop_turns = stop_turns

    def kind(self) -> agenda.Kind:
        return agenda.Kind(self.handle, limit=4, relative=True)

    async def handle(self, job: agenda.Job) -> None:
        parts = self._parts
        run = await parts.threads(parts.store.run, SYSTEM, lambda tx: self._marked(tx, job))
        if run is None:
            return
        items = await parts.threads(_turns_under_way, parts.store, run)
        await self._stop_turns(items, run.stop_reason or "stopped")
        await parts.threads(parts.store.run, SYSTEM, lambda tx: self._over(tx, job, run.id))

    def _marked(self, tx: Tx, job: agenda.Job) -> Run | None:
        """The run with the reason written down; None if there is nothing to stop any more."""
        run = registry.get(tx, str(job.item.payload["id"]))
        if not run.live or run.round != job.item.payload["round"]:
            job.settle(tx)
            return None
        return ending.stop(tx, self._parts.watchers, run, str(job.item.payload["reason"]))

    def _over(self, tx: Tx, job: agenda.Job, id_: str) -> None:
        """End what no turn ends: a run that was never launched, or that waited for others alone.

        A turn that winds up still ends its run itself, with what it had said.
        """
        job.settle(tx)
        run = registry.get(tx, id_)
        watchers = self._parts.watchers
        if ending.abandon(tx, watchers, id_, run.stop_reason or "stopped") or not run.live:
            return
        if not _live_items(tx, run):
            ending.close(tx, watchers, run, ending.stopped(run))


def _turns_under_way(store: Store, run: Run) -> list[str]:
    with store.read(SYSTEM) as tx:
        return [item.id for item in _live_items(tx, run)]


def _live_items(tx: Tx, run: Run) -> list[agenda.Item]:
    """The turns of a run that run or wait in the child's session."""
    items = agenda.listing(tx, kinds=turns.KINDS, lane=run.child_key)
    found = {turn.id: turn for turn in turns.get_many(tx, [str(item.payload["turnId"]) for item in items])}
    own = {id_ for id_, turn in found.items() if run.run_id == id_ or turn.chain_id == run.chain_id}
    return [item for item in items if item.payload["turnId"] in own]


class Sweeper:
    """Handles `subagent.sweep`: once when the run has ended, and again when its session is to be archived."""

    def __init__(self, parts: SubagentParts) -> None:
        self._parts = parts

    def kind(self) -> agenda.Kind:
        return agenda.Kind(self.handle, limit=2, relative=True)

    async def handle(self, job: agenda.Job) -> None:
        parts = self._parts
        run = await parts.threads(self._found, str(job.item.payload["id"]))
        if run.round != job.item.payload["round"] or run.archived_at is not None:
            return
        if job.item.error is None:
            await self._tell(run, "completed")
        at = self.archive_at(run)
        if at is None:
            return
        if at > parts.store.clock.now():
            raise PostponeJob(at, "kept for a while")
        if await parts.threads(parts.store.run, SYSTEM, lambda tx: _archived(tx, run)):
            await self._tell(run, "deleted" if run.cleanup == "delete" else "swept")

    def archive_at(self, run: Run) -> int | None:
        """When the child's session goes: at once, after a while, or never for one that stays for more."""
        if run.ended_at is None:
            return None
        if run.cleanup == "delete":
            return int(run.ended_at)
        minutes = self._parts.config().agent(run.requester_agent).subagents.archive_after_minutes
        return None if run.mode == "session" or not minutes else int(run.ended_at) + minutes * MINUTE_MS

    def _found(self, id_: str) -> Run:
        with self._parts.store.read(SYSTEM) as tx:
            return registry.get(tx, id_)

    async def _tell(self, run: Run, reason: Literal["completed", "deleted", "swept"]) -> None:
        params = SubagentEndedParams(
            child_session_id=run.child_session_id, child_session_key=run.child_key, reason=reason
        )
        await self._parts.context().on_subagent_ended(params)


def _archived(tx: Tx, run: Run) -> bool:
    """Archive the child's session unless it works on; its transcript stays in the log."""
    if registry.live_of_child(tx, run.child_key) is not None:
        return False
    session = sessions.get(tx, run.child_session_id)
    if session.status is SessionStatus.ACTIVE:
        sessions.archive(tx, session, cause=f"subagent_{run.cleanup}")
    registry.save(tx, registry.get(tx, run.id), archived_at=tx.now)
    return True


class RegistryRuns:
    """`board.supervision.Runs` over the registry."""

    def observe(self, tx: Tx, run: Supervised) -> Observed | None:
        """A run that has not begun is not silent: it waits for a place. Nor is one that waits for a turn
        which it elected itself."""
        known = registry.by_run(tx, run.run_id)
        if known is None:
            return None
        if not known.live:
            return Observed(_ENDED.get(known.outcome or Outcome.UNKNOWN, RunStatus.FAILED))
        if known.status is not Status.RUNNING or known.started_at is None or not _live_items(tx, known):
            return Observed(RunStatus.RUNNING)
        newest = entries.listing(tx, EntryFilter(session_key=known.child_key), limit=1).entries
        heard = max([int(known.started_at), *(int(entry.created_at) for entry in newest), *_heard(tx, known)])
        return Observed(RunStatus.RUNNING, heard)

    def nudge(self, tx: Tx, run: Supervised) -> None:
        """A word into the running turn, once for each check."""
        known = registry.by_run(tx, run.run_id)
        turn = None if known is None else ending.turn_of(tx, known)
        if turn is None or turn.status is not TurnStatus.RUNNING:
            return
        spoken = of_the_runtime(draft_of(UserMessage(text=ending.NUDGE, trust=Trust.OPERATOR)))
        turns.join(tx, turn, replace(spoken, idempotency_key=f"subagent-nudge:{run.run_id}:{run.step}"))


def _heard(tx: Tx, run: Run) -> list[int]:
    """When its running turn was last heard: what a model streams and tools tell stands in no entry yet."""
    running = agenda.listing(tx, statuses=[agenda.Status.RUNNING], lane=run.child_key)
    return [int(item.updated_at) for item in running]


def recover(tx: Tx, watchers: Sequence[Watcher]) -> int:
    """After a restart: what is over is told, what was never begun is taken back, and nothing is begun twice.

    Every unended run is brought in line with what the log knows of its turn; how many were ended by this.
    """
    ended = sum(_reconciled(tx, watchers, registry.get(tx, run.id)) for run in registry.unended(tx))
    for key in registry.waiting_requesters(tx):
        registry.wake_requester(tx, key)
    return ended


def _reconciled(tx: Tx, watchers: Sequence[Watcher], run: Run) -> bool:
    """End a run that nothing will end any more; a turn that still waits or runs is left to the agenda."""
    if not run.live:
        return False
    if run.status is Status.PREPARING:
        begins = agenda.is_live(tx, registry.launch_key(run))
        why = "interrupted before it was begun"
        return not begins and is_dead(run.owner) and ending.abandon(tx, watchers, run.id, why)
    turn = ending.turn_of(tx, run)
    if turn is None:
        ending.close(tx, watchers, run, ending.Verdict(Outcome.UNKNOWN, "its turn is no longer in the log"))
        return True
    item = None if turn.agenda_id is None else agenda.find(tx, turn.agenda_id)
    waits = item is not None and not item.status.ended
    if not turn.status.ended or waits or ending.at_work(tx, run):
        return False
    if run.outcome is None:
        run = ending.note_turn(tx, run, turn, run.said or ending.last_words(tx, turn))
    ending.close(tx, watchers, run, ending.Verdict(run.outcome or Outcome.UNKNOWN, run.error))
    return True


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
