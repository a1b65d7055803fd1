"""The classifier: sorts what is pending, a session at a time, off the path of any turn.

Locks and lineage decide first, then what goes without saying (an answer, "ok, do it"), then the words
themselves; a model may look it over later (`review`). As many exchanges as can be sorted in a moment share a
transaction (`placing.Batch`), with what they read in common. A crash costs nothing, and old rows converge to
the same rules.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

from holdfast.board import decisions, lineage, noise, pending, review
from holdfast.board.audit import Audit
from holdfast.board.candidates import Candidates, Recent, Texts
from holdfast.board.exchanges import Episode, Exchange, Window, in_scopes, split
from holdfast.board.ingest import apply, as_draft
from holdfast.board.ingest import gather as facts_of
from holdfast.board.placing import Batch, Outcome, drop_if_empty, place, reject, unmoved
from holdfast.board.rules import CONVERSATION_NOISE, UNLINKED_SUBAGENT, Scope, decide
from holdfast.board.weighing import Open, by_continuity, by_session, by_words, opened, weigh
from holdfast.config.board import BoardConfig
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
GAP_SECONDS: Final = 1.0
"""How long a rush goes before the next piece; then it is sorted beside it."""
BUNDLES: Final = 8
"""How many windows of a session are sorted before others have their turn."""
AHEAD: Final = 4
"""How many windows the index is asked about at once."""
LEAST: Final = 8
PIECE_SECONDS: Final = 0.05
"""How long exchanges are sorted in one transaction; whoever else writes waits that long at most."""


Retrieved = dict[tuple[str, Reader, frozenset[str] | None], Sequence[str]]
"""What the index found for a text, who hears it, and where it may lie."""


@dataclass(slots=True)
class Piece:
    """What sorting in one transaction has come to; `wanted` is what the index must be asked about first."""

    wanted: Open | None = None
    done: bool = False
    window: Window = field(default_factory=Window)
    """What was read and not sorted yet; the next transaction goes on with it if nobody else wrote."""
    sorted: list[tuple[Exchange, Outcome | None]] = field(default_factory=list)


class Classifier:
    """Handles agenda items of kind `board.classify`."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        options: Callable[[], BoardConfig],
        *,
        has_judge: Callable[[str], bool] = lambda key: False,
        candidates: Candidates | None = None,
        audit: Audit | None = None,
        pace: Pace | None = None,
        rush: Pace | None = None,
        piece_seconds: float = PIECE_SECONDS,
    ) -> None:
        """`piece_seconds` is how long exchanges share a transaction, at least a few; 0: each has its own.
        `has_judge` tells whether a model looks a session over; `rush` is told when much is sorted at once."""
        self._piece_seconds = piece_seconds
        self._least = LEAST if piece_seconds else 1
        self._store = store
        self._threads = threads
        self._options = options
        self._has_judge = has_judge
        self._candidates = candidates
        self._audit = audit
        self._pace = pace
        self._rush = rush
        self._allowance = Allowance()
        self._recent = Recent(Texts())

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
        weighed = await self._sort_by_rules(key, options, job) if options.classifier.enabled else False
        await self._run(lambda tx: self._finish(tx, key, options, job, weighed=weighed))

    async def _run(self, work: Callable[[Tx], T]) -> T:
        """Sorting can be done again, so nobody waits until the disk has it."""
        return await self._threads(self._store.run, SYSTEM, work, durable=False)

    async def _sort_by_rules(self, key: str | None, options: BoardConfig, job: agenda.Job) -> bool:
        """Piece by piece, between which others write; the index is asked outside of any transaction.
        Whether anything was left to words."""
        retrieved: Retrieved = {}
        count = 0
        piece = Piece()
        while count < BUNDLES * options.classifier.window:
            begun = partial(self._piece, key=key, options=options, job=job, retrieved=retrieved)
            piece = await self._run(partial(begun, window=piece.window))
            for exchange, outcome in piece.sorted:
                self._note(exchange, outcome)
            count += len(piece.sorted)
            if self._rush is not None and len(piece.sorted) >= LEAST:
                self._rush.beat()
            if piece.done:
                break
            if self._pace is not None:
                await self._pace.gap(GAP_SECONDS)
            if piece.wanted is not None:
                await self._threads(self._retrieve, piece.wanted, retrieved)
        return count > 0

    def _piece(
        self,
        tx: Tx,
        key: str | None,
        options: BoardConfig,
        job: agenda.Job,
        retrieved: Retrieved,
        window: Window,
    ) -> Piece:
        """Sort exchanges until the time is up, all are done, or the index has to be asked."""
        known = self._recent.begin(tx)
        batch = Batch(tx, options, self._recent)
        piece = self._sorted(batch, key, job, retrieved, window.copy() if known else Window())
        if piece.sorted:
            job.advance(tx)
        batch.flush()
        self._recent.end(tx)
        return piece

    def _sorted(
        self, batch: Batch, key: str | None, job: agenda.Job, retrieved: Retrieved, window: Window
    ) -> Piece:
        piece = Piece(window=window)
        until = time.monotonic() + self._piece_seconds
        while True:
            found = self._next(batch, key, job, window)
            if found is None:
                piece.done = True
                return piece
            near = self._near(found, retrieved)
            if near is None:
                piece.wanted = found
                window.groups.insert(0, found.exchange)
                return piece
            weighed = weigh(batch, found, near)
            outcome = by_words(found, weighed)
            _decide(batch, found, outcome, weighed.pause_minutes, job)
            piece.sorted.append((found.exchange, outcome))
            if time.monotonic() >= until and len(piece.sorted) >= self._least:
                return piece

    def _near(self, found: Open, retrieved: Retrieved) -> Sequence[str] | None:
        """What the index found for an exchange; None: it was not asked yet."""
        return () if self._candidates is None else retrieved.get(_sought(found, found.text))

    def _retrieve(self, found: Open, retrieved: Retrieved) -> None:
        """Ask the index about an exchange, and about those that wait behind it as they stand."""
        with self._store.read(SYSTEM) as tx:
            key = found.exchange.session_key
            waiting = entries.waiting(tx, key, limit=AHEAD * self._options().classifier.window)
        behind = split(waiting) if key is not None else [Exchange((entry,)) for entry in waiting]
        texts = dict.fromkeys((found.text, *(exchange.text for exchange in behind)))
        unknown = [text for text in texts if _sought(found, text) not in retrieved]
        for text, near in zip(unknown, self._asked(found, unknown), strict=True):
            retrieved[_sought(found, text)] = near

    def _asked(self, found: Open, texts: Sequence[str]) -> Sequence[Sequence[str]]:
        """What the index has for texts as the exchange is heard."""
        if self._candidates is None:
            return [()] * len(texts)
        spaces = found.view.spaces
        return self._candidates.topics(texts, reader=found.hearers, spaces=spaces, limit=8)

    def _next(self, batch: Batch, key: str | None, job: agenda.Job, window: Window) -> Open | None:
        """Settle what needs no weighing, and return the first exchange that does; None when all is done.

        `window` holds what this transaction has read and not sorted yet.
        """
        attempt = max(1, job.item.attempts)
        if window.is_used_up:
            self._read_window(batch, key, window)
        while window.groups:
            exchange = window.groups.pop(0)
            found = self._settled(batch, exchange, window, attempt)
            if found is None:
                window.seen |= {entry.id for entry in exchange.entries}
                window.fresh = False
            elif not (noise.is_low_signal(found.text) and window.goes_on_with(exchange)):
                window.fresh = False
                return found
            elif window.may_be_cut:
                window.groups = []
            else:
                window.join_next(exchange)
            if not window.groups and window.full:
                self._read_window(batch, key, window)
        return None

    def _read_window(self, batch: Batch, key: str | None, window: Window) -> None:
        """The oldest entries that wait, held to the rules; what waits for its link is not looked at twice."""
        batch.flush()
        most = batch.options.classifier.window
        found = entries.waiting(batch.tx, key, limit=most)
        placed = [(entry, _ruled(batch, entry)) for entry in found if entry.id not in window.seen]
        window.scopes = {entry.id: scope for entry, scope in placed if scope is not None}
        left = [entry for entry, scope in placed if scope is not None]
        alone = key is None
        window.groups = [Exchange((e,)) for e in left] if alone else in_scopes(left, window.scopes)
        window.full = len(found) >= most and bool(placed)
        window.fresh = True

    def _settled(self, batch: Batch, exchange: Exchange, window: Window, attempt: int) -> Open | None:
        """Sort an exchange by lock, lineage or continuity; None when that was enough."""
        scope = window.scopes[exchange.entries[-1].id]
        if scope.topic_id is not None:
            bound = Outcome(
                method="lock",
                topic_id=scope.topic_id,
                task_id=scope.task_id,
                confidence=1.0,
                reasons={"text": f"bound to its topic by {scope.origin}"},
            )
            place(batch, exchange, bound, attempt=attempt)
            return None
        if _is_subagent(exchange.entries[0]):
            _await_link(batch, exchange)
            return None
        last = window.groups[-1].entries[-1] if window.groups else exchange.entries[-1]
        found = opened(batch, exchange, scope, (last.created_at, last.position))
        outcome = by_continuity(found) or by_session(found, batch.options)
        if outcome is None:
            return found
        place(batch, exchange, outcome, attempt=attempt)
        if found.episode is not None:
            batch.recent.remember_episode(exchange.session_key or "", found.episode.with_more(exchange))
        return None

    def _finish(
        self, tx: Tx, key: str | None, options: BoardConfig, job: agenda.Job, *, weighed: bool
    ) -> None:
        """End the item, and put the session back on the agenda if something still waits there; what words
        decided is looked over by a model, if there is one."""
        job.settle(tx)
        if key is not None and weighed and self._has_judge(key):
            review.enqueue(tx, key, due_at=int(tx.now) + options.classifier.model_wait_seconds * 1000)
        left = entries.waiting(tx, key, limit=1) if options.classifier.enabled else []
        if left:
            linked = key is not None and _is_subagent(left[0]) and lineage.find(tx, key) is not None
            pending.enqueue(tx, key, options.classifier, due_at=int(tx.now) + (AWAIT_MS if linked else 0))

    def _gave_up(self, tx: Tx, item: agenda.Item) -> None:
        """When every attempt went wrong, what was tried ends as failed instead of waiting for ever."""
        if item.status is agenda.Status.FAILED:
            window = self._options().classifier.window
            tried = entries.waiting(tx, item.payload.get("sessionKey"), limit=window)
            batch = Batch(tx, self._options())
            reject(batch, tried, CLASSIFIER_ERROR, item.error or "sorting failed")
            batch.flush()

    def _note(self, exchange: Exchange, outcome: Outcome | None) -> None:
        if self._audit is not None:
            facts = {} if outcome is None else {"method": outcome.method, "topicId": outcome.topic_id}
            self._audit.write("classify", {"entries": [e.id for e in exchange.entries], **facts})


def _decide(batch: Batch, found: Open, outcome: Outcome | None, pause: float, job: agenda.Job) -> None:
    """Put an exchange where it belongs, and those that it goes on with where they turn out to belong."""
    attempt, key = max(1, job.item.attempts), found.exchange.session_key
    if outcome is None:
        reject(batch, found.exchange.entries, CONVERSATION_NOISE, "no words to sort by, and no thread")
        return
    episode = found.episode
    if episode is not None and outcome.topic_id != episode.topic_id:
        episode = _moved(batch, found, episode, outcome, attempt)
        if episode is not None:
            batch.recent.remember_episode(key or "", episode)
            return
    is_new = outcome.topic_id is None
    topic = place(batch, found.exchange, outcome, attempt=attempt)
    if key is None or topic is None:
        return
    begun = Episode((found.exchange,), topic.id, is_new, found.current, pause)
    goes_on = episode is not None and topic.id == episode.topic_id
    batch.recent.remember_episode(
        key, episode.with_more(found.exchange) if episode is not None and goes_on else begun
    )


def _moved(batch: Batch, found: Open, episode: Episode, outcome: Outcome, attempt: int) -> Episode | None:
    """The episode in the topic that it turns out to be about, with what it goes on with; None when somebody
    touched it meanwhile: then it stays."""
    batch.flush()
    there = unmoved(batch.tx, Exchange(episode.entries), episode.topic_id)
    methods = decisions.methods(batch.tx, [entry.id for entry in episode.entries])
    if there is None or not decisions.BY_RULES.issuperset(methods.values()):
        return None
    is_new = outcome.topic_id is None
    whole = Exchange((*there.entries, *found.exchange.entries))
    topic = place(batch, whole, outcome, attempt=attempt)
    if topic is None:
        return None
    if episode.made:
        batch.flush()
    if episode.made and drop_if_empty(batch.tx, episode.topic_id):
        batch.recent.topic_gone(episode.topic_id)
    else:
        batch.name_by_the_rest(episode.topic_id, there, outcome)
    moved = episode.with_more(found.exchange)
    return replace(moved, topic_id=topic.id, made=is_new)


def _ruled(batch: Batch, entry: Entry) -> Scope | None:
    """Hold an entry to the rules of ingest; its scope when it is still to be sorted."""
    draft = as_draft(entry)
    decision = decide(draft, facts_of(batch.tx, draft, batch.options))
    if decision.status is Classification.FAILED:
        reject(batch, [entry], decision.code or CONVERSATION_NOISE, decision.reason)
        return None
    if decision.status is Classification.CLASSIFIED:
        now = apply(draft, decision)
        fields = {name: getattr(now, name) for name in ("status", "code", "topic_id", "task_id", "space_id")}
        if entry.given_space is not None:
            fields["space_id"] = entry.given_space
        entries.annotate(batch.tx, entry.id, fields)
        batch.recent.forget()
        return None
    return decision.scope


def _await_link(batch: Batch, exchange: Exchange) -> None:
    """A child of a request that is not sorted yet: soon it will be, and if not, it belongs nowhere."""
    if batch.tx.now - exchange.entries[0].created_at >= AWAIT_LIMIT_MS:
        reject(batch, exchange.entries, UNLINKED_SUBAGENT, "the request it was spawned for got no topic")


def _sought(found: Open, text: str) -> tuple[str, Reader, frozenset[str] | None]:
    return text, found.hearers, found.view.spaces


def _is_subagent(entry: Entry) -> bool:
    key = noise.key_of(entry.session_key)
    return key is not None and key.is_subagent
