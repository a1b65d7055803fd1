"""What follows from a turn, off its path: the engine's after-work, the memory flush, a compaction."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from holdfast.agents.loop import finishing
from holdfast.agents.loop.asks import Terms
from holdfast.agents.loop.calling import Calling
from holdfast.agents.loop.parts import Parts
from holdfast.context import AfterTurn, Occasion, flush_plan, mark_flushed
from holdfast.errors import HoldfastError
from holdfast.log import FOR_OWNER, SYSTEM, Session, Turn, agenda, sessions

log = logging.getLogger(__name__)

KIND: Final = "turn.after"


class AfterWork:
    """Decides with what the provider reported; flush and compaction wait in the session's own lane, so that
    they never run beside its next turn, and stand before it."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def kind(self) -> agenda.Kind:
        return agenda.Kind(self._compact, relative=True, limit=2)

    async def consider(self, turn: Turn, calling: Calling) -> None:
        """Never fails the turn, which is committed: what goes wrong here is due again after the next one."""
        if calling.built is None or calling.last is None:
            return
        session, terms = calling.plan.session, calling.plan.terms
        try:
            verdict = await self._parts.context().after_turn(
                session,
                calling.built,
                reported_input_tokens=calling.last.usage.input or None,
                is_heartbeat=terms.occasion in (Occasion.HEARTBEAT, Occasion.HEARTBEAT_LIGHT),
            )
            # The daily notes are the owner's: what others hear is not written into them.
            flush = verdict.flush_due and terms.occasion is not Occasion.FLUSH and turn.audience == FOR_OWNER
            if flush or verdict.compaction_due:
                await self._parts.threads(self._schedule, turn, terms, verdict, flush)
        except HoldfastError:
            log.exception("the work after turn %s failed", turn.id)

    def _schedule(self, turn: Turn, terms: Terms, verdict: AfterTurn, flush: bool) -> None:
        with self._parts.store.write(SYSTEM) as tx:
            session = sessions.get(tx, turn.session_id)
            if flush:
                mark_flushed(tx, session)
                finishing.accept_flush(tx, session, turn, self._flush_terms(terms, int(tx.now)))
            if verdict.compaction_due:
                for hook in self._parts.hooks:
                    hook.before_compaction(tx, turn, session, terms)
                facts = {"window": verdict.pressure.window, "used": verdict.pressure.used}
                agenda.enqueue(
                    tx,
                    KIND,
                    {"sessionId": session.id, **facts},
                    lane=session.key,
                    key=f"{KIND}:{session.id}",
                    due_at=turn.accepted_at,
                    max_attempts=2,
                )

    def _flush_terms(self, terms: Terms, now: int) -> Terms:
        from holdfast.clock import Millis

        settings = self._parts.config().agent(terms.agent_id)
        plan = flush_plan(settings.compaction, Millis(now), settings.user_timezone)
        return Terms(
            agent_id=terms.agent_id,
            model=terms.model,
            channel=terms.channel,
            occasion=Occasion.FLUSH,
            prompt=plan.prompt,
            system_prompt=plan.system_prompt,
        )

    async def _compact(self, job: agenda.Job) -> None:
        """Compact a session between its turns. What brings nothing now is due again after its next turn."""
        payload: Mapping[str, Any] = job.item.payload
        session = await self._parts.threads(self._session, str(payload["sessionId"]))
        result = await self._parts.context().compact(
            session, window=int(payload["window"]), reason="threshold", current_tokens=int(payload["used"])
        )
        log.info("compaction of %s: %s (%s)", session.key, result.outcome, result.reason)

    def _session(self, session_id: str) -> Session:
        with self._parts.store.read(SYSTEM) as tx:
            return sessions.get(tx, session_id)
