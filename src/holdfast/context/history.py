"""Bounded reads of a session's log as messages: the newest that fit, however long the session is."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.context import pruning
from holdfast.context.messages import AssistantMessage, Message, SummaryMessage, ToolResult
from holdfast.context.states import State
from holdfast.context.transcript import in_turn_order, message_of, summary_of
from holdfast.errors import Conflict, NotFound
from holdfast.log import Entry, EntryFilter, Tx, entries
from holdfast.log.statements import Statement, among
from holdfast.log.tables import entries as table
from holdfast.log.tables import turns as turn_table

PAGE: Final = 512
MOST_MESSAGES: Final = 20_000
_END: Final = (1 << 63) - 1


Key = tuple[str, int, str, str]
Place = tuple[int, str, int, str]


@dataclass(frozen=True, slots=True)
class Past:
    """The log as it was: up to a place, at a time, with the entries of a context as they then read."""

    until: int
    at: Millis
    revisions: Mapping[str, int] = field(default_factory=dict, repr=False)


class MessageCache:
    """Messages by what determines them (entry, revision, form, audience); bounded by their characters."""

    def __init__(self, most_chars: int = 32_000_000) -> None:
        self._most = most_chars
        self._chars = 0
        self._known: OrderedDict[Key, Message | None] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Message | None:
        return self._known[key]

    def __contains__(self, key: Key) -> bool:
        return key in self._known

    def put(self, key: Key, message: Message | None) -> None:
        with self._lock:
            if key in self._known:
                return
            self._known[key] = message
            self._chars += _size(message)
            while self._chars > self._most:
                _, old = self._known.popitem(last=False)
                self._chars -= _size(old)

    def clear(self) -> None:
        with self._lock:
            self._known.clear()
            self._chars = 0


class History:
    """Reads one session's projection. Holds nothing but the cache, so one serves all sessions."""

    def __init__(self, cache: MessageCache | None = None) -> None:
        self._cache = cache or MessageCache()

    def newest(
        self,
        tx: Tx,
        state: State,
        shown: Mapping[str, str],
        *,
        budget: int,
        skip: frozenset[str] = frozenset(),
        before: int | None = None,
        past: Past | None = None,
    ) -> list[Message]:
        """The newest messages, oldest first, that come just past `budget` tokens.

        Stops reading there: the cost depends on the budget and not on the length of the session.
        """
        found: list[Message] = []
        tokens = 0
        for message in self._backwards(tx, state, shown, before, past):
            if message.mark is not None and message.mark.entry_id in skip:
                continue
            found.append(message)
            tokens += message.mark.tokens if message.mark is not None else 0
            if tokens > budget or len(found) >= MOST_MESSAGES:
                break
        return in_turn_order(found[::-1])

    def oldest(self, tx: Tx, state: State, shown: Mapping[str, str], *, budget: int) -> list[Message]:
        """The oldest messages behind the last summary that come just past `budget` tokens."""
        found: list[Message] = []
        tokens = 0
        after = state.floor - 1
        while tokens <= budget and len(found) < MOST_MESSAGES:
            rows = _places(tx, state, after=after)
            for message in self._messages(tx, rows, shown):
                found.append(message)
                tokens += message.mark.tokens if message.mark is not None else 0
                if tokens > budget:
                    break
            if len(rows) < PAGE:
                break
            after = rows[-1][0]
        return in_turn_order(found)

    def summary(self, tx: Tx, state: State) -> SummaryMessage | None:
        return None if state.summary_id is None else summary_of(entries.get(tx, state.summary_id))

    def _backwards(
        self, tx: Tx, state: State, shown: Mapping[str, str], before: int | None, past: Past | None
    ) -> Iterator[Message]:
        if past is not None:
            before = past.until + 1 if before is None else min(before, past.until + 1)
        while True:
            rows = _places(tx, state, before=before, at=None if past is None else past.at)
            found = self._messages(tx, rows, shown) if past is None else _past(tx, rows, shown, past)
            yield from reversed(list(found))
            if len(rows) < PAGE:
                return
            before = rows[0][0]

    def _messages(self, tx: Tx, rows: Sequence[Place], shown: Mapping[str, str]) -> Iterator[Message]:
        """Messages of these places in order that may be read; only what the cache lacks is read."""
        keys = [
            (id_, revision, shown.get(id_, pruning.WHOLE), audience)
            for _, id_, revision, audience in rows
            if tx.reader.may_read(audience)
        ]
        kept = {key: self._cache.get(key) for key in keys if key in self._cache}
        lacking = [key[0] for key in keys if key not in kept]
        fresh = {str(e.id): e for e in entries.get_many(tx, lacking)} if lacking else {}
        for key in keys:
            message = kept[key] if key in kept else self._built(fresh.get(key[0]), key)
            if message is not None:
                yield message

    def _built(self, entry: Entry | None, key: Key) -> Message | None:
        message = None if entry is None else message_of(entry, key[2])
        self._cache.put(key, message)
        return message


def _past(tx: Tx, rows: Sequence[Place], shown: Mapping[str, str], past: Past) -> Iterator[Message]:
    """As `History._messages`, of entries as they were: nothing of it is remembered."""
    readable = [row for row in rows if tx.reader.may_read(row[3])]
    known = {str(e.id): e for e in entries.get_many(tx, [row[1] for row in readable])}
    for _, id_, revision, _ in readable:
        entry = _at_revision(tx, known[id_], past.revisions.get(id_, revision))
        message = message_of(entry, shown.get(id_, pruning.WHOLE))
        if message is not None:
            yield message


def message_by_ref(tx: Tx, ref: str, known: Mapping[str, Entry]) -> Message:
    """The message that a manifest names: one of these entries, as it was at that revision, in that form."""
    id_, _, rest = ref.partition("@")
    number, _, form = rest.partition("/")
    if id_ not in known:
        raise NotFound(f"entry {id_} is no longer in the log", code="erased_entry")
    entry = _at_revision(tx, known[id_], int(number))
    message = summary_of(entry) if form == "summary" else message_of(entry, form)
    if message is None:
        raise NotFound(f"entry {id_} is no message any more", code="erased_entry")
    return message


def _at_revision(tx: Tx, entry: Entry, revision: int) -> Entry:
    shown = replace(entry, deleted_at=None)
    if entry.revision == revision:
        return shown
    before = dict(entries.revisions(tx, entry.id))
    if revision not in before:
        raise NotFound(f"entry {entry.id} has no revision {revision}", code="erased_entry")
    return replace(shown, revision=revision, content=before[revision])


def require_unsummarised(summed_until: int, before: int) -> None:
    """A fork cannot begin in the midst of what was summarised: the summary knows what came after."""
    if summed_until > before:
        raise Conflict(
            "what was said there has been summarised since",
            code="fork_summarised",
            hint="Edit a later message, or begin a new chat.",
        )


def _places(
    tx: Tx, state: State, *, before: int | None = None, after: int | None = None, at: Millis | None = None
) -> list[Place]:
    """Position, id and revision of a page of the projection, in order: the last page before a place, or
    the first after one. What was deleted since the time `at` is there too."""
    own = _page(tx, state.session_id, state, before, after, None, at)
    if state.fork_session_id is None or (len(own) == PAGE and before is None and after is None):
        return own
    parent = _page(tx, state.fork_session_id, state, before, after, state.fork_until, at)
    merged = sorted(parent + own)
    return merged[:PAGE] if after is not None else merged[-PAGE:]


def _page(
    tx: Tx,
    session_id: str,
    state: State,
    before: int | None,
    after: int | None,
    until: int | None,
    at: Millis | None,
) -> list[Place]:
    low = state.shown_from - 1 if after is None else after
    high = min(_END if before is None else before - 1, _END if until is None else until)
    if at is not None:
        return _LAST_THEN.rows(tx, session=session_id, low=low, high=high, at=at)[::-1]
    query = _LAST if after is None else _FIRST
    rows = query.rows(tx, session=session_id, low=low, high=high)
    return rows if after is not None else rows[::-1]


def settled_until(tx: Tx, session_id: str) -> int:
    """How far a session's log is settled: up to the calls of its running turn that have no result yet. Who
    begins with its history, being such a call itself, is not shown a call that seems to have failed."""
    head = entries.head(tx)
    running = _RUNNING.first(tx, session=session_id)
    if running is None:
        return head
    said = entries.listing(tx, EntryFilter(turn_id=running[0]), limit=entries.MAX_PAGE, raw=True).entries
    found = [m for entry in said if (m := message_of(entry)) is not None]
    answered = {m.call_id for m in found if isinstance(m, ToolResult)}
    open_ = (
        m.mark.position
        for m in found
        if isinstance(m, AssistantMessage) and m.mark and any(c.id not in answered for c in m.calls)
    )
    return min(open_, default=head + 1) - 1


def not_before(tx: Tx, session_id: str, number: int, *own: str) -> frozenset[str]:
    """Entries of a session's turns from a number on, and of the turn `own`: no history for that turn yet."""
    later = _LATER.rows(tx, session=session_id, number=number)
    turns = sorted({*own, *(id_ for id_, _ in later)})
    said = (id_ for (id_,) in _OWN.rows(tx, turns=turns)) if turns else ()
    return frozenset(id_ for id_ in (*said, *(input_ for _, input_ in later)) if id_)


MOST_OWN: Final = 10_000
_LATER = Statement(
    sa.select(turn_table.c.id, turn_table.c.input_id)
    .where(turn_table.c.session_id == sa.bindparam("session"), turn_table.c.number >= sa.bindparam("number"))
    .limit(500)
)
_RUNNING = Statement(
    sa.select(turn_table.c.id)
    .where(turn_table.c.session_id == sa.bindparam("session"), turn_table.c.status == "running")
    .order_by(turn_table.c.number.desc())
    .limit(1)
)
_OWN = Statement(sa.select(table.c.id).where(among(table.c.turn_id, "turns")).limit(MOST_OWN))
_PLACES = (
    sa.select(table.c.position, table.c.id, table.c.revision, table.c.audience)
    .where(
        table.c.session_id == sa.bindparam("session"),
        table.c.position > sa.bindparam("low"),
        table.c.position <= sa.bindparam("high"),
    )
    .limit(PAGE)
)
_SHOWN = _PLACES.where(table.c.deleted_at.is_(None))
_FIRST = Statement(_SHOWN.order_by(table.c.position))
_LAST = Statement(_SHOWN.order_by(table.c.position.desc()))
_LAST_THEN = Statement(
    _PLACES.where(sa.or_(table.c.deleted_at.is_(None), table.c.deleted_at >= sa.bindparam("at"))).order_by(
        table.c.position.desc()
    )
)


def _size(message: Message | None) -> int:
    return 100 if message is None else len(message.text) + 400
