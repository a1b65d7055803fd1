"""Writing down where exchanges belong: their entries, the topics, the session's memory, the reasons.

A `Batch` is what one transaction of sorting has read and decided: nothing is read twice in it, and all rows
of a kind are written together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import sqlalchemy as sa

from holdfast.board import decisions, digests, noise, routing, spaces, tasks, topics, visibility
from holdfast.board.candidates import History, Recent
from holdfast.board.decisions import Made, Method
from holdfast.board.exchanges import Exchange
from holdfast.board.heuristic import Profile
from holdfast.board.reads import ReadableRows
from holdfast.board.semantic import semantic_text
from holdfast.board.summaries import chip
from holdfast.board.tables import tasks as task_table
from holdfast.board.tables import topics as topic_table
from holdfast.board.topics import Topic
from holdfast.board.words import is_filler, terms
from holdfast.board.work import CreatedBy, Priority, TaskStatus, TopicStatus
from holdfast.clock import Millis
from holdfast.config.board import BoardConfig
from holdfast.errors import Conflict
from holdfast.log import (
    FOR_OWNER,
    SYSTEM,
    Classification,
    Entry,
    EntryFilter,
    Reader,
    Tx,
    changes,
    entries,
    heard_by,
    sessions,
)
from holdfast.log.statements import Update

MAX_TASKS: Final = 50
_TITLE_SHARE: Final = 0.6
_DORMANT: Final = (TopicStatus.ARCHIVED, TopicStatus.SNOOZED)


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
    beside: Sequence[Profile] = ()
    """The topics that it was chosen from: a name tells it from them."""


class Batch:
    """What sorting has read in one transaction, and what it has decided and not written yet.

    Whoever reads in the same transaction what sorting changes has it written first (`flush`).
    """

    def __init__(self, tx: Tx, options: BoardConfig, recent: Recent | None = None) -> None:
        self.tx = tx
        self.options = options
        self.recent = recent or Recent()
        self.recent.write_first = self.flush
        self._told: dict[str, str | None] = {}
        self._given: dict[str, str | None] = {}
        self._baselines: dict[str, frozenset[str]] = {}
        self._memories: dict[str, routing.Memory] = {}
        self._changed: list[tuple[Entry, Mapping[str, Any]]] = []
        self._made: list[Made] = []
        self._moved: dict[str, Mapping[str, Any]] = {}
        self._behind: dict[str, int] = {}
        self._remembered: set[str] = set()
        self._is_digest_due = False

    def hearers(self, exchange: Exchange) -> Reader:
        """All who hear it, as one reader: it is sorted by what they may read, into what they may see."""
        key, audience = exchange.session_key, exchange.audience
        if audience == FOR_OWNER or key is None:
            return heard_by(audience)
        if key not in self._given:
            self._given[key] = sessions.given_space(self.tx, key)
        space = self._given[key]
        return heard_by(audience, frozenset(() if space is None else (space,)))

    def topic(self, id_: str) -> Topic | None:
        """The topic, if it is there and may be read."""
        return self.recent.topics(self.tx, [id_]).get(id_)

    def source_space(self, session_key: str | None) -> str | None:
        """As `visibility.source_space`, by what is remembered here."""
        if session_key is None:
            return None
        if session_key not in self._told:
            self._told[session_key] = visibility.told_space(self.tx, session_key)
        if (told := self._told[session_key]) is not None:
            return told
        with self.tx.reading_as(SYSTEM):
            for item in reversed(self.memory(session_key).items):
                topic = self.topic(str(item.get("topicId") or ""))
                if topic is not None:
                    return topic.space_id
        return None

    def baseline(self, space_id: str) -> frozenset[str]:
        if space_id not in self._baselines:
            self._baselines[space_id] = spaces.baseline(self.tx, space_id)
        return self._baselines[space_id]

    def memory(self, session_key: str) -> routing.Memory:
        if session_key not in self._memories:
            self._memories[session_key] = routing.read(self.tx, session_key)
        return self._memories[session_key]

    def routed(self, session_key: str, view: visibility.View) -> list[routing.Routed]:
        """As `routing.recall`, by what is remembered here."""
        memory = self.memory(session_key)
        if not memory.items or not self.tx.reader.may_read(memory.audience):
            return []
        items = memory.routed(self.tx.now, self.options.routing_memory)
        there = self.recent.topics(self.tx, [one.topic_id for one in items])
        return [one for one in items if one.topic_id in there and view.sees(there[one.topic_id].space_ids)]

    def history(self, session_key: str, reader: Reader) -> History:
        lookback = self.options.classifier.lookback
        return self.recent.history(session_key, SYSTEM if reader.reads_all else reader, lookback)

    def tasks(self, topic_id: str) -> list[tuple[Any, ...]]:
        """The id, title and status of a topic's tasks that may be read, those changed last first."""
        key = (topic_id, self.tx.reader)
        if key not in self.recent.tasks:
            self.recent.tasks[key] = _TASKS.rows(self.tx, topic=topic_id, most=MAX_TASKS)
        return self.recent.tasks[key]

    def sort(self, entry: Entry, fields: Mapping[str, Any], text: str, made: Made) -> None:
        """Have an entry lie where `fields` say, for the reasons given; `text` is what it says there."""
        after = replace(entry, **fields, updated_at=self.tx.now)
        self._changed.append((entry, fields))
        self._made.append(made)
        self.recent.sorted(entry, after, text)

    def move_topic(self, topic: Topic, at: int) -> None:
        """New words bring a topic to the front, and back from the archive or its snooze."""
        values: dict[str, Any] = {}
        if topic.status in _DORMANT:
            values |= {"status": TopicStatus.ACTIVE.value, "snoozed_until": None}
        if at > topic.updated_at:
            values["updated_at"] = at
        if topic.digest_updated_at is not None and at < topic.digest_updated_at:
            self._behind[topic.id] = topic.digest_updated_at
        if values:
            self._moved[topic.id] = {**self._moved.get(topic.id, {}), **values}
            awake = TopicStatus.ACTIVE if topic.status in _DORMANT else topic.status
            until = None if topic.status in _DORMANT else topic.snoozed_until
            newest = Millis(max(at, topic.updated_at))
            self.recent.topic_moved(replace(topic, status=awake, snoozed_until=until, updated_at=newest))

    def name_better(self, topic: Topic, exchange: Exchange, outcome: Outcome) -> Topic:
        """The topic under a better name, while it is young and has one from its words.

        Named only by what all who may read the topic may read, as those hear it whom it was made for.
        """
        if topic.id not in self.recent.young:
            return topic
        if exchange.audience != topic.audience or _agent(exchange) != topic.agent_id:
            return topic
        said = {str(entry.id): text for entry, text in zip(exchange.entries, exchange.texts, strict=True)}
        weighed = outcome.method == "heuristic"
        elsewhere = (lambda: _topics_with(outcome.beside, topic.id)) if weighed else None
        name = self.recent.young.renamed(topic.id, topic.name, said, elsewhere)
        return topic if name is None else self._renamed(topic, name, exchange)

    def name_by_the_rest(self, topic_id: str, gone: Exchange, outcome: Outcome) -> None:
        """What was moved out of a topic does not name it any more, while it is young."""
        topic = self.topic(topic_id)
        if topic is not None and topic_id in self.recent.young:
            ids = [str(entry.id) for entry in gone.entries]
            elsewhere = _topics_with(outcome.beside, topic_id)
            name = self.recent.young.left(topic_id, topic.name, ids, elsewhere)
            if name is not None:
                self._renamed(topic, name, gone)

    def _renamed(self, topic: Topic, name: str, exchange: Exchange) -> Topic:
        try:
            with self.tx.reading_as(self.hearers(exchange)):
                renamed = topics.update(self.tx, topic.id, {"name": name}, quietly=True)
        except Conflict:
            self.recent.young.given(topic.id, topic.name)
            return topic
        self.recent.topic_moved(renamed)
        return renamed

    def move_task(self, task_id: str, at: int) -> None:
        if _MOVE_TASK.run(self.tx, {"updated_at": at}, task=task_id, at=at):
            changes.emit(self.tx, "task.upserted", task_id)
            self.recent.tasks.clear()

    def remember(self, exchange: Exchange, topic: Topic, task: str | None) -> None:
        """The session is about this topic now, and a digest of it will be due."""
        self._is_digest_due = True
        key = exchange.session_key
        if key is not None:
            said_at = min(int(self.tx.now), exchange.entries[-1].created_at)
            item = routing.Routed(said_at, topic.id, topic.name, exchange.asked, task)
            options = self.options.routing_memory
            memory = self.memory(key).remembering(item, self.tx.now, options, exchange.audience)
            self._memories[key] = memory
            self._remembered.add(key)

    def flush(self) -> None:
        """Write what was decided."""
        tx = self.tx
        entries.annotate_read(tx, self._changed)
        decisions.record(tx, self._made)
        for topic_id, values in self._moved.items():
            _MOVE_TOPIC.run(tx, values, topic=topic_id)
            changes.emit(tx, "topic.upserted", topic_id)
        for key in self._remembered:
            routing.write(tx, key, self._memories[key])
        if self._is_digest_due and self.options.digests.enabled:
            digests.enqueue(tx, due_at=int(tx.now) + digests.MINUTE_MS)
            for topic_id, digested_at in self._behind.items():
                digests.enqueue_again(tx, topic_id, digested_at, self.options.digests)
        self._changed, self._made, self._moved, self._behind = [], [], {}, {}
        self._remembered, self._is_digest_due = set(), False


def place(batch: Batch, exchange: Exchange, outcome: Outcome, *, attempt: int) -> Topic | None:
    """Decide an outcome. None when its topic was deleted meanwhile: then the exchange stays pending."""
    chosen, is_new = _topic(batch, exchange, outcome)
    if chosen is None:
        return None
    topic = batch.name_better(chosen, exchange, outcome)
    named = {"named": topic.name} if (is_new and outcome.method == "heuristic") or topic != chosen else {}
    with batch.tx.reading_as(batch.hearers(exchange)):
        task = outcome.task_id or fitting_task(exchange.text, batch.tasks(topic.id))
    for entry, text in zip(exchange.entries, exchange.texts, strict=True):
        made = Made(
            entry_id=entry.id,
            method=outcome.method,
            topic_id=topic.id,
            task_id=task,
            confidence=outcome.confidence,
            reasons={**outcome.reasons, **named},
            decided_at=batch.tx.now,
            attempt=attempt,
        )
        fields = _fields(entry, text, topic, task, outcome, batch.options)
        said = text if entry.code is None else semantic_text(replace(entry, code=None))
        batch.sort(entry, fields, said, made)
    at = max(entry.created_at for entry in exchange.entries)
    batch.move_topic(topic, at)
    if task is not None:
        batch.move_task(task, at)
    batch.remember(exchange, topic, task)
    return topic


def unmoved(tx: Tx, exchange: Exchange, topic_id: str | None = None) -> Exchange | None:
    """The exchange as it is now, unless somebody moved or deleted any of it meanwhile: it lay in the topic,
    else where its entries say."""
    now = {entry.id: entry for entry in entries.get_many(tx, [entry.id for entry in exchange.entries])}
    for entry in exchange.entries:
        kept = now.get(entry.id)
        if kept is None or kept.deleted_at is not None or kept.topic_id != (topic_id or entry.topic_id):
            return None
    return replace(exchange, entries=tuple([now[entry.id] for entry in exchange.entries]))


def drop_if_empty(tx: Tx, topic_id: str) -> bool:
    """A topic that rules made and that was left empty was a mistake; one that a person touched stays."""
    topic = next(iter(topics.get_many(tx, [topic_id])), None)
    if topic is None or _is_touched(topic):
        return False
    if tasks.listing(tx, visibility.EVERYTHING, topic_id=topic_id, limit=1).tasks:
        return False
    if entries.listing(tx, EntryFilter(topic_id=topic_id), limit=1).entries:
        return False
    topics.delete(tx, topic_id)
    return True


def _is_touched(topic: Topic) -> bool:
    """Whether a person made it or gave it anything, as far as the topic tells."""
    given = topic.description or topic.tags or topic.due_at or topic.color or topic.pinned
    plain = topic.status is TopicStatus.ACTIVE and topic.priority is Priority.MEDIUM
    return bool(given) or not plain or topic.created_by is not CreatedBy.CLASSIFIER


def reject(batch: Batch, found: Sequence[Entry], code: str, reason: str) -> None:
    """End entries that belong to no topic; their words stay in the log."""
    for entry in found:
        fields = {"status": Classification.FAILED, "code": code, "topic_id": None, "task_id": None}
        made = Made(entry_id=entry.id, method="rule", reasons={"text": reason}, decided_at=batch.tx.now)
        batch.sort(entry, fields, semantic_text(replace(entry, code=code)), made)


def fitting_task(text: str, tasks: Sequence[tuple[Any, ...]]) -> str | None:
    """The one open task whose title the text is plainly about; None when in doubt."""
    said = set(terms(text)) if tasks else set()
    best: list[tuple[float, str]] = []
    for id_, titled, status in tasks:
        title = {term for term in terms(titled) if not is_filler(term)}
        shared = title & said
        if status == TaskStatus.DONE or not title or len(shared) < min(2, len(title)):
            continue
        if len(shared) / len(title) >= _TITLE_SHARE:
            best.append((len(shared) / len(title) + 0.01 * len(shared), id_))
    best.sort(reverse=True)
    clear = len(best) == 1 or (len(best) > 1 and best[0][0] > best[1][0])
    return best[0][1] if clear else None


def _topic(batch: Batch, exchange: Exchange, outcome: Outcome) -> tuple[Topic | None, bool]:
    """The topic that was chosen, or one of the name that those who hear the exchange may see; else a new one,
    for those who may read what it is named after. And whether it is new."""
    if outcome.topic_id is not None:
        return batch.topic(outcome.topic_id), False
    assert outcome.name is not None
    audience, tx = exchange.audience, batch.tx
    with tx.reading_as(batch.hearers(exchange)):
        found = topics.find(tx, outcome.name, space_id=outcome.space_id, audience=audience)
        if found is not None:
            return batch.topic(found.id), False
        made = topics.upsert(
            tx,
            outcome.name,
            created_by=CreatedBy.CLASSIFIER,
            audience=audience,
            agent_id=_agent(exchange),
            at=exchange.entries[0].created_at,
            space_id=outcome.space_id,
        ).topic
        batch.recent.topic_made(tx, made)
        if outcome.method == "heuristic":
            batch.recent.young.given(made.id, made.name)
        return made, True


def _topics_with(profiles: Sequence[Profile], but: str) -> Mapping[str, int]:
    """How many of the topics have a word."""
    return Counter(term for one in profiles if one.id != but for term in one.counts)


def _agent(exchange: Exchange) -> str | None:
    """Whose conversation it is, by its session's key."""
    key = noise.key_of(exchange.session_key)
    return None if key is None else key.agent_id


def _fields(
    entry: Entry, text: str, topic: Topic, task: str | None, outcome: Outcome, options: BoardConfig
) -> dict[str, Any]:
    """What sorting writes to an entry. A space that it was given is not sorting's to change."""
    limit = options.classifier.summary_max_chars
    place = entry.space_id if entry.space_id in topic.space_ids else topic.space_id
    summary = entry.summary
    if not summary or outcome.summary:
        own = chip(text or entry.content, limit)
        better = outcome.summary if len(outcome.summary) <= limit and summary in (None, own) else ""
        summary = better or summary or own or None
    return {
        "topic_id": topic.id,
        "task_id": task,
        "space_id": place if entry.given_space is None else entry.given_space,
        "status": Classification.CLASSIFIED,
        "code": None,
        "summary": summary,
    }


_TASKS: Final = ReadableRows(
    """SELECT id, title, status FROM tasks WHERE topic_id = :topic {reach}
    ORDER BY updated_at DESC, id DESC LIMIT :most""",
    agent=None,
)
_MOVE_TOPIC: Final = Update(topic_table, topic_table.c.id == sa.bindparam("topic"))
_MOVE_TASK: Final = Update(
    task_table, task_table.c.id == sa.bindparam("task"), task_table.c.updated_at < sa.bindparam("at")
)
