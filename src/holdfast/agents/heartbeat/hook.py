"""How heartbeats take part in turns: the word for nothing is taken out of a reply, a report is sent on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from holdfast.agents.heartbeat import beating, booting, replies, state, surfaces
from holdfast.agents.heartbeat.checklist import Seen
from holdfast.agents.heartbeat.parts import Parts
from holdfast.agents.heartbeat.state import State, Status
from holdfast.agents.heartbeat.zones import day_of, zone_of
from holdfast.agents.loop.asks import Deliver, Terms
from holdfast.agents.loop.hooks import Heard, TurnEnd, TurnHook
from holdfast.context import Occasion, ShownData
from holdfast.log import Session, Turn, Tx, heard_by, outbox

_OTHERS: Final = (Occasion.MESSAGE, Occasion.FLUSH)
_OURS: Final = (beating.TRIGGER, booting.TRIGGER)


class HeartbeatHook(TurnHook):
    name = "heartbeat"

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def begun(self, tx: Tx, turn: Turn, session: Session, terms: Terms) -> None:
        surfaces.note(tx, turn, session, terms)

    def heard(self, text: str, terms: Terms, shown: ShownData) -> Heard:
        if terms.occasion in _OTHERS:
            return Heard(text)
        most = self._parts.settings(terms.agent_id).heartbeat.ack_max_chars
        return Heard(replies.understood(text, most).text)

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
        report = replies.digest(end.said)
        if known.told(report, tx.now):
            return known, "repeated"
        target = self._parts.settings(known.agent_id).heartbeat.target
        to = surfaces.place(tx, target, end.session.key, known.agent_id, self._parts.heard_at)
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
    notes: Mapping[str, Any] = (turn.meta or {}).get(beating.TRIGGER) or {}
    done = frozenset(notes.get("items") or ())
    return {id_: replace(seen, ran=now) if id_ in done else seen for id_, seen in items.items()}
