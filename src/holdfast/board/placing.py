"""Writing down where an exchange belongs: its entries, the topic, the session's memory, the reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import sqlalchemy as sa

from holdfast.board import decisions, digests, noise, routing, topics
from holdfast.board.decisions import Made, Method
from holdfast.board.exchanges import Exchange
from holdfast.board.reads import ReadableRows
from holdfast.board.semantic import semantic_text
from holdfast.board.summaries import chip
from holdfast.board.tables import tasks as task_table
from holdfast.board.tables import topics as topic_table
from holdfast.board.topics import Topic
from holdfast.board.words import is_filler, terms
from holdfast.board.work import CreatedBy, TaskStatus, TopicStatus
from holdfast.config.board import BoardConfig
from holdfast.log import Classification, Entry, Tx, changes, entries
from holdfast.log.statements import Update

MAX_TASKS: Final = 50
_TITLE_SHARE: Final = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Where an exchange goes: a topic that there is, or one to be made by name."""

    method: Method
    topic_id: str | None = None
    name: str | None = None
    task_id: str | None = None
    space_id: str | None = None
    summary: str = ""
    confidence: float | None = None
    reasons: Mapping[str, Any] = field(default_factory=dict)


def place(
    tx: Tx, exchange: Exchange, outcome: Outcome, options: BoardConfig, *, attempt: int, read: bool = False
) -> Topic | None:
    """Write an outcome down. None when its topic was deleted meanwhile: then the exchange stays pending.

    `read` says that the exchange was read in this transaction, and is therefore as it stands.
    """
    topic = _topic(tx, exchange, outcome)
    if topic is None:
        return None
    with tx.reading_as(exchange.hearers(tx)):
        task = outcome.task_id or fitting_task(tx, topic.id, exchange.text)
    for entry in exchange.entries:
        fields = _fields(entry, topic, task, outcome, options)
        entries.annotate(tx, entry.id, fields, read=entry if read else None)
        made = Made(
            entry_id=entry.id,
            method=outcome.method,
            topic_id=topic.id,
            task_id=task,
            confidence=outcome.confidence,
            reasons=outcome.reasons,
            decided_at=tx.now,
            attempt=attempt,
        )
        decisions.record(tx, made)
    _awaken(tx, topic, task, max(entry.created_at for entry in exchange.entries))
    _remember(tx, exchange, topic, task, options)
    if options.digests.enabled:
        digests.enqueue(tx, due_at=int(tx.now) + digests.MINUTE_MS)
    return topic


def reject(tx: Tx, found: Sequence[Entry], code: str, reason: str) -> None:
    """End entries that belong to no topic; their words stay in the log."""
    for entry in found:
        fields = {"status": Classification.FAILED, "code": code, "topic_id": None, "task_id": None}
        entries.annotate(tx, entry.id, fields)
        made = Made(entry_id=entry.id, method="rule", reasons={"text": reason}, decided_at=tx.now)
        decisions.record(tx, made)


def fitting_task(tx: Tx, topic_id: str, text: str) -> str | None:
    """The one open task of the topic whose title the text is plainly about; None when in doubt."""
    said = set(terms(text))
    best: list[tuple[float, str]] = []
    for id_, titled, status in _TASKS.rows(tx, topic=topic_id, most=MAX_TASKS):
        title = {term for term in terms(titled) if not is_filler(term)}
        shared = title & said
        if status == TaskStatus.DONE or not title or len(shared) < min(2, len(title)):
            continue
        if len(shared) / len(title) >= _TITLE_SHARE:
            best.append((len(shared) / len(title) + 0.01 * len(shared), id_))
    best.sort(reverse=True)
    clear = len(best) == 1 or (len(best) > 1 and best[0][0] > best[1][0])
    return best[0][1] if clear else None


def _topic(tx: Tx, exchange: Exchange, outcome: Outcome) -> Topic | None:
    """The topic that was chosen, or one of the name that those who hear the exchange may see; else a new one,
    for those who may read what it is named after."""
    if outcome.topic_id is not None:
        return next(iter(topics.get_many(tx, [outcome.topic_id])), None)
    assert outcome.name is not None
    audience = exchange.audience
    with tx.reading_as(exchange.hearers(tx)):
        found = topics.find(tx, outcome.name, space_id=outcome.space_id, audience=audience)
        if found is not None:
            return found
        return topics.upsert(
            tx,
            outcome.name,
            created_by=CreatedBy.CLASSIFIER,
            audience=audience,
            agent_id=_agent(exchange),
            space_id=outcome.space_id,
        ).topic


def _agent(exchange: Exchange) -> str | None:
    """Whose conversation it is, by its session's key."""
    key = noise.key_of(exchange.entries[0].session_key)
    return None if key is None else key.agent_id


def _fields(
    entry: Entry, topic: Topic, task: str | None, outcome: Outcome, options: BoardConfig
) -> dict[str, Any]:
    """What sorting writes to an entry. A space that it was given is not sorting's to change."""
    limit = options.classifier.summary_max_chars
    place = entry.space_id if entry.space_id in topic.space_ids else topic.space_id
    short = entry.summary or (outcome.summary if len(outcome.summary) <= limit else "")
    return {
        "topic_id": topic.id,
        "task_id": task,
        "space_id": place if entry.given_space is None else entry.given_space,
        "status": Classification.CLASSIFIED,
        "code": None,
        "summary": short or chip(semantic_text(entry) or entry.content, limit) or None,
    }


def _awaken(tx: Tx, topic: Topic, task: str | None, at: int) -> None:
    """New words bring a topic and a task to the front, and a topic back from the archive or its snooze."""
    values: dict[str, Any] = {}
    if topic.status in (TopicStatus.ARCHIVED, TopicStatus.SNOOZED):
        values |= {"status": TopicStatus.ACTIVE.value, "snoozed_until": None}
    if at > topic.updated_at:
        values["updated_at"] = at
    if values:
        _MOVE_TOPIC.run(tx, values, topic=topic.id)
        changes.emit(tx, "topic.upserted", topic.id)
    if task is not None and _MOVE_TASK.run(tx, {"updated_at": at}, task=task, at=at):
        changes.emit(tx, "task.upserted", task)


def _remember(tx: Tx, exchange: Exchange, topic: Topic, task: str | None, options: BoardConfig) -> None:
    last = exchange.entries[-1]
    if last.session_key is not None:
        item = routing.Routed(int(tx.now), topic.id, topic.name, exchange.asked, task)
        routing.remember(tx, last.session_key, item, options.routing_memory, exchange.audience)


_TASKS: Final = ReadableRows(
    """SELECT id, title, status FROM tasks WHERE topic_id = :topic {reach}
    ORDER BY updated_at DESC, id DESC LIMIT :most""",
    agent=None,
)
_MOVE_TOPIC: Final = Update(topic_table, topic_table.c.id == sa.bindparam("topic"))
_MOVE_TASK: Final = Update(
    task_table, task_table.c.id == sa.bindparam("task"), task_table.c.updated_at < sa.bindparam("at")
)
