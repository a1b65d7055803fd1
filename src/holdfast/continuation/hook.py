"""How continuation takes part in turns: each step in the transaction of the turn's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from holdfast import traces
from holdfast.agents.loop.asks import Terms
from holdfast.agents.loop.parts import Ended, ParsedReply, TurnEnd, TurnHook
from holdfast.agents.subagents import Run
from holdfast.config.agents import Continuation
from holdfast.context import ShownData, Text
from holdfast.continuation import (
    compaction,
    delegates,
    dispatch,
    elections,
    limits,
    notices,
    records,
    tokens,
    wakes,
)
from holdfast.continuation import state as st
from holdfast.continuation.dependencies import Dependencies
from holdfast.continuation.state import Kind, Phase, Record, Status
from holdfast.log import Chain, Session, Turn, TurnStatus, Tx, chains, notes
from holdfast.log import turns as turn_log
from holdfast.traces import here

TAUGHT = (
    "You may elect what comes next, as the very last thing of a reply if you have no tool for it: "
    "CONTINUE_WORK or CONTINUE_WORK:<seconds> for another turn; [[CONTINUE_DELEGATE: task +<seconds>s | "
    "silent]] for a delegate (normal, silent, silent-wake or post-compaction)."
)

QUOTED = "quoted"


class ContinuationHook(TurnHook):
    name = "continuation"

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps

    def _settings(self, terms: Terms) -> Continuation:
        """A session that ends with its turn has nobody who would see what is elected there."""
        settings = self._deps.settings(terms.agent_id)
        return settings.model_copy(update={"enabled": False}) if terms.one_off else settings

    def begun(self, tx: Tx, turn: Turn, session: Session, terms: Terms) -> None:
        """Whoever comes from outside ends a streak of idle turns; a session that filled up is told so."""
        if turn.attempt > 1:
            elections.retract(tx, turn)
            return
        settings = self._settings(terms)
        if not settings.enabled:
            return
        state = records.load_session_state(tx, session)
        after = replace(state, idle_turns=0, idle_at=None) if turn.chain_id == turn.id else state
        full = after.pressure(self._deps.compaction(terms.agent_id))
        band = compaction.new_band(full, after.band, settings)
        if band is not None and full is not None:
            key = f"context-pressure:{turn.id}"
            notices.tell(tx, session.key, notices.PRESSURE, key, compaction.pressure_text(band, full))
            after = replace(after, band=band)
        if after != state:
            records.save_session_state(tx, after)

    def shown(self, tx: Tx, turn: Turn, session: Session, terms: Terms) -> Sequence[Text]:
        settings = self._settings(terms)
        if not settings.enabled:
            return ()
        chain = None if turn.chain_id is None else chains.find(tx, turn.chain_id)
        line = "" if chain is None or chain.steps == 0 else f"\n{self._chain_line(chain, terms.agent_id)}"
        told = TAUGHT + line
        return (Text("continuation", told, source="holdfast/continuation", audience=session.audience),)

    def held_back(self, text: str, terms: Terms) -> int:
        """What may become a token is not told, where tokens count."""
        return tokens.may_begin(text) if self._settings(terms).enabled else len(text)

    def heard(self, text: str, terms: Terms, shown: ShownData) -> ParsedReply:
        """Take a token out of the last words. Where nobody may elect, or it repeats what was read, it is only
        text."""
        parsed = tokens.parse(text)
        if parsed.token is None:
            return ParsedReply(text)
        if self._settings(terms).enabled:
            if tokens.is_quoted(parsed.token, shown):
                return ParsedReply(text, QUOTED)
            return ParsedReply(parsed.text, _traced(parsed.token))
        kind = Kind.WORK if isinstance(parsed.token, tokens.WorkToken) else Kind.DELEGATE
        traces.mark("continuation.disabled", {"disabled.reason": "config", "signal.kind": kind.value})
        return ParsedReply(text)

    def committed(self, tx: Tx, end: TurnEnd) -> None:
        """What this turn was for is delivered with it, and what it elected begins to count."""
        settings = self._settings(end.terms)
        found = records.live(tx, end.session.key)
        token = end.signals.get(self.name)
        if not settings.enabled and not found:
            return
        for record in _granted(found, end.turn):
            records.apply(tx, record, st.Deliver())
        dispatch.settle_folded(tx, found, end.turn)
        if token == QUOTED:
            notices.warn(tx, end.session.key, f"continuation-quoted:{end.turn.id}", notices.REPEATED)
        elif token is not None:
            agent = end.terms.agent_id
            elections.heard(tx, self._deps, end.session, end.turn, agent, token, found)
            found = records.live(tx, end.session.key)
        self._note_session(tx, end, found)
        elections.settle(tx, self._deps, end.turn, found)
        if any(record.turn_id != end.turn.id for record in found):
            self._idle(tx, end.session)

    def failed(self, tx: Tx, end: TurnEnd) -> None:
        """What this turn was for comes again, unless someone stopped it on purpose."""
        found = records.live(tx, end.session.key)
        if not found:
            return
        stopped = end.turn.status is TurnStatus.CANCELLED
        for record in _granted(found, end.turn):
            if stopped:
                record = records.apply(tx, record, st.Cancel())
            error = end.turn.error or f"its turn was {end.turn.status}"
            notices.settle(tx, records.apply(tx, record, st.Fail(error)))
        dispatch.settle_folded(tx, found, end.turn)
        if stopped:
            elections.drop(tx, end.turn, found, "its turn was stopped")
        else:
            elections.settle(tx, self._deps, end.turn, found)
        self._idle(tx, end.session)

    def before_compaction(self, tx: Tx, turn: Turn, session: Session, terms: Terms) -> None:
        """Even an unwilling cut leaves notes: one silent turn before it."""
        compaction.evacuate(tx, self._deps, session, turn, terms)

    def compacted(self, tx: Tx, session: Session) -> None:
        """What was staged for this moment goes on its way, and the successor is told where it stands."""
        found = records.live(tx, session.key)
        settings = self._deps.settings(session.agent_id or "")
        if not settings.enabled:
            return
        released, kept = delegates.release(tx, session, found, settings)
        state = records.load_session_state(tx, session)
        records.save_session_state(tx, replace(state, band=None, used=0, window=0))
        key = f"post-compaction:{session.id}:{session.compaction_count}:{int(tx.now)}"
        notices.tell(tx, session.key, notices.COMPACTED, key, compaction.after_compaction(released, kept))
        wakes.arm_for(tx, session.key)

    def status_line(self, tx: Tx, session: Session) -> str:
        """The chain and what it waits for; zeros are left out, and with nothing else all of it."""
        settings = self._deps.settings(session.agent_id or "")
        if not settings.enabled:
            return ""
        found = records.listing(tx, owner=session.key, limit=500)
        pending, staged = delegates.pending(found)
        turns = sum(r.kind is Kind.WORK and r.status is Status.QUEUED for r in found)
        chain = self._chain_here(tx, session)
        most = 0 if chain is None else self._deps.budget(chain, session.agent_id or "").steps
        since = tx.now - records.COMPACTIONS_TTL_MS
        asked = sum(at > since for at in records.load_session_state(tx, session).compactions)
        parts = [
            f"chain {chain.steps}/{most}" if chain is not None and chain.steps else "",
            f"{turns} turn{'' if turns == 1 else 's'} waiting" if turns else "",
            f"{pending} delegate{'' if pending == 1 else 's'} pending" if pending else "",
            f"{staged} post-compaction staged" if staged else "",
            f"volitional: {asked}" if asked else "",
        ]
        said = " | ".join(part for part in parts if part)
        return f"🔄 Continuation: {said}" if said else ""

    def _chain_here(self, tx: Tx, session: Session) -> Chain | None:
        """The newest chain of those that live in the session, else that of its last turn."""
        alive = [chain for id_ in chains.live_in(tx, session.key) if (chain := chains.find(tx, id_))]
        if alive:
            return alive[-1]
        last = next(
            (turn for turn in turn_log.listing(tx, session.id, limit=5) if turn.trigger != "command"), None
        )
        return None if last is None or last.chain_id is None else chains.find(tx, last.chain_id)

    def chain_stopped(self, tx: Tx, chain_id: str, reason: str) -> Sequence[Ended]:
        """All that was elected in the chain ends with it, whatever it is at; nobody is told by a turn.

        What runs of it is counted as the turn or subagent that it is.
        """
        live = records.in_chain(tx, chain_id, live=True)
        for record in live:
            if record.note_key is not None:
                notices.withdraw(tx, record.note_key)
            records.apply(tx, record, st.Stop(reason))
        waited = [record for record in live if record.status is Status.QUEUED]
        work = sum(record.kind is Kind.WORK for record in waited)
        return Ended(work, "elected turn"), Ended(len(waited) - work, "delegate")

    def run_stopping(self, tx: Tx, run: Run) -> None:
        delegates.run_stopping(tx, run)

    def run_ended(self, tx: Tx, run: Run) -> None:
        delegates.run_stopping(tx, run)
        delegates.run_ended(tx, self._deps, run)

    def reset(self, tx: Tx, left: Session) -> None:
        """Someone began anew: what was elected before is not for what comes after."""
        for record in records.live(tx, left.key):
            records.apply(tx, record, st.Stop("the session was reset"))
        notes.drop(tx, left.key, notices.KINDS)

    def _note_session(self, tx: Tx, end: TurnEnd, found: list[Record]) -> None:
        """How full the window is now, and whether the turn did anything but elect the next one."""
        state = records.load_session_state(tx, end.session)
        if end.pressure is not None:
            state = replace(state, used=end.pressure.used, window=end.pressure.window)
        mine = [r for r in found if r.phase is Phase.ELECTING and r.election.turn_id == end.turn.id]
        rearmed = any(record.kind is Kind.WORK for record in mine)
        idle = limits.is_idle_turn(end.turn.trigger, end.said, end.tools, rearmed=rearmed)
        records.save_session_state(tx, limits.with_idle_turn(state, idle, int(tx.now)))

    def _chain_line(self, chain: Chain, agent_id: str) -> str:
        allowed = self._deps.budget(chain, agent_id)
        cost = f" of {allowed.tokens:,}" if allowed.tokens else ""
        return f"Your chain: step {chain.steps}/{allowed.steps}, {chain.tokens:,}{cost} tokens."

    def _idle(self, tx: Tx, session: Session) -> None:
        """The session's turn has ended: what waited for that is looked at now."""
        now = records.live(tx, session.key)
        parked = [r for r in now if r.phase is Phase.PARKED]
        after = {r.id: records.apply(tx, r, st.Idle()) for r in parked}
        wakes.arm_for(tx, session.key, [after.get(r.id, r) for r in now])


def _traced(token: tokens.Token) -> tokens.Token:
    """One that names no trace goes on with that of the turn which said it."""
    return token if token.traceparent is not None else replace(token, traceparent=here())


def _granted(found: Sequence[Record], turn: Turn) -> list[Record]:
    return [r for r in found if r.status is Status.RUNNING and r.turn_id == turn.id]
