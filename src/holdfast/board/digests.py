"""Digests: where a topic or task stands now, in a few lines, shown as context and never searched.

Written by the system alone, at most once in an interval for each topic, a few in each cycle: sentences to the
letter, chosen by a model when there is one, else by rules (`present`). Made from what all readers of the
topic may read, and from nothing else that was filed there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import sqlalchemy as sa

from holdfast.board import present, tables, tasks, topics
from holdfast.board.judge import Bounded, Judge, answered
from holdfast.board.semantic import semantic_text
from holdfast.config.board import BoardConfig, Digests
from holdfast.errors import HoldfastError
from holdfast.log import (
    FOR_OWNER,
    SYSTEM,
    Allowance,
    Entry,
    EntryFilter,
    EntryType,
    Store,
    Threads,
    Tx,
    agenda,
    entries,
    heard_by,
)

KIND: Final = "board.digest"
MINUTE_MS: Final = 60_000
LOOK_AT: Final = 200
TEXTS: Final = 60
LEAST_TEXTS: Final = 2


@dataclass(frozen=True, slots=True)
class Subject:
    """A topic or task as far as its digest goes."""

    kind: Literal["topic", "task"]
    id: str
    title: str
    updated_at: int
    digest_updated_at: int | None = None
    audience: str = FOR_OWNER


def due(subjects: Sequence[Subject], now: int, options: Digests) -> tuple[list[Subject], int | None]:
    """Whose digest to write now, longest without one first, and when to look again (None: nothing waits)."""
    wait = options.interval_minutes * MINUTE_MS
    stale = [
        one for one in subjects if one.digest_updated_at is None or one.updated_at >= one.digest_updated_at
    ]
    ready = [one for one in stale if (one.digest_updated_at or 0) + wait <= now]
    ready.sort(key=lambda one: (one.digest_updated_at or 0, -one.updated_at, one.id))
    chosen = ready[: options.per_cycle]
    if len(ready) > len(chosen):
        return chosen, now + MINUTE_MS
    later = [(one.digest_updated_at or 0) + wait for one in stale if one not in ready]
    return chosen, min(later, default=None)


def enqueue(tx: Tx, *, due_at: int) -> agenda.Item:
    """Ask for a cycle; one waits at a time."""
    return agenda.enqueue(tx, KIND, {}, lane=KIND, key=KIND, due_at=due_at, max_attempts=3)


def enqueue_again(tx: Tx, topic_id: str, digested_at: int, options: Digests) -> agenda.Item:
    """Ask for a new digest of a topic to which something older than its digest came, when the next is due."""
    at = max(int(tx.now), digested_at + options.interval_minutes * MINUTE_MS)
    again = {"topicId": topic_id}
    lane = f"{KIND}:{topic_id}"
    return agenda.enqueue(tx, KIND, again, lane=lane, key=lane, due_at=at, max_attempts=3)


class Digester:
    """Handles agenda items of kind `board.digest`."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        options: Callable[[], BoardConfig],
        *,
        scribe: Callable[[], Judge | None] = lambda: None,
        allowance: Allowance | None = None,
    ) -> None:
        self._store = store
        self._threads = threads
        self._options = options
        self._scribe = scribe
        self._allowance = allowance or Allowance()

    def kind(self) -> agenda.Kind:
        return agenda.Kind(self.handle, relative=True, limit=1)

    async def handle(self, job: agenda.Job) -> None:
        options = self._options().digests
        if (behind := job.item.payload.get("topicId")) is not None:
            await self._threads(
                self._store.run, SYSTEM, lambda tx: _reopen(tx, job, str(behind)), durable=False
            )
        now, chosen = await self._threads(self._chosen, options)
        for subject in chosen:
            found = await self._threads(self._texts, subject)
            text = await self._written(subject, found, now)
            await self._threads(
                self._store.run,
                SYSTEM,
                lambda tx, one=subject, new=text: _write(tx, job, one, new),
                durable=False,
            )
        await self._threads(self._store.run, SYSTEM, lambda tx: self._finish(tx, job, options), durable=False)

    async def _written(self, subject: Subject, found: Sequence[Entry], now: int) -> str | None:
        """The digest; None when there is too little to say."""
        options = self._options()
        said = [
            (text, int(e.created_at), e.type is EntryType.NOTE) for e in found if (text := semantic_text(e))
        ]
        if len(said) < LEAST_TEXTS:
            return None
        lines = present.lines_of(said)
        scribe = self._scribe()
        chosen = None if scribe is None else await self._by_model(scribe, subject.title, lines)
        chosen = chosen or present.by_rules(lines, now)
        return present.written(chosen, options.digests.max_chars) or None

    async def _by_model(
        self, scribe: Judge, title: str, lines: Sequence[present.Line]
    ) -> present.Present | None:
        """What a model chooses. A digest is no reason to wait for one: when it fails, rules serve."""
        bounded = Bounded(scribe, self._allowance, self._options().classifier.model_calls_per_hour)
        asked = present.question(title, lines)
        try:
            return await answered(bounded, asked, lambda reply: present.checked(reply, lines))
        except HoldfastError:
            return None

    def _chosen(self, options: Digests) -> tuple[int, list[Subject]]:
        with self._store.read(SYSTEM) as tx:
            return int(tx.now), due(subjects(tx), tx.now, options)[0] if options.enabled else []

    def _texts(self, subject: Subject) -> list[Entry]:
        where = (
            EntryFilter(topic_id=subject.id) if subject.kind == "topic" else EntryFilter(task_id=subject.id)
        )
        with self._store.read(heard_by(subject.audience)) as tx:
            return entries.listing(tx, where, limit=TEXTS).entries[::-1]

    def _finish(self, tx: Tx, job: agenda.Job, options: Digests) -> None:
        job.settle(tx)
        chosen, later = due(subjects(tx), tx.now, options) if options.enabled else ([], None)
        at = int(tx.now) + MINUTE_MS if chosen else later
        if at is not None:
            enqueue(tx, due_at=at)


def _reopen(tx: Tx, job: agenda.Job, topic_id: str) -> None:
    """Have a digest count as made before the last of what it is about, so that it is due."""
    job.advance(tx)
    table = tables.topics
    late = sa.update(table).where(table.c.id == topic_id, table.c.digest_updated_at > table.c.updated_at)
    tx.conn.execute(late.values(digest_updated_at=table.c.updated_at))


def subjects(tx: Tx) -> list[Subject]:
    """The topics and tasks that moved last; older ones had their turn when they moved."""
    found: list[Subject] = []
    for kind, table, title in (
        ("topic", tables.topics, tables.topics.c.name),
        ("task", tables.tasks, tables.tasks.c.title),
    ):
        query = sa.select(table.c.id, title, table.c.updated_at, table.c.digest_updated_at, table.c.audience)
        for row in tx.conn.execute(query.order_by(table.c.updated_at.desc()).limit(LOOK_AT)):
            found.append(Subject("topic" if kind == "topic" else "task", *row))
    return found


def _write(tx: Tx, job: agenda.Job, subject: Subject, text: str | None) -> None:
    """Write a digest, or note that there was nothing to say; nothing that a user sees moves.

    One that was made for fewer readers than there are by now is not written.
    """
    job.advance(tx)
    room = topics if subject.kind == "topic" else tasks
    kept = next(iter(room.get_many(tx, [subject.id])), None)
    if kept is not None and kept.audience == subject.audience:
        room.set_digest(tx, subject.id, text if text is not None else kept.digest)
