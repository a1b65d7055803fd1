"""What a change is about, looked up as it is now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.board import drafts, spaces, tasks, topics
from holdfast.gateway.board_wire import draft_json, space_json, task_json, topic_json
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
            "space": _spaces,
            "topic": _topics,
            "task": _tasks,
            "draft": _drafts,
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
        deleted = _authors(tx, [c.entity_id for c in changes if c.type == "log.deleted"])
        return {
            c.seq: {**deleted.get(c.entity_id, {}), **c.payload}
            if c.payload is not None
            else found.get(c.type.partition(".")[0], {}).get(c.entity_id)
            for c in changes
        }


def _entries(tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    return {e.id: entry_json(e) for e in entries.get_many(tx, ids) if e.deleted_at is None}


def _authors(tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """Whose the deleted entries were, so that a reader limited to agents learns of its own."""
    return {e.id: {"agentId": e.agent_id} for e in entries.get_many(tx, ids)} if ids else {}


def _sessions(tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    return {s.id: session_json(s) for s in sessions.get_many(tx, ids)}


def _turns(tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    found = turns.get_many(tx, ids)
    agents = {s.id: s.agent_id for s in sessions.get_many(tx, sorted({t.session_id for t in found}))}
    return {t.id: turn_json(t, agents.get(t.session_id)) for t in found}


def _deliveries(tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    return {
        d.id: {"id": d.id, "kind": d.kind, "target": d.target, "status": d.status, "attempts": d.attempts}
        for d in outbox.get_many(tx, ids)
    }


def _spaces(tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    return {space.id: space_json(space) for space in spaces.get_many(tx, ids)}


def _topics(tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    return {topic.id: topic_json(topic) for topic in topics.get_many(tx, ids)}


def _tasks(tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    return {task.id: task_json(task) for task in tasks.get_many(tx, ids)}


def _drafts(tx: Tx, keys: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    found = (drafts.get(tx, key) for key in dict.fromkeys(keys))
    return {draft.key: draft_json(draft) for draft in found if draft is not None}
