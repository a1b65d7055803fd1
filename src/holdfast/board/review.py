"""A model looks over what the rules sorted: a stretch of a session at a time, after it has gone quiet.

What was said lies under a topic at once, by rules alone. Some minutes later a model is shown the stretch as a
whole, with the topics that it may belong to, and may move exchanges, name topics and merge those that the
rules took for two. It is asked a bounded number of times in an hour; when it fails, or says what cannot be
used, all stays as the rules have it. What a person made or named is never changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from holdfast.board import decisions, noise, tables, tasks, topics
from holdfast.board.audit import Audit
from holdfast.board.candidates import Candidates
from holdfast.board.exchanges import Exchange, in_scopes
from holdfast.board.judge import (
    HOUR_SECONDS,
    MOST_EXCHANGES,
    BadAnswer,
    Bounded,
    Judge,
    Sorted,
    Sorting,
    answered,
)
from holdfast.board.placing import Batch, Outcome, drop_if_empty, place, unmoved
from holdfast.board.rules import Scope
from holdfast.board.semantic import semantic_text
from holdfast.board.tags import DEFAULT_SPACE
from holdfast.board.topics import Topic
from holdfast.board.visibility import EVERYTHING, View
from holdfast.config.board import BoardConfig, Classifier
from holdfast.errors import Conflict, HoldfastError
from holdfast.log import (
    SYSTEM,
    Allowance,
    Classification,
    Entry,
    EntryFilter,
    Reader,
    Store,
    Threads,
    Tx,
    agenda,
    entries,
)

KIND: Final = "board.review"
MAX_ATTEMPTS: Final = 2
MOST_TOPICS: Final = 16
LATER_MS: Final = 900_000
_LOOK_BACK: Final = 80
_MOST_TASKS: Final = 20


def enqueue(tx: Tx, session_key: str, *, due_at: int) -> agenda.Item:
    """Ask that a session is looked over; asked again before it is, it is once."""
    lane = f"{KIND}:{session_key}"
    given = {"sessionKey": session_key}
    return agenda.enqueue(tx, KIND, given, lane=lane, key=lane, due_at=due_at, max_attempts=MAX_ATTEMPTS)


@dataclass(frozen=True, slots=True)
class Stretch:
    """What is looked over at once: exchanges that the same people may read, in the same given space."""

    exchanges: Sequence[Exchange]
    hearers: Reader
    view: View
    space_id: str | None
    more: bool
    """Whether something later waits to be looked over as well."""
    quiet_at: int | None = None
    """When it will have been quiet for long enough, where it is not yet."""

    @property
    def text(self) -> str:
        return "\n".join(one.asked for one in self.exchanges)


class Reviewer:
    """Handles agenda items of kind `board.review`. `judge` gives the model for an agent's sessions."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        options: Callable[[], BoardConfig],
        *,
        judge: Callable[[str | None], Judge | None],
        allowance: Allowance,
        candidates: Candidates | None = None,
        audit: Audit | None = None,
    ) -> None:
        self._store = store
        self._threads = threads
        self._options = options
        self._judge = judge
        self._allowance = allowance
        self._candidates = candidates
        self._audit = audit

    def kind(self) -> agenda.Kind:
        return agenda.Kind(self.handle, relative=True, limit=1)

    async def handle(self, job: agenda.Job) -> None:
        options = self._options()
        key = str(job.item.payload["sessionKey"])
        judge = self._judge(agent_of(key)) if options.classifier.enabled else None
        if judge is None:
            await self._run(job.settle)
            return
        last, stretch = await self._threads(self._read, key, options)

        def settle(tx: Tx) -> None:
            """What came while this ran would not be looked over: asking for it found this one at work."""
            job.settle(tx)
            if _last(_by_rules_alone(tx, key)) != last:
                enqueue(tx, key, due_at=int(tx.now) + options.classifier.model_wait_seconds * 1000)

        if stretch is None or stretch.quiet_at is not None:
            await self._run(lambda tx: self._put_off(tx, settle, key, stretch))
            return
        sorting = await self._threads(self._sorting, stretch, options)
        spent = not self._allowance.left(options.classifier.model_calls_per_hour, HOUR_SECONDS)
        found = None if spent else await self._judged(judge, sorting, options.classifier, job)
        attempt = max(1, job.item.attempts)
        await self._run(lambda tx: self._finish(tx, settle, stretch, sorting, found, attempt, spent=spent))

    def _put_off(self, tx: Tx, settle: Callable[[Tx], None], key: str, stretch: Stretch | None) -> None:
        """While it is still talked about it waits."""
        settle(tx)
        if stretch is not None and stretch.quiet_at is not None:
            enqueue(tx, key, due_at=stretch.quiet_at)

    async def _run(self, work: Callable[[Tx], None]) -> None:
        await self._threads(self._store.run, SYSTEM, work, durable=False)

    async def _judged(
        self, judge: Judge, sorting: Sorting, options: Classifier, job: agenda.Job
    ) -> list[Sorted] | None:
        """What the model says; None when it says nothing that can be used."""
        bounded = Bounded(judge, self._allowance, options.model_calls_per_hour)
        try:
            async with asyncio.timeout(options.session_budget_seconds):
                return await answered(bounded, sorting.question(), sorting.checked)
        except BadAnswer:
            return None
        except (HoldfastError, TimeoutError):
            if job.item.attempts < job.item.max_attempts:
                raise
            return None

    def _read(self, key: str, options: BoardConfig) -> tuple[str | None, Stretch | None]:
        """The last entry that rules sorted, and the oldest stretch that no model has seen; None where words
        decided nothing."""
        with self._store.read(SYSTEM) as tx:
            found = _by_rules_alone(tx, key)
            groups = in_scopes(found, {entry.id: Scope() for entry in found})
            first = next((one for one in groups if not one.reply), None)
            if first is None:
                return _last(found), None
            alike = [one for one in groups if first.may_join(one)]
            batch = Batch(tx, options)
            source = first.given_space or batch.source_space(key)
            given = None if first.given_space is None else frozenset((first.given_space,))
            within = batch.baseline(source or DEFAULT_SPACE) if given is None else given
            chosen = alike[:MOST_EXCHANGES]
            more = len(alike) > len(chosen)
            quiet_at = groups[-1].entries[-1].created_at + options.classifier.model_wait_seconds * 1000
            waits = quiet_at if quiet_at > tx.now and not more else None
            made = Stretch(chosen, batch.hearers(first), View(within, source), source, more, waits)
            return _last(found), made

    def _sorting(self, stretch: Stretch, options: BoardConfig) -> Sorting:
        """The topics that the exchanges lie in, those of the session and those that the index finds."""
        retrieved: Sequence[str] = ()
        if self._candidates is not None:
            (retrieved,) = self._candidates.topics(
                [stretch.text], reader=stretch.hearers, spaces=stretch.view.spaces, limit=8
            )
        with self._store.read(SYSTEM) as tx:
            key = stretch.exchanges[0].session_key or ""
            routed = [
                one.topic_id for one in Batch(tx, options).memory(key).routed(tx.now, options.routing_memory)
            ]
            lie = [one.entries[0].topic_id or "" for one in stretch.exchanges]
            ids = list(dict.fromkeys((*lie, *reversed(routed), *retrieved)))[: 2 * MOST_TOPICS]
            with tx.reading_as(stretch.hearers):
                there = {topic.id: topic for topic in topics.get_many(tx, ids)}
                shown = [there[id_] for id_ in ids if id_ in there]
                shown = [topic for topic in shown if stretch.view.sees(topic.space_ids)][:MOST_TOPICS]
                near = [
                    task
                    for topic in shown[:4]
                    for task in tasks.listing(tx, EVERYTHING, topic_id=topic.id, limit=_MOST_TASKS).tasks
                ]
            renamable = frozenset(_named_by_rules(tx, stretch, shown))
        return Sorting(stretch.exchanges, shown, near, renamable)

    def _finish(
        self,
        tx: Tx,
        settle: Callable[[Tx], None],
        stretch: Stretch,
        sorting: Sorting,
        found: Sequence[Sorted] | None,
        attempt: int,
        *,
        spent: bool,
    ) -> None:
        settle(tx)
        key = stretch.exchanges[0].session_key or ""
        if found is not None:
            self._write(tx, stretch, sorting, found, attempt=attempt)
        if spent or (found is not None and stretch.more):
            enqueue(tx, key, due_at=int(tx.now) + (LATER_MS if spent else 0))

    def _write(
        self, tx: Tx, stretch: Stretch, sorting: Sorting, found: Sequence[Sorted], *, attempt: int
    ) -> None:
        batch = Batch(tx, self._options())
        left: set[str] = set()
        for exchange, answer in zip(stretch.exchanges, found, strict=True):
            there = unmoved(tx, exchange)
            if there is None:
                continue
            before = there.entries[0].topic_id
            _rename(tx, stretch, sorting, answer)
            placed = place(batch, there, _outcome(stretch, answer, before), attempt=attempt)
            if placed is not None and before is not None and placed.id != before:
                left.add(before)
            self._note(there, answer)
        batch.flush()
        for topic_id in sorted(left):
            drop_if_empty(tx, topic_id)

    def _note(self, exchange: Exchange, answer: Sorted) -> None:
        if self._audit is not None:
            facts = {"entries": [e.id for e in exchange.entries], "method": "model"}
            self._audit.write("classify", facts | {"topicId": answer.topicId, "name": answer.name})


def agent_of(session_key: str) -> str | None:
    key = noise.key_of(session_key)
    return None if key is None else key.agent_id


def _outcome(stretch: Stretch, answer: Sorted, before: str | None) -> Outcome:
    text = "the model left it" if answer.topicId == before else "the model moved it"
    return Outcome(
        method="model",
        topic_id=answer.topicId,
        name=None if answer.topicId is not None else answer.name,
        task_id=answer.taskId,
        space_id=stretch.space_id,
        summary=answer.summary,
        reasons={"text": text} if answer.topicId == before else {"text": text, "before": before},
    )


def _last(found: Sequence[Entry]) -> str | None:
    return found[-1].id if found else None


def _by_rules_alone(tx: Tx, key: str) -> list[Entry]:
    """The newest entries of a session up to the last that a model has seen, in log order."""
    newest = entries.listing(tx, EntryFilter(session_key=key), limit=_LOOK_BACK).entries
    said = [e for e in newest if e.status is Classification.CLASSIFIED and e.topic_id and semantic_text(e)]
    methods = decisions.methods(tx, [entry.id for entry in said])
    found: list[Entry] = []
    for entry in said:
        method = methods.get(entry.id)
        if method == "model":
            break
        if method in decisions.BY_RULES:
            found.append(entry)
    return found[::-1] if any(methods[entry.id] == "heuristic" for entry in found) else []


def _named_by_rules(tx: Tx, stretch: Stretch, shown: Sequence[Topic]) -> list[str]:
    """Topics whose name is still the one that rules gave them in this stretch."""
    table = tables.decisions
    ids = [entry.id for one in stretch.exchanges for entry in one.entries]
    query = sa.select(table.c.topic_id, table.c.reasons).where(table.c.entry_id.in_(ids))
    named: dict[str, set[Any]] = {}
    for topic_id, reasons in tx.conn.execute(query):
        named.setdefault(topic_id, set()).add((reasons or {}).get("named"))
    return [one.id for one in shown if one.name in named.get(one.id, ())]


def _rename(tx: Tx, stretch: Stretch, sorting: Sorting, answer: Sorted) -> None:
    if answer.topicId not in sorting.renamable or answer.name is None:
        return
    with tx.reading_as(stretch.hearers):
        try:
            topics.update(tx, answer.topicId, {"name": answer.name}, quietly=True)
        except Conflict:  # the name is another topic's: this one keeps its own
            return
