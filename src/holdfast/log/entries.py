"""Entries: the record itself. Appended once, annotated later, never lost.

What happened (`content`, `raw`) is kept for good: a correction keeps the text that it replaces, a deletion
hides the entry at once and its text is erased only when the retention period is over. What an entry is
about (topic, task, status, summary) is an annotation and may change. Who may read it is its audience, set
when it is written; every read here is held to the reader of its transaction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.ids import EntryId, SessionId, TurnId, entry_id
from holdfast.log import changes
from holdfast.log.audience import FOR_OWNER, Audience, Reader, covers, of_key
from holdfast.log.statements import Insert, Row, Statement, Texts, Update, among
from holdfast.log.store import Tx
from holdfast.log.tables import entries as table
from holdfast.log.tables import entry_revisions
from holdfast.text import clean_json, clean_text

MAX_PAGE: Final = 1000
LEFT_OUT: Final = "leftOut"
_MAX_BRANCHES: Final = 64
_END: Final = (1 << 63) - 1
_FEW: Final = 4
_CURSOR: Final = re.compile(r"(-?[0-9]{1,19})-([0-9]{1,19})")


class EntryType(StrEnum):
    CONVERSATION = "conversation"
    ACTION = "action"
    NOTE = "note"
    SYSTEM = "system"
    IMPORT = "import"


class Classification(StrEnum):
    PENDING = "pending"
    CLASSIFIED = "classified"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryDraft:
    """What a writer says of something that happened; ids and times are ours to add.

    Without an audience it has the one that its session's key tells (`audience.of_key`). A `space_id` given
    here is what the writer chose: it is kept as `given_space`, and no sorting moves the entry out of it;
    unless it `space_follows` from the topic of something else, which a sorting may have chosen.
    """

    content: str
    type: EntryType = EntryType.CONVERSATION
    audience: Audience | None = None
    role: str | None = None
    session_key: str | None = None
    session_id: SessionId | None = None
    turn_id: TurnId | None = None
    agent_id: str | None = None
    agent_label: str | None = None
    summary: str | None = None
    raw: str | None = None
    space_id: str | None = None
    space_follows: bool = False
    topic_id: str | None = None
    task_id: str | None = None
    related_id: str | None = None
    status: Classification = Classification.PENDING
    code: str | None = None
    source: Mapping[str, Any] | None = None
    idempotency_key: str | None = None
    created_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One row of the log."""

    position: int
    id: EntryId
    type: EntryType
    audience: Audience = FOR_OWNER
    content: str
    status: Classification
    created_at: Millis
    updated_at: Millis
    revision: int = 0
    role: str | None = None
    session_key: str | None = None
    session_id: SessionId | None = None
    turn_id: TurnId | None = None
    agent_id: str | None = None
    agent_label: str | None = None
    summary: str | None = None
    raw: str | None = None
    space_id: str | None = None
    given_space: str | None = None
    topic_id: str | None = None
    task_id: str | None = None
    related_id: str | None = None
    code: str | None = None
    source: Mapping[str, Any] | None = None
    idempotency_key: str | None = None
    deleted_at: Millis | None = None

    @property
    def is_answer(self) -> bool:
        """Whether a model says something in it; a row of tool calls alone only tells of them."""
        return self.role == "assistant" and self.type is not EntryType.ACTION and bool(self.content.strip())


@dataclass(frozen=True, slots=True)
class Appended:
    """An entry and whether this call made it; a repeat finds the one that was there."""

    entry: Entry
    created: bool


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a newest-first listing: everything older than this comes next."""

    created_at: int
    position: int

    def __str__(self) -> str:
        return f"{self.created_at}-{self.position}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        match = _CURSOR.fullmatch(text)
        if match is None or max(abs(int(match[1])), int(match[2])) >= 1 << 63:
            raise InvalidInput(
                f"not a cursor: {text[:64]!r}",
                code="bad_cursor",
                hint="Send back the X-Next-Cursor header of the previous page unchanged.",
            )
        return cls(int(match[1]), int(match[2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFilter:
    """Which entries to list; every field that is set must hold. Each has an index behind it."""

    session_key: str | None = None
    session_id: str | None = None
    turn_id: str | None = None
    topic_id: str | None = None
    task_id: str | None = None
    space_ids: frozenset[str] | None = None
    agent_ids: frozenset[str] | None = None
    related_ids: frozenset[str] | None = None
    types: frozenset[EntryType] | None = None
    status: Classification | None = None
    audience: Audience | None = None


@dataclass(frozen=True, slots=True)
class Page:
    entries: list[Entry] = field(default_factory=list)
    next: Cursor | None = None


@dataclass(frozen=True, slots=True)
class Ref:
    """An entry in the state that it has: `updated_at` is another whenever anything about it is."""

    id: str
    topic_id: str | None
    updated_at: Millis
    created_at: Millis
    position: int
    status: str
    code: str | None

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands in a listing."""
        return self.created_at, self.position


def append(tx: Tx, draft: EntryDraft) -> Appended:
    """Write one entry, or find the one that has the same idempotency key."""
    row = _row(draft, tx.now)
    position = _INSERT.one(tx, row)
    if position is None:
        return _repeated(tx, _by_keys(tx, [row["idempotency_key"]])[0])
    changes.emit(tx, "log.appended", row["id"])
    return Appended(_written(row, position), created=True)


def load(tx: Tx, drafts: Sequence[EntryDraft]) -> None:
    """Write many entries in order, leaving out repeats: `append_many` for those who need no answer."""
    _insert(tx, [_row(draft, tx.now) for draft in drafts])


def append_many(tx: Tx, drafts: Sequence[EntryDraft]) -> list[Appended]:
    """Write many entries in order; a repeat, here or in the store, yields the entry that was first."""
    if len(drafts) <= _FEW:
        return [append(tx, draft) for draft in drafts]
    rows = [_row(draft, tx.now) for draft in drafts]
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
    query = _newest_first([light.where(*_conditions(tx, branch)) for branch in _branches(tx.reader, where)])
    rows = tx.conn.execute(query.limit(limit + 1).offset(max(0, offset))).mappings().all()
    found = [_entry(row) for row in rows[:limit]]
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
    query = _newest_first([light.where(*_conditions(tx, branch)) for branch in _branches(tx.reader, where)])
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
    first = [_entry(row) for row in tx.conn.execute(earlier.limit(before)).mappings()]
    last = [_entry(row) for row in tx.conn.execute(later.limit(after)).mappings()]
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
    values = {k: _plain(clean_json(v)) for k, v in fields.items() if getattr(entry, k) != v}
    if not values:
        return entry
    values["updated_at"] = tx.now
    _UPDATE.run(tx, values, entry=id_)
    changes.emit(tx, "log.patched", id_)
    values["status"] = _STATUSES[values.get("status", entry.status.value)]
    return replace(entry, **values)


def annotate_read(tx: Tx, changed: Sequence[tuple[Entry, Mapping[str, Any]]]) -> None:
    """`annotate` for many entries that this very transaction has read, all in one statement."""
    rows = []
    for entry, fields in changed:
        if fields.keys() - _ANNOTATIONS:
            raise ValueError(f"not annotations: {sorted(fields.keys() - _ANNOTATIONS)}")
        if any(getattr(entry, name) != value for name, value in fields.items()):
            values = {name: _plain(clean_json(value)) for name, value in fields.items()}
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


def _branches(reader: Reader, where: EntryFilter) -> list[EntryFilter]:
    """One filter for each of several spaces: their listings, merged in order, need no sorting.

    Where nothing else narrows a listing, who may not read all is given one for each audience.
    """
    if where == EntryFilter() and reader.audiences is not None and len(reader.audiences) <= _MAX_BRANCHES:
        return [replace(where, audience=one) for one in sorted(reader.audiences)] or [where]
    name = _leading(where)
    wanted: Any = getattr(where, name)
    if isinstance(wanted, frozenset) and 1 < len(wanted) <= _MAX_BRANCHES:
        single: list[dict[str, Any]] = [{name: frozenset([one])} for one in sorted(wanted)]
        return [replace(where, **change) for change in single]
    return [where]


def _newest_first(branches: Sequence[sa.Select[Any]]) -> Any:
    if len(branches) == 1:
        return branches[0].order_by(table.c.created_at.desc(), table.c.position.desc())
    return sa.union_all(*branches).order_by(sa.desc("created_at"), sa.desc("position"))


def within_reach(reader: Reader) -> list[sa.ColumnElement[bool]]:
    """What a reader may read, as conditions on the table; none for one who may read all."""
    found: list[sa.ColumnElement[bool]] = []
    if reader.audiences is not None:
        found.append(table.c.audience.in_(sorted(reader.audiences)))
    if reader.audiences is not None and FOR_OWNER not in reader.audiences:
        # Written into the SQL rather than bound, so that the partial index can be used.
        found.append(table.c.audience != sa.literal_column(f"'{FOR_OWNER}'"))
    if reader.agents is not None:
        found.append(sa.func.coalesce(table.c.agent_id, "").in_(sorted(reader.agents)))
    return found


def _conditions(tx: Tx, where: EntryFilter) -> Iterable[sa.ColumnElement[bool]]:
    """Only the narrowest condition is put so that an index fits: a planner may know no better."""
    yield table.c.deleted_at.is_(None)
    yield from within_reach(tx.reader)
    leading = _leading(where)
    for name, column in _FILTERS.items():
        value = getattr(where, name)
        if value is None:
            continue
        term = column if name == leading else sa.func.coalesce(column, "")
        if name == "status":
            # Written into the SQL rather than bound, so that the partial indexes can be used.
            yield term == sa.literal_column(f"'{Classification(value)}'")
        else:
            yield term.in_(sorted(value)) if isinstance(value, frozenset) else term == value


def _leading(where: EntryFilter) -> str:
    return next((name for name in _FILTERS if getattr(where, name) is not None), "status")


class _Narrowed:
    """A prepared listing, and the same for readers who may not read all: compiled when first asked for."""

    def __init__(self, select: sa.Select[Any]) -> None:
        self._select = select
        self.names = tuple(table.c.keys())
        self._forms: dict[tuple[bool, bool], Statement] = {}

    def rows(self, tx: Tx, **given: Any) -> list[Row]:
        reader = tx.reader
        shape = (reader.audiences is not None, reader.agents is not None)
        form = self._forms.get(shape)
        if form is None:
            form = self._forms[shape] = Statement(self._within(*shape))
        if reader.audiences is not None:
            given["audiences"] = sorted(reader.audiences)
        if reader.agents is not None:
            given["agents"] = sorted(reader.agents)
        return form.rows(tx, **given)

    def _within(self, by_audience: bool, by_agent: bool) -> sa.Select[Any]:
        select = self._select
        if by_audience:
            select = select.where(among(table.c.audience, "audiences"))
        if by_agent:
            select = select.where(among(table.c.agent_id, "agents"))
        return select


def _narrowed(tx: Tx, listing: _Narrowed, **given: Any) -> list[Entry]:
    return [_read(row, listing.names) for row in listing.rows(tx, **given)]


_FILTERS: Final = {
    "turn_id": table.c.turn_id,
    "session_id": table.c.session_id,
    "task_id": table.c.task_id,
    "topic_id": table.c.topic_id,
    "related_ids": table.c.related_id,
    "session_key": table.c.session_key,
    "space_ids": table.c.space_id,
    "status": table.c.status,
    "types": table.c.type,
    "agent_ids": table.c.agent_id,
    "audience": table.c.audience,
}
_COLUMNS = tuple(table.c)
_COLUMN_NAMES = tuple(table.c.keys())
_LIGHT = tuple(c for c in table.c if c.name != "raw")
_SELECT = sa.select(*_COLUMNS)
_SELECT_ONE = Statement(_SELECT.where(table.c.id == sa.bindparam("id")))
_SELECT_IDS = Statement(_SELECT.where(among(table.c.id, "ids")).order_by(table.c.position))
_SELECT_KEYS = Statement(_SELECT.where(among(table.c.idempotency_key, "keys")))
_BEHIND = _SELECT.where(table.c.position > sa.bindparam("position")).order_by(table.c.position)
_BEHIND = _BEHIND.limit(sa.bindparam("most"))
_AFTER = _Narrowed(_BEHIND)
_TRANSCRIPT = _Narrowed(
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
_WAITING = _Narrowed(_PENDING.where(table.c.session_key == sa.bindparam("session")))
_WAITING_ALONE = _Narrowed(_PENDING.where(table.c.session_key.is_(None)))
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


_REFS_BEFORE = _Narrowed(_said_before(*_REF_COLUMNS))
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


def _row(draft: EntryDraft, now: Millis) -> dict[str, Any]:
    """The columns of a new entry. Enums go in as plain text: drivers adapt subclasses slowly."""
    return {
        "id": entry_id(),
        "type": draft.type.value,
        "audience": draft.audience or of_key(draft.session_key),
        "role": draft.role,
        "session_key": _clean(draft.session_key),
        "session_id": draft.session_id,
        "turn_id": draft.turn_id,
        "agent_id": _clean(draft.agent_id),
        "agent_label": _clean(draft.agent_label),
        "content": clean_text(draft.content),
        "summary": _clean(draft.summary),
        "raw": _clean(draft.raw),
        "space_id": _clean(draft.space_id),
        "given_space": None if draft.space_follows else _clean(draft.space_id),
        "topic_id": _clean(draft.topic_id),
        "task_id": _clean(draft.task_id),
        "related_id": _clean(draft.related_id),
        "status": draft.status.value,
        "code": draft.code,
        "source": None if draft.source is None else clean_json(draft.source),
        "idempotency_key": _clean(draft.idempotency_key),
        "created_at": now if draft.created_at is None else Millis(draft.created_at),
        "updated_at": now,
    }


def _clean(text: str | None) -> str | None:
    return None if text is None else clean_text(text)


def _written(row: dict[str, Any], position: int) -> Entry:
    """The entry that a new row is, without reading it back."""
    row["position"] = position
    return _entry(row)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, StrEnum) else value


def _read(row: Row, names: Sequence[str] = _COLUMN_NAMES) -> Entry:
    return _made(dict(zip(names, row, strict=True)))


def _entry(row: Mapping[Any, Any]) -> Entry:
    return _made(dict(row))


def _made(values: dict[str, Any]) -> Entry:
    values["type"] = _TYPES[values["type"]]
    values["status"] = _STATUSES[values["status"]]
    return Entry(**values)


_TYPES = {kind.value: kind for kind in EntryType}
_STATUSES = {status.value: status for status in Classification}
