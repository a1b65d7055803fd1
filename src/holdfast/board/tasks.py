"""Tasks: what is to be done within a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

import sqlalchemy as sa

from holdfast.board import spaces
from holdfast.board.reads import Query, plain
from holdfast.board.tables import task_spaces, topics
from holdfast.board.tables import tasks as table
from holdfast.board.tags import membership
from holdfast.board.visibility import EVERYTHING, View, spaces_of_tasks
from holdfast.board.work import (
    CREATORS,
    MAX_OFFSET,
    PRIORITIES,
    CreatedBy,
    Keyset,
    Priority,
    TaskStatus,
    check_id,
    chosen,
    clean_fields,
    clean_title,
    only_digest,
    page_size,
)
from holdfast.clock import Millis
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.ids import uuid7
from holdfast.log import FOR_OWNER, SYSTEM, Audience, Reader, Tx, changes

MAX_PER_TOPIC: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task. It lies in its own space and in all of its topic's; its tags are only words."""

    id: str
    topic_id: str
    space_id: str
    title: str
    audience: Audience = FOR_OWNER
    created_by: CreatedBy = CreatedBy.USER
    color: str | None = None
    description: str | None = None
    priority: Priority = Priority.MEDIUM
    status: TaskStatus = TaskStatus.TODO
    snoozed_until: Millis | None = None
    due_at: Millis | None = None
    pinned: bool = False
    tags: tuple[str, ...] = ()
    digest: str | None = None
    digest_updated_at: Millis | None = None
    created_at: Millis
    updated_at: Millis
    space_ids: frozenset[str] = field(default=frozenset())


@dataclass(frozen=True, slots=True)
class Upserted:
    task: Task
    created: bool


@dataclass(frozen=True, slots=True)
class Page:
    tasks: list[Task]
    next: Keyset | None = None


_COLUMNS: Final = tuple(f.name for f in fields(Task) if f.name != "space_ids")
_NAMES: Final = frozenset(_COLUMNS)
_MUTABLE: Final = _NAMES - {"id", "created_at", "updated_at", "created_by", "audience"}


def upsert(
    tx: Tx,
    title: str,
    *,
    topic_id: str | None = None,
    id_: str | None = None,
    created_by: CreatedBy = CreatedBy.USER,
    audience: Audience = FOR_OWNER,
    **values: Any,
) -> Upserted:
    """The task of this id, brought up to date; else a new one in the topic."""
    found = next(iter(get_many(tx, [id_])), None) if id_ is not None else None
    given = {key: value for key, value in values.items() if value is not None}
    if found is not None:
        given |= {"title": title} | ({} if topic_id is None else {"topic_id": topic_id})
        return Upserted(update(tx, found.id, given), created=False)
    if topic_id is None:
        raise InvalidInput("a task needs a topicId", code="no_topic", hint="Make a topic for it first.")
    owner, topic_spaces_ = _topic_of(tx, topic_id)
    _require_room(tx, topic_id)
    given = clean_fields(given, _MUTABLE)
    if "space_id" in given:
        spaces.require(tx, given["space_id"])
    task = Task(
        id=check_id(id_ or f"task-{uuid7()}"),
        topic_id=topic_id,
        space_id=given.pop("space_id", owner),
        title=clean_title(title, "title"),
        audience=audience,
        created_by=chosen(CreatedBy, created_by),
        created_at=tx.now,
        updated_at=tx.now,
    )
    task = replace(task, **_typed(given))
    task = replace(task, space_ids=topic_spaces_ | {task.space_id})
    if _BY_ID.first(tx, ids=[task.id]) is not None:
        raise Conflict("this id is in use", code="id_taken", hint="Choose another, or leave it out.")
    row = {name: getattr(task, name) for name in _NAMES}
    tx.conn.execute(sa.insert(table), row | {"tags": list(task.tags)})
    _write_membership(tx, task)
    changes.emit(tx, "task.upserted", task.id)
    return Upserted(task, created=True)


def get(tx: Tx, id_: str, view: View) -> Task:
    """The task, unless it is not there, may not be read or the view does not show it: all look the same."""
    task = next(iter(get_many(tx, [id_])), None)
    if task is None or not view.sees(task.space_ids):
        raise NotFound(f"no task {id_[:80]!r}", code="unknown_task")
    return task


def get_many(tx: Tx, ids: Sequence[str]) -> list[Task]:
    return _with_spaces(tx, _BY_ID.rows(tx, ids=sorted(set(ids)))) if ids else []


def listing(
    tx: Tx,
    view: View,
    *,
    topic_id: str | None = None,
    status: TaskStatus | None = None,
    due_before: Millis | None = None,
    limit: int = 100,
    cursor: Keyset | None = None,
    offset: int = 0,
) -> Page:
    """Most recently changed first."""
    query = sa.select(table).where(*view.tasks(), *within_reach(tx.reader))
    if topic_id is not None:
        query = query.where(table.c.topic_id == topic_id)
    if status is not None:
        query = query.where(table.c.status == status)
    if due_before is not None:
        query = query.where(table.c.due_at < due_before, table.c.status != TaskStatus.DONE)
    if cursor is not None:
        query = query.where(cursor.after(table.c.updated_at, table.c.id))
    size = page_size(limit)
    query = query.order_by(table.c.updated_at.desc(), table.c.id.desc())
    found = _tasks(tx, query.limit(size + 1).offset(max(0, min(offset, MAX_OFFSET))))
    more = len(found) > size
    found = found[:size]
    return Page(found, Keyset(found[-1].updated_at, found[-1].id) if more else None)


def update(tx: Tx, id_: str, values: Mapping[str, Any]) -> Task:
    """Change fields of a task; in another topic it takes on that topic's space unless one is given."""
    old = get(tx, id_, EVERYTHING)
    new = _typed(clean_fields(values, _MUTABLE))
    if "title" in new:
        new["title"] = clean_title(new["title"], "title")
    moves = new.get("topic_id", old.topic_id) != old.topic_id
    with nullcontext() if moves else tx.reading_as(SYSTEM):
        owner, of_topic = _topic_of(tx, new.get("topic_id", old.topic_id))
    if moves:
        _require_room(tx, new["topic_id"])
        new.setdefault("space_id", owner)
    if new.get("space_id", old.space_id) != old.space_id:
        spaces.require(tx, new["space_id"])
    changed = {key: value for key, value in new.items() if getattr(old, key) != value}
    if not changed:
        return old
    if "digest" in changed:
        changed.setdefault("digest_updated_at", tx.now)
    if not only_digest(changed):
        changed["updated_at"] = tx.now
    task = replace(old, **changed)
    task = replace(task, space_ids=of_topic | {task.space_id})
    tx.conn.execute(sa.update(table).where(table.c.id == id_).values(**changed))
    if task.space_ids != old.space_ids:
        _write_membership(tx, task)
    changes.emit(tx, "task.upserted", id_)
    return task


def set_digest(tx: Tx, id_: str, digest: str | None) -> Task:
    """Write the digest; nothing that a user sees moves."""
    return update(tx, id_, {"digest": digest, "digest_updated_at": tx.now})


def delete(tx: Tx, id_: str) -> Task:
    """Remove a task. What was logged under it stays in the log."""
    task = get(tx, id_, EVERYTHING)
    _delete(tx, task)
    return task


def follow_topic(tx: Tx, topic_id: str, space_ids: frozenset[str], *, moved: tuple[str, str]) -> None:
    """The topic's spaces changed: so do its tasks', whoever may read them. Those that lay in the space it
    left move with it."""
    left, entered = moved
    with tx.reading_as(SYSTEM):
        found = of_topic(tx, topic_id)
    for task in found:
        own = entered if task.space_id == left else task.space_id
        if own != task.space_id:
            tx.conn.execute(sa.update(table).where(table.c.id == task.id).values(space_id=own))
        _write_membership(tx, replace(task, space_id=own, space_ids=space_ids | {own}))
        changes.emit(tx, "task.upserted", task.id)


def delete_of_topic(tx: Tx, topic_id: str) -> None:
    for task in of_topic(tx, topic_id):
        _delete(tx, task)


def of_topic(tx: Tx, topic_id: str) -> list[Task]:
    """All tasks of a topic that may be read."""
    return _tasks(tx, sa.select(table).where(table.c.topic_id == topic_id).limit(MAX_PER_TOPIC))


def _delete(tx: Tx, task: Task) -> None:
    tx.conn.execute(sa.delete(task_spaces).where(task_spaces.c.task_id == task.id))
    tx.conn.execute(sa.delete(table).where(table.c.id == task.id))
    payload = {
        "id": task.id,
        "topicId": task.topic_id,
        "spaceId": task.space_id,
        "spaceIds": sorted(task.space_ids),
        "audience": task.audience,
    }
    changes.emit(tx, "task.deleted", task.id, payload)


def _topic_of(tx: Tx, topic_id: str) -> tuple[str, frozenset[str]]:
    """The space that owns the topic, and all that it lies in; `NotFound` for one that may not be read."""
    columns = (topics.c.space_id, topics.c.tags, topics.c.audience, topics.c.agent_id)
    row = tx.conn.execute(sa.select(*columns).where(topics.c.id == topic_id)).first()
    if row is None or not tx.reader.may_read_of(row.audience, row.agent_id):
        raise NotFound(f"no topic {topic_id[:80]!r}", code="unknown_topic")
    return row.space_id, membership(row.space_id, row.tags)


def _require_room(tx: Tx, topic_id: str) -> None:
    query = sa.select(sa.func.count()).where(table.c.topic_id == topic_id)
    if (tx.conn.execute(query).scalar() or 0) >= MAX_PER_TOPIC:
        raise Conflict(
            f"the topic has {MAX_PER_TOPIC} tasks already",
            code="too_many_tasks",
            hint="Delete some that are done, or use another topic.",
        )


def _write_membership(tx: Tx, task: Task) -> None:
    tx.conn.execute(sa.delete(task_spaces).where(task_spaces.c.task_id == task.id))
    rows = [{"task_id": task.id, "space_id": one} for one in sorted(task.space_ids)]
    tx.conn.execute(sa.insert(task_spaces), rows)


def _typed(new: dict[str, Any]) -> dict[str, Any]:
    if "status" in new:
        new["status"] = chosen(TaskStatus, new["status"] or TaskStatus.TODO)
    for name in ("title", "topic_id", "space_id"):
        if new.get(name, ...) is None:
            del new[name]
    return new


def may_read(reader: Reader, task: Task) -> bool:
    """A task is nobody's words but a person's: who may read only some agents' sees none."""
    return reader.may_read_of(task.audience, None)


def within_reach(reader: Reader) -> list[sa.ColumnElement[bool]]:
    """The same as conditions on the table."""
    if reader.agents is not None:
        return [sa.false()]
    return [] if reader.audiences is None else [table.c.audience.in_(sorted(reader.audiences))]


def _tasks(tx: Tx, query: sa.Select[Any]) -> list[Task]:
    rows = tx.conn.execute(query).mappings()
    return _with_spaces(tx, [[row[name] for name in _COLUMNS] for row in rows])


def _with_spaces(tx: Tx, rows: Sequence[Sequence[Any]]) -> list[Task]:
    members = spaces_of_tasks(tx, (row[0] for row in rows))
    found = [_from_row(row, members.get(row[0], frozenset())) for row in rows]
    return [task for task in found if may_read(tx.reader, task)]


def _from_row(row: Sequence[Any], space_ids: frozenset[str]) -> Task:
    values = dict(zip(_COLUMNS, row, strict=True))
    values["created_by"] = CREATORS[values["created_by"]]
    values["priority"] = PRIORITIES[values["priority"]]
    values["status"] = _STATUSES[values["status"]]
    values["pinned"] = bool(values["pinned"])
    values["tags"] = tuple(plain(values["tags"]))
    return Task(**values, space_ids=space_ids)


_STATUSES: Final = {status.value: status for status in TaskStatus}
_BY_ID: Final = Query(f"SELECT {', '.join(_COLUMNS)} FROM tasks WHERE id IN :ids")
