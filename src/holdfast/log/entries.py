"""Entries: the record itself. Appended once, annotated later, never lost.

What happened (`content`, `raw`) is kept for good: a correction keeps the text that it replaces, a deletion
hides the entry at once and its text is erased only when the retention period is over. What an entry is
about (topic, task, status, summary) is an annotation and may change. Who may read it is its audience, set
when it is written; every read here is held to the reader of its transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import sqlalchemy as sa

from holdfast.errors import Conflict, NotFound
from holdfast.log import changes
from holdfast.log.audience import Audience, Reader, covers
from holdfast.log.entry_model import (
    STATUSES,
    Appended,
    Cursor,
    Entry,
    EntryDraft,
    EntryFilter,
    NarrowedListing,
    Page,
    Ref,
    branches_of,
    conditions_of,
    entry_of,
    made_entry,
    newest_first,
    plain_value,
    row_of,
    within_reach,
)
from holdfast.log.statements import Insert, Row, Statement, Texts, Update, among
from holdfast.log.store import Tx
from holdfast.log.tables import entries as table
from holdfast.log.tables import entry_revisions
from holdfast.text import clean_json, clean_text

MAX_PAGE: Final = 1000
LEFT_OUT: Final = "leftOut"
_END: Final = (1 << 63) - 1
_FEW: Final = 4


def append(tx: Tx, draft: EntryDraft) -> Appended:
    """Write one entry, or find the one that has the same idempotency key."""
    row = row_of(draft, tx.now)
    position = _INSERT.one(tx, row)
    if position is None:
        return _repeated(tx, _by_keys(tx, [row["idempotency_key"]])[0])
    changes.emit(tx, "log.appended", row["id"])
    return Appended(_written(row, position), created=True)


def load(tx: Tx, drafts: Sequence[EntryDraft]) -> None:
    """Write many entries in order, leaving out repeats: `append_many` for those who need no answer."""
    _insert(tx, [row_of(draft, tx.now) for draft in drafts])


def append_many(tx: Tx, drafts: Sequence[EntryDraft]) -> list[Appended]:
    """Write many entries in order; a repeat, here or in the store, yields the entry that was first."""
    if len(drafts) <= _FEW:
        return [append(tx, draft) for draft in drafts]
    rows = [row_of(draft, tx.now) for draft in drafts]
    before = _insert(tx, rows)
    positions: dict[str, int] = dict(_SINCE.rows(tx, before=before))
    repeats = [r["idempotency_key"] for r in rows if r["id"] not in positions]
    known = {e.idempotency_key: e for e in _by_keys(tx, repeats)} if repeats else {}
    return [
        Appended(_written(row, positions[row["id"]]), created=True)
        if row["id"] in positions
        else _repeated(tx, known[row["idempotency_key"]])
        for row in rows
    ]


def _repeated(tx: Tx, entry: Entry) -> Appended:
    """The entry that has the key already; a key must not open what its sender could not read."""
    if not _may_read(tx.reader, entry):
        raise Conflict("this idempotency key is in use", code="key_in_use", hint="Send another key.")
    return Appended(entry, created=False)


def _insert(tx: Tx, rows: Sequence[Mapping[str, Any]]) -> int:
    """Insert rows and their changes; returns the position before the first of them."""
    before = head(tx)
    if rows:
        _INSERT_MANY.many(tx, rows)
        changes.emit_for(tx, "log.appended", _APPENDED, {"before": before})
    return before


def get(tx: Tx, id_: str) -> Entry:
    """The entry; one that may not be read is as good as none."""
    row = _SELECT_ONE.first(tx, id=id_)
    entry = None if row is None else _read(row)
    if entry is None or not _may_read(tx.reader, entry):
        raise unknown(id_)
    return entry


def unknown(id_: str) -> NotFound:
    """What is said of an entry that is not there any more, or never was."""
    return NotFound(f"no entry {id_[:80]!r}", code="unknown_entry")


def get_many(tx: Tx, ids: Sequence[str]) -> list[Entry]:
    """The entries of these ids that exist and may be read, deleted ones too, in log order."""
    found: list[Entry] = []
    for start in range(0, len(ids), MAX_PAGE):
        chunk = list(ids[start : start + MAX_PAGE])
        found += map(_read, _SELECT_IDS.rows(tx, ids=chunk))
    return sorted(readable(tx.reader, found), key=lambda entry: entry.position)


def readable(reader: Reader, found: Iterable[Entry]) -> Iterable[Entry]:
    """Those that the reader may read."""
    return found if reader.reads_all else (entry for entry in found if _may_read(reader, entry))


def _may_read(reader: Reader, entry: Entry) -> bool:
    return reader.may_read_of(entry.audience, entry.agent_id)


def by_key(tx: Tx, idempotency_key: str) -> Entry:
    found = list(readable(tx.reader, _by_keys(tx, [idempotency_key])))
    if not found:
        raise NotFound("no entry has this idempotency key", code="unknown_entry")
    return found[0]


def listing(
    tx: Tx,
    where: EntryFilter,
    *,
    limit: int = 100,
    cursor: Cursor | None = None,
    offset: int = 0,
    raw: bool = False,
) -> Page:
    """Newest first, at most `MAX_PAGE` a page; `raw` payloads only when asked for."""
    limit = max(1, min(limit, MAX_PAGE))
    light = sa.select(*(_COLUMNS if raw else _LIGHT))
    if cursor is not None:
        before = sa.tuple_(table.c.created_at, table.c.position)
        light = light.where(before < sa.tuple_(cursor.created_at, cursor.position))
    query = newest_first(
        [light.where(*conditions_of(tx, branch)) for branch in branches_of(tx.reader, where)]
    )
    rows = tx.conn.execute(query.limit(limit + 1).offset(max(0, offset))).mappings().all()
    found = [entry_of(row) for row in rows[:limit]]
    more = len(rows) > limit
    return Page(found, Cursor(found[-1].created_at, found[-1].position) if more else None)


def refs(tx: Tx, where: EntryFilter, *, limit: int) -> list[Ref]:
    """As `listing`, but only which entries and in what state: for those who know most of them already."""
    most = max(1, min(limit, MAX_PAGE))
    prepared = _prepared_refs(tx.reader, where)
    if prepared is not None:
        statement, value = prepared
        return [Ref(*row) for row in statement.rows(tx, value=value, most=most)]
    light = sa.select(*_REF_COLUMNS)
    query = newest_first(
        [light.where(*conditions_of(tx, branch)) for branch in branches_of(tx.reader, where)]
    )
    return [Ref(*row) for row in tx.conn.execute(query.limit(most))]


def _prepared_refs(reader: Reader, where: EntryFilter) -> tuple[Statement, str] | None:
    """The two that sorting asks again and again, for who may read all: what lies in one topic or space."""
    if not reader.reads_all:
        return None
    if where.topic_id is not None and where == EntryFilter(topic_id=where.topic_id):
        return _TOPIC_REFS, where.topic_id
    if where.space_ids is not None and len(where.space_ids) == 1:
        (space,) = where.space_ids
        return (_SPACE_REFS, space) if where == EntryFilter(space_ids=where.space_ids) else None
    return None


def refs_before(tx: Tx, session_key: str, place: tuple[int, int], *, limit: int) -> list[Ref]:
    """What a session said before a place in its listing, newest first: which entries and in what state."""
    at, position = place
    rows = _REFS_BEFORE.rows(tx, session=session_key, at=at, position=position, most=limit)
    return [Ref(*row) for row in rows]


def refs_by_topic(tx: Tx, topic_ids: Sequence[str], *, limit: int) -> dict[str, list[Ref]]:
    """The newest of each topic, newest first, all at once."""
    if not tx.reader.reads_all:
        return {id_: refs(tx, EntryFilter(topic_id=id_), limit=limit) for id_ in topic_ids}
    found: dict[str, list[Ref]] = {id_: [] for id_ in topic_ids}
    if found:
        statement = _REFS_BY_TOPIC[tx.postgres]
        for row in statement.rows(tx, topics=list(found), most=limit):
            found[row[1]].append(Ref(*row))
    return found


def after(tx: Tx, position: int, *, limit: int = MAX_PAGE) -> list[Entry]:
    """Entries in log order from just behind `position`: how an index catches up."""
    return _narrowed(tx, _AFTER, position=position, most=min(limit, MAX_PAGE))


def transcript(
    tx: Tx, session_id: str, *, after: int = 0, before: int | None = None, limit: int = MAX_PAGE
) -> list[Entry]:
    """The entries of one session in log order, a page at a time."""
    until = _END if before is None else before
    return _narrowed(tx, _TRANSCRIPT, session=session_id, position=after, until=until, most=limit)


def waiting(tx: Tx, session_key: str | None, *, limit: int) -> list[Entry]:
    """The oldest pending entries of a session, or of those without one, in log order."""
    if session_key is None:
        return _narrowed(tx, _WAITING_ALONE, most=limit)
    return _narrowed(tx, _WAITING, session=session_key, most=limit)


def around(tx: Tx, entry: Entry, *, before: int, after: int) -> list[Entry]:
    """An entry with what came just before and after it in the same session, in log order."""
    alike = (
        table.c.session_key == entry.session_key,
        table.c.deleted_at.is_(None),
        *within_reach(tx.reader),
    )
    place = sa.tuple_(table.c.created_at, table.c.position)
    here = sa.tuple_(entry.created_at, entry.position)
    order = (table.c.created_at, table.c.position)
    earlier = sa.select(*_COLUMNS).where(*alike, place < here).order_by(*(c.desc() for c in order))
    later = sa.select(*_COLUMNS).where(*alike, place > here).order_by(*order)
    first = [entry_of(row) for row in tx.conn.execute(earlier.limit(before)).mappings()]
    last = [entry_of(row) for row in tx.conn.execute(later.limit(after)).mappings()]
    return [*reversed(first), entry, *last]


def head(tx: Tx) -> int:
    """The position of the newest entry; 0 for an empty log."""
    row = _HEAD.first(tx)
    return 0 if row is None else int(row[0] or 0)


_ANNOTATIONS = frozenset(
    ("summary", "space_id", "topic_id", "task_id", "related_id", "status", "code", "agent_label", "source")
)


def annotate(tx: Tx, id_: str, fields: Mapping[str, Any], *, read: Entry | None = None) -> Entry:
    """Change what an entry is about. Unknown fields are a programming error, not a caller's.

    `read` is the entry as this very transaction has read it, which saves reading it again.
    """
    unknown = fields.keys() - _ANNOTATIONS
    if unknown:
        raise ValueError(f"not annotations: {sorted(unknown)}")
    entry = _visible(tx, id_) if read is None else read
    values = {k: plain_value(clean_json(v)) for k, v in fields.items() if getattr(entry, k) != v}
    if not values:
        return entry
    values["updated_at"] = tx.now
    _UPDATE.run(tx, values, entry=id_)
    changes.emit(tx, "log.patched", id_)
    values["status"] = STATUSES[values.get("status", entry.status.value)]
    return replace(entry, **values)


def annotate_read(tx: Tx, changed: Sequence[tuple[Entry, Mapping[str, Any]]]) -> None:
    """`annotate` for many entries that this very transaction has read, all in one statement."""
    rows = []
    for entry, fields in changed:
        if fields.keys() - _ANNOTATIONS:
            raise ValueError(f"not annotations: {sorted(fields.keys() - _ANNOTATIONS)}")
        if any(getattr(entry, name) != value for name, value in fields.items()):
            values = {name: plain_value(clean_json(value)) for name, value in fields.items()}
            rows.append((values | {"updated_at": tx.now}, {"entry": entry.id}))
            changes.emit(tx, "log.patched", entry.id)
    _UPDATE.many(tx, rows)


def correct(tx: Tx, id_: str, content: str) -> Entry:
    """Replace the text of an entry; the text before it stays readable as a revision."""
    entry = _visible(tx, id_)
    content = clean_text(content)
    if entry.content == content:
        return entry
    tx.conn.execute(
        sa.insert(entry_revisions),
        {
            "entry_id": id_,
            "revision": entry.revision,
            "content": entry.content,
            "raw": entry.raw,
            "replaced_at": tx.now,
        },
    )
    tx.conn.execute(
        sa.update(table)
        .where(table.c.id == id_)
        .values(content=content, revision=entry.revision + 1, updated_at=tx.now)
    )
    changes.emit(tx, "log.patched", id_)
    return get(tx, id_)


def leave_out(tx: Tx, id_: str) -> Entry:
    """Mark a message that no model is shown: nobody will answer it. People read it as before."""
    entry = _visible(tx, id_)
    source = {**(entry.source or {}), LEFT_OUT: True}
    _UPDATE.run(tx, {"source": source, "revision": entry.revision + 1, "updated_at": tx.now}, entry=id_)
    changes.emit(tx, "log.patched", id_)
    return get(tx, id_)


def revisions(tx: Tx, id_: str) -> list[tuple[int, str]]:
    """The texts that an entry had before, oldest first."""
    query = sa.select(entry_revisions.c.revision, entry_revisions.c.content)
    query = query.where(entry_revisions.c.entry_id == id_).order_by(entry_revisions.c.revision)
    return [(row.revision, row.content) for row in tx.conn.execute(query)]


def delete(tx: Tx, id_: str) -> Entry:
    """Hide an entry from every view; its text is erased when retention says so."""
    entry = _visible(tx, id_)
    statement = sa.update(table).where(table.c.id == id_)
    tx.conn.execute(statement.values(deleted_at=tx.now, updated_at=tx.now))
    told = {"sessionKey": entry.session_key, "spaceId": entry.space_id, "audience": entry.audience}
    changes.emit(tx, "log.deleted", id_, told)
    return entry


def widen(tx: Tx, id_: str, audience: Audience) -> Entry:
    """Let more people read an entry, because somebody who may has said so; it is never narrowed again.

    The only way by which an audience changes. Whoever calls this has asked who may, and writes the audit.
    """
    entry = _visible(tx, id_)
    if entry.audience == audience:
        return entry
    if not covers(audience, entry.audience):
        raise Conflict(
            f"not everyone who may read the entry now is among {audience!r}",
            code="audience_narrower",
            hint="An audience is only ever widened.",
        )
    _UPDATE.run(tx, {"audience": audience, "updated_at": tx.now}, entry=id_)
    changes.emit(tx, "log.patched", id_)
    return replace(entry, audience=audience)


def _visible(tx: Tx, id_: str) -> Entry:
    entry = get(tx, id_)
    if entry.deleted_at is not None:
        raise unknown(id_)
    return entry


def _narrowed(tx: Tx, listing: NarrowedListing, **given: Any) -> list[Entry]:
    return [_read(row, listing.names) for row in listing.rows(tx, **given)]


_COLUMNS = tuple(table.c)
_COLUMN_NAMES = tuple(table.c.keys())
_LIGHT = tuple(c for c in table.c if c.name != "raw")
_SELECT = sa.select(*_COLUMNS)
_SELECT_ONE = Statement(_SELECT.where(table.c.id == sa.bindparam("id")))
_SELECT_IDS = Statement(_SELECT.where(among(table.c.id, "ids")).order_by(table.c.position))
_SELECT_KEYS = Statement(_SELECT.where(among(table.c.idempotency_key, "keys")))
_BEHIND = _SELECT.where(table.c.position > sa.bindparam("position")).order_by(table.c.position)
_BEHIND = _BEHIND.limit(sa.bindparam("most"))
_AFTER = NarrowedListing(_BEHIND)
_TRANSCRIPT = NarrowedListing(
    _BEHIND.where(
        table.c.session_id == sa.bindparam("session"),
        table.c.position < sa.bindparam("until"),
        table.c.deleted_at.is_(None),
    )
)
_PENDING = (
    _SELECT.where(table.c.status == sa.literal_column("'pending'"), table.c.deleted_at.is_(None))
    .order_by(table.c.position)
    .limit(sa.bindparam("most"))
)
_WAITING = NarrowedListing(_PENDING.where(table.c.session_key == sa.bindparam("session")))
_WAITING_ALONE = NarrowedListing(_PENDING.where(table.c.session_key.is_(None)))
_REF_COLUMNS = [
    table.c[name] for name in ("id", "topic_id", "updated_at", "created_at", "position", "status", "code")
]


def _said_before(*columns: sa.Column[Any]) -> sa.Select[Any]:
    at, position = (sa.bindparam(name, type_=sa.BigInteger) for name in ("at", "position"))
    return (
        sa.select(*columns)
        .where(
            table.c.session_key == sa.bindparam("session"),
            table.c.deleted_at.is_(None),
            sa.tuple_(table.c.created_at, table.c.position) < sa.tuple_(at, position),
        )
        .order_by(table.c.created_at.desc(), table.c.position.desc())
        .limit(sa.bindparam("most"))
    )


_REFS_BEFORE = NarrowedListing(_said_before(*_REF_COLUMNS))
_NEWEST_OF_TOPIC = """FROM entries WHERE topic_id = wanted.value AND deleted_at IS NULL
    ORDER BY created_at DESC, position DESC LIMIT :most"""
_REF_NAMES = ", ".join(f"e.{column.name}" for column in _REF_COLUMNS)
_REFS_BY_TOPIC = {
    False: Statement(
        sa.text(
            f"""SELECT {_REF_NAMES} FROM json_each(:topics) AS wanted
            JOIN entries AS e ON e.position IN (SELECT position {_NEWEST_OF_TOPIC})
            ORDER BY e.created_at DESC, e.position DESC"""
        ).bindparams(sa.bindparam("topics", type_=Texts()))
    ),
    True: Statement(
        sa.text(
            f"""SELECT {_REF_NAMES} FROM unnest(CAST(:topics AS text[])) AS wanted(value)
            CROSS JOIN LATERAL (SELECT * {_NEWEST_OF_TOPIC}) AS e"""
        ).bindparams(sa.bindparam("topics", type_=Texts()))
    ),
}
_TOPIC_REFS, _SPACE_REFS = (
    Statement(
        sa.select(*_REF_COLUMNS)
        .where(table.c.deleted_at.is_(None), column == sa.bindparam("value"))
        .order_by(table.c.created_at.desc(), table.c.position.desc())
        .limit(sa.bindparam("most"))
    )
    for column in (table.c.topic_id, table.c.space_id)
)
_HEAD = Statement(sa.select(sa.func.max(table.c.position)))
_UPDATE = Update(table, table.c.id == sa.bindparam("entry"))


def _by_keys(tx: Tx, keys: Sequence[str | None]) -> list[Entry]:
    return [_read(row) for row in _SELECT_KEYS.rows(tx, keys=[key for key in keys if key is not None])]


_UNIQUE = (["idempotency_key"], "idempotency_key IS NOT NULL")
_INSERT = Insert(table, returning="position", ignore=_UNIQUE)
_INSERT_MANY = Insert(table, ignore=_UNIQUE)
_APPENDED = sa.select(table.c.id).where(table.c.position > sa.bindparam("before")).order_by(table.c.position)
_SINCE = Statement(sa.select(table.c.id, table.c.position).where(table.c.position > sa.bindparam("before")))


def _written(row: dict[str, Any], position: int) -> Entry:
    """The entry that a new row is, without reading it back."""
    row["position"] = position
    return entry_of(row)


def _read(row: Row, names: Sequence[str] = _COLUMN_NAMES) -> Entry:
    return made_entry(dict(zip(names, row, strict=True)))
