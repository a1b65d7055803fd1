"""The last lines of a conversation, read at a cost that depends neither on the log nor on long texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal, get_args

from holdfast.board.reads import ReadableRows
from holdfast.board.semantic import semantic_text
from holdfast.board.shown import SHORT, Shown
from holdfast.board.visibility import View, seen_entries
from holdfast.log import Classification, EntryType, Tx

MAX_LIMIT: Final = 40
_SPARE: Final = 24

Thread = Literal["session_key", "topic_id", "task_id"]


@dataclass(frozen=True, slots=True)
class Said:
    """One line of a conversation: the entry (its text by its head) and what it says."""

    entry: Shown
    text: str


def timeline(
    tx: Tx,
    view: View,
    thread: tuple[Thread, str],
    *,
    limit: int,
    include_pending: bool = True,
) -> list[Said]:
    """The last lines of a session, topic or task that may be read and the view shows, oldest first.

    Where the newest entries are tool traces, it looks at so many that they rarely matter, and at no more.
    """
    limit = max(0, min(limit, MAX_LIMIT))
    if limit == 0 or view.spaces == frozenset():
        return []
    for most in (limit, 2 * limit, 4 * limit + _SPARE):
        rows = list(map(Shown._make, _NEWEST[thread[0]].rows(tx, value=thread[1], most=most)))
        spoken = [row for row in rows if _wanted(row, include_pending)]
        found = list(islice(_said(tx, view, spoken, limit), limit))
        if len(found) == limit or len(rows) < most:
            break
    return found[::-1]


def _said(tx: Tx, view: View, rows: Sequence[Shown], limit: int) -> Iterator[Said]:
    """The lines that say something and may be seen; no more are looked at than are asked for."""
    for start in range(0, len(rows), limit):
        for entry in seen_entries(tx, view, rows[start : start + limit], waiting=True):
            text = semantic_text(entry)
            if text:
                yield Said(entry, text)


def _wanted(row: Shown, include_pending: bool) -> bool:
    sorted_ = include_pending or row.status == Classification.CLASSIFIED
    return row.type == EntryType.CONVERSATION and sorted_


_NEWEST: Final[dict[Thread, ReadableRows]] = {
    name: ReadableRows(
        f"SELECT {SHORT} FROM entries WHERE {name} = :value AND deleted_at IS NULL {{reach}}"
        " ORDER BY created_at DESC, position DESC LIMIT :most"
    )
    for name in get_args(Thread)
}
