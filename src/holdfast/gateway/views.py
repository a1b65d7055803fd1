"""What a change is about, looked up as it is now; and whether a caller may see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.gateway.tokens import Principal
from holdfast.gateway.wire import entry_json, session_json, turn_json
from holdfast.log import Change, Tx, entries, outbox, sessions, turns

Look = Callable[[Tx, Sequence[str]], Mapping[str, Mapping[str, Any]]]


class Views:
    """One look-up for each kind of entity; a room that adds a kind adds its own."""

    def __init__(self) -> None:
        self._looks: dict[str, Look] = {
            "log": _entries,
            "session": _sessions,
            "turn": _turns,
            "delivery": _deliveries,
        }

    def register(self, kind: str, look: Look) -> None:
        self._looks[kind] = look

    def of(self, tx: Tx, changes: Sequence[Change]) -> dict[int, Mapping[str, Any] | None]:
        """The data of each change, by its number; a bounded number of queries for the whole batch."""
        wanted: dict[str, list[str]] = {}
        for change in changes:
            if change.payload is None:
                wanted.setdefault(change.type.partition(".")[0], []).append(change.entity_id)
        found = {kind: self._looks[kind](tx, ids) for kind, ids in wanted.items() if kind in self._looks}
        return {
            c.seq: c.payload
            if c.payload is not None
            else found.get(c.type.partition(".")[0], {}).get(c.entity_id)
            for c in changes
        }


def may_see(principal: Principal, change: Change, data: Mapping[str, Any] | None) -> bool:
    """A caller limited to spaces or agents sees a change only when it is known to lie within them."""
    if principal.spaces is None and principal.agents is None:
        return True
    if data is None:
        return False
    kind = change.type.partition(".")[0]
    if principal.spaces is not None and data.get("spaceId") not in principal.spaces:
        return False
    return not (
        principal.agents is not None and kind != "log" and data.get("agentId") not in principal.agents
    )


def _entries(tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    return {e.id: entry_json(e) for e in entries.get_many(tx, ids) if e.deleted_at is None}


def _sessions(tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    return {s.id: session_json(s) for s in sessions.get_many(tx, ids)}


def _turns(tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    return {t.id: turn_json(t) for t in turns.get_many(tx, ids)}


def _deliveries(tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    return {
        d.id: {"id": d.id, "kind": d.kind, "target": d.target, "status": d.status, "attempts": d.attempts}
        for d in outbox.get_many(tx, ids)
    }
