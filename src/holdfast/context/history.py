"""Bounded reads of a session's log as messages: the newest that fit, however long the session is."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import sqlalchemy as sa

from holdfast.context import forms
from holdfast.context.messages import Message, SummaryMessage
from holdfast.context.states import State
from holdfast.context.transcript import in_turn_order, message_of, summary_of
from holdfast.errors import NotFound
from holdfast.log import Entry, Tx, entries
from holdfast.log.statements import Statement
from holdfast.log.tables import entries as table

PAGE: Final = 512
MOST_MESSAGES: Final = 20_000
_END: Final = (1 << 63) - 1


Key = tuple[str, int, str, str]
Place = tuple[int, str, int, str]


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
    ) -> list[Message]:
        """The newest messages, oldest first, that come just past `budget` tokens.

        Stops reading there: the cost depends on the budget and not on the length of the session.
        """
        found: list[Message] = []
        tokens = 0
        for message in self._backwards(tx, state, shown, before):
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
        self, tx: Tx, state: State, shown: Mapping[str, str], before: int | None
    ) -> Iterator[Message]:
        while True:
            rows = _places(tx, state, before=before)
            yield from reversed(list(self._messages(tx, rows, shown)))
            if len(rows) < PAGE:
                return
            before = rows[0][0]

    def _messages(self, tx: Tx, rows: Sequence[Place], shown: Mapping[str, str]) -> Iterator[Message]:
        """Messages of these places in order that may be read; only what the cache lacks is read."""
        keys = [
            (id_, revision, shown.get(id_, forms.WHOLE), audience)
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


def _places(tx: Tx, state: State, *, before: int | None = None, after: int | None = None) -> list[Place]:
    """Position, id and revision of a page of the projection, in order: the last page before a place, or
    the first after one."""
    own = _page(tx, state.session_id, state, before, after, None)
    if state.fork_session_id is None or (len(own) == PAGE and before is None and after is None):
        return own
    parent = _page(tx, state.fork_session_id, state, before, after, state.fork_until)
    merged = sorted(parent + own)
    return merged[:PAGE] if after is not None else merged[-PAGE:]


def _page(
    tx: Tx, session_id: str, state: State, before: int | None, after: int | None, until: int | None
) -> list[Place]:
    low = state.shown_from - 1 if after is None else after
    high = min(_END if before is None else before - 1, _END if until is None else until)
    query = _LAST if after is None else _FIRST
    rows = query.rows(tx, session=session_id, low=low, high=high)
    return rows if after is not None else rows[::-1]


_SHOWN = (
    sa.select(table.c.position, table.c.id, table.c.revision, table.c.audience)
    .where(
        table.c.session_id == sa.bindparam("session"),
        table.c.position > sa.bindparam("low"),
        table.c.position <= sa.bindparam("high"),
        table.c.deleted_at.is_(None),
    )
    .limit(PAGE)
)
_FIRST = Statement(_SHOWN.order_by(table.c.position))
_LAST = Statement(_SHOWN.order_by(table.c.position.desc()))


def _size(message: Message | None) -> int:
    return 100 if message is None else len(message.text) + 400
