"""Which child session descends from which request: recorded when a session spawns another, never guessed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from holdfast.board import routing
from holdfast.board.pending import enqueue
from holdfast.board.rules import UNLINKED_SUBAGENT, Scope
from holdfast.board.tables import tasks, topics
from holdfast.config.board import Classifier
from holdfast.errors import InvalidInput
from holdfast.keys import BoardTaskKey, board_key_of, canonical_key, parse_key
from holdfast.log import SYSTEM, Classification, EntryFilter, Tx, entries

MAX_REOPENED: Final = 200


@dataclass(frozen=True, slots=True)
class Link:
    """What a child session was spawned for; without a scope it waits for its request to be sorted."""

    parent_key: str
    scope: Scope | None


def link(tx: Tx, child_key: str, scope: Scope, *, parent_key: str) -> None:
    """Record that `child_key` was spawned for this scope; what it logged too early is sorted after all."""
    if scope.topic_id is None:
        raise InvalidInput("a link needs a topic", hint="Link only children of sessions that have a topic.")
    place = {"topicId": scope.topic_id, "taskId": scope.task_id, "spaceId": scope.space_id}
    _record(tx, canonical_key(child_key), place, parent_key)


def link_spawn(tx: Tx, parent_key: str, child_key: str, *, request_id: str | None = None) -> Scope | None:
    """Link a child to what its parent is bound to: the parent's board chat, or the parent's own link.

    Otherwise it is bound to the request (an entry's id) that it was spawned for, whatever topic that has or
    is still to get. A child that is bound to nothing gets no scope at all.
    """
    scope = board_scope(tx, parent_key)
    if scope is None:
        inherited = find(tx, parent_key)
        scope = None if inherited is None else inherited.scope
    if scope is not None:
        link(tx, child_key, scope, parent_key=parent_key)
    elif request_id is not None:
        _record(tx, canonical_key(child_key), {"requestId": request_id}, parent_key)
    return scope


def find(tx: Tx, session_key: str) -> Link | None:
    """The link of exactly this session."""
    item = routing.read_link(tx, session_key)
    return None if item is None else Link(str(item[routing.LINK]), _scope(tx, item))


def _scope(tx: Tx, item: Mapping[str, Any]) -> Scope | None:
    if isinstance(item.get("topicId"), str):
        return Scope(item["topicId"], item.get("taskId"), item.get("spaceId"), "link", locked=True)
    # Where a request was filed says where its child's words go, and nothing of what it says.
    with tx.reading_as(SYSTEM):
        request = next(iter(entries.get_many(tx, [str(item.get("requestId") or "")])), None)
    if request is None or request.topic_id is None:
        return None
    return Scope(request.topic_id, request.task_id, request.space_id, "link", locked=True)


def _record(tx: Tx, child: str, place: Mapping[str, Any], parent_key: str) -> None:
    if not parse_key(child).is_subagent:
        raise InvalidInput(
            f"not a child session: {child[:80]!r}",
            hint="Only sessions agent:<id>:subagent:<uuid> are linked.",
        )
    held = {"ts": int(tx.now), **place, routing.LINK: parent_key}
    routing.write_link(tx, child, held)
    with tx.reading_as(SYSTEM):
        _reopen(tx, child)


def board_scope(tx: Tx, session_key: str) -> Scope | None:
    """What a board chat is locked to; None for other sessions and for what is not there."""
    try:
        key = board_key_of(session_key)
    except InvalidInput:
        return None
    if key is None:
        return None
    space = tx.conn.execute(sa.select(topics.c.space_id).where(topics.c.id == key.topic_id)).scalar()
    task = key.task_id if isinstance(key, BoardTaskKey) else None
    if task is not None:
        topic = tx.conn.execute(sa.select(tasks.c.topic_id).where(tasks.c.id == task)).scalar()
        space = space if topic == key.topic_id else None
    return None if space is None else Scope(key.topic_id, task, str(space), "board_key", locked=True)


def _reopen(tx: Tx, child: str) -> None:
    reopened = False
    where = EntryFilter(session_key=child, status=Classification.FAILED)
    for entry in entries.listing(tx, where, limit=MAX_REOPENED).entries:
        if entry.code == UNLINKED_SUBAGENT:
            entries.annotate(tx, entry.id, {"status": Classification.PENDING, "code": None})
            reopened = True
    if reopened:
        enqueue(tx, child, Classifier())
