"""What happens when elections fall due: a turn is granted, a running one is told, a delegate spawned.

One look at a session is one transaction: what it decides, what it asks for and when it looks again are one.
A folded election is done when a turn that wrote the note into its transcript is committed, and not before.
After a restart what was under way is joined with what is known of it, and nothing is left unwatched.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from holdfast import traces
from holdfast.agents.subagents import registry
from holdfast.config.agents import Continuation
from holdfast.continuation import delegates, elections, limits, notices, records, wakes
from holdfast.continuation import state as st
from holdfast.continuation.dependencies import Dependencies
from holdfast.continuation.limits import FOLD_CHECK_MS, STALE_RUNNING_MS
from holdfast.continuation.state import Deliver, Fail, Fold, Keep, Kind, Lost, Phase, Record, Status, Unfold
from holdfast.errors import Busy, HoldfastError, NotFound
from holdfast.keys import parse_key
from holdfast.log import SYSTEM, ChainStopped, Session, Turn, TurnStatus, Tx, agenda, sessions, turns
from holdfast.log.agenda import Postpone, Retry
from holdfast.log.tables import agenda as agenda_table


def fold(tx: Tx, found: Sequence[Record]) -> None:
    """One note for all of them."""
    first = found[0]
    key = f"continuation-fold:{first.id}:{first.revision}"
    notices.tell(tx, first.owner, notices.FOLD, key, notices.folded(found))
    for record in found:
        records.apply(tx, record, Fold(key, int(tx.now) + FOLD_CHECK_MS))


def settle_folded(tx: Tx, found: Sequence[Record], turn: Turn) -> None:
    """A turn of the session has ended: what it was told is delivered with it, the rest comes back."""
    for record in (r for r in found if r.phase is Phase.FOLDED):
        _settle_fold(tx, record, ended=turn)


def check_folded(tx: Tx, record: Record, *, busy: bool) -> None:
    """By the clock, for a turn whose end was not told here."""
    _settle_fold(tx, record, ended=None, busy=busy)


def _settle_fold(tx: Tx, record: Record, *, ended: Turn | None, busy: bool = False) -> None:
    assert record.note_key is not None
    taken = notices.look(tx, record.note_key)
    turn = None if taken is None or taken.turn_id is None else _turn_of_note(tx, taken.turn_id, ended)
    if turn is not None and turn.status is TurnStatus.COMMITTED:
        records.apply(tx, record, Deliver())
    elif (turn is not None and not turns.has_ended(tx, turn)) or (
        turn is None and busy and taken is not None
    ):
        records.apply(tx, record, Keep(int(tx.now) + FOLD_CHECK_MS))
    else:
        notices.withdraw(tx, record.note_key)
        records.apply(tx, record, Unfold())


def _turn_of_note(tx: Tx, id_: str, ended: Turn | None) -> Turn | None:
    if ended is not None and ended.id == id_:
        return ended
    try:
        return turns.get(tx, id_)
    except NotFound:
        return None


log = logging.getLogger(__name__)

LIMIT: Final = 8
# How a session ends for good: by hand, or because others hear the next one, for whom nothing was elected.
FOR_GOOD: Final = frozenset(("new", "reset", "audience"))


class Dispatch:
    """The handler of due elections."""

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps

    def kind(self) -> agenda.Kind:
        retry = Retry(base_ms=1_000, ceiling_ms=limits.FOLD_CHECK_MS)
        return agenda.Kind(self.run, limit=LIMIT, retry=retry, relative=True, halts=True)

    async def run(self, job: agenda.Job) -> None:
        owner = str(job.item.payload["sessionKey"])

        def write(tx: Tx) -> None:
            due = self.look(tx, owner)
            assert job.item.owner is not None
            job.settle(tx, None if due is None else Postpone(job.item.owner, due))

        await self._deps.threads(self._deps.store.run, SYSTEM, write)

    def look(self, tx: Tx, owner: str) -> int | None:
        """Do what is due for a session; when to look again, if ever."""
        found = records.live(tx, owner)
        if not found:
            return None
        settings = self._deps.settings(found[0].agent_id)
        if not settings.enabled:
            return self._disabled(tx, found)
        session = self._session(tx, owner, found)
        if session is not None:
            moved = any(record.session_id != session.id for record in found)
            self._drain(tx, session, records.live(tx, owner) if moved else found, settings)
        if self._deps.spawner is not None and parse_key(owner).is_subagent:
            self._deps.spawner.settle(tx, owner)
        return records.next_due(records.live(tx, owner))

    def _disabled(self, tx: Tx, found: Sequence[Record]) -> int | None:
        """Nothing is touched: what is due waits until someone switches it on again."""
        due = records.next_due(found)
        if due is None or due > tx.now:
            return due
        traces.mark("continuation.disabled", {"disabled.reason": "config", "signal.kind": "timer"})
        return int(tx.now) + limits.DISABLED_RECHECK_MS

    def _session(self, tx: Tx, owner: str, found: Sequence[Record]) -> Session | None:
        """The session as it is now. One that was begun anew by hand, or because others hear it now, has
        nothing to do with what was elected before; one that only went stale goes on with it."""
        session = sessions.active(tx, owner)
        if session is None:
            for record in found:
                if record.status is Status.QUEUED:
                    notices.settle(tx, records.apply(tx, record, st.Lapse("its session is gone")))
            return None
        for record in found:
            if record.session_id != session.id and record.status is Status.QUEUED:
                over = _left_for_good(tx, record.session_id)
                event = st.Cancel("the session was reset") if over else st.Rebind(session.id)
                records.apply(tx, record, event)
        return session

    def _drain(self, tx: Tx, session: Session, found: list[Record], settings: Continuation) -> None:
        found = [self._anchored(tx, record, settings) for record in found]
        lane = wakes.lane_of(tx, session)
        for record in found:
            if record.phase is Phase.FOLDED and (record.due or 0) <= tx.now:
                check_folded(tx, record, busy=lane.busy)
        due = [r for r in found if r.matured(int(tx.now)) and r.phase in (Phase.WAITING, Phase.PARKED)]
        work = self._coalesced(tx, [r for r in due if r.kind is Kind.WORK], settings)
        if due:
            facts = {"queue.drained_count": len(due), "queue.drained_continuation_count": len(work)}
            traces.mark("continuation.queue.drain", facts, parent=due[0].traceparent)
        for record in due:
            if record.kind is not Kind.WORK:
                delegates.dispatch(tx, self._deps, session, record, settings)
        if work:
            self._fire(tx, session, lane, work, settings)

    def _anchored(self, tx: Tx, record: Record, settings: Continuation) -> Record:
        """An election whose turn never told its end: while that runs it waits on, else it counts as ended."""
        if record.phase is not Phase.ELECTING or not record.matured(int(tx.now)):
            return record
        try:
            alive = not turns.has_ended(tx, turns.get(tx, record.election.turn_id))
        except NotFound:
            alive = False
        if alive:
            return records.apply(tx, record, st.Busy(limits.hedge_at(int(tx.now), settings), parked=False))
        elections.anchor(tx, self._deps, record, delegates.chain_of(tx, record))
        return records.get(tx, record.id)

    def _coalesced(self, tx: Tx, work: list[Record], settings: Continuation) -> list[Record]:
        """Of many that are due at once, those that are worth a model's time; the others end with one note."""
        old = limits.overdue(work, int(tx.now), settings.max_delay_ms)
        for record in old:
            records.apply(tx, record, st.Supersede("overdue, and a newer one is due"))
        if old:
            ids = ", ".join(record.id for record in old[: notices.MOST_SAMPLED])
            text = f"{len(old)} elected turns were long overdue and gave way to a newer one: {ids}."
            notices.warn(tx, old[0].owner, f"continuation-stale:{old[0].id}", text)
        return [record for record in work if record not in old]

    def _fire(
        self, tx: Tx, session: Session, lane: wakes.Lane, work: list[Record], settings: Continuation
    ) -> None:
        if lane.open:
            fold(tx, work)
        elif lane.busy:
            self._wait(tx, work, settings, parked=lane.running is not None)
        else:
            if limits.is_idling(records.load_session_state(tx, session), int(tx.now)):
                self._stop_idling(tx, work)
            else:
                self._grant(tx, session, work, settings)

    def _wait(self, tx: Tx, work: Sequence[Record], settings: Continuation, *, parked: bool) -> None:
        """Being busy is no failure. Only here is it asked whether someone still waits for the work."""
        for record in work:
            if self._orphaned(tx, record, settings):
                records.apply(tx, record, st.Reap())
                continue
            until = limits.busy_until(int(tx.now), record.busy_skips, settings, event=parked)
            records.apply(tx, record, st.Busy(until, parked=True))

    def _orphaned(self, tx: Tx, record: Record, settings: Continuation) -> bool:
        parent = record.election.parent_run_id
        run = None if parent is None else registry.by_run(tx, parent)
        return limits.is_orphan(parent, run, int(tx.now), settings.orphan_reap_stale_cutoff_ms)

    def _stop_idling(self, tx: Tx, work: Sequence[Record]) -> None:
        for record in work:
            records.apply(tx, record, st.Supersede("the session only woke itself"))
        most = limits.MOST_IDLE_TURNS
        text = f"Your last {most} elected turns did nothing but elect the next, so no more are granted now."
        notices.warn(tx, work[0].owner, f"continuation-idle:{work[0].id}", text)

    def _grant(self, tx: Tx, session: Session, work: list[Record], settings: Continuation) -> None:
        """A turn for the first; the others are told to that same turn."""
        first, rest = work[0], work[1:]
        chain = delegates.chain_of(tx, first)
        allowed = self._deps.budget(chain, first.agent_id)
        facts = {
            "delay.ms": first.election.delay_ms,
            "fire.deferred_ms": int(tx.now) - (first.due_at or int(tx.now)),
            "chain.id": first.chain_id,
            "chain.step.remaining": allowed.left(chain),
            **traces.about_text(first.election.text),
        }
        with traces.span("continuation.work.fire", facts, parent=first.traceparent) as own:
            text = notices.wake(first, chain, allowed.steps)
            try:
                run_id = wakes.grant(tx, self._deps, first, text, traceparent=own)
            except Busy as error:
                log.info("no room for an elected turn of %s: %s", session.key, error.message)
                self._wait(tx, work, settings, parked=False)
                return
            except ChainStopped as error:
                for record in work:
                    records.apply(tx, record, st.Cancel(error.message))
                return
            except HoldfastError as error:
                log.warning("no turn for %s: %s", first.id, error.message)
                tried = records.apply(tx, first, st.Grant(""))
                notices.settle(tx, records.apply(tx, tried, st.Fail(error.message)))
                return
        records.apply(tx, first, st.Grant(run_id))
        if rest:
            fold(tx, rest)


def _left_for_good(tx: Tx, session_id: str) -> bool:
    try:
        return sessions.get(tx, session_id).archive_cause in FOR_GOOD
    except NotFound:
        return True


_LIVE: Final[list[sa.ColumnElement[str]]] = [sa.literal_column("'queued'"), sa.literal_column("'running'")]


@dataclass(frozen=True, slots=True)
class Recovered:
    """Sessions looked after again, records whose turn or spawn had ended unseen, notices that were owed."""

    armed: int = 0
    settled: int = 0
    noticed: int = 0


def recover(tx: Tx, deps: Dependencies) -> Recovered:
    """Idempotent. Agenda and records are one store, so that most of the time there is nothing to mend."""
    settled = sum(_settled(tx, deps, r) for r in records.running_since(tx, int(tx.now) - STALE_RUNNING_MS))
    owed = [notices.settle(tx, record) for record in records.owed(tx)]
    missing = unwatched(tx)
    for owner, at in missing:
        wakes.arm(tx, owner, at)
    return Recovered(len(missing), settled, len(owed))


def unwatched(tx: Tx) -> list[tuple[str, int]]:
    """Sessions with something due that no item on the agenda looks after."""
    watched = sa.select(agenda_table.c.key).where(
        agenda_table.c.kind == wakes.KIND, agenda_table.c.status.in_(_LIVE)
    )
    keys = {row.key for row in tx.conn.execute(watched)}
    return [(owner, at) for owner, at in records.owners_due(tx) if wakes.due_key(owner) not in keys]


def _settled(tx: Tx, deps: Dependencies, record: Record) -> bool:
    """A turn or a delegate that ended unseen, or of which nobody knows; all else has its own clock."""
    if record.phase is Phase.HANDED_OFF:
        return _joined(tx, deps, record)
    if record.phase is not Phase.GRANTED or record.turn_id is None:
        return False
    try:
        turn = turns.get(tx, record.turn_id)
    except NotFound:
        records.apply(tx, record, Fail("its turn is gone"))
        return True
    if not turn.status.ended or turn.status is TurnStatus.INTERRUPTED:
        return False
    event = Deliver() if turn.status is TurnStatus.COMMITTED else Fail(turn.error or "its turn failed")
    notices.settle(tx, records.apply(tx, record, event))
    return True


def _joined(tx: Tx, deps: Dependencies, record: Record) -> bool:
    """A delegate whose run nobody knows is not spawned again; one that is over has returned."""
    run = registry.by_spawn(tx, record.spawn_key or "")
    if run is None:
        notices.settle(tx, records.apply(tx, record, Lost()))
    elif not run.live:
        delegates.run_ended(tx, deps, run)
    return run is None or not run.live
