"""What is shown, decided in one place for every endpoint: from a caller's words to a `View`, and from a
`View` to SQL conditions.

A view narrows what is shown to some spaces. Who *may read* something is its audience, to which every
transaction's reader is held: no view, and nothing by which one is found, adds to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import sqlalchemy as sa

from holdfast.board import spaces
from holdfast.board.reads import Query, plain
from holdfast.board.tables import task_spaces, tasks, topic_spaces, topics
from holdfast.board.tags import DEFAULT_SPACE
from holdfast.errors import InvalidInput
from holdfast.keys import BoardTaskKey, board_key_of
from holdfast.log import Reader, Tx, sessions

MAX_ALLOWED: Final = 500
RECENT_ENTRIES: Final = 24
_FIRST_LOOK: Final = 6


@dataclass(frozen=True, slots=True)
class View:
    """What one request may see: everything (None), or what lies in at least one of the spaces."""

    spaces: frozenset[str] | None = None
    source: str | None = None

    def sees(self, space_ids: Iterable[str]) -> bool:
        return self.spaces is None or not self.spaces.isdisjoint(space_ids)

    def topics(self) -> list[sa.ColumnElement[bool]]:
        """Conditions on the table of topics."""
        return self._exists(topic_spaces.c.topic_id, topics.c.id, topic_spaces.c.space_id)

    def tasks(self) -> list[sa.ColumnElement[bool]]:
        """Conditions on the table of tasks."""
        return self._exists(task_spaces.c.task_id, tasks.c.id, task_spaces.c.space_id)

    def _exists(
        self, key: sa.Column[str], id_: sa.Column[str], space: sa.Column[str]
    ) -> list[sa.ColumnElement[bool]]:
        if self.spaces is None:
            return []
        return [sa.exists().where(key == id_, space.in_(sorted(self.spaces)))]


EVERYTHING: Final = View()


class Lying(Protocol):
    """An entry as far as it tells where it lies, and whose it is."""

    @property
    def id(self) -> str: ...
    @property
    def space_id(self) -> str | None: ...
    @property
    def topic_id(self) -> str | None: ...
    @property
    def task_id(self) -> str | None: ...
    @property
    def audience(self) -> str: ...
    @property
    def agent_id(self) -> str | None: ...
    @property
    def session_key(self) -> str | None: ...
    @property
    def status(self) -> str: ...


E = TypeVar("E", bound=Lying)


def resolve(
    tx: Tx,
    *,
    space_id: str | None = None,
    session_key: str | None = None,
    allowed_ids: frozenset[str] | None = None,
    principal_spaces: frozenset[str] | None = None,
) -> View:
    """The view of a request. A space that is not there, or not the caller's to see, is an unknown one."""
    if space_id is not None and principal_spaces is not None and space_id not in principal_spaces:
        raise spaces.unknown(space_id)
    source = source_space(tx, space_id, session_key)
    return View(allowed(tx, source, allowed_ids, principal_spaces), source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """Who reads, from where a request says it looks, and the limits of its caller; None is no limit.

    Hashable, so that answers can be kept by it.
    """

    reader: Reader
    space_id: str | None = None
    session_key: str | None = None
    allowed_ids: frozenset[str] | None = None
    principal_spaces: frozenset[str] | None = None

    def view(self, tx: Tx) -> View:
        return resolve(
            tx,
            space_id=self.space_id,
            session_key=self.session_key,
            allowed_ids=self.allowed_ids,
            principal_spaces=self.principal_spaces,
        )


def source_space(tx: Tx, space_id: str | None, session_key: str | None) -> str | None:
    """The space that a request looks from; None when nothing tells. It narrows, and gives nobody anything.

    In this order: the one given, the one that a person gave the session or its recent entries, the topic of a
    board key, routing memory. Where sorting put an entry says nothing.
    """
    if space_id is not None:
        return space_id if _is_in_use(tx, space_id) else spaces.require(tx, space_id)
    if not session_key:
        return None
    return told_space(tx, session_key) or _from_routing(tx, session_key)


def told_space(tx: Tx, session_key: str) -> str | None:
    """The space that a person gave a session or its recent entries, else that of its board key's topic."""
    return _from_entries(tx, session_key) or _from_board_key(tx, session_key)


def allowed(
    tx: Tx,
    source: str | None,
    requested: frozenset[str] | None,
    principal_spaces: frozenset[str] | None,
) -> frozenset[str] | None:
    """The spaces within sight; None is no limit."""
    baseline = None if source is None else spaces.baseline(tx, source)
    return narrowed(baseline, requested, principal_spaces)


def narrowed(*limits: frozenset[str] | None) -> frozenset[str] | None:
    """What all limits leave; None is no limit."""
    given = [limit for limit in limits if limit is not None]
    return frozenset.intersection(*given) if given else None


def parse_allowed(text: str | None) -> frozenset[str] | None:
    """Ids by comma. An empty list is a list: nothing is within sight."""
    if text is None:
        return None
    ids = frozenset(part.strip() for part in text.split(",") if part.strip())
    if len(ids) > MAX_ALLOWED:
        raise InvalidInput(f"at most {MAX_ALLOWED} spaces can be listed", code="too_many_spaces")
    return ids


def spaces_of_topics(tx: Tx, ids: Iterable[str | None]) -> dict[str, frozenset[str]]:
    return _memberships(tx, _OF_TOPICS, ids)


def spaces_of_tasks(tx: Tx, ids: Iterable[str | None]) -> dict[str, frozenset[str]]:
    return _memberships(tx, _OF_TASKS, ids)


def spaces_of_entries(tx: Tx, rows: Sequence[Lying]) -> dict[str, frozenset[str]]:
    """The spaces of each entry: its own, and those of its topic and its task; two queries for all."""
    by_topic = spaces_of_topics(tx, (row.topic_id for row in rows))
    by_task = spaces_of_tasks(tx, (row.task_id for row in rows))
    none: frozenset[str] = frozenset()
    return {
        row.id: frozenset(() if row.space_id is None else (row.space_id,))
        | by_topic.get(row.topic_id or "", none)
        | by_task.get(row.task_id or "", none)
        for row in rows
    }


def seen_entries(tx: Tx, view: View, rows: Sequence[E], *, waiting: bool = False) -> list[E]:
    """Those of the entries that may be read and that the view shows; most do by their own space alone.

    One that is `waiting` to be sorted and lies nowhere counts for the space that its session has by now.
    """
    reader = tx.reader
    if not reader.reads_all:
        rows = [row for row in rows if reader.may_read_of(row.audience, row.agent_id)]
    if view.spaces is None:
        return list(rows)
    elsewhere = [row for row in rows if row.space_id not in view.spaces]
    if not elsewhere:
        return list(rows)
    members = spaces_of_entries(tx, elsewhere)
    if waiting:
        members |= _of_sessions(tx, [row for row in elsewhere if _lies_nowhere(row)])
    return [row for row in rows if row.id not in members or view.sees(members[row.id])]


def _lies_nowhere(row: Lying) -> bool:
    return row.status == "pending" and (row.space_id, row.topic_id, row.task_id) == (None, None, None)


def _of_sessions(tx: Tx, rows: Sequence[E]) -> dict[str, frozenset[str]]:
    spaces_by_key = {key: source_space(tx, None, key) for key in {row.session_key for row in rows}}
    return {row.id: frozenset((spaces_by_key[row.session_key] or DEFAULT_SPACE,)) for row in rows}


def _memberships(tx: Tx, query: Query, ids: Iterable[str | None]) -> dict[str, frozenset[str]]:
    wanted = sorted({one for one in ids if one is not None})
    found: dict[str, set[str]] = {}
    for start in range(0, len(wanted), MAX_ALLOWED):
        for one, member in query.rows(tx, ids=wanted[start : start + MAX_ALLOWED]):
            found.setdefault(one, set()).add(member)
    return {one: frozenset(members) for one, members in found.items()}


def _is_in_use(tx: Tx, space_id: str) -> bool:
    """Whether anything was logged in this space, which an older or foreign log may name without a row."""
    return _IN_USE.first(tx, space=space_id) is not None


def _from_entries(tx: Tx, session_key: str) -> str | None:
    """The session's own space, else that of the newest entry that was given one, by the board's scope on it
    or by its writer."""
    for most in (_FIRST_LOOK, RECENT_ENTRIES):
        rows = _RECENT.rows(tx, key=session_key, most=most)
        if not rows:
            rows = [(sessions.given_space(tx, session_key),)]
        named = [one for row in rows for one in row if isinstance(one, str) and one]
        there = spaces.known(tx, named)
        found = next((one for one in named if one in there), None)
        if found is not None or len(rows) < most:
            return found
    return None


def _from_board_key(tx: Tx, session_key: str) -> str | None:
    key = board_key_of(session_key)
    if key is None:
        return None
    if isinstance(key, BoardTaskKey):
        found = _SPACE_OF_TASK.first(tx, id=key.task_id, topic=key.topic_id)
        if found is not None:
            return str(found[0])
    return _space_of_topic(tx, key.topic_id)


def _from_routing(tx: Tx, session_key: str) -> str | None:
    row = _ROUTED.first(tx, key=session_key)
    items: Sequence[Mapping[str, Any]] = () if row is None else plain(row[0]) or ()
    for item in reversed(items):
        found = _space_of_topic(tx, str(item.get("topicId") or ""))
        if found is not None:
            return found
    return None


def _space_of_topic(tx: Tx, topic_id: str) -> str | None:
    row = _SPACE_OF_TOPIC.first(tx, id=topic_id)
    return None if row is None else str(row[0])


_OF_TOPICS: Final = Query("SELECT topic_id, space_id FROM topic_spaces WHERE topic_id IN :ids")
_OF_TASKS: Final = Query("SELECT task_id, space_id FROM task_spaces WHERE task_id IN :ids")
_IN_USE: Final = Query("SELECT 1 FROM entries WHERE space_id = :space LIMIT 1")
_RECENT: Final = Query(
    """SELECT (SELECT space_id FROM sessions WHERE key = :key ORDER BY created_at DESC LIMIT 1),
    source ->> 'boardScopeSpaceId', given_space FROM entries
    WHERE session_key = :key AND deleted_at IS NULL
    ORDER BY created_at DESC, position DESC LIMIT :most"""
)
_SPACE_OF_TASK: Final = Query("SELECT space_id FROM tasks WHERE id = :id AND topic_id = :topic")
_SPACE_OF_TOPIC: Final = Query("SELECT space_id FROM topics WHERE id = :id")
_ROUTED: Final = Query("SELECT items FROM session_routing WHERE session_key = :key")
