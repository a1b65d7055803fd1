"""Heartbeats: a periodic turn in which an agent looks after its checklist, and which costs nothing when
nothing on it is due.

heartbeats = Heartbeats(HeartbeatParts(store=store, threads=threads, config=config, workspace=workspace))
runs = Runs(LoopParts(..., hooks=(heartbeats.hook,)))
heartbeats.register(runner)
heartbeats.schedule()
heartbeats.boot()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

import sqlalchemy as sa
from pydantic import Field
from typing_extensions import TypedDict

from holdfast.agents.heartbeat import beats, checklist, rules, state
from holdfast.agents.heartbeat.beats import Beater
from holdfast.agents.heartbeat.checklist import Seen
from holdfast.agents.heartbeat.rules import Hours, day_of, zone_of
from holdfast.agents.heartbeat.state import HeartbeatParts, State, Status, last_surface, session_key
from holdfast.agents.loop.asks import Deliver, Terms
from holdfast.agents.loop.parts import ParsedReply, TurnEnd, TurnHook
from holdfast.agents.tools.types import Tool
from holdfast.clock import iso
from holdfast.context import Occasion, ShownData
from holdfast.errors import InvalidInput
from holdfast.log import SYSTEM, Session, Turn, Tx, agenda, heard_by, outbox
from holdfast.log.agenda import Item, Runner
from holdfast.log.tables import outbox as outbox_table
from holdfast.records import Iso, record

__all__ = ["HeartbeatParts", "Heartbeats", "Hours", "last_surface", "zone_of"]


_OTHERS: Final = (Occasion.MESSAGE, Occasion.FLUSH)
_OURS: Final = (beats.TRIGGER, beats.BOOT_TRIGGER)


class HeartbeatHook(TurnHook):
    name = "heartbeat"

    def __init__(self, parts: HeartbeatParts) -> None:
        self._parts = parts

    def begun(self, tx: Tx, turn: Turn, session: Session, terms: Terms) -> None:
        state.note_surface(tx, turn, session, terms)

    def heard(self, text: str, terms: Terms, shown: ShownData) -> ParsedReply:
        if terms.occasion in _OTHERS:
            return ParsedReply(text)
        most = self._parts.settings(terms.agent_id).heartbeat.ack_max_chars
        return ParsedReply(rules.understood(text, most).text)

    def committed(self, tx: Tx, end: TurnEnd) -> None:
        if end.turn.trigger not in _OURS:
            return
        known = self._spent(state.locked(tx, end.terms.agent_id), end.turn, tx.now)
        status: Status = "ok"
        if end.said.strip():
            known, status = self._told(tx, known, end)
        looked_after = _looked_after(known.items, end.turn, tx.now)
        state.save(tx, replace(known, items=looked_after, last_status=status, last_reason=None))

    def failed(self, tx: Tx, end: TurnEnd) -> None:
        if end.turn.trigger in _OURS:
            known = self._spent(state.locked(tx, end.terms.agent_id), end.turn, tx.now)
            state.save(tx, replace(known, last_status="failed", last_reason=end.turn.error))

    def _told(self, tx: Tx, known: State, end: TurnEnd) -> tuple[State, Status]:
        """Send a report to its target, unless the same went out within a day; the log has it in any case."""
        report = rules.digest(end.said)
        if known.told(report, tx.now):
            return known, "repeated"
        target = self._parts.settings(known.agent_id).heartbeat.target
        to = state.last_surface(tx, target, end.session.key, known.agent_id, self._parts.heard_at)
        if to is None or not _is_theirs(to, end.turn):
            return known, "logged"
        payload = {"text": end.said, "turnId": end.turn.id, "sessionKey": end.session.key}
        outbox.post(
            tx,
            outbox.Parcel(
                key=parcel_key(end.turn.id), kind=to.kind, target=to.target, payload={**to.payload, **payload}
            ),
        )
        return known.with_report(report, tx.now), "reported"

    def _spent(self, known: State, turn: Turn, now: int) -> State:
        day = day_of(now, zone_of("user", self._parts.settings(known.agent_id)))
        return known.with_spending(day, turn.usage or {})


def _is_theirs(to: Deliver, turn: Turn) -> bool:
    """Whether all who hear a target may read what the beat was given; where nobody knows, the config says."""
    return to.heard is None or heard_by(to.heard).may_read(turn.audience)


def parcel_key(turn_id: str) -> str:
    return f"heartbeat:{turn_id}"


def _looked_after(items: Mapping[str, Seen], turn: Turn, now: int) -> dict[str, Seen]:
    notes: Mapping[str, Any] = (turn.meta or {}).get(beats.TRIGGER) or {}
    done = frozenset(notes.get("items") or ())
    return {id_: replace(seen, ran=now) if id_ in done else seen for id_, seen in items.items()}


@record
class ItemOut(TypedDict):
    text: str
    scheduled: bool
    due: bool
    lastAt: Iso | None


@record
class HoursOut(TypedDict):
    start: str | None
    end: str | None
    timezone: str


@record
class BeatStateOut(TypedDict):
    """What of it changes by itself: what an event tells."""

    agentId: str
    lastAt: Iso | None
    lastStatus: str | None
    lastReason: str | None
    turnId: str | None
    delivery: str | None
    nextAt: Iso | None


@record
class HeartbeatOut(BeatStateOut):
    enabled: bool
    every: str
    target: str
    prompt: Annotated[
        str | None, Field(description="What the agent is told, if not HEARTBEAT.md; to admins alone.")
    ]
    activeHours: HoursOut | None
    sessionKey: str | None
    active: bool
    tokensToday: int
    costToday: float
    items: list[ItemOut]


def statuses(tx: Tx, parts: HeartbeatParts, agent_ids: Sequence[str]) -> list[HeartbeatOut]:
    """One for each agent, with what the config says and what is due next."""
    known, there = state.get_many(tx, list(agent_ids)), beats.waiting(tx)
    return [_full(tx, parts, known.get(id_) or State(agent_id=id_), there.get(id_)) for id_ in agent_ids]


def states_by_id(tx: Tx, ids: Sequence[str]) -> dict[str, BeatStateOut]:
    """What a change of kind `heartbeat` is about."""
    there = beats.waiting(tx)
    return {id_: _told(tx, known, there.get(id_)) for id_, known in state.get_many(tx, list(ids)).items()}


def _told(tx: Tx, known: State, item: agenda.Item | None) -> BeatStateOut:
    return {
        "agentId": known.agent_id,
        "lastAt": None if known.last_at is None else iso(known.last_at),
        "lastStatus": known.last_status,
        "lastReason": known.last_reason,
        "turnId": known.turn_id,
        "delivery": None if known.turn_id is None else _delivery(tx, known.turn_id),
        "nextAt": None if item is None else iso(item.due_at),
    }


def _full(tx: Tx, parts: HeartbeatParts, known: State, item: agenda.Item | None) -> HeartbeatOut:
    agent = parts.config().agent(known.agent_id)
    settings, zone = agent.heartbeat, zone_of("user", agent)
    hours = settings.active_hours
    tokens, cost = known.spent(day_of(tx.now, zone))
    items = parts.items(known.agent_id, beats.CHECKLIST) or ()
    now_due = {one.id for one in checklist.due(items, known.items, tx.now, zone)}
    active = hours is None or Hours.of(hours, zone_of(hours.timezone, agent)).hold(tx.now)
    return {
        **_told(tx, known, item),
        "enabled": beats.is_beating(settings),
        "every": str(settings.every),
        "target": settings.target,
        "prompt": settings.prompt,
        "activeHours": None
        if hours is None
        else {"start": hours.start, "end": hours.end, "timezone": hours.timezone},
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


def _item(item: checklist.Item, known: State, is_due: bool) -> ItemOut:
    seen = known.items.get(item.id)
    ran = None if seen is None or seen.ran is None else iso(seen.ran)
    return {"text": item.text, "scheduled": item.schedule is not None, "due": is_due, "lastAt": ran}


def _delivery(tx: Tx, turn_id: str) -> str | None:
    query = sa.select(outbox_table.c.status).where(outbox_table.c.key == parcel_key(turn_id))
    return tx.conn.execute(query).scalar()


class Heartbeats:
    """Built before the loop, which is given its hook; `register` hands its work to the agenda's runner."""

    def __init__(self, parts: HeartbeatParts) -> None:
        self._parts = parts
        self.hook = HeartbeatHook(parts)

    def tools(self) -> tuple[Tool[Any], ...]:
        """None: what an agent looks after is in its HEARTBEAT.md, which it may edit."""
        return ()

    def register(self, runner: Runner) -> None:
        runner.register(beats.KIND, Beater(self._parts).kind())

    def schedule(self) -> int:
        """At start-up and after each change of the config: how many heartbeats wait."""
        return self._parts.store.run(SYSTEM, lambda tx: beats.reconcile(tx, self._parts.config()))

    def boot(self) -> list[str]:
        """At start-up, once: the turns on BOOT.md."""
        return self._parts.store.run(SYSTEM, lambda tx: beats.boot(tx, self._parts))

    def now(self, agent_id: str) -> Item:
        """A heartbeat at once, whatever the hour and the budget; `NotFound` for an unknown agent."""
        settings = self._parts.config().agent(agent_id).heartbeat
        return self._parts.store.run(SYSTEM, lambda tx: beats.at_once(tx, agent_id, settings))

    def statuses(self, agent_ids: Sequence[str] | None = None) -> list[HeartbeatOut]:
        """How the heartbeats of these agents stand; of all, unless some are named."""
        ids = [agent.id for agent in self._parts.config().agent_list] if agent_ids is None else agent_ids
        with self._parts.store.read(SYSTEM) as tx:
            return statuses(tx, self._parts, ids)

    def look(self, tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        return states_by_id(tx, ids)
