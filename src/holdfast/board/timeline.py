"""The last lines of a conversation, read at a cost that depends neither on the log nor on long texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import sqlalchemy as sa

from holdfast.board.context_sight import Sight
from holdfast.board.semantic import semantic_text
from holdfast.board.visibility import View, seen_entries
from holdfast.log import Classification, Entry, EntryType, Tx
from holdfast.log.tables import entries as table

HEAD_CHARS: Final = 2_000
MAX_LIMIT: Final = 40
_SPARE: Final = 24

Thread = Literal["session_key", "topic_id", "task_id"]


@dataclass(frozen=True, slots=True)
class Said:
    """One line of a conversation: the entry (its text by its head) and what it says."""

    entry: Entry
    text: str


def timeline(
    tx: Tx,
    view: View,
    sight: Sight,
    thread: tuple[Thread, str],
    *,
    limit: int,
    include_pending: bool = True,
) -> list[Said]:
    """The last lines of a session, topic or task that the view shows, oldest first.

    Looks at so many entries that tool traces between the lines rarely matter, and at no more.
    """
    limit = max(0, min(limit, MAX_LIMIT))
    if limit == 0 or view.spaces == frozenset():
        return []
    name, value = thread
    rows = tx.conn.execute(_NEWEST[name], {"value": value, "most": 4 * limit + _SPARE}).mappings()
    spoken = [entry for row in rows if _wanted(entry := short_entry(row), sight, include_pending)]
    found: list[Said] = []
    for entry in seen_entries(tx, view, spoken):
        text = semantic_text(entry)
        if text:
            found.append(Said(entry, text))
        if len(found) == limit:
            break
    return found[::-1]


def short_entry(row: Mapping[Any, Any]) -> Entry:
    """An entry from the columns of `SHORT`: its text is clipped, and what nobody reads here is left out."""
    values = dict(row)
    values["type"] = _TYPES[values["type"]]
    values["status"] = _STATUSES[values["status"]]
    return Entry(**values, updated_at=values["created_at"])


def _wanted(entry: Entry, sight: Sight, include_pending: bool) -> bool:
    sorted_ = include_pending or entry.status is Classification.CLASSIFIED
    return entry.type is EntryType.CONVERSATION and sorted_ and sight.sees_agent(entry.agent_id)


def _newest(column: sa.Column[Any]) -> sa.Select[Any]:
    query = sa.select(*SHORT).where(column == sa.bindparam("value"), table.c.deleted_at.is_(None))
    return query.order_by(table.c.created_at.desc(), table.c.position.desc()).limit(sa.bindparam("most"))


SHORT: Final[Sequence[sa.ColumnElement[Any]]] = (
    table.c.position,
    table.c.id,
    table.c.type,
    sa.func.substr(table.c.content, 1, HEAD_CHARS).label("content"),
    table.c.status,
    table.c.created_at,
    table.c.role,
    table.c.session_key,
    table.c.agent_id,
    table.c.agent_label,
    table.c.summary,
    table.c.space_id,
    table.c.topic_id,
    table.c.task_id,
    table.c.code,
    table.c.source,
)
_TYPES = {kind.value: kind for kind in EntryType}
_STATUSES = {status.value: status for status in Classification}
_NEWEST: Final[dict[Thread, sa.Select[Any]]] = {
    "session_key": _newest(table.c.session_key),
    "topic_id": _newest(table.c.topic_id),
    "task_id": _newest(table.c.task_id),
}
