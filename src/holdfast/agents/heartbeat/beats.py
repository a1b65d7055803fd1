"""Heartbeats and the turn on BOOT.md, on the agenda: at most one item waits for each agent."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from opentelemetry import trace

from holdfast.agents.heartbeat import checklist, rules, state
from holdfast.agents.heartbeat.rules import (
    FLOOD_MS,
    FLOOD_RUNS,
    Defer,
    Facts,
    Hours,
    Run,
    Skip,
    decide,
    zone_of,
)
from holdfast.agents.heartbeat.state import HeartbeatParts, State, is_busy, session_key
from holdfast.agents.loop.asks import ASK, Terms
from holdfast.config import AgentSettings, Config, Heartbeat
from holdfast.context import Occasion
from holdfast.errors import InvalidInput, NotFound
from holdfast.ids import AgentId, uuid7
from holdfast.keys import MainKey
from holdfast.log import SYSTEM, Turn, Tx, agenda, sessions, turns
from holdfast.traces import here

KIND: Final = "heartbeat"
_MOST: Final = 500


def is_beating(settings: Heartbeat) -> bool:
    return settings.enabled and settings.every > 0


def enqueue(tx: Tx, agent_id: str, settings: Heartbeat, due_at: int, *, forced: bool = False) -> agenda.Item:
    key = f"{KIND}:{agent_id}"
    payload = {"agentId": agent_id, "rhythm": _rhythm(settings)} | ({"forced": True} if forced else {})
    return agenda.enqueue(tx, KIND, payload, lane=key, key=key, due_at=due_at, max_attempts=5)


def waiting(tx: Tx) -> dict[str, agenda.Item]:
    """What waits or runs, by agent."""
    found = agenda.listing(tx, kinds=[KIND], limit=_MOST)
    return {str(item.payload["agentId"]): item for item in found}


def at_once(tx: Tx, agent_id: str, settings: Heartbeat) -> agenda.Item:
    """A heartbeat now, in the place of the one that waits; one that is under way is left to it."""
    item = waiting(tx).get(agent_id)
    if item is not None and item.status is agenda.Status.RUNNING:
        return item
    if item is not None:
        agenda.cancel(tx, item.id, reason="asked for at once")
    return enqueue(tx, agent_id, settings, tx.now, forced=True)


def reconcile(tx: Tx, config: Config) -> int:
    """Let the agenda hold what the config says; how many heartbeats wait then."""
    there = waiting(tx)
    wanted = {agent.id: config.agent(agent.id).heartbeat for agent in config.agent_list}
    wanted = {agent_id: settings for agent_id, settings in wanted.items() if is_beating(settings)}
    for agent_id, item in there.items():
        settings = wanted.get(agent_id)
        kept = settings is not None and item.payload.get("rhythm") == _rhythm(settings)
        if not kept and not item.payload.get("forced") and item.status is agenda.Status.QUEUED:
            agenda.cancel(tx, item.id, reason="the config changed")
            there = {other: it for other, it in there.items() if other != agent_id}
    known = state.get_many(tx, list(wanted))
    for agent_id, settings in wanted.items():
        if agent_id not in there:
            last = known[agent_id].last_at if agent_id in known else None
            enqueue(tx, agent_id, settings, max(tx.now, (last or tx.now) + settings.every))
    return len(wanted)


def _rhythm(settings: Heartbeat) -> str:
    """What makes a waiting heartbeat wrong when it changes."""
    hours = settings.active_hours
    return f"{int(settings.every)}" if hours is None else f"{int(settings.every)} {hours.model_dump_json()}"


log = logging.getLogger(__name__)
tracer = trace.get_tracer("holdfast")

TRIGGER: Final = "heartbeat"
CHECKLIST: Final = "HEARTBEAT.md"


class Beater:
    """Handles the agenda's `heartbeat` items; each agent has one."""

    def __init__(self, parts: HeartbeatParts) -> None:
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
        if not forced and not is_beating(agent.heartbeat):
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
        if is_beating(agent.heartbeat):
            enqueue(tx, known.agent_id, agent.heartbeat, verdict.next_at)
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
        prompt=rules.beat_prompt(settings.prompt, run.due, all_due=len(run.due) == len(facts.items or ())),
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


BOOT_TRIGGER: Final = "boot"
FILE: Final = "BOOT.md"
HOOK: Final = "boot-md"


def boot(tx: Tx, parts: HeartbeatParts) -> list[str]:
    """Turns for the agents whose BOOT.md says something; their ids."""
    config = parts.config()
    if not _wanted(config):
        return []
    made = [_boot(tx, parts, agent.id) for agent in config.agent_list if parts.items(agent.id, FILE)]
    return [turn_id for turn_id in made if turn_id is not None]


def _boot(tx: Tx, parts: HeartbeatParts, agent_id: str) -> str | None:
    known = state.locked(tx, agent_id)
    if _still_booting(tx, known) or _too_often(known, tx.now):
        return None
    session = sessions.ensure(tx, str(MainKey(AgentId(agent_id))), agent_id=agent_id)
    settings = parts.settings(agent_id).heartbeat
    terms = Terms(
        agent_id=agent_id,
        channel=session.channel,
        occasion=Occasion.BOOT,
        prompt=rules.BOOT_PROMPT,
        timeout_seconds=settings.timeout_seconds,
    )
    turn = turns.accept(
        tx,
        session,
        None,
        key=f"{BOOT_TRIGGER}:{agent_id}:{uuid7()}",
        trigger=BOOT_TRIGGER,
        max_attempts=1,
        meta={ASK: terms.json()},
    ).turn
    state.save(tx, replace(known.with_run(turn.id, tx.now), boot_turn=turn.id, last_status="running"))
    return turn.id


def _wanted(config: Config) -> bool:
    entry = config.hooks.internal.entries.get(HOOK)
    return config.hooks.internal.enabled and (entry is None or entry.enabled)


def _still_booting(tx: Tx, known: State) -> bool:
    found = turns.get_many(tx, [known.boot_turn]) if known.boot_turn is not None else []
    return bool(found) and not turns.has_ended(tx, found[0])


def _too_often(known: State, now: int) -> bool:
    """A gateway that dies and starts again and again does not pay for it every time."""
    return len([at for at in known.ran_at if now - at < FLOOD_MS]) >= FLOOD_RUNS
