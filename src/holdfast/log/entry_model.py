"""What an entry is, as a value and as a row, and which entries a listing has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.errors import InvalidInput
from holdfast.ids import EntryId, SessionId, TurnId, entry_id
from holdfast.log.audience import FOR_OWNER, Audience, Reader, of_key
from holdfast.log.statements import Row, Statement, among
from holdfast.log.store import Tx
from holdfast.log.tables import entries as table
from holdfast.text import clean_json, clean_text

_MAX_BRANCHES: Final = 64


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


def branches_of(reader: Reader, where: EntryFilter) -> list[EntryFilter]:
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


def newest_first(branches: Sequence[sa.Select[Any]]) -> Any:
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


def conditions_of(tx: Tx, where: EntryFilter) -> Iterable[sa.ColumnElement[bool]]:
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


class NarrowedListing:
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


def row_of(draft: EntryDraft, now: Millis) -> dict[str, Any]:
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


def plain_value(value: Any) -> Any:
    return value.value if isinstance(value, StrEnum) else value


def entry_of(row: Mapping[Any, Any]) -> Entry:
    return made_entry(dict(row))


def made_entry(values: dict[str, Any]) -> Entry:
    values["type"] = _TYPES[values["type"]]
    values["status"] = STATUSES[values["status"]]
    return Entry(**values)


_TYPES = {kind.value: kind for kind in EntryType}


STATUSES = {status.value: status for status in Classification}
