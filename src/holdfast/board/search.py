"""Searching the board: entries, notes, topics and tasks of the whole history, for one reader in one view.

The index finds, filtered by the reader's audiences and the view's spaces; what it found is read from the
store again and held against both, so that a row which was hidden a moment ago is not shown. Entries lend to
their topic and task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Generic, NamedTuple, TypeVar

from holdfast.board import routing, tasks, topics
from holdfast.board.audit import Audit
from holdfast.board.context_cache import ShortCache, Stamp, stamp
from holdfast.board.gate import Gate
from holdfast.board.noise import is_low_signal
from holdfast.board.reads import Query
from holdfast.board.recall import Recall, Recollection, Wanted
from holdfast.board.sanitise import sanitise
from holdfast.board.search_ranking import (
    Ranked,
    Score,
    Session,
    by_place,
    covers,
    name_part,
    rank_entries,
    rank_places,
)
from holdfast.board.semantic import semantic_text, topic_text
from holdfast.board.shown import SHORT, Shown
from holdfast.board.tasks import Task
from holdfast.board.timeline import Said, timeline
from holdfast.board.topics import Topic
from holdfast.board.visibility import Sight, View, seen_entries
from holdfast.config.board import BoardConfig
from holdfast.errors import InvalidInput
from holdfast.keys import BoardTaskKey, board_key_of
from holdfast.log import Classification, EntryType, Reader, Store, Tx

MAX_QUESTION: Final = 1_000
EXPANDED: Final = 500
_CHUNK: Final = 500
_NOTE: Final = EntryType.NOTE.value
_TELLING: Final = 4
_BELOW: Final = 3
_SPOKEN_FOR: Final = 0.5
_ABOUT: Final = 2
"""A turn is about the topics of its best finds, and about so many at most."""


T = TypeVar("T", Topic, Task, Shown)
P = TypeVar("P", Topic, Task)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAsk:
    """One search: what for, from where, and how much at most; `nearest` gives the nearest if nothing fits,
    `later` reads so many of the newest lines of the topics that the best finds lie in, with `stands` of those
    that most of the finds speak for."""

    q: str
    sight: Sight
    topic_id: str | None = None
    include_pending: bool = True
    topics: int = 24
    tasks: int = 24
    logs: int = 100
    nearest: bool = False
    later: int = 0
    stands: bool = False


class Found(NamedTuple, Generic[T]):
    """A hit: the thing as it is now, what it says if it is an entry, and how its score came about."""

    item: T
    score: float
    parts: Mapping[str, float]
    text: str = ""


@dataclass(frozen=True, slots=True)
class SearchFound:
    """Best first in each list; `mode` says how was searched, `behind` what was not indexed yet.

    Where nothing that was said `fits` there are only topics and tasks that the question itself is about.
    """

    topics: Sequence[Found[Topic]] = ()
    tasks: Sequence[Found[Task]] = ()
    logs: Sequence[Found[Shown]] = ()
    notes: Sequence[Found[Shown]] = ()
    later: Sequence[Said] = ()
    mode: str = "none"
    behind: int = 0
    took_ms: int = 0
    embed_ms: float = field(default=0.0, compare=False)
    confidence: float = 1.0
    fits: bool = True
    below: Sequence[Found[Shown]] = ()
    """The nearest few, where nothing fits: not to be shown as an answer."""

    def __bool__(self) -> bool:
        return bool(self.topics or self.tasks or self.logs or self.notes)


class Search:
    """Searches of one board. `gate` stands before those that people type."""

    def __init__(
        self,
        store: Store,
        recall: Recall,
        options: Callable[[], BoardConfig],
        *,
        audit: Audit | None = None,
    ) -> None:
        self._store = store
        self._recall = recall
        self._options = options
        self._audit = audit
        self._cache: ShortCache[SearchFound] = ShortCache()
        self.gate = Gate(lambda: options().search.concurrency, lambda: options().search.wait_ms)

    def bring_up_to_date(self, reader: Reader) -> None:
        """Have all that is written be found, also by other processes that only follow the index."""
        with self._store.read(reader) as tx:
            now = stamp(tx)
        self._recall.follow(now.seq)

    def run(self, ask: SearchAsk) -> SearchFound:
        """What the board has on a question. An answer is given again while nothing was written since."""
        began = time.monotonic()
        with self._store.read(ask.sight.reader) as tx:
            now = stamp(tx, ask.sight.session_key)
            kept = self._cache.get(ask, now)
            if kept is not None:
                return kept
            view = ask.sight.view(tx)
            session = self._session(tx, ask.sight.session_key, view)
            question = self._question(tx, ask, view)
        found = self.find(ask, question, view, session, now)
        took = round((time.monotonic() - began) * 1000)
        answer = replace(found, took_ms=took)
        if not answer.behind:
            self._cache.put(ask, now, answer, weight=1 + len(answer.logs) + len(answer.notes))
        self._note(ask, answer)
        return answer

    def find(self, ask: SearchAsk, question: str, view: View, session: Session, now: Stamp) -> SearchFound:
        """The search itself, when view and question are known already; neither gated nor kept."""
        if not question or view.spaces == frozenset():
            return SearchFound(mode="empty")
        one_word = len(question.split()) == 1
        wanted = Wanted(
            question=question,
            reader=ask.sight.reader,
            spaces=view.spaces,
            topic_id=ask.topic_id,
            logs=min(ask.logs, self._options().search.single_token_window_max_logs) if one_word else ask.logs,
            places=max(ask.topics, ask.tasks),
            seq=now.seq,
        )
        recalled = self._recall.search(wanted)
        with self._store.read(ask.sight.reader) as tx:
            return self._read(tx, ask, view, session, recalled, question)

    def _read(
        self,
        tx: Tx,
        ask: SearchAsk,
        view: View,
        session: Session,
        recalled: Recollection,
        question: str,
    ) -> SearchFound:
        fits = recalled.fits or ask.nearest
        best = recalled.logs if fits else recalled.logs[:_BELOW]
        said = self._entries(tx, ask, view, rank_entries(best, session))
        below, said = ([], said) if fits else (said, [])
        of_topics = rank_places(
            [one for one in recalled.places if one.kind == "topic"],
            by_place((one.item.topic_id, one.score) for one in said),
            session.topic_ids,
        )
        of_tasks = rank_places(
            [one for one in recalled.places if one.kind == "task"],
            by_place((one.item.task_id, one.score) for one in said),
            session.task_ids,
        )
        seen_topics = [t for t in _chunked(tx, topics.get_many, of_topics) if view.sees(t.space_ids)]
        seen_tasks = [t for t in _chunked(tx, tasks.get_many, of_tasks) if view.sees(t.space_ids)]
        for topic in seen_topics:
            of_topics[topic.id].add("name", name_part(question, topic.name))
        for task in seen_tasks:
            of_tasks[task.id].add("name", name_part(question, task.title))
        if not fits:
            seen_topics = [t for t in seen_topics if _is_meant(question, t, t.name, of_topics)]
            seen_tasks = [t for t in seen_tasks if _is_meant(question, t, t.title, of_tasks)]
        return SearchFound(
            _ranked(seen_topics, of_topics)[: ask.topics],
            _ranked(seen_tasks, of_tasks)[: ask.tasks],
            [one for one in said if one.item.type != _NOTE][: ask.logs],
            [one for one in said if one.item.type == _NOTE][: ask.logs],
            self._later(tx, ask, view, said, of_topics),
            recalled.mode,
            recalled.behind,
            embed_ms=recalled.embed_ms,
            confidence=recalled.confidence,
            fits=fits,
            below=below,
        )

    def _entries(self, tx: Tx, ask: SearchAsk, view: View, scores: dict[int, Ranked]) -> list[Found[Shown]]:
        """The entries that are there, within sight and say something, best first."""
        traces = self._options().search.include_tool_call_logs
        found: list[Found[Shown]] = []
        for entry in seen_entries(tx, view, _asked_for(_short(tx, sorted(scores)), ask)):
            text = semantic_text(entry, tool_traces=traces)
            if text:
                score, parts = scores[entry.position]
                found.append(Found(entry, score, parts, text))
        return sorted(found, key=lambda one: (-one.score, one.item.id))

    def _later(
        self,
        tx: Tx,
        ask: SearchAsk,
        view: View,
        said: Sequence[Found[Shown]],
        of_topics: Mapping[str, Score],
    ) -> list[Said]:
        """What was said last in the topics of the best finds."""
        if not ask.later:
            return []
        about = dict.fromkeys(one.item.topic_id for one in said[:_TELLING] if one.item.topic_id)
        if ask.stands:
            best = max((one.total for one in of_topics.values()), default=0.0)
            spoken_for = [id_ for id_, one in of_topics.items() if one.total >= _SPOKEN_FOR * best]
            about = dict.fromkeys(sorted(spoken_for, key=lambda id_: (-of_topics[id_].total, id_)))
        newest = [
            timeline(tx, view, ("topic_id", id_), limit=ask.later, include_pending=ask.include_pending)
            for id_ in list(about)[:_ABOUT]
        ]
        return [one for lines in newest for one in lines]

    def _session(self, tx: Tx, key: str | None, view: View) -> Session:
        return session_of(key, routing_of(tx, key, self._options(), view))

    def _question(self, tx: Tx, ask: SearchAsk, view: View) -> str:
        """What is looked for. Words that say nothing are filled up with what a board chat is about."""
        asked = cleaned(ask.q)
        if not asked or not is_low_signal(asked) or board_key(ask.sight.session_key) is None:
            return asked
        routed = routing_of(tx, ask.sight.session_key, self._options(), view)
        return expanded(asked, [*about(tx, ask.sight.session_key, view), *(r.anchor for r in routed[::-1])])

    def _note(self, ask: SearchAsk, answer: SearchFound) -> None:
        if self._audit is not None:
            facts = {"q": ask.q[:200], "sessionKey": ask.sight.session_key, "mode": answer.mode}
            counts = {"logs": len(answer.logs), "topics": len(answer.topics), "tookMs": answer.took_ms}
            self._audit.write("search", {**facts, **counts})


def cleaned(q: str) -> str:
    """A question without injected context and transport decorations, at a length that can be searched."""
    return " ".join(sanitise(q[: 20 * MAX_QUESTION]).split())[:MAX_QUESTION].strip()


def expanded(question: str, more: Sequence[str]) -> str:
    """A question that says little, with what the conversation is about; bounded."""
    parts = dict.fromkeys(part for part in (question, *(cleaned(text)[:200] for text in more)) if part)
    return " ".join(parts)[:EXPANDED].strip()


def board_key(session_key: str | None) -> tuple[str, str | None] | None:
    """The topic, and the task if it is one's, of a board chat."""
    try:
        key = board_key_of(session_key)
    except InvalidInput:
        return None
    if key is None:
        return None
    return key.topic_id, key.task_id if isinstance(key, BoardTaskKey) else None


def about(tx: Tx, session_key: str | None, view: View) -> list[str]:
    """The names of the task and the topic of a board chat, as far as the view shows them."""
    key = board_key(session_key)
    if key is None:
        return []
    found = [task.title for task in tasks.get_many(tx, [key[1] or ""]) if view.sees(task.space_ids)]
    return found + [topic.name for topic in topics.get_many(tx, [key[0]]) if view.sees(topic.space_ids)]


def routing_of(tx: Tx, key: str | None, options: BoardConfig, view: View) -> list[routing.Routed]:
    return [] if key is None else routing.recall(tx, key, options.routing_memory, view)


def session_of(key: str | None, routed: Sequence[routing.Routed]) -> Session:
    """What the session is about: its board chat, and what it was lately sorted into."""
    board = board_key(key)
    topic_ids = {one.topic_id for one in routed[-4:]} | ({board[0]} if board else set())
    task_ids = {one.task_id for one in routed[-4:]} | ({board[1]} if board else set())
    return Session(key, frozenset(topic_ids), frozenset(id_ for id_ in task_ids if id_ is not None))


def _is_meant(question: str, place: P, name: str, scores: Mapping[str, Score]) -> bool:
    """Whether a question is about a topic or task by its own words, whatever was said in it."""
    named = "name" in scores[place.id].parts
    return named or covers(question, topic_text(name, place.description, place.tags))


def _asked_for(found: list[Shown], ask: SearchAsk) -> list[Shown]:
    """Held against the ask once more, since the index may be a moment behind."""
    if not ask.include_pending:
        found = [entry for entry in found if entry.status == Classification.CLASSIFIED]
    if ask.topic_id is not None:
        found = [entry for entry in found if entry.topic_id == ask.topic_id]
    return found


def _short(tx: Tx, positions: Sequence[int]) -> list[Shown]:
    found: list[Shown] = []
    for start in range(0, len(positions), _CHUNK):
        found += map(Shown._make, _AT.rows(tx, positions=list(positions[start : start + _CHUNK])))
    return found


def _chunked(tx: Tx, read: Callable[[Tx, Sequence[str]], list[P]], scores: dict[str, Score]) -> list[P]:
    """The best of a kind, at most so many as one query takes."""
    best = sorted(scores, key=lambda id_: -scores[id_].total)[:_CHUNK]
    return read(tx, best) if best else []


def _ranked(items: Sequence[P], scores: Mapping[str, Score]) -> list[Found[P]]:
    order = sorted(items, key=lambda item: (-scores[item.id].total, item.id))
    return [Found(item, scores[item.id].total, scores[item.id].parts) for item in order]


_AT: Final = Query(f"SELECT {SHORT} FROM entries WHERE position IN :positions AND deleted_at IS NULL")
