"""Topics: what the log is about. In the space that owns it, one name is one topic to each reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa

from holdfast.board import spaces, tasks
from holdfast.board.reads import Query, ReadableRows, plain
from holdfast.board.tables import topic_spaces
from holdfast.board.tables import topics as table
from holdfast.board.tags import (
    DEFAULT_NAME,
    DEFAULT_SPACE,
    Label,
    membership,
    merge_tags,
    name_key,
    owner_of,
    spaces_of_tags,
)
from holdfast.board.visibility import EVERYTHING, View
from holdfast.board.work import (
    CREATORS,
    MAX_OFFSET,
    PRIORITIES,
    CreatedBy,
    Keyset,
    Priority,
    TopicStatus,
    check_id,
    chosen,
    clean_fields,
    clean_title,
    is_snoozed,
    only_digest,
    page_size,
)
from holdfast.clock import Millis
from holdfast.errors import Conflict, Forbidden, InvalidInput, NotFound
from holdfast.ids import uuid7
from holdfast.log import FOR_OWNER, SYSTEM, Audience, Reader, Tx, changes
from holdfast.log.statements import Insert

MAX_REORDER: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic. A snooze that is over reads as `active`: it ends by itself, with nothing to run.

    `agent_id` is the agent whose conversation it was named after, if it was. Filing an entry under a topic
    changes nobody's reading of either.
    """

    id: str
    space_id: str
    name: str
    audience: Audience = FOR_OWNER
    agent_id: str | None = None
    created_by: CreatedBy = CreatedBy.USER
    sort_index: int = 0
    color: str | None = None
    description: str | None = None
    priority: Priority = Priority.MEDIUM
    status: TopicStatus = TopicStatus.ACTIVE
    snoozed_until: Millis | None = None
    due_at: Millis | None = None
    pinned: bool = False
    tags: tuple[str, ...] = ()
    digest: str | None = None
    digest_updated_at: Millis | None = None
    created_at: Millis
    updated_at: Millis

    @property
    def space_ids(self) -> frozenset[str]:
        """Every space that it lies in."""
        return membership(self.space_id, self.tags)


@dataclass(frozen=True, slots=True)
class Upserted:
    topic: Topic
    created: bool


@dataclass(frozen=True, slots=True)
class Page:
    topics: list[Topic]
    next: Keyset | None = None


_COLUMNS: Final = tuple(f.name for f in fields(Topic))
_NAMES: Final = frozenset(_COLUMNS)
_MUTABLE: Final = _NAMES - {"id", "created_at", "updated_at", "created_by", "audience", "agent_id"}


def upsert(
    tx: Tx,
    name: str,
    *,
    id_: str | None = None,
    created_by: CreatedBy = CreatedBy.USER,
    audience: Audience = FOR_OWNER,
    agent_id: str | None = None,
    at: int | None = None,
    **values: Any,
) -> Upserted:
    """The topic of this id, or of this name in its space, brought up to date; made if there is none, as of
    `at` if what it is about was said earlier than now.

    One that the reader may not read is none: then they get another of the same name, for `audience`. Tags are
    added to those of a topic that was there, never taken away.
    """
    place: dict[str, Any] = {"space_id": values.get("space_id"), "tags": values.get("tags") or ()}
    found = find(tx, name, id_=id_, audience=audience, **place)
    if found is not None:
        changed = {key: value for key, value in values.items() if value is not None}
        if "tags" in changed:
            changed["tags"] = merge_tags(found.tags, changed["tags"])
            changed.setdefault("space_id", found.space_id)
        if id_ is not None:
            changed["name"] = name
        return Upserted(update(tx, found.id, changed), created=False)
    made = Topic(
        id=check_id(id_ or f"topic-{uuid7()}"),
        space_id="",
        name=clean_title(name, "name"),
        audience=audience,
        agent_id=agent_id or min(tx.reader.agents or (), default=None),
        created_by=chosen(CreatedBy, created_by),
        created_at=tx.now if at is None else Millis(min(at, tx.now)),
        updated_at=tx.now if at is None else Millis(min(at, tx.now)),
    )
    return Upserted(_create(tx, made, values), created=True)


def find(
    tx: Tx,
    name: str,
    *,
    id_: str | None = None,
    space_id: str | None = None,
    tags: Sequence[str] = (),
    audience: Audience = FOR_OWNER,
) -> Topic | None:
    """The topic that `upsert` would change: of several with the name, one of the same audience."""
    if id_ is not None:
        return next(iter(get_many(tx, [id_])), None)
    key = name_key(clean_title(name, "name"))
    rows = _BY_NAME.rows(tx, space=owner_of(space_id, tags), name=key, audience=audience)
    return _from_row(tx, rows[0]) if rows else None


def get(tx: Tx, id_: str, view: View) -> Topic:
    """The topic, unless it is not there, may not be read or the view does not show it: all look the same."""
    topic = next(iter(get_many(tx, [id_])), None)
    if topic is None or not view.sees(topic.space_ids):
        raise NotFound(f"no topic {id_[:80]!r}", code="unknown_topic")
    return topic


def get_many(tx: Tx, ids: Sequence[str]) -> list[Topic]:
    """Those of these ids that are there and may be read."""
    found = [_from_row(tx, row) for row in _BY_ID.rows(tx, ids=sorted(set(ids)))] if ids else []
    return [topic for topic in found if may_read(tx.reader, topic)]


def may_read(reader: Reader, topic: Topic) -> bool:
    """Who may read only some agents' words sees the topics that were named after those."""
    return reader.may_read_of(topic.audience, topic.agent_id)


def within_reach(reader: Reader) -> list[sa.ColumnElement[bool]]:
    """The same as conditions on the table."""
    found: list[sa.ColumnElement[bool]] = []
    if reader.audiences is not None:
        found.append(table.c.audience.in_(sorted(reader.audiences)))
    if reader.agents is not None:
        found.append(table.c.agent_id.in_(sorted(reader.agents)))
    return found


def listing(
    tx: Tx,
    view: View,
    *,
    status: TopicStatus | None = None,
    due_before: Millis | None = None,
    limit: int = 100,
    cursor: Keyset | None = None,
    offset: int = 0,
) -> Page:
    """In the order that the user gave them; a new topic comes first."""
    query = (
        sa.select(table)
        .where(*view.topics(), *within_reach(tx.reader))
        .order_by(table.c.sort_index, table.c.id)
    )
    if status is not None:
        query = query.where(_has_status(status, tx.now))
    if due_before is not None:
        over = (TopicStatus.DONE, TopicStatus.ARCHIVED)
        query = query.where(table.c.due_at < due_before, table.c.status.not_in(over))
    if cursor is not None:
        query = query.where(cursor.before(table.c.sort_index, table.c.id))
    size = page_size(limit)
    query = query.limit(size + 1).offset(max(0, min(offset, MAX_OFFSET)))
    found = [_topic(tx, row) for row in tx.conn.execute(query).mappings()]
    more = len(found) > size
    found = found[:size]
    return Page(found, Keyset(found[-1].sort_index, found[-1].id) if more else None)


def update(tx: Tx, id_: str, values: Mapping[str, Any], *, quietly: bool = False) -> Topic:
    """Change fields of a topic. New tags without a space move it to the first space that they name. What the
    system changes `quietly` moves it up in no list."""
    old = get(tx, id_, EVERYTHING)
    new = _with_status(old, _owned(old, clean_fields(values, _MUTABLE)), tx.now)
    if "name" in new:
        new["name"] = clean_title(new["name"], "name")
    changed = {key: value for key, value in new.items() if getattr(old, key) != value}
    if not changed:
        return old
    if "digest" in changed:
        changed.setdefault("digest_updated_at", tx.now)
    if not (quietly or only_digest(changed)):
        changed["updated_at"] = tx.now
    topic = replace(old, **changed)
    _make_spaces(tx, topic, explicit="space_id" in values)
    require_free_name(tx, topic)
    row = changed | {"name_key": name_key(topic.name)}
    tx.conn.execute(sa.update(table).where(table.c.id == id_).values(**row))
    if topic.space_ids != old.space_ids or topic.space_id != old.space_id:
        _write_membership(tx, topic)
        tasks.follow_topic(tx, id_, topic.space_ids, moved=(old.space_id, topic.space_id))
    changes.emit(tx, "topic.upserted", id_)
    return topic


def set_digest(tx: Tx, id_: str, digest: str | None) -> Topic:
    """Write the digest; nothing that a user sees moves."""
    return update(tx, id_, {"digest": digest, "digest_updated_at": tx.now})


def delete(tx: Tx, id_: str) -> Topic:
    """Remove a topic with its tasks. What was logged under it stays in the log."""
    topic = get(tx, id_, EVERYTHING)
    _require_no_others(tx, id_)
    tasks.delete_of_topic(tx, id_)
    tx.conn.execute(sa.delete(topic_spaces).where(topic_spaces.c.topic_id == id_))
    tx.conn.execute(sa.delete(table).where(table.c.id == id_))
    payload: dict[str, Any] = {"id": id_, "spaceId": topic.space_id, "spaceIds": sorted(topic.space_ids)}
    payload |= {"audience": topic.audience, "agentId": topic.agent_id}
    changes.emit(tx, "topic.deleted", id_, payload)
    return topic


def reorder(tx: Tx, ids: Sequence[str], view: View) -> list[Topic]:
    """Put these topics into this order, in the places that they hold among all others."""
    if not ids or len(ids) > MAX_REORDER or len(set(ids)) != len(ids):
        raise InvalidInput(f"expected 1 to {MAX_REORDER} different ids", code="bad_order")
    known = {topic.id: topic for topic in get_many(tx, ids) if view.sees(topic.space_ids)}
    missing = next((id_ for id_ in ids if id_ not in known), None)
    if missing is not None:
        raise NotFound(f"no topic {missing[:80]!r}", code="unknown_topic")
    places = _rising(sorted(topic.sort_index for topic in known.values()))
    for id_, place in zip(ids, places, strict=True):
        if known[id_].sort_index != place:
            tx.conn.execute(sa.update(table).where(table.c.id == id_).values(sort_index=place))
            known[id_] = replace(known[id_], sort_index=place)
            changes.emit(tx, "topic.upserted", id_)
    return [known[id_] for id_ in ids]


def _create(tx: Tx, topic: Topic, values: Mapping[str, Any]) -> Topic:
    given = clean_fields({k: v for k, v in values.items() if v is not None}, _MUTABLE)
    topic = replace(topic, space_id=owner_of(given.pop("space_id", None), given.get("tags", ())))
    given.setdefault("sort_index", _top(tx) - 1)
    topic = replace(topic, **_with_status(topic, given, tx.now))
    _make_spaces(tx, topic, explicit=values.get("space_id") is not None)
    require_free_name(tx, topic)
    if _BY_ID.first(tx, ids=[topic.id]) is not None:
        raise Conflict("this id is in use", code="id_taken", hint="Choose another, or leave it out.")
    row = {name: _plain(getattr(topic, name)) for name in _COLUMNS} | {"name_key": name_key(topic.name)}
    _INSERT.one(tx, row | {"tags": list(topic.tags)})
    _INSERT_MEMBERSHIP.many(tx, _membership(topic))
    changes.emit(tx, "topic.upserted", topic.id)
    return topic


def _owned(old: Topic, new: dict[str, Any]) -> dict[str, Any]:
    if new.get("space_id", ...) is None:
        raise InvalidInput("a topic needs a space", code="bad_space", hint="Leave spaceId out to keep it.")
    if "tags" in new and "space_id" not in new:
        new["space_id"] = owner_of(None, new["tags"], fallback=old.space_id)
    return new


def _with_status(old: Topic, new: dict[str, Any], now: Millis) -> dict[str, Any]:
    """A time to snooze until snoozes; any other status ends a snooze."""
    if is_snoozed(new.get("snoozed_until"), now):
        new.setdefault("status", TopicStatus.SNOOZED)
    if new.get("snoozed_until", ...) is None and old.status is TopicStatus.SNOOZED:
        new.setdefault("status", TopicStatus.ACTIVE)
    if "status" in new:
        new["status"] = chosen(TopicStatus, new["status"] or TopicStatus.ACTIVE)
        if new["status"] is not TopicStatus.SNOOZED:
            new["snoozed_until"] = None
    return new


def _make_spaces(tx: Tx, topic: Topic, *, explicit: bool) -> None:
    """Spaces that tags name are made; one that was given by its id must be there."""
    if explicit:
        spaces.require(tx, topic.space_id)
    default = [Label(DEFAULT_SPACE, DEFAULT_NAME)] if topic.space_id == DEFAULT_SPACE else []
    spaces.ensure(tx, [*default, *spaces_of_tags(topic.tags)])


def _require_no_others(tx: Tx, id_: str) -> None:
    """Who may not read a task does not delete it, be it with its topic."""
    with tx.reading_as(SYSTEM):
        every = tasks.of_topic(tx, id_)
    if not all(tasks.may_read(tx.reader, task) for task in every):
        raise Forbidden(
            "somebody else keeps tasks under this topic",
            code="topic_in_use",
            hint="The owner can delete it with all of them.",
        )


def require_free_name(tx: Tx, topic: Topic) -> None:
    """`Conflict` if a topic that the reader may read has the name, or one that the same people read."""
    named = _NAMED.rows(tx, space=topic.space_id, name=name_key(topic.name))
    other = next(
        (
            id_
            for id_, audience, agent_id in named
            if id_ != topic.id
            and (
                (audience, agent_id or "") == (topic.audience, topic.agent_id or "")
                or tx.reader.may_read_of(audience, agent_id)
            )
        ),
        None,
    )
    if other is not None:
        raise Conflict(
            f"{topic.space_id} has a topic {topic.name[:80]!r} already: {other}",
            code="name_taken",
            hint="Choose another name, or change that topic.",
        )


def _write_membership(tx: Tx, topic: Topic) -> None:
    tx.conn.execute(sa.delete(topic_spaces).where(topic_spaces.c.topic_id == topic.id))
    _INSERT_MEMBERSHIP.many(tx, _membership(topic))


def _membership(topic: Topic) -> list[dict[str, Any]]:
    return [{"topic_id": topic.id, "space_id": one} for one in sorted(topic.space_ids)]


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, StrEnum) else value


def _has_status(status: TopicStatus, now: Millis) -> sa.ColumnElement[bool]:
    asleep = sa.or_(table.c.snoozed_until.is_(None), table.c.snoozed_until > now)
    if status is TopicStatus.SNOOZED:
        return sa.and_(table.c.status == status, asleep)
    if status is TopicStatus.ACTIVE:
        return sa.or_(table.c.status == status, sa.and_(table.c.status == TopicStatus.SNOOZED, ~asleep))
    return table.c.status == status


def _top(tx: Tx) -> int:
    found = _LEAST_INDEX.first(tx)
    return int(found[0] or 0) if found else 0


def _rising(places: Sequence[int]) -> list[int]:
    rising: list[int] = []
    for place in places:
        rising.append(max(place, rising[-1] + 1) if rising else place)
    return rising


def _topic(tx: Tx, row: Mapping[Any, Any]) -> Topic:
    return _from_row(tx, [row[name] for name in _COLUMNS])


def _from_row(tx: Tx, row: Sequence[Any]) -> Topic:
    """A digest is made from all agents' words: who may read only some of them is shown none."""
    values = dict(zip(_COLUMNS, row, strict=True))
    if tx.reader.agents is not None:
        values["digest"] = None
    values["created_by"] = CREATORS[values["created_by"]]
    values["priority"] = PRIORITIES[values["priority"]]
    values["status"] = _STATUSES[values["status"]]
    values["pinned"] = bool(values["pinned"])
    values["tags"] = tuple(plain(values["tags"]))
    until = values["snoozed_until"]
    if values["status"] is TopicStatus.SNOOZED and until is not None and until <= tx.now:
        values |= {"status": TopicStatus.ACTIVE, "snoozed_until": None}
    return Topic(**values)


_STATUSES: Final = {status.value: status for status in TopicStatus}
_BY_ID: Final = Query(f"SELECT {', '.join(_COLUMNS)} FROM topics WHERE id IN :ids")
_BY_NAME: Final = ReadableRows(
    f"""SELECT {", ".join(_COLUMNS)} FROM topics WHERE space_id = :space AND name_key = :name {{reach}}
    ORDER BY CASE WHEN audience = :audience THEN 0 ELSE 1 END, created_at LIMIT 1"""
)
_NAMED: Final = Query(
    "SELECT id, audience, agent_id FROM topics WHERE space_id = :space AND name_key = :name"
)
_LEAST_INDEX: Final = Query("SELECT min(sort_index) FROM topics")
_INSERT: Final = Insert(table)
_INSERT_MEMBERSHIP: Final = Insert(topic_spaces)
