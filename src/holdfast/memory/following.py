"""Keeping the index true to the log: new entries by position, changed and deleted ones by the change feed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Protocol

import numpy as np

from holdfast.errors import InvalidInput
from holdfast.keys import parse_key
from holdfast.log import SYSTEM, Change, Entry, EntryType, Store, Tx, changes, entries
from holdfast.memory.catalogue import Catalogue
from holdfast.memory.documents import Document, Filter, Source
from holdfast.memory.echoes import without_echoes
from holdfast.memory.embedders.base import Embedder
from holdfast.memory.engine.protocol import Index

SEQ: Final = "change_seq"
COMPARED: Final = "compared"
WRITES: Final = "writes"
_BATCH: Final = 500
_NEARLY_DONE_SECONDS: Final = 10.0
_PLACES: Final[frozenset[Source]] = frozenset(("topic", "task"))
_NOISE: Final = ("filtered_", "context_injection_noise", "classifier_payload_noise", "conversation_noise")

TextOf = Callable[[Entry], str | None]
SpacesOf = Callable[[Tx, Sequence[Entry]], Mapping[str, frozenset[str]]]


def plain_text(entry: Entry) -> str | None:
    """What of an entry can be recalled: what was said or noted, not traces of tools or the system's talk.

    What an agent quoted from memory is left out: it is found where it stands, not once more each time.
    """
    said = entry.type in (EntryType.CONVERSATION, EntryType.NOTE, EntryType.IMPORT)
    noise = (entry.code or "").startswith(_NOISE)
    if not said or noise:
        return None
    text = without_echoes(entry.content) if entry.role == "assistant" else entry.content
    return text if text.strip() else None


def own_space(_: Tx, batch: Sequence[Entry]) -> Mapping[str, frozenset[str]]:
    return {e.id: frozenset(() if e.space_id is None else (e.space_id,)) for e in batch}


class Places(Protocol):
    """What else the feed tells of and can be found: the board's topics and tasks, as documents."""

    def changed(self, tx: Tx, batch: Sequence[Change]) -> Mapping[str, Document | None]:
        """The documents that these changes are about; None for one that is gone."""
        ...

    def all(self, tx: Tx) -> Sequence[Document]:
        """Every one that should be found."""
        ...


@dataclass(slots=True)
class Followed:
    taken: int = 0
    changed: int = 0
    compared: int = 0
    behind: int = 0


class LogFollower:
    """Takes the log into the index. What is text, and where it belongs, is told by the rooms that know."""

    fills = True

    def __init__(
        self,
        store: Store,
        index: Index,
        catalogue: Catalogue,
        base: Embedder,
        *,
        text_of: TextOf = plain_text,
        spaces_of: SpacesOf = own_space,
        places: Places | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """`stop` is asked between batches: what was taken in so far is kept, and the rest waits."""
        self._places = places
        self._stop = stop
        self._lock = threading.Lock()
        self._store = store
        self._index = index
        self._catalogue = catalogue
        self._base = base
        self._text_of = text_of
        self._spaces_of = spaces_of

    def catch_up(self, limit: int = 50_000, *, patience: float | None = None) -> Followed:
        """Take in what happened since the last time, at most about `limit` entries; says what is left.

        Who does not wait longer than `patience` seconds for another who takes in a long log is told how far
        that is; where little is left the other is nearly done, however slow the machine is just now.
        """
        if not self._lock.acquire(timeout=-1 if patience is None else patience):
            behind = self._behind()
            if behind > limit or not self._lock.acquire(timeout=_NEARLY_DONE_SECONDS):
                return Followed(behind=behind)
        try:
            return self._catch_up(limit)
        finally:
            self._lock.release()

    def _behind(self) -> int:
        with self._store.read(SYSTEM) as tx:
            return max(0, entries.head(tx) - self._index.position)

    def _catch_up(self, limit: int) -> Followed:
        """One at a time: two who follow at once would each take in and embed the same entries."""
        done = Followed()
        with self._store.read(SYSTEM) as tx:
            low, high = changes.bounds(tx)
            head = entries.head(tx)
        self._begin_feed(low, high)
        stop = self._stop
        while done.taken < limit and self._index.position < head and not stop() and (n := self._take_new()):
            done.taken += n
        while done.changed < limit and self._seq < high and not stop() and (n := self._take_changes()):
            done.changed += n
        while done.compared < limit and not stop() and (n := self._compare_some()):
            done.compared += n
        done.behind = max(0, head - self._index.position)
        return done

    @property
    def _seq(self) -> int:
        """Up to where the change feed was followed."""
        return int(self._catalogue.fact(SEQ) or 0)

    @property
    def comparing(self) -> bool:
        """Whether what was taken in is still being held against the log."""
        return bool(self._catalogue.fact(COMPARED))

    def _begin_feed(self, low: int, high: int) -> None:
        """The feed is followed from before the first entry is taken, so that no change falls between.

        Where it does not tell what changed since, every entry taken in so far is held against the log, a
        piece at a time. An index that several processes fill is known to be followed by another.
        """
        known, filled = self._catalogue.fact(SEQ), self._index.position > 0
        if filled and known is not None and low - 1 <= int(known) <= high:
            return
        if filled and (known is not None or self._index.computes_here):
            self._catalogue.put_fact(COMPARED, "0")
        self._compare_places()
        self._followed_to(high)

    def _followed_to(self, seq: int) -> None:
        """Note how far the feed was followed, and before that how much the index has to hold for it."""
        self._catalogue.put_fact(WRITES, str(self._index.writes))
        self._catalogue.put_fact(SEQ, str(seq))

    def _compare_some(self) -> int:
        """Hold some entries that were taken in against the log, and put right what differs."""
        position = int(self._catalogue.fact(COMPARED) or -1)
        if position < 0:
            return 0
        with self._store.read(SYSTEM) as tx:
            batch = entries.after(tx, position, limit=_BATCH)
            documents = self._documents(tx, batch)
        self._settle(documents, self._index.get(list(documents)))
        if batch and batch[-1].position < self._index.position:
            self._catalogue.put_fact(COMPARED, str(batch[-1].position))
        else:
            self._catalogue.drop_fact(COMPARED)
        return len(batch)

    def _compare_places(self) -> None:
        """Hold the topics and tasks in the index against those of the board."""
        if self._places is None:
            return
        with self._store.read(SYSTEM) as tx:
            present: dict[str, Document | None] = {d.id: d for d in self._places.all(tx)}
        view = self._index.view(Filter(sources=_PLACES))
        known = {d.id for d in view.documents(view.recent(view.count)) if d is not None}
        self._settle_places(dict.fromkeys(known) | present)

    def _settle_places(self, documents: Mapping[str, Document | None]) -> None:
        """Put in what changed; one that lies in other spaces than before takes its entries along."""
        known = self._index.get(list(documents))
        for id_, old in known.items():
            one = documents[id_]
            if one is None or one.spaces != old.spaces:
                self._move(Filter(topics=frozenset((id_,))))
                self._move(Filter(tasks=frozenset((id_,))))
        self._settle(documents, known)

    def _take_new(self) -> int:
        with self._store.read(SYSTEM) as tx:
            batch = entries.after(tx, self._index.position, limit=_BATCH)
            documents = self._documents(tx, batch)
        if not batch:
            return 0
        self._put([d for d in documents.values() if d is not None], batch[-1].position)
        return len(batch)

    def _take_changes(self) -> int:
        with self._store.read(SYSTEM) as tx:
            batch = changes.since(tx, self._seq, limit=_BATCH)
            touched = _ids(batch, ("log.patched", "log.deleted"))
            documents = self._documents(tx, entries.get_many(tx, touched)) if touched else {}
            places = None if self._places is None else self._places.changed(tx, batch)
        if places:
            self._settle_places(places)
        if places is None:
            for topic in _ids(batch, ("topic.upserted", "topic.deleted")):
                self._move(Filter(topics=frozenset((topic,))))
        self._settle(dict.fromkeys(touched) | documents, self._index.get(touched))
        if batch:
            self._followed_to(batch[-1].seq)
        return len(batch)

    def _settle(self, documents: Mapping[str, Document | None], known: Mapping[str, Document]) -> None:
        """Put in what can be recalled and take out what cannot. What the index has as it is stays; what only
        lies elsewhere is moved there, with the words and vectors that it has."""
        moved, fresh = list[Document](), list[Document]()
        for id_, one in documents.items():
            old = known.get(id_)
            if one is not None and one != old:
                (moved if old is not None and old.moved(one.lies) == one else fresh).append(one)
        gone = [id_ for id_, one in documents.items() if one is None]
        if moved:
            self._index.move(moved)
        if fresh:
            self._put(fresh, None)
        if gone:
            self._index.delete(gone)

    def _move(self, wanted: Filter) -> None:
        """A topic or task that changed its spaces takes its documents along."""
        view = self._index.view(wanted)
        there = {d.id: d for d in view.documents(view.recent(view.count)) if d is not None}
        ids = list(there)
        for start in range(0, len(ids), _BATCH):
            with self._store.read(SYSTEM) as tx:
                batch = entries.get_many(tx, ids[start : start + _BATCH])
                spaces = self._spaces_of(tx, batch)
            self._index.move([replace(there[id_], spaces=places) for id_, places in spaces.items()])

    def _documents(self, tx: Tx, batch: Sequence[Entry]) -> dict[str, Document | None]:
        spaces = self._spaces_of(tx, batch)
        return {entry.id: self._document(entry, spaces.get(entry.id, frozenset())) for entry in batch}

    def _document(self, entry: Entry, spaces: frozenset[str]) -> Document | None:
        text = None if entry.deleted_at is not None else self._text_of(entry)
        if text is None:
            return None
        speaker = speaker_of(entry)
        return Document(
            id=entry.id,
            text=f"[{_day(entry.created_at)}] {speaker}: {text}",
            source=_source(entry),
            audience=entry.audience,
            agent=agent_of(entry),
            spaces=spaces,
            topic=entry.topic_id,
            task=entry.task_id,
            session=entry.session_key,
            speaker=speaker,
            writer=entry.agent_id,
            at=entry.created_at,
            curated=entry.type is EntryType.NOTE,
            thread=entry.session_key,
            ordinal=entry.position,
            position=entry.position,
        )

    def _put(self, documents: Sequence[Document], position: int | None) -> None:
        fingerprint = self._base.id.fingerprint
        vectors = self._base.embed_documents([d.text for d in documents]) if documents else np.zeros((0, 0))
        self._index.upsert(documents, {fingerprint: vectors} if documents else None, position=position)


class LogWatcher(LogFollower):
    """Says how far the index is behind the log; it is brought up to date by the process that writes it."""

    fills = False

    def catch_up(self, limit: int = 50_000, *, patience: float | None = None) -> Followed:
        return Followed(behind=self._behind())


def speaker_of(entry: Entry) -> str:
    if entry.agent_label:
        return entry.agent_label
    return "user" if entry.role == "user" or entry.agent_id == "user" else entry.agent_id or "unknown"


def agent_of(entry: Entry) -> str | None:
    """Whose conversation it is: the agent in the session's key, else the agent who wrote."""
    if entry.session_key:
        try:
            named = parse_key(entry.session_key).agent_id
        except InvalidInput:
            named = None
        if named is not None:
            return named
    return None if entry.agent_id == "user" else entry.agent_id


def _source(entry: Entry) -> Source:
    if entry.type is EntryType.NOTE:
        return "note"
    return "log" if entry.session_id is None else "transcript"


def _ids(batch: Sequence[Change], types: tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys(c.entity_id for c in batch if c.type in types))


def _day(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%d %B %Y}"
