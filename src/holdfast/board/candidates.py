"""Which topics an exchange may belong to: few enough to weigh each, never one that nothing speaks for.

Read as those who hear the exchange: what they may not read is neither chosen nor weighed. What was lately
said is read once and kept in step with what sorting writes, for as long as nobody else writes.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left, insort
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol

import sqlalchemy as sa

from holdfast.board import heuristic, topics
from holdfast.board.exchanges import Episode
from holdfast.board.heuristic import Profile
from holdfast.board.naming import SEPARATOR, YoungNames
from holdfast.board.reads import Query, plain
from holdfast.board.semantic import semantic_text, topic_text
from holdfast.board.tables import topics as table
from holdfast.board.topics import Topic
from holdfast.board.visibility import View
from holdfast.board.words import MAX_CHARS, is_filler, subject_terms
from holdfast.board.work import CreatedBy, TopicStatus
from holdfast.log import SYSTEM, Entry, EntryFilter, Reader, Tx, changes, entries, entry_model

MAX_CANDIDATES: Final = 16
RECENT_TOPICS: Final = 200
RECENT_ENTRIES: Final = 240
LATELY: Final = 24
KEPT: Final = 8_000
_MOST_KEPT: Final = 4_000
_KEPT_MS: Final = 60_000
_AHEAD: Final = 64
_MOST_EPISODES: Final = 500
_MOST_HISTORIES: Final = 16
_ARCHIVED: Final = 2.5
_SNOOZED: Final = 1.0
_K1: Final = 1.2
_B: Final = 0.6

Place = tuple[int, int]


class Candidates(Protocol):
    """What the search index can add: topics whose texts are like this one, wherever they lie in history."""

    def topics(
        self, texts: Sequence[str], *, reader: Reader, spaces: frozenset[str] | None, limit: int
    ) -> Sequence[Sequence[str]]:
        """For each text topic ids, best first, by what the reader may read and in the given spaces. Called in
        a thread, outside any transaction."""
        ...


@dataclass(frozen=True, slots=True)
class Weighable:
    """A candidate with what is needed to weigh it."""

    topic: Topic
    profile: Profile


class Texts:
    """What entries say, kept by their state: the neighbours of one exchange are those of the next."""

    def __init__(self, most: int = KEPT) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, int], str] = OrderedDict()

    def of(self, tx: Tx, refs: Sequence[entry_model.Ref]) -> list[str]:
        """The text of each, "" for one that says nothing; only those not known yet are read."""
        known = self._known
        found = [known.get((ref.id, ref.updated_at)) for ref in refs]
        missing = [ref for ref, text in zip(refs, found, strict=True) if text is None]
        if not missing:
            return [text or "" for text in found]
        rows = (_Spoken(*row) for row in _SPOKEN.rows(tx, ids=[ref.id for ref in missing]))
        fresh = {row.id: semantic_text(row)[:MAX_CHARS] for row in rows}
        for ref in missing:
            self.put(ref.id, ref.updated_at, fresh.get(ref.id, ""))
        return [
            fresh.get(ref.id, "") if text is None else text for ref, text in zip(refs, found, strict=True)
        ]

    def put(self, id_: str, updated_at: int, text: str) -> None:
        with self._lock:
            self._known[id_, updated_at] = text[:MAX_CHARS]
            while len(self._known) > self._most:
                self._known.popitem(last=False)


class _Spoken(NamedTuple):
    """As much of an entry as tells what it says."""

    id: str
    type: str
    content: str
    code: str | None
    role: str | None
    session_key: str | None
    stored_source: Any

    @property
    def source(self) -> Mapping[str, Any] | None:
        found: Mapping[str, Any] | None = plain(self.stored_source)
        return found


_SPOKEN: Final = Query(
    "SELECT id, type, content, code, role, session_key, source FROM entries WHERE id IN :ids"
)


class WordIndex:
    """Documents by their words, which may come and go; asked by BM25."""

    def __init__(self) -> None:
        self._lengths: dict[str, int] = {}
        self._total = 0
        self._postings: defaultdict[str, dict[str, int]] = defaultdict(dict)

    def __contains__(self, id_: object) -> bool:
        return id_ in self._lengths

    def add(self, id_: str, words: Sequence[str]) -> None:
        """Words more of a document, which is there from the first of them on."""
        self._count(id_, words, 1)

    def remove(self, id_: str, words: Sequence[str]) -> None:
        self._count(id_, words, -1)

    def drop(self, id_: str) -> None:
        """A document whose words are all removed."""
        self._total -= self._lengths.pop(id_, 0)

    def _count(self, id_: str, words: Sequence[str], by: int) -> None:
        self._lengths[id_] = self._lengths.get(id_, 0) + by * len(words)
        self._total += by * len(words)
        for word in words:
            posting = self._postings[word]
            left = posting.get(id_, 0) + by
            if left:
                posting[id_] = left
            else:
                del posting[id_]

    def scores(self, words: Iterable[str]) -> dict[str, float]:
        """Scores above 0 only: a document that shares no word of meaning is no candidate."""
        number = len(self._lengths)
        mean = self._total / max(1, number) or 1.0
        found: defaultdict[str, float] = defaultdict(float)
        for word in dict.fromkeys(words):
            posting = self._postings.get(word)
            if not posting or is_filler(word):
                continue
            idf = math.log(1 + (number - len(posting) + 0.5) / (len(posting) + 0.5))
            for id_, count in posting.items():
                length = 1 - _B + _B * self._lengths[id_] / mean
                found[id_] += idf * count * (_K1 + 1) / (count + _K1 * length)
        return {id_: score for id_, score in found.items() if score > 0}


@dataclass(slots=True)
class _Line:
    """An entry among those that were lately said."""

    topic_id: str | None
    words: tuple[str, ...]


class _Scope:
    """The topics changed last within one view, with what was lately sorted into them, for one reader."""

    def __init__(self, tx: Tx, view: View, texts: Texts) -> None:
        self._view = view
        self._reader = tx.reader
        self._index = WordIndex()
        self._topics: dict[str, tuple[int, tuple[str, ...]]] = {}
        self._order: list[tuple[int, int, str]] = []
        self._lines: dict[str, _Line] = {}
        for row in self._recent_topics(tx):
            self._enter(
                row.id, row.updated_at, subject_terms(topic_text(row.name, row.description, row.tags))
            )
        recent = entries.refs(tx, EntryFilter(space_ids=view.spaces), limit=RECENT_ENTRIES)
        self._more = len(recent) == RECENT_ENTRIES
        for ref, said in zip(recent, texts.of(tx, recent), strict=True):
            self._put((*ref.place, ref.id), ref.topic_id, said)

    def nearest(self, words: Sequence[str], limit: int) -> list[str]:
        """Topics by BM25 over their names, descriptions and what was lately sorted into them."""
        scores = self._index.scores(words)
        return sorted(scores, key=lambda id_: (-scores[id_], id_))[:limit]

    def topic_gone(self, topic_id: str) -> bool:
        """A topic in which nothing is any more was deleted; false when others come up in its place."""
        if topic_id not in self._topics:
            return True
        self._leave(topic_id)
        return len(self._topics) < RECENT_TOPICS - 1

    def topic_moved(self, topic: Topic) -> None:
        """A topic was made, or came to the front."""
        if not (self._view.sees(topic.space_ids) and topics.may_read(self._reader, topic)):
            return
        words = subject_terms(topic_text(topic.name, topic.description, topic.tags))
        if topic.id in self._topics:
            if self._topics[topic.id][1] == words:
                self._topics[topic.id] = topic.updated_at, words
                return
            self._leave(topic.id)
        if len(self._topics) >= RECENT_TOPICS:
            least = min(self._topics, key=lambda id_: self._topics[id_][0])
            if self._topics[least][0] >= topic.updated_at:
                return
            self._leave(least)
        self._enter(topic.id, topic.updated_at, words)

    def sorted(self, entry: Entry, text: str) -> bool:
        """An entry as it was sorted; false when it is not known any more what was lately said."""
        visible = self._view.spaces is None or entry.space_id in self._view.spaces
        if not (visible and self._reader.may_read_of(entry.audience, entry.agent_id)):
            return entry.id not in self._lines
        if entry.id in self._lines:
            self._take(entry.id)
            self._order.remove((entry.created_at, entry.position, entry.id))
        elif self._more and self._order and (entry.created_at, entry.position, entry.id) < self._order[0]:
            return True
        self._put((entry.created_at, entry.position, entry.id), entry.topic_id, text)
        while len(self._order) > RECENT_ENTRIES:
            self._take(self._order.pop(0)[2])
            self._more = True
        return True

    def _recent_topics(self, tx: Tx) -> Sequence[Any]:
        columns = (table.c.id, table.c.name, table.c.description, table.c.tags, table.c.updated_at)
        query = sa.select(*columns).where(*self._view.topics(), *topics.within_reach(tx.reader))
        return tx.conn.execute(query.order_by(table.c.updated_at.desc()).limit(RECENT_TOPICS)).all()

    def _enter(self, topic_id: str, updated_at: int, words: tuple[str, ...]) -> None:
        self._topics[topic_id] = updated_at, words
        self._index.add(topic_id, (*words, *words))
        for line in self._lines.values():
            if line.topic_id == topic_id:
                self._index.add(topic_id, line.words)

    def _leave(self, topic_id: str) -> None:
        _, words = self._topics.pop(topic_id)
        self._index.remove(topic_id, (*words, *words))
        for line in self._lines.values():
            if line.topic_id == topic_id:
                self._index.remove(topic_id, line.words)
        self._index.drop(topic_id)

    def _put(self, place: tuple[int, int, str], topic_id: str | None, said: str) -> None:
        insort(self._order, place)
        line = self._lines[place[2]] = _Line(topic_id, subject_terms(said[:1_000]) if topic_id else ())
        if topic_id in self._topics:
            self._index.add(topic_id or "", line.words)

    def _take(self, id_: str) -> None:
        line = self._lines.pop(id_)
        if line.topic_id in self._topics:
            self._index.remove(line.topic_id or "", line.words)


@dataclass(slots=True)
class _Lately:
    """What was lately said in one topic, oldest first, and the profile made of it."""

    lines: list[tuple[int, int, str, str]]
    more: bool
    profile: Profile | None = None

    def put(self, entry: Entry, text: str) -> None:
        line = (entry.created_at, entry.position, entry.id, text)
        if self.more and self.lines and line < self.lines[0]:
            return
        insort(self.lines, line)
        if self.profile is not None and text:
            self.profile = self.profile.with_more(text)
        if len(self.lines) > LATELY:
            *_, oldest = self.lines.pop(0)
            if self.profile is not None and oldest:
                self.profile = self.profile.without((oldest,))
            self.more = True

    def take(self, id_: str) -> bool:
        """An entry lies elsewhere by now; false when an older one comes up in its place."""
        left = [line for line in self.lines if line[2] != id_]
        if len(left) < len(self.lines):
            self.lines, self.profile = left, None
            return not self.more
        return True

    def of(self, topic: Topic) -> Profile:
        handicap = {TopicStatus.ARCHIVED: _ARCHIVED, TopicStatus.SNOOZED: _SNOOZED}.get(topic.status, 0.0)
        made, name = self.profile, topic.name
        if topic.created_by is CreatedBy.CLASSIFIER:
            name = name.partition(SEPARATOR)[0]  # the most telling phrase; all of it was said in the topic
        if made is None or (made.name, made.handicap) != (name, handicap):
            said = [line[3] for line in self.lines if line[3]]
            made = self.profile = heuristic.profile(topic.id, name, said, handicap=handicap)
        return made


class Recent:
    """What was lately said, by topic and by space.

    Kept from one transaction to the next for as long as nobody else tells of a change (`begin`, `end`). For
    one transaction at a time, as those that write to the log are. Before entries are read `write_first` is
    called: what was sorted and not written yet would be missed.
    """

    def __init__(self, texts: Texts | None = None) -> None:
        self.texts = texts or Texts()
        self.young = YoungNames()
        self.episodes: OrderedDict[str, Episode] = OrderedDict()
        self.write_first: Callable[[], None] = lambda: None
        self._scopes: dict[tuple[frozenset[str] | None, Reader], _Scope] = {}
        self._lately: defaultdict[str, dict[Reader, _Lately]] = defaultdict(dict)
        self._topics: dict[str, Topic | None] = {}
        self.tasks: dict[tuple[str, Reader], list[tuple[Any, ...]]] = {}
        self._histories: OrderedDict[tuple[str, Reader], History] = OrderedDict()
        self._seq = -1
        self._since = 0
        self._number = 0

    def begin(self, tx: Tx) -> bool:
        """A transaction begins; what another has changed since is not known. Whether nobody has."""
        _, seq = changes.bounds(tx)
        kept = len(self._lately) + len(self._topics)
        known = seq == self._seq
        if not known or kept > _MOST_KEPT or tx.now - self._since > _KEPT_MS:
            self.forget()
            self._since = int(tx.now)
        self._seq = -1
        self._number += 1
        return known

    def end(self, tx: Tx) -> None:
        """A transaction ends: once it is committed, all is known as it left it."""
        tx.write_gathered()
        number, (_, seq) = self._number, changes.bounds(tx)
        tx.on_commit(lambda: self._keep(number, seq))

    def _keep(self, number: int, seq: int) -> None:
        if number == self._number:
            self._seq = seq

    def forget(self) -> None:
        self._scopes.clear()
        self._lately.clear()
        self._topics.clear()
        self.tasks.clear()
        self._histories.clear()

    def topics(self, tx: Tx, ids: Iterable[str]) -> dict[str, Topic]:
        """Those of the topics that are there and the reader may read."""
        wanted = list(ids)
        missing = [id_ for id_ in wanted if id_ not in self._topics]
        if missing:
            with tx.reading_as(SYSTEM):
                self._topics |= dict.fromkeys(missing)
                self._topics |= {topic.id: topic for topic in topics.get_many(tx, missing)}
        there = (self._topics.get(id_) for id_ in wanted)
        return {topic.id: topic for topic in there if topic and topics.may_read(tx.reader, topic)}

    def gather(
        self, tx: Tx, words: Sequence[str], view: View, *, routed: Sequence[str], retrieved: Sequence[str]
    ) -> list[Weighable]:
        """The topics of this session first, then those that the index found, then those that share rare
        words."""
        lexical = self._scope(tx, view).nearest(words, MAX_CANDIDATES)
        ids = list(dict.fromkeys((*reversed(routed), *retrieved, *lexical)))[: 2 * MAX_CANDIDATES]
        there = self.topics(tx, ids)
        seen = [there[id_] for id_ in ids if id_ in there and view.sees(there[id_].space_ids)]
        return self._weighable(tx, seen[:MAX_CANDIDATES])

    def _weighable(self, tx: Tx, chosen: Sequence[Topic]) -> list[Weighable]:
        """Topics with the profile of what was lately said in them."""
        reader = tx.reader
        missing = [topic.id for topic in chosen if reader not in self._lately[topic.id]]
        if missing:
            self.write_first()
            found = entries.refs_by_topic(tx, missing, limit=LATELY)
            refs = [ref for id_ in missing for ref in found[id_]]
            said = dict(zip((ref.id for ref in refs), self.texts.of(tx, refs), strict=True))
            for id_ in missing:
                lines = [(*ref.place, ref.id, said[ref.id]) for ref in reversed(found[id_])]
                self._lately[id_][reader] = _Lately(lines, len(lines) == LATELY)
        return [Weighable(topic, self._lately[topic.id][reader].of(topic)) for topic in chosen]

    def _scope(self, tx: Tx, view: View) -> _Scope:
        key = (view.spaces, tx.reader)
        scope = self._scopes.get(key)
        if scope is None:
            self.write_first()
            scope = self._scopes[key] = _Scope(tx, view, self.texts)
        return scope

    def remember_episode(self, session_key: str, episode: Episode | None) -> None:
        """What a session is at; kept in memory only, so after a restart another begins."""
        self.episodes.pop(session_key, None)
        if episode is not None:
            self.episodes[session_key] = episode
        while len(self.episodes) > _MOST_EPISODES:
            self.episodes.popitem(last=False)

    def history(self, session_key: str, reader: Reader, lookback: int) -> History:
        """What the session said, for the sessions that were sorted last."""
        known = self._histories.pop((session_key, reader), None)
        if known is None or known.lookback != lookback:
            known = History(session_key, reader, lookback, lambda: self.write_first())
        self._histories[session_key, reader] = known
        while len(self._histories) > _MOST_HISTORIES:
            self._histories.popitem(last=False)
        return known

    def topic_gone(self, topic_id: str) -> None:
        """A topic in which nothing is any more was deleted."""
        self._topics[topic_id] = None
        self._lately.pop(topic_id, None)
        self._scopes = {key: one for key, one in self._scopes.items() if one.topic_gone(topic_id)}

    def topic_made(self, tx: Tx, topic: Topic) -> None:
        """A topic was made, in which nothing was said yet."""
        self._lately[topic.id][tx.reader] = _Lately([], more=False)
        self.topic_moved(topic)

    def topic_moved(self, topic: Topic) -> None:
        """A topic was woken, or came to the front."""
        self._topics[topic.id] = topic
        for scope in self._scopes.values():
            scope.topic_moved(topic)

    def sorted(self, before: Entry, after: Entry, text: str) -> None:
        """An entry was sorted; what it says is known under its new state."""
        self.texts.put(after.id, after.updated_at, text)
        for key, scope in list(self._scopes.items()):
            if not scope.sorted(after, text):
                del self._scopes[key]
        for (session_key, _), history in self._histories.items():
            if session_key == after.session_key:
                history.sorted(after)
        if before.topic_id is not None:
            left = self._lately.get(before.topic_id, {})
            if not all(lately.take(before.id) for lately in left.values()):
                del self._lately[before.topic_id]
        for reader, lately in self._lately.get(after.topic_id or "", {}).items():
            if reader.may_read_of(after.audience, after.agent_id):
                lately.put(after, text)


@dataclass(slots=True)
class History:
    """What a session said, as far back as is looked, for one reader; kept in step with what is sorted."""

    session_key: str
    reader: Reader
    lookback: int
    write_first: Callable[[], None]
    _rows: list[entry_model.Ref] = field(default_factory=list)
    _places: list[Place] = field(default_factory=list)
    _until: Place = (-1, -1)
    _whole: bool = True

    def current(self, tx: Tx, place: Place, ahead: Place) -> str | None:
        """The topic of the newest entry before a place that has one."""
        end = self._reach(tx, place, ahead)
        for ref in reversed(self._rows[max(0, end - self.lookback) : end]):
            if ref.topic_id is not None and ref.status == "classified" and not ref.code:
                return ref.topic_id
        return None

    def pause(self, tx: Tx, place: Place, ahead: Place) -> int:
        """How long nothing was said before a place, in milliseconds."""
        end = self._reach(tx, place, ahead)
        return place[0] - self._rows[end - 1].place[0] if end else 0

    def sorted(self, entry: Entry) -> None:
        """An entry of the session as it was sorted."""
        at = bisect_left(self._places, (entry.created_at, entry.position))
        if at < len(self._rows) and self._rows[at].id == entry.id:
            self._rows[at] = replace(
                self._rows[at],
                topic_id=entry.topic_id,
                updated_at=entry.updated_at,
                status=entry.status.value,
                code=entry.code,
            )

    def _reach(self, tx: Tx, place: Place, ahead: Place) -> int:
        """How many rows lie before a place; `ahead` is the farthest that will be asked about soon."""
        end = bisect_left(self._places, place)
        if place > self._until or (end < self.lookback and not self._whole):
            self._read(tx, max(place, ahead), self.lookback + _AHEAD)
            end = bisect_left(self._places, place)
            if end < self.lookback and not self._whole:
                self._read(tx, place, self.lookback)
                end = len(self._rows)
        return end

    def _read(self, tx: Tx, until: Place, limit: int) -> None:
        self.write_first()
        with tx.reading_as(self.reader):
            self._rows = entries.refs_before(tx, self.session_key, until, limit=limit)[::-1]
        self._places = [ref.place for ref in self._rows]
        self._until, self._whole = until, len(self._rows) < limit
