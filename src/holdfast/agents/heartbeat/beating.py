"""One heartbeat: the look at what is due, the turn for it and the wait for the next are one transaction."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from opentelemetry import trace

from holdfast.agents.heartbeat import checklist, due, state, words
from holdfast.agents.heartbeat.deciding import Defer, Facts, Run, Skip, decide
from holdfast.agents.heartbeat.hours import Hours
from holdfast.agents.heartbeat.parts import Parts, is_busy, session_key
from holdfast.agents.heartbeat.state import State
from holdfast.agents.heartbeat.zones import zone_of
from holdfast.agents.loop.asks import ASK, Terms
from holdfast.config import AgentSettings
from holdfast.context import Occasion
from holdfast.errors import InvalidInput, NotFound
from holdfast.log import SYSTEM, Turn, Tx, agenda, sessions, turns
from holdfast.traces import here

log = logging.getLogger(__name__)
tracer = trace.get_tracer("holdfast")

TRIGGER: Final = "heartbeat"
CHECKLIST: Final = "HEARTBEAT.md"


class Beater:
    """Handles the agenda's `heartbeat` items; each agent has one."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def kind(self) -> agenda.Kind:
        return agenda.Kind(self.handle, limit=2, halts=True)

    async def handle(self, job: agenda.Job) -> None:
        await self._parts.threads(self._parts.store.run, SYSTEM, lambda tx: self._beat(tx, job))

    def _beat(self, tx: Tx, job: agenda.Job) -> None:
        agent_id = str(job.item.payload["agentId"])
        try:
            agent = self._parts.config().agent(agent_id)
            key = session_key(agent.heartbeat.session, agent_id)
        except (NotFound, InvalidInput) as error:
            log.warning("no heartbeat of %s: %s", agent_id, error.message)
            job.settle(tx)
            return
        forced = job.item.payload.get("forced") is True
        if not forced and not due.beats(agent.heartbeat):
            job.settle(tx)
            return
        known = state.locked(tx, agent_id)
        facts = _facts(tx, job, agent, known, self._parts.items(agent_id, CHECKLIST), is_busy(tx, key))
        self._carry_out(tx, job, agent, facts, key)

    def _carry_out(self, tx: Tx, job: agenda.Job, agent: AgentSettings, facts: Facts, key: str) -> None:
        known = facts.state
        match verdict := decide(facts):
            case Defer(until=until, reason=reason):
                assert job.item.owner is not None
                job.settle(tx, agenda.Postpone(job.item.owner, until, reason))
                if known.last_status != "deferred":
                    state.save(tx, replace(known, last_status="deferred", last_reason=reason))
                return
            case Skip(reason=reason):
                after = replace(known, last_at=tx.now, last_status="skipped", last_reason=reason)
            case Run():
                with tracer.start_as_current_span(
                    "heartbeat", attributes={"heartbeat.due": len(verdict.due)}
                ):
                    turn = _accept(tx, job, agent, facts, verdict, key)
                ran = replace(known, last_at=tx.now, last_status="running", last_reason=None)
                after = ran.with_run(turn.id, tx.now)
        job.settle(tx)
        if due.beats(agent.heartbeat):
            due.enqueue(tx, known.agent_id, agent.heartbeat, verdict.next_at)
        state.save(tx, replace(after, items=checklist.noticed(facts.items or (), known.items, tx.now)))


def _facts(
    tx: Tx,
    job: agenda.Job,
    agent: AgentSettings,
    known: State,
    items: tuple[checklist.Item, ...] | None,
    busy: bool,
) -> Facts:
    hours = agent.heartbeat.active_hours
    return Facts(
        now=tx.now,
        due_at=job.item.due_at,
        settings=agent.heartbeat,
        zone=zone_of("user", agent),
        hours=None if hours is None else Hours.of(hours, zone_of(hours.timezone, agent)),
        state=known,
        items=items,
        busy=busy,
        forced=job.item.payload.get("forced") is True,
    )


def _accept(tx: Tx, job: agenda.Job, agent: AgentSettings, facts: Facts, run: Run, key: str) -> Turn:
    """A turn without an entry of its own for the prompt: one that finds nothing leaves nothing behind."""
    settings = agent.heartbeat
    agent_id = facts.state.agent_id
    session = sessions.ensure(tx, key, agent_id=agent_id)
    terms = Terms(
        agent_id=agent_id,
        model=settings.model,
        channel=session.channel,
        occasion=_occasion(settings.light_context),
        prompt=words.beat(settings.prompt, run.due, all_due=len(run.due) == len(facts.items or ())),
        timeout_seconds=settings.timeout_seconds,
    )
    trace_now = here()
    looked_after = [item.id for item in run.due if item.schedule is not None]
    return turns.accept(
        tx,
        session,
        None,
        key=f"{TRIGGER}:{job.item.id}",
        trigger=TRIGGER,
        payload={} if trace_now is None else {"traceparent": trace_now},
        max_attempts=1,
        meta={ASK: terms.json(), TRIGGER: {"items": looked_after}},
    ).turn


def _occasion(light: bool) -> Occasion:
    """The light one shows HEARTBEAT.md alone."""
    return Occasion.HEARTBEAT_LIGHT if light else Occasion.HEARTBEAT
