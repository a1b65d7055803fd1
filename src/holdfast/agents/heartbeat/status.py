"""How heartbeats stand, in the form that pages, the command line and programs are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from holdfast.agents.heartbeat import beating, checklist, due, hook, state
from holdfast.agents.heartbeat.hours import Hours
from holdfast.agents.heartbeat.parts import Parts, session_key
from holdfast.agents.heartbeat.state import State
from holdfast.agents.heartbeat.zones import day_of, zone_of
from holdfast.clock import iso
from holdfast.errors import InvalidInput
from holdfast.log import Tx, agenda
from holdfast.log.tables import outbox


def statuses(tx: Tx, parts: Parts, agent_ids: Sequence[str]) -> list[dict[str, Any]]:
    """One for each agent, with what the config says and what is due next."""
    known, there = state.get_many(tx, list(agent_ids)), due.waiting(tx)
    return [_full(tx, parts, known.get(id_) or State(agent_id=id_), there.get(id_)) for id_ in agent_ids]


def look(tx: Tx, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What a change of kind `heartbeat` is about."""
    there = due.waiting(tx)
    return {id_: _told(tx, known, there.get(id_)) for id_, known in state.get_many(tx, list(ids)).items()}


def _told(tx: Tx, known: State, item: agenda.Item | None) -> dict[str, Any]:
    return {
        "agentId": known.agent_id,
        "lastAt": None if known.last_at is None else iso(known.last_at),
        "lastStatus": known.last_status,
        "lastReason": known.last_reason,
        "turnId": known.turn_id,
        "delivery": None if known.turn_id is None else _delivery(tx, known.turn_id),
        "nextAt": None if item is None else iso(item.due_at),
    }


def _full(tx: Tx, parts: Parts, known: State, item: agenda.Item | None) -> dict[str, Any]:
    agent = parts.config().agent(known.agent_id)
    settings, zone = agent.heartbeat, zone_of("user", agent)
    hours = settings.active_hours
    tokens, cost = known.spent(day_of(tx.now, zone))
    items = parts.items(known.agent_id, beating.CHECKLIST) or ()
    now_due = {one.id for one in checklist.due(items, known.items, tx.now, zone)}
    active = hours is None or Hours.of(hours, zone_of(hours.timezone, agent)).hold(tx.now)
    return _told(tx, known, item) | {
        "enabled": due.beats(settings),
        "every": str(settings.every),
        "target": settings.target,
        "sessionKey": _key(settings.session, known.agent_id),
        "active": active,
        "tokensToday": tokens,
        "costToday": round(cost, 6),
        "items": [_item(one, known, one.id in now_due) for one in items],
    }


def _key(named: str, agent_id: str) -> str | None:
    try:
        return session_key(named, agent_id)
    except InvalidInput:
        return None


def _item(item: checklist.Item, known: State, is_due: bool) -> dict[str, Any]:
    seen = known.items.get(item.id)
    ran = None if seen is None or seen.ran is None else iso(seen.ran)
    return {"text": item.text, "scheduled": item.schedule is not None, "due": is_due, "lastAt": ran}


def _delivery(tx: Tx, turn_id: str) -> str | None:
    query = sa.select(outbox.c.status).where(outbox.c.key == hook.parcel_key(turn_id))
    return tx.conn.execute(query).scalar()
