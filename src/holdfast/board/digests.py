"""Digests: a topic's or task's history in a few lines, shown as context and never searched.

Written by the system alone, at most once in an interval for each topic, a few in each cycle. By a model when
there is one, else from the most telling sentences. Made from what all readers of the topic may read, and from
nothing else that was filed there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import sqlalchemy as sa

from holdfast.board import tables, tasks, topics
from holdfast.board.sanitise import sanitise
from holdfast.board.semantic import semantic_text
from holdfast.board.summaries import cut, sentences
from holdfast.board.words import is_filler, terms
from holdfast.config.board import BoardConfig, Digests
from holdfast.errors import HoldfastError
from holdfast.log import (
    FOR_OWNER,
    SYSTEM,
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
_LINE: Final = 240
_LINES: Final = 12


class Scribe(Protocol):
    async def digest(self, title: str, texts: Sequence[str], *, max_chars: int) -> str:
        """A digest of texts, oldest first; any `HoldfastError` when it cannot be had now."""
        ...


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


def extract(found: Sequence[tuple[str, bool]], *, max_chars: int) -> str:
    """The most telling sentences of texts (oldest first; True for a curated note), the newest first: where it
    stands now is what must not be cut off."""
    lines = [(cut(s, _LINE), note, i) for i, (text, note) in enumerate(found) for s in sentences(text)]
    common = Counter(t for line, _, _ in lines for t in set(terms(line)) if not is_filler(t))
    scored: dict[str, tuple[float, int]] = {}
    for order, (line, note, at) in enumerate(lines):
        words = {t for t in terms(line) if not is_filler(t)}
        centre = sum(min(common[t], 6) - 0.5 for t in words) / (3 + len(words))
        score = centre + 0.5 * at / max(1, len(found)) + (2.0 if note else 0.0)
        if words and not line.endswith("?"):
            scored.setdefault(line, (score, order))
    best = sorted(scored, key=lambda line: (-scored[line][0], scored[line][1]))[:_LINES]
    return _fitted(sorted(best, key=lambda line: -scored[line][1]), max_chars)


def enqueue(tx: Tx, *, due_at: int) -> agenda.Item:
    """Ask for a cycle; one waits at a time."""
    return agenda.enqueue(tx, KIND, {}, lane=KIND, key=KIND, due_at=due_at, max_attempts=3)


class Digester:
    """Handles agenda items of kind `board.digest`."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        options: Callable[[], BoardConfig],
        *,
        scribe: Callable[[], Scribe | None] = lambda: None,
    ) -> None:
        self._store = store
        self._threads = threads
        self._options = options
        self._scribe = scribe

    def kind(self) -> agenda.Kind:
        return agenda.Kind(self.handle, relative=True, limit=1)

    async def handle(self, job: agenda.Job) -> None:
        options = self._options().digests
        chosen = await self._threads(self._chosen, options)
        for subject in chosen:
            found = await self._threads(self._texts, subject)
            text = await self._written(subject, found, options)
            await self._threads(
                self._store.run,
                SYSTEM,
                lambda tx, one=subject, new=text: _write(tx, job, one, new),
                durable=False,
            )
        await self._threads(self._store.run, SYSTEM, lambda tx: self._finish(tx, job, options), durable=False)

    async def _written(self, subject: Subject, found: Sequence[Entry], options: Digests) -> str | None:
        """The digest; None when there is too little to say."""
        texts = [(text, e.type is EntryType.NOTE) for e in found if (text := semantic_text(e))]
        if len(texts) < LEAST_TEXTS:
            return None
        scribe = self._scribe()
        if scribe is not None:
            try:
                said = await scribe.digest(subject.title, [t for t, _ in texts], max_chars=options.max_chars)
                if clean := sanitise(said).strip():
                    return cut(clean, options.max_chars)
            except HoldfastError:
                pass  # a digest is no reason to wait for a model: the sentences themselves serve
        return extract(texts, max_chars=options.max_chars) or None

    def _chosen(self, options: Digests) -> list[Subject]:
        if not options.enabled:
            return []
        with self._store.read(SYSTEM) as tx:
            return due(subjects(tx), tx.now, options)[0]

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


def _fitted(lines: Sequence[str], max_chars: int) -> str:
    kept: list[str] = []
    size = 0
    for line in lines:
        if size + len(line) + 3 > max_chars:
            break
        kept.append(f"- {line}")
        size += len(line) + 3
    return "\n".join(kept)
