"""A filling window: what an agent is told of it, the compactions it asks for, and a turn before any other."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from holdfast.agents.loop.asks import ASK, Terms
from holdfast.config.agents import Continuation
from holdfast.context import CompactResult, Pressure
from holdfast.continuation import notices, records
from holdfast.continuation.dependencies import Compacted, Dependencies
from holdfast.continuation.records import SessionState
from holdfast.errors import HoldfastError
from holdfast.log import SYSTEM, Session, Turn, Tx, agenda, sessions, turns


def bands(threshold: float, early: float) -> tuple[tuple[float, int], ...]:
    """The shares of the room at which a band begins, with its name in percent; lowest first."""
    found = [threshold * early] if early > 0 else []
    found.append(threshold)
    if threshold < 0.9:
        found.append(0.9)
    if max(threshold, 0.9) < 0.95:
        found.append(0.95)
    return tuple((share, round(share * 100)) for share in found)


def band_of(pressure: Pressure | None, settings: Continuation) -> int | None:
    """The highest band that the window has crossed; None below all of them, or where it is not known."""
    threshold = settings.context_pressure_threshold
    if threshold is None or pressure is None or pressure.window <= 0 or pressure.used <= 0:
        return None
    crossed = [
        band for share, band in bands(threshold, settings.early_warning_band) if pressure.share >= share
    ]
    return max(crossed, default=None)


def new_band(pressure: Pressure | None, last: int | None, settings: Continuation) -> int | None:
    """The band that the agent is to be told of; None if it knows."""
    band = band_of(pressure, settings)
    return None if band == last else band


def pressure_text(band: int, pressure: Pressure) -> str:
    head = f"[system:context-pressure] {pressure.share:.0%} of the context is in use ({band}% band)."
    if band >= 95:
        return (
            f"{head} COMPACTION IMMINENT: hand forward now what your successor needs (continue_delegate with "
            "mode post-compaction, or notes in memory), then call request_compaction."
        )
    if band >= 90:
        return (
            f"{head} First stage a post-compaction delegate with what your successor needs, "
            "then call request_compaction."
        )
    return (
        f"{head} Consider staging what must outlast a compaction: notes in memory, "
        "or a post-compaction delegate."
    )


def after_compaction(released: int, kept: int) -> str:
    """Told once after every compaction."""
    told = "[system:post-compaction] Your history was just compacted; what came before is a summary."
    if released:
        told += f" {released} staged delegate{'s' if released > 1 else ''} now run and will report to you."
    if kept:
        told += f" {kept} more stay staged for the next compaction: the cap for one turn was reached."
    return told


log = logging.getLogger(__name__)

KIND: Final = "continuation.compact"
EVACUATION: Final = "evacuation"
EVACUATION_SECONDS: Final = 120
_EVACUATE: Final = (
    "[system:evacuation] Your history is about to be compacted because the window is full. This one turn is "
    "for handing forward what your successor needs: write notes to memory, or stage a delegate with mode "
    "post-compaction. Nobody reads this reply: answer NO_REPLY when you are done, or at once if "
    "nothing is needed."
)


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why a requested compaction is not taken on."""

    guard: Literal["context_threshold", "rate_limit"]
    reason: str


def guard(
    pressure: Pressure | None, state: SessionState, now: int, settings: Continuation
) -> Rejected | None:
    """Whether it is too early: the window is not full enough, or the last success is not long ago."""
    floor = settings.compaction_floor
    if pressure is None:
        return Rejected("context_threshold", "How full the context is, is not known yet.")
    if pressure.share < floor:
        used, least = f"{pressure.share:.0%}", f"{floor:.0%}"
        return Rejected(
            "context_threshold", f"Context usage ({used}) is below the floor ({least}): not needed yet."
        )
    wait = settings.compaction_cooldown_minutes * 60_000
    last = max(state.compactions, default=None)
    if last is not None and now - last < wait:
        left = -(-(wait - (now - last)) // 1000)
        return Rejected(
            "rate_limit", f"The last requested compaction was done just now; wait {left} seconds."
        )
    return None


def request(tx: Tx, session: Session, turn: Turn, pressure: Pressure, reason: str) -> agenda.Item:
    """Put it behind the running turn and before whatever else waits in the session's lane."""
    facts = {"used": pressure.used, "window": pressure.window, "reason": reason[:1024]}
    return agenda.enqueue(
        tx,
        KIND,
        {"sessionId": session.id, **facts},
        lane=session.key,
        key=key_of(session),
        due_at=turn.accepted_at,
        max_attempts=2,
    )


def key_of(session: Session) -> str:
    return f"{KIND}:{session.id}"


class Compacting:
    """The handler of requested compactions. `compacted` is told of each that succeeds, in the transaction in
    which it is counted."""

    def __init__(self, deps: Dependencies, compacted: Compacted) -> None:
        self._deps = deps
        self._compacted = compacted

    def kind(self) -> agenda.Kind:
        return agenda.Kind(self.run, relative=True, limit=2)

    async def run(self, job: agenda.Job) -> None:
        payload: Mapping[str, Any] = job.item.payload
        session = await self._deps.threads(self._session, str(payload["sessionId"]))
        error = await self._tried(session, int(payload["window"]), int(payload["used"]))

        def write(tx: Tx) -> None:
            self._done(tx, session, job.item.id, error)
            job.settle(tx)

        await self._deps.threads(self._deps.store.run, SYSTEM, write)

    async def _tried(self, session: Session, window: int, used: int) -> str | None:
        """None if the history is smaller now; else why not."""
        if self._deps.compact is None:
            return "no context engine is at hand"
        try:
            result: CompactResult = await self._deps.compact(session, window, used)
        except HoldfastError as error:
            log.warning("the compaction that %s asked for failed: %s", session.key, error.message)
            return error.message
        return None if result.compacted else result.reason or str(result.outcome)

    def _done(self, tx: Tx, session: Session, item_id: str, error: str | None) -> None:
        now = sessions.get(tx, session.id)
        if error is not None:
            text = f"[system:compaction-failed] The compaction that you requested did not happen: {error}."
            notices.tell(tx, session.key, notices.FAILED_COMPACTION, f"compaction-failed:{item_id}", text)
            return
        records.save_session_state(tx, records.load_session_state(tx, now).compacted(int(tx.now)))
        self._compacted(tx, now)

    def _session(self, session_id: str) -> Session:
        with self._deps.store.read(SYSTEM) as tx:
            return sessions.get(tx, session_id)


def evacuate(tx: Tx, deps: Dependencies, session: Session, turn: Turn, terms: Terms) -> Turn | None:
    """One silent turn before a compaction that nobody asked for; None if the agent may not elect.

    Call it before the compaction is put on the agenda, with the same due time: the lane keeps their order.
    A session has one for each compaction, and it is bounded in time and not repeated.
    """
    if not deps.settings(terms.agent_id).enabled or turn.trigger == EVACUATION:
        return None
    kept = Terms(
        agent_id=terms.agent_id,
        model=terms.model,
        sender=terms.sender,
        owner=terms.owner,
        channel=terms.channel,
        prompt=_EVACUATE,
        timeout_seconds=EVACUATION_SECONDS,
    )
    key = f"evacuate:{session.id}:{session.compaction_count}"
    if turns.by_key(tx, key) is not None:
        return None
    made = turns.accept(
        tx,
        session,
        None,
        key=key,
        trigger=EVACUATION,
        due_at=turn.accepted_at,
        max_attempts=1,
        meta={ASK: kept.json()},
        chain_id=turn.chain_id,
    )
    return made.turn
