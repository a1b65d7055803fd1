"""The log as its reader and a view show it, newest first, at a cost that does not grow with the log.

With no other filter, what a view shows is a set of streams, each in order in an index: one for every space,
topic and task within sight. They are merged, the most recent first, until the page is full. With another
filter, that filter's own listing is read and what is hidden is left out, up to a bound: then the page is
short, and its cursor says where to go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from holdfast.board.tables import task_spaces, topic_spaces
from holdfast.board.visibility import View, seen_entries
from holdfast.errors import NotFound
from holdfast.log import Classification, Cursor, Entry, EntryFilter, EntryType, Reader, Tx, entries
from holdfast.log.entries import MAX_PAGE
from holdfast.log.entry_model import Page
from holdfast.log.tables import entries as table

MAX_SCAN: Final = 5_000
GROUP: Final = 32
_NEVER: Final = -(1 << 62)
_MOST_TERMS: Final = 400


class _Key(NamedTuple):
    created_at: int
    position: int


@dataclass(frozen=True, slots=True)
class _Stream:
    """The entries of one space, topic or task, and a time after which it has none."""

    newest: int
    column: str
    value: str


def listing(
    tx: Tx,
    view: View,
    where: EntryFilter | None = None,
    *,
    limit: int = 100,
    cursor: Cursor | None = None,
    offset: int = 0,
    raw: bool = False,
) -> Page:
    """A page of what may be read and the view shows. While there may be more, the page has a cursor."""
    where = where or EntryFilter()
    limit = max(1, min(limit, MAX_PAGE))
    if view.spaces is None:
        return entries.listing(tx, where, limit=limit, cursor=cursor, offset=offset, raw=raw)
    if not view.spaces:
        return Page()
    if where == EntryFilter():
        return _merged(tx, view.spaces, limit, cursor, max(0, offset), raw=raw)
    return _sifted(tx, view, where, limit, cursor, max(0, offset), raw=raw)


def get(tx: Tx, id_: str, view: View) -> Entry:
    """The entry, unless it is not there, deleted, not the reader's or out of view: all look the same."""
    entry = entries.get(tx, id_)
    if entry.deleted_at is not None or not seen_entries(tx, view, [entry]):
        raise NotFound(f"no entry {id_[:80]!r}", code="unknown_entry")
    return entry


def _sifted(
    tx: Tx, view: View, where: EntryFilter, limit: int, cursor: Cursor | None, offset: int, *, raw: bool
) -> Page:
    found: list[Entry] = []
    scanned, size = 0, limit + 1
    while True:
        page = entries.listing(tx, where, limit=size, cursor=cursor, raw=raw)
        found += seen_entries(tx, view, page.entries)
        scanned += len(page.entries)
        cursor = page.next
        if len(found) > offset + limit or cursor is None or scanned >= MAX_SCAN:
            break
        size = min(MAX_PAGE, size * 2)
    rest = found[offset:]
    if len(rest) > limit:
        last = rest[limit - 1]
        return Page(rest[:limit], Cursor(last.created_at, last.position))
    return Page(rest, cursor)


def _merged(
    tx: Tx, spaces: frozenset[str], limit: int, cursor: Cursor | None, offset: int, *, raw: bool
) -> Page:
    wanted = offset + limit + 1
    keys = _newest_keys(tx, _streams(tx, spaces, cursor), wanted, cursor)
    chosen = keys[offset : offset + limit]
    more = len(keys) == wanted
    next_ = Cursor(chosen[-1].created_at, chosen[-1].position) if more else None
    return Page(list(_rows(tx, chosen, raw=raw)), next_)


def _newest_keys(tx: Tx, streams: Sequence[_Stream], wanted: int, cursor: Cursor | None) -> list[_Key]:
    """The newest keys of all streams together. So many streams begin after some time that a page should be
    full by then: nothing older is read, unless deleted or doubled entries prove that wrong.
    """
    if len(streams) > wanted:
        keys = _merge(tx, streams, wanted, cursor, floor=streams[wanted].newest)
        if len(keys) == wanted:
            return keys
    return _merge(tx, streams, wanted, cursor, floor=_NEVER)


def _merge(
    tx: Tx, streams: Sequence[_Stream], wanted: int, cursor: Cursor | None, *, floor: int
) -> list[_Key]:
    keys: list[_Key] = []
    for start in range(0, len(streams), GROUP):
        group = streams[start : start + GROUP]
        if group[0].newest < floor:
            break
        keys = sorted({*keys, *_group_keys(tx, group, wanted, cursor, floor)}, reverse=True)[:wanted]
        if len(keys) == wanted:
            floor = max(floor, keys[-1].created_at)
    return keys


def _streams(tx: Tx, spaces: frozenset[str], cursor: Cursor | None) -> list[_Stream]:
    """Every stream that has anything, the most recent first: one look into an index for each."""
    ids = sorted(spaces)
    chunks = [ids[start : start + _MOST_TERMS] for start in range(0, len(ids), _MOST_TERMS)]
    sources = [("space_id", _literals(chunk)) for chunk in chunks]
    sources.append(("topic_id", _members(topic_spaces.c.topic_id, topic_spaces.c.space_id, ids)))
    sources.append(("task_id", _members(task_spaces.c.task_id, task_spaces.c.space_id, ids)))
    found = []
    for name, source in sources:
        head = sa.select(table.c.created_at).where(table.c[name] == source.c.id)
        if cursor is not None:
            head = head.where(table.c.created_at <= cursor.created_at)
        head = head.order_by(table.c.created_at.desc(), table.c.position.desc()).limit(1)
        rows = tx.conn.execute(sa.select(source.c.id, head.scalar_subquery().label("newest")))
        found += [_Stream(row.newest, name, row.id) for row in rows if row.newest is not None]
    return sorted(found, key=lambda stream: stream.newest, reverse=True)


def _literals(ids: Sequence[str]) -> Any:
    return sa.union_all(*(sa.select(sa.literal(one).label("id")) for one in ids)).subquery("within")


def _members(id_: sa.Column[str], space: sa.Column[str], spaces: Sequence[str]) -> Any:
    return sa.select(id_.label("id")).distinct().where(space.in_(spaces)).subquery("within")


def _group_keys(
    tx: Tx, group: Sequence[_Stream], wanted: int, cursor: Cursor | None, floor: int
) -> Iterator[_Key]:
    """Written as text, since the statement has a part for each stream and is built for each page."""
    before = "" if cursor is None else "AND (created_at, position) < (:created_at, :position)"
    reach, given = _reach(tx.reader)
    part = (
        "SELECT * FROM (SELECT created_at, position FROM entries WHERE {column} = :v{number}"
        " AND deleted_at IS NULL AND created_at >= :floor {before} {reach}"
        " ORDER BY created_at DESC, position DESC LIMIT :wanted) AS s{number}"
    )
    sql = " UNION ALL ".join(
        part.format(column=stream.column, number=number, before=before, reach=reach)
        for number, stream in enumerate(group)
    )
    given |= {f"v{number}": stream.value for number, stream in enumerate(group)}
    given |= {"floor": floor, "wanted": wanted}
    if cursor is not None:
        given |= {"created_at": cursor.created_at, "position": cursor.position}
    return (_Key(row[0], row[1]) for row in tx.conn.execute(sa.text(sql), given))


def _reach(reader: Reader) -> tuple[str, dict[str, Any]]:
    """What a reader may read as text of a condition, with its values: nothing for one who may read all."""
    sql = ""
    given: dict[str, Any] = {}
    for column, prefix, allowed in (("audience", "p", reader.audiences), ("agent_id", "w", reader.agents)):
        if allowed is not None:
            values = {f"{prefix}{number}": one for number, one in enumerate(sorted(allowed))}
            names = ", ".join(f":{name}" for name in values) or "NULL"
            sql += f" AND {column} IN ({names})"
            given |= values
    return sql, given


def _rows(tx: Tx, keys: Sequence[_Key], *, raw: bool) -> Iterator[Entry]:
    columns = [c for c in table.c if raw or c.name != "raw"]
    query = sa.select(*columns).where(table.c.position.in_([key.position for key in keys]))
    found = {row["position"]: dict(row) for row in tx.conn.execute(query).mappings()}
    for key in keys:
        values = found[key.position]
        types = {"type": EntryType(values["type"]), "status": Classification(values["status"])}
        yield Entry(**(values | types))
