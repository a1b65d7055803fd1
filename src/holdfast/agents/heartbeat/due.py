"""Heartbeats on the agenda: at most one item waits for each agent, whatever is asked for."""

from __future__ import annotations

from typing import Final

from holdfast.agents.heartbeat import state
from holdfast.config import Config, Heartbeat
from holdfast.log import Tx, agenda

KIND: Final = "heartbeat"
_MOST: Final = 500


def beats(settings: Heartbeat) -> bool:
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
    wanted = {agent_id: settings for agent_id, settings in wanted.items() if beats(settings)}
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
