"""The classifier: sorts what is pending, a session at a time, off the path of any turn.

Locks and lineage decide first, then what goes without saying (an answer, "ok, do it"), then a model if there
is one, else the words themselves. Every exchange is sorted in a transaction of its own, so that a crash costs
nothing and old rows converge to the same rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, TypeVar

from holdfast.board import heuristic, lineage, noise, pending, routing, spaces, tasks, topics, visibility
from holdfast.board.audit import Audit
from holdfast.board.candidates import Candidates, Texts, Weighable, gather
from holdfast.board.exchanges import Exchange, before, split
from holdfast.board.ingest import apply, as_draft
from holdfast.board.ingest import gather as facts_of
from holdfast.board.judge import Judge, judged, question
from holdfast.board.placing import MAX_TASKS, Outcome, place, reject
from holdfast.board.reads import Query
from holdfast.board.rules import CONVERSATION_NOISE, UNLINKED_SUBAGENT, Scope, decide
from holdfast.board.semantic import semantic_text
from holdfast.board.summaries import topic_name
from holdfast.board.tags import DEFAULT_SPACE
from holdfast.board.tasks import Task
from holdfast.board.visibility import EVERYTHING, View
from holdfast.board.words import surfaces, terms
from holdfast.config.board import BoardConfig
from holdfast.errors import HoldfastError
from holdfast.log import (
    SYSTEM,
    Allowance,
    Classification,
    Entry,
    Pace,
    Reader,
    Store,
    Threads,
    Tx,
    agenda,
    entries,
)

T = TypeVar("T")

LIMIT: Final = 2
AWAIT_MS: Final = 15_000
AWAIT_LIMIT_MS: Final = 3_600_000
CLASSIFIER_ERROR: Final = "classifier_error"


@dataclass(frozen=True, slots=True)
class Open:
    """An exchange that neither a lock nor continuity settles, with all that is needed to weigh it."""

    exchange: Exchange
    text: str
    view: View
    hearers: Reader
    space_id: str | None
    current: str | None
    routed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Weighed:
    candidates: Sequence[Weighable]
    tasks: Sequence[Task]
    verdict: heuristic.Verdict


class Classifier:
    """Handles agenda items of kind `board.classify`."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        options: Callable[[], BoardConfig],
        *,
        judge: Callable[[], Judge | None] = lambda: None,
        candidates: Candidates | None = None,
        audit: Audit | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._store = store
        self._threads = threads
        self._options = options
        self._judge = judge
        self._candidates = candidates
        self._audit = audit
        self._pace = pace
        self._allowance = Allowance()
        self._texts = Texts()

    def kind(self) -> agenda.Kind:
        return agenda.Kind(
            self.handle, relative=True, limit=LIMIT, on_interrupt=self._gave_up, held=self._held
        )

    def _held(self) -> int:
        """In quiet times what is there is sorted at once; in a rush, so many sessions in each interval."""
        if self._pace is None or not self._pace.busy:
            return LIMIT
        options = self._options().classifier
        return self._allowance.left(options.sessions_per_cycle, options.interval_seconds)

    async def handle(self, job: agenda.Job) -> None:
        """Sort a session's pending entries, at most a window of exchanges; the rest waits for its turn."""
        options = self._options()
        self._allowance.take()
        key: str | None = job.item.payload.get("sessionKey")
        for _ in range(options.classifier.window if options.classifier.enabled else 0):
            found = await self._run(lambda tx: self._next(tx, key, options, job))
            if found is None:
                break
            await self._sort(found, options, job)
        await self._run(lambda tx: self._finish(tx, key, options, job))

    async def _run(self, work: Callable[[Tx], T]) -> T:
        """Sorting can be done again, so nobody waits until the disk has it."""
        return await self._threads(self._store.run, SYSTEM, work, durable=False)

    async def _sort(self, found: Open, options: BoardConfig, job: agenda.Job) -> None:
        weighed = await self._threads(self._weigh, found)
        outcome = await self._judged(found, weighed, options, job)
        if outcome is None:
            outcome = by_words(found, weighed)

        def write(tx: Tx) -> None:
            job.advance(tx)
            if outcome is None:
                reject(tx, found.exchange.entries, CONVERSATION_NOISE, "no words to sort by, and no thread")
            else:
                place(tx, found.exchange, outcome, options, attempt=max(1, job.item.attempts))

        await self._run(write)
        self._note(found.exchange, outcome)

    async def _judged(
        self, found: Open, weighed: Weighed, options: BoardConfig, job: agenda.Job
    ) -> Outcome | None:
        """The model's word, if there is a model; its failures are retried, and after the last one it is not
        asked any more."""
        judge = self._judge()
        if judge is None:
            return None
        asked = question(found.text, weighed.candidates, weighed.tasks, found.current)
        try:
            async with asyncio.timeout(options.classifier.session_budget_seconds):
                answer = await judged(judge, asked, weighed.candidates, weighed.tasks)
        except (HoldfastError, TimeoutError):
            if job.item.attempts < job.item.max_attempts:
                raise
            return None
        return Outcome(
            method="model",
            topic_id=answer.topicId,
            name=answer.name if answer.choice == "new" else None,
            task_id=answer.taskId,
            space_id=found.space_id,
            summary=answer.summary,
            reasons=_reasons(weighed.verdict, found.text) | {"text": f"the model chose {answer.choice}"},
        )

    def _next(self, tx: Tx, key: str | None, options: BoardConfig, job: agenda.Job) -> Open | None:
        """Settle what needs no weighing, and return the first exchange that does; None when all is done."""
        found = entries.waiting(tx, key, limit=options.classifier.window)
        placed = [(entry, self._ruled(tx, entry, options)) for entry in found]
        left: dict[str, Scope] = {entry.id: scope for entry, scope in placed if scope is not None}
        groups = _grouped([entry for entry in found if entry.id in left], left, alone=key is None)
        attempt = max(1, job.item.attempts)
        while groups:
            exchange = groups.pop(0)
            scope = left[exchange.entries[-1].id]
            opened = self._settled(tx, exchange, scope, options, attempt)
            if opened is None:
                continue
            if noise.is_low_signal(opened.text) and groups and _alike(exchange, groups[0]):
                groups[0] = Exchange((*exchange.entries, *groups[0].entries))
                continue
            return opened
        return None

    def _ruled(self, tx: Tx, entry: Entry, options: BoardConfig) -> Scope | None:
        """Hold an entry to the rules of ingest; its scope when it is still to be sorted."""
        draft = as_draft(entry)
        decision = decide(draft, facts_of(tx, draft, options))
        if decision.status is Classification.FAILED:
            reject(tx, [entry], decision.code or CONVERSATION_NOISE, decision.reason)
            return None
        if decision.status is Classification.CLASSIFIED:
            now = apply(draft, decision)
            fields = {
                name: getattr(now, name) for name in ("status", "code", "topic_id", "task_id", "space_id")
            }
            if entry.given_space is not None:
                fields["space_id"] = entry.given_space
            entries.annotate(tx, entry.id, fields)
            return None
        return decision.scope

    def _settled(
        self, tx: Tx, exchange: Exchange, scope: Scope, options: BoardConfig, attempt: int
    ) -> Open | None:
        """Sort an exchange by lock, lineage or continuity; None when that was enough."""
        if scope.topic_id is not None:
            reasons = {"text": f"bound to its topic by {scope.origin}"}
            bound = Outcome(
                method="lock",
                topic_id=scope.topic_id,
                task_id=scope.task_id,
                confidence=1.0,
                reasons=reasons,
            )
            place(tx, exchange, bound, options, attempt=attempt, read=True)
            return None
        first = exchange.entries[0]
        if _is_subagent(first):
            self._await_link(tx, exchange, options)
            return None
        opened = _opened(tx, exchange, scope, options)
        outcome = by_continuity(opened) or _by_session(opened, options)
        if outcome is None:
            return opened
        place(tx, exchange, outcome, options, attempt=attempt, read=True)
        return None

    def _await_link(self, tx: Tx, exchange: Exchange, options: BoardConfig) -> None:
        """A child of a request that is not sorted yet: soon it will be, and if not, it belongs nowhere."""
        first = exchange.entries[0]
        if tx.now - first.created_at >= AWAIT_LIMIT_MS:
            reject(tx, exchange.entries, UNLINKED_SUBAGENT, "the request it was spawned for got no topic")

    def _weigh(self, found: Open) -> Weighed:
        retrieved: Sequence[str] = ()
        if self._candidates is not None:
            retrieved = self._candidates.topics(
                found.text, reader=found.hearers, spaces=found.view.spaces, limit=8
            )
        with self._store.read(found.hearers) as tx:
            lookback = self._options().classifier.lookback
            history = before(tx, found.exchange.entries[0], limit=lookback)
            candidates = gather(
                tx, found.text, found.view, routed=found.routed, retrieved=retrieved, texts=self._texts
            )
            near = (
                []
                if found.current is None
                else tasks.listing(tx, EVERYTHING, topic_id=found.current, limit=MAX_TASKS).tasks
            )
        texts = [terms(text) for entry in history if (text := semantic_text(entry))]
        verdict = heuristic.decide(
            terms(found.text),
            [one.profile for one in candidates],
            heuristic.Background(texts),
            current=found.current,
            cue=_cue(found.exchange.asked),
        )
        return Weighed(candidates, near, verdict)

    def _finish(self, tx: Tx, key: str | None, options: BoardConfig, job: agenda.Job) -> None:
        """End the item, and put the session back on the agenda if something still waits there."""
        job.settle(tx)
        left = entries.waiting(tx, key, limit=1) if options.classifier.enabled else []
        if left:
            linked = key is not None and _is_subagent(left[0]) and lineage.find(tx, key) is not None
            pending.enqueue(tx, key, options.classifier, due_at=int(tx.now) + (AWAIT_MS if linked else 0))

    def _gave_up(self, tx: Tx, item: agenda.Item) -> None:
        """When every attempt went wrong, what was tried ends as failed instead of waiting for ever."""
        if item.status is agenda.Status.FAILED:
            window = self._options().classifier.window
            tried = entries.waiting(tx, item.payload.get("sessionKey"), limit=window)
            reject(tx, tried, CLASSIFIER_ERROR, item.error or "sorting failed")

    def _note(self, exchange: Exchange, outcome: Outcome | None) -> None:
        if self._audit is not None:
            facts = {} if outcome is None else {"method": outcome.method, "topicId": outcome.topic_id}
            self._audit.write("classify", {"entries": [e.id for e in exchange.entries], **facts})


def by_continuity(found: Open) -> Outcome | None:
    """An answer goes with its question; words that say nothing go on with what was talked about."""
    if found.current is None:
        return None
    if found.exchange.reply:
        reasons = {"text": "an answer goes with its question"}
        return Outcome(method="reply", topic_id=found.current, confidence=0.95, reasons=reasons)
    if noise.is_low_signal(found.text) and not noise.announces_new_thread(found.exchange.asked):
        reasons = {"text": "says nothing new, so it goes on with the thread"}
        return Outcome(method="continuity", topic_id=found.current, confidence=0.9, reasons=reasons)
    return None


def by_words(found: Open, weighed: Weighed) -> Outcome | None:
    """What the words say; None when they say nothing and no thread is there to go on with."""
    best = weighed.verdict.best
    name = topic_name(found.exchange.asked) or topic_name(found.text)
    if best.id is None and name is None:
        if found.current is None:
            return None
        best = replace(best, id=found.current, move="stay")
    return Outcome(
        method="heuristic",
        topic_id=best.id,
        name=name if best.id is None else None,
        space_id=found.space_id,
        confidence=round(weighed.verdict.confidence, 4),
        reasons=_reasons(weighed.verdict, found.text),
    )


def _by_session(found: Open, options: BoardConfig) -> Outcome | None:
    key = found.exchange.entries[0].session_key
    if not options.auto_topic_by_session or key is None:
        return None
    reasons = {"text": "each session has a topic of its own (autoTopicBySession)"}
    return Outcome(method="session", name=f"Session {key}"[:200], space_id=found.space_id, reasons=reasons)


def _opened(tx: Tx, exchange: Exchange, scope: Scope, options: BoardConfig) -> Open:
    """What may be weighed: topics within sight that the hearers of the exchange may see. What was given a
    space stays in it, and goes under no topic of another."""
    first, given, hearers = exchange.entries[0], exchange.given_space, exchange.hearers(tx)
    source = given or scope.space_id or visibility.source_space(tx, None, first.session_key)
    within = spaces.baseline(tx, source or DEFAULT_SPACE) if given is None else frozenset((given,))
    view = View(within, source)
    remembered: list[routing.Routed] = []
    with tx.reading_as(hearers):
        if first.session_key is not None:
            remembered = routing.recall(tx, first.session_key, options.routing_memory, view)
        current = _current(tx, remembered, first, options)
        if current is not None and not _is_within(tx, current, view):
            current = None
    routed = tuple(item.topic_id for item in remembered)
    return Open(exchange, exchange.text, view, hearers, source, current, routed)


def _is_within(tx: Tx, topic_id: str, view: View) -> bool:
    return any(view.sees(topic.space_ids) for topic in topics.get_many(tx, [topic_id]))


def _alike(one: Exchange, other: Exchange) -> bool:
    """Whether two exchanges may be sorted as one: the same people read them, in the same given space."""
    return (one.audience, one.given_space) == (other.audience, other.given_space)


def _current(tx: Tx, remembered: Sequence[routing.Routed], first: Entry, options: BoardConfig) -> str | None:
    """What the session was about just before: as it remembers, unless it remembers what came later."""
    if remembered and remembered[-1].ts <= first.created_at:
        return remembered[-1].topic_id
    if first.session_key is None:
        return None
    place = {"session": first.session_key, "at": first.created_at, "position": first.position}
    found = _LATEST_TOPIC.first(tx, **place, most=options.classifier.lookback)
    return None if found is None else str(found[0])


def _grouped(found: Sequence[Entry], scopes: Mapping[str, Scope], *, alone: bool) -> list[Exchange]:
    """The exchanges of a session, cut where scope, given space or audience change; entries without a session
    stand alone."""
    if alone:
        return [Exchange((entry,)) for entry in found]
    groups: list[Exchange] = []
    for exchange in split(found):
        for kind, part in groupby(exchange.entries, key=lambda entry: _kind(entry, scopes)):
            reply = exchange.reply or kind != _kind(exchange.entries[0], scopes)
            groups.append(Exchange(tuple(part), reply))
    return groups


def _kind(entry: Entry, scopes: Mapping[str, Scope]) -> tuple[object, ...]:
    return scopes[entry.id], entry.given_space, entry.audience


def _cue(text: str) -> heuristic.Cue:
    if noise.announces_new_thread(text):
        return "change"
    return "request" if noise.is_fresh_request(text) else "none"


def _is_subagent(entry: Entry) -> bool:
    key = noise.key_of(entry.session_key)
    return key is not None and key.is_subagent


_LATEST_TOPIC: Final = Query(
    """SELECT topic_id FROM (
        SELECT topic_id, status, code, created_at, position FROM entries
        WHERE session_key = :session AND deleted_at IS NULL
        AND (created_at, position) < (:at, :position)
        ORDER BY created_at DESC, position DESC LIMIT :most
    ) AS recent
    WHERE topic_id IS NOT NULL AND status = 'classified' AND COALESCE(code, '') = ''
    ORDER BY created_at DESC, position DESC LIMIT 1"""
)


def _reasons(verdict: heuristic.Verdict, text: str) -> dict[str, Any]:
    best = verdict.best
    written = surfaces(text)
    said = {"stay": "goes on with the thread", "return": "goes back to a topic", "new": "begins a topic"}
    return {
        "text": said[best.move],
        "score": round(best.score, 3),
        "margin": None if verdict.margin > 1e6 else round(verdict.margin, 3),
        "evidence": [written.get(term, term) for term in best.evidence],
        "others": [{"topicId": way.id, "score": round(way.score, 3)} for way in verdict.others],
    }
