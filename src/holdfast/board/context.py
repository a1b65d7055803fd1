"""The continuity of a conversation, as `GET /api/context` gives it before each run of an agent.

Layer A is always there and cheap: where one is, what is in work, what the session was about and what was said
last. Layer B recalls from the whole history, when the question says something or the mode asks for it. If it
takes too long, layer A goes out alone and says so.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, NotRequired, TypeVar

from pydantic import Field
from typing_extensions import TypedDict

from holdfast.board import routing, tasks, topics
from holdfast.board.audit import Audit
from holdfast.board.block import render
from holdfast.board.context_cache import ShortCache, Stamp, only_log, stamp
from holdfast.board.context_layers import LATER, Gathered, Location, data, sections
from holdfast.board.noise import is_low_signal
from holdfast.board.present import (
    Line,
    asks_for_figure,
    follows,
    line_of,
    replaced,
    stand_of,
    tells_change,
)
from holdfast.board.search import (
    Found,
    Search,
    SearchAsk,
    SearchFound,
    board_key,
    cleaned,
    expanded,
    routing_of,
    session_of,
)
from holdfast.board.shown import Shown
from holdfast.board.tasks import Task
from holdfast.board.timeline import Said, Thread, timeline
from holdfast.board.topics import Topic
from holdfast.board.visibility import Sight, View
from holdfast.board.working_set import WorkingSet, working_set
from holdfast.config.board import BoardConfig
from holdfast.config.memory import FLOOR
from holdfast.errors import Busy, HoldfastError
from holdfast.log import Store, Tx
from holdfast.memory.timewords import asks_for_time
from holdfast.records import record
from holdfast.text import clip

_log = logging.getLogger(__name__)

T = TypeVar("T", Topic, Task, Shown)
Mode = Literal["auto", "cheap", "full", "patient"]

SHOWN_ROUTES: Final = 4
MOST_WAITING: Final = 8
LEAST_SIGNAL: Final = 4
RECALLED: Final = 36
RECALLED_PATIENT: Final = 60
GOOD_SHARE: Final = 0.35
NEWEST: Final = 10
NEWEST_STAND: Final = 24
LEAST_LATER: Final = 0.4
_OF_NEXT: Final = 0.7
_AGES: Final = 0.03
_OLDEST: Final = 0.4
_COMPARED: Final = 16
_OVER_SHARE: Final = 0.6
_SURE: Final = 0.75
_FEW: Final = 2
MAX_SHOWN_Q: Final = 2_000
_ANY: Final = Stamp(0)
_SETS_SECONDS: Final = 30.0
"""What falls due or wakes from a snooze may be so late in a working set of which nothing else changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextAsk:
    """What a host says of the turn that comes, and how large an answer it takes."""

    q: str = ""
    sight: Sight
    mode: Mode = "auto"
    include_pending: bool = True
    max_chars: int = 2200
    working_set_limit: int = 6
    timeline_limit: int = 6


@record
class ContextBlockOut(TypedDict):
    """`sessionKey` and `q` are there when they were sent."""

    ok: Literal[True]
    sessionKey: NotRequired[str]
    q: NotRequired[str]
    mode: Mode
    layers: Annotated[list[str], Field(description="The sections of which something stands in the block.")]
    block: Annotated[str, Field(description="At most `maxChars` long, however that is counted.")]
    data: Annotated[dict[str, Any], Field(description="The same as plain values, and what was left out.")]


@dataclass(frozen=True, slots=True)
class Context:
    """The block and what it was made from. `late` is set when recall was wanted but not there in time."""

    ask: ContextAsk
    layers: tuple[str, ...]
    block: str
    data: dict[str, Any]
    late: bool = False

    def json(self) -> ContextBlockOut:
        told: ContextBlockOut = {
            "ok": True,
            "mode": self.ask.mode,
            "layers": list(self.layers),
            "block": self.block,
            "data": self.data,
        }
        if self.ask.sight.session_key is not None:
            told["sessionKey"] = self.ask.sight.session_key
        if question := clip(self.ask.q, MAX_SHOWN_Q):
            told["q"] = question
        return told


def wants_recall(mode: Mode, question: str, *, board: bool) -> bool:
    """Whether the history is searched: as the mode says, or when there is something to search by.

    In a board chat even words that say nothing ("go on") are: there it is known what they are about.
    """
    if mode == "cheap":
        return False
    if mode in ("full", "patient"):
        return True
    return has_signal(question) or (board and bool(question))


def has_signal(question: str) -> bool:
    return len(question) >= LEAST_SIGNAL and (not is_low_signal(question) or stand_of(question) is not None)


@dataclass(slots=True)
class _Begun:
    """Layer A, and the search that runs beside it."""

    gathered: Gathered
    stamp: Stamp
    recall: Future[SearchFound] | None = None


class Continuity:
    """Builds contexts. Recall runs on threads of its own, so that a slow one keeps nobody waiting."""

    def __init__(
        self,
        store: Store,
        search: Search,
        options: Callable[[], BoardConfig],
        *,
        audit: Audit | None = None,
    ) -> None:
        self._store = store
        self._search = search
        self._options = options
        self._audit = audit
        self._cache: ShortCache[Context] = ShortCache()
        self._sets: ShortCache[tuple[int, WorkingSet]] = ShortCache(seconds=_SETS_SECONDS)
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._running = 0

    def build(self, ask: ContextAsk) -> Context:
        began = time.monotonic()
        with self._store.read(ask.sight.reader) as tx:
            now = stamp(tx, ask.sight.session_key)
            kept = self._cache.get(ask, now)
            if kept is not None:
                return kept
            begun = self._begin(tx, ask, now)
        context = self._finished(ask, begun, began)
        self._note(context, began)
        return context

    def close(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)

    def _begin(self, tx: Tx, ask: ContextAsk, now: Stamp) -> _Begun:
        """Read layer A; recall is begun as soon as it is known what to look for."""
        options = self._options()
        key = ask.sight.session_key
        view = ask.sight.view(tx)
        location = _location(tx, key, view)
        routed = routing_of(tx, key, options, view)
        said = self._said(tx, ask, view, location)
        recall = None
        wants = wants_recall(ask.mode, cleaned(ask.q), board=board_key(key) is not None)
        question = _question(ask, location, routed, said) if wants else ""
        if question:
            wanted = _search_ask(ask, question)
            session = session_of(key, routed)
            recall = self._submit(lambda: self._search.find(wanted, question, view, session, now))
        working = self._working(tx, view, ask.working_set_limit, now)
        return _Begun(Gathered(tx.now, working, location, routed[-SHOWN_ROUTES:], said), now, recall)

    def _working(self, tx: Tx, view: View, limit: int, now: Stamp) -> WorkingSet:
        """The working set, read again only when a space, topic or task changed since it was read."""
        key = (tx.reader, view.spaces, limit)
        kept = self._sets.get(key, _ANY)
        if kept is not None and only_log(tx, kept[0], now.seq):
            return kept[1]
        found = working_set(tx, view, limit, tx.now)
        self._sets.put(key, _ANY, (now.seq, found))
        return found

    def _said(self, tx: Tx, ask: ContextAsk, view: View, location: Location | None) -> list[Said]:
        """What was said last: in a board chat by anyone in its topic or task, else in the session."""
        thread = _thread(ask.sight.session_key, location)
        if thread is None:
            return []
        limit, pending = ask.timeline_limit, ask.include_pending
        return timeline(tx, view, thread, limit=limit, include_pending=pending)

    def _finished(self, ask: ContextAsk, begun: _Begun, began: float) -> Context:
        """Wait for recall for as long as there is time, and put the block together."""
        budget = self._options().context_fetch_timeout_ms / 1000 - (time.monotonic() - began)
        recalled, notices = _awaited(begun.recall, budget)
        gathered, asked = begun.gathered, cleaned(ask.q)
        if recalled is not None:
            options, patient = self._options(), ask.mode == "patient"
            sure = sureness(recalled.confidence) if has_signal(asked) else 1.0
            limit = few_if_unsure(_limit(options, patient=patient), sure)
            stands = sure == 1.0 and stand_of(asked) is not None
            shown = _shortlist(recalled, asked, options, sure, patient=patient, stands=stands)
            gathered = replace(gathered, recalled=shown, limit=limit, stands=stands)
        nothing_fits = recalled is not None and not recalled.fits and not recalled
        block = render(
            sections(gathered, asked),
            intent=asked,
            mode=ask.mode,
            max_chars=ask.max_chars,
            notices=notices,
            about="" if nothing_fits else asked,
        )
        told = data(gathered, block) | {"notices": list(notices)}
        context = Context(ask, block.layers, block.text, told, late=bool(notices))
        if not notices and (recalled is None or not recalled.behind):
            self._cache.put(ask, begun.stamp, context)
        return context

    def _submit(self, work: Callable[[], SearchFound]) -> Future[SearchFound]:
        """Run a search beside, as soon as a place is free; when too many wait for one, none is begun."""
        places = self._options().search.concurrency
        with self._lock:
            if self._running >= MOST_WAITING * places:
                refused: Future[SearchFound] = Future()
                refused.set_exception(Busy("too many searches run at once", code="search_busy"))
                return refused
            if self._pool is None:
                self._pool = ThreadPoolExecutor(places, thread_name_prefix="holdfast-recall")
            self._running += 1
            pool = self._pool
        future = pool.submit(work)
        future.add_done_callback(self._done)
        return future

    def _done(self, _: Future[SearchFound]) -> None:
        with self._lock:
            self._running -= 1

    def _note(self, context: Context, began: float) -> None:
        if self._audit is not None:
            took = round((time.monotonic() - began) * 1000)
            facts = {"sessionKey": context.ask.sight.session_key, "mode": context.ask.mode, "tookMs": took}
            self._audit.write("context", {**facts, "layers": context.layers, "chars": len(context.block)})


def _awaited(recall: Future[SearchFound] | None, budget: float) -> tuple[SearchFound | None, list[str]]:
    if recall is None:
        return None, []
    try:
        return recall.result(max(0.0, budget)), []
    except Late:
        return None, ["Semantic recall was late and is left out of this turn."]
    except HoldfastError as error:
        return None, [f"Semantic recall failed and is left out of this turn: {error.message}"]
    except Exception:  # noqa: BLE001 - a turn must not fail because the index did; layer A stands alone
        _log.exception("recall failed")
        return None, ["Semantic recall failed and is left out of this turn."]


def _location(tx: Tx, session_key: str | None, view: View) -> Location | None:
    key = board_key(session_key)
    if key is None:
        return None
    topic = next((one for one in topics.get_many(tx, [key[0]]) if view.sees(one.space_ids)), None)
    if topic is None:
        return None
    found = tasks.get_many(tx, [key[1]]) if key[1] is not None else []
    task = next((t for t in found if t.topic_id == topic.id and view.sees(t.space_ids)), None)
    return Location(topic, task)


def _thread(session_key: str | None, location: Location | None) -> tuple[Thread, str] | None:
    if location is not None and location.task is not None:
        return "task_id", location.task.id
    if location is not None:
        return "topic_id", location.topic.id
    return ("session_key", session_key) if session_key else None


def _question(
    ask: ContextAsk, location: Location | None, routed: list[routing.Routed], said: list[Said]
) -> str:
    """What recall looks for: the words of the turn, or what it goes on with when they say too little; where
    it is asked how a matter stands, the matter."""
    asked = cleaned(ask.q)
    if has_signal(asked):
        return stand_of(asked) or asked
    place = [] if location is None else [location.topic.name]
    place += [] if location is None or location.task is None else [location.task.title]
    anchors = [one.anchor or one.topic_name for one in routed[::-1]][:2]
    return expanded(asked, [*place, *anchors, *(one.text for one in said[::-1][:2])])


def _search_ask(ask: ContextAsk, question: str) -> SearchAsk:
    patient = ask.mode == "patient"
    places = 16 if patient else 8
    asked = cleaned(ask.q)
    stands = stand_of(asked) is not None
    return SearchAsk(
        q=question,
        sight=ask.sight,
        include_pending=ask.include_pending,
        logs=RECALLED_PATIENT if patient else RECALLED,
        topics=places,
        tasks=places,
        nearest=not has_signal(asked),  # then it is the board's own words that are looked for
        later=NEWEST_STAND if stands else NEWEST,
        stands=stands,
    )


def sureness(confidence: float) -> float:
    """How sure it is that something answers, from 0 at the floor's default to 1."""
    return min(1.0, max(0.0, (confidence - FLOOR) / (_SURE - FLOOR)))


def few_if_unsure(most: int, sure: float) -> int:
    """How many finds are shown: where it is unsure that any answers, the best few."""
    return min(most, _FEW + round(sure * (most - _FEW)))


def _shortlist(
    found: SearchFound, asked: str, options: BoardConfig, sure: float, *, patient: bool, stands: bool
) -> SearchFound:
    """What the block weighs: more entries than it shows, since some say the same, and none that is far behind
    the best."""
    more = 2 if patient else 0
    weighed = 3 * _limit(options, patient=patient) // 2
    places = max(1, round(sure * (options.context_topic_limit + more)))
    if stands:
        weighed, after = 2 * NEWEST_STAND, newest_first(found.logs, found.later)
    else:
        after = came_later(asked, found.logs, found.later)
    return replace(
        found,
        topics=_good(found.topics)[: min(places, options.context_topic_limit + more)],
        tasks=_good(found.tasks)[: options.context_task_limit + more],
        logs=_good(present_first(_each_once([*after, *found.logs])))[:weighed],
        notes=_good(found.notes)[:weighed],
    )


def _limit(options: BoardConfig, *, patient: bool) -> int:
    return options.context_log_limit * (2 if patient else 1)


def came_later(asked: str, found: Sequence[Found[Shown]], newest: Sequence[Said]) -> list[Found[Shown]]:
    """What was said in the topics of the best finds after them, as far as it may tell what came of it: each
    with a share of the score of the best find of its topic."""
    best: dict[str | None, Found[Shown]] = {}
    lines: dict[str | None, list[Line]] = {}
    about = {said.entry.topic_id for said in newest}
    for one in filter(lambda one: one.item.topic_id in about, found[:_COMPARED]):
        best.setdefault(one.item.topic_id, one)
        lines.setdefault(one.item.topic_id, []).append(line_of(one.text, one.item.created_at))
    known = {one.item.id for one in found[:_COMPARED]}
    kinds = {"wants_time": asks_for_time(asked), "wants_figure": asks_for_figure(asked)}
    later: list[Found[Shown]] = []
    for said in newest:
        entry = said.entry
        before = best.get(entry.topic_id)
        if entry.id in known or before is None or entry.created_at < before.item.created_at:
            continue
        share = follows(line_of(said.text, entry.created_at), lines[entry.topic_id], **kinds)
        score = before.score * share
        if share >= LEAST_LATER:
            later.append(Found(entry, score, {LATER: score}, said.text))
    return sorted(later, key=lambda one: (-one.score, -one.item.created_at))


def newest_first(found: Sequence[Found[Shown]], newest: Sequence[Said]) -> list[Found[Shown]]:
    """The statements of the topics that are asked about, the newest worth most, of the first topic more than
    of the next; what they had as finds is one of their parts."""
    known = {one.item.id: one for one in found}
    best = found[0].score if found else 1.0
    of_topic: dict[str | None, int] = {}
    told: list[Found[Shown]] = []
    places = {id_: n for n, id_ in enumerate(dict.fromkeys(one.entry.topic_id for one in newest))}
    for said in reversed(newest):
        entry = said.entry
        if said.text.rstrip().endswith("?") or not line_of(said.text, entry.created_at).words:
            continue
        age = of_topic[entry.topic_id] = of_topic.get(entry.topic_id, -1) + 1
        score = best * _OF_NEXT ** places[entry.topic_id] * max(_OLDEST, 1 - _AGES * age)
        before = known.get(entry.id)
        parts = {LATER: score} if before is None else {**before.parts, LATER: max(0.0, score - before.score)}
        told.append(Found(entry, max(score, 0.0 if before is None else before.score), parts, said.text))
    return sorted(told, key=lambda one: (-one.score, -one.item.created_at))


def _each_once(found: Sequence[Found[Shown]]) -> list[Found[Shown]]:
    return list({one.item.id: one for one in reversed(found)}.values())[::-1]


def present_first(found: Sequence[Found[Shown]]) -> list[Found[Shown]]:
    """Entries with what is over behind what took its place: where a later one of the same topic has another
    figure for the same, that one counts as much as the older did, and the older for less. Both say so."""
    raised: dict[str, float] = {}
    over: set[str] = set()
    for several in _by_topic(found[:_COMPARED]):
        lines = [line_of(one.text, one.item.created_at) for one in several]
        for older, newer in replaced(lines).items():
            over.add(several[older].item.id)
            id_ = several[newer].item.id
            raised[id_] = max(several[older].score, raised.get(id_, 0.0))
    told = [_moved(one, raised, over) for one in found] if over else list(found)
    return sorted(told, key=lambda one: -one.score)


def _by_topic(found: Sequence[Found[Shown]]) -> list[list[Found[Shown]]]:
    """Those of each topic of which one tells of a change, in the order in which they were said."""
    topics_of = dict.fromkeys(one.item.topic_id for one in found if tells_change(one.text))
    of_each = ([one for one in found if one.item.topic_id == id_] for id_ in topics_of if id_ is not None)
    return [sorted(several, key=lambda one: (one.item.created_at, one.item.position)) for several in of_each]


def _moved(one: Found[Shown], raised: Mapping[str, float], over: Collection[str]) -> Found[Shown]:
    """With the change as a part of the score, so that the parts still add up to it."""
    more = max(0.0, raised.get(one.item.id, 0.0) - one.score)
    if one.item.id in over:
        less = -(1 - _OVER_SHARE) * (one.score + more)
        return one._replace(score=one.score + more + less, parts={**one.parts, "over": more + less})
    return one._replace(score=one.score + more, parts={**one.parts, "present": more}) if more else one


def _good(found: Sequence[Found[T]]) -> list[Found[T]]:
    best = found[0].score if found else 0.0
    return [one for one in found if one.score >= GOOD_SHARE * best]
