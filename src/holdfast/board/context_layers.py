"""What is gathered for a continuity block, and how each piece of it reads as a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from holdfast.board.block import MOST_READ, Block, Line, Section, joined
from holdfast.board.quoting import quoted
from holdfast.board.routing import Routed
from holdfast.board.search import Found, SearchFound
from holdfast.board.search_forms import fit_form, found_forms, routed_form, said_form, task_form, topic_form
from holdfast.board.shown import Shown
from holdfast.board.tasks import Task
from holdfast.board.timeline import Said
from holdfast.board.topics import Topic
from holdfast.board.words import asked_terms, terms
from holdfast.board.work import Priority, TopicStatus
from holdfast.board.working_set import WorkingSet, pressure
from holdfast.clock import iso

T = TypeVar("T", Topic, Task, Shown)

A_BOARD = "A:board_session"
A_WORKING = "A:working_set"
A_ROUTING = "A:routing_memory"
A_TIMELINE = "A:timeline"
B_SEMANTIC = "B:semantic"
LATER: Final = "later"
"""The part of a score by which something is shown that was said after the finds."""
RECALL: Final = "Semantic recall topics/tasks/logs:"

# What a line of each kind is worth by itself, next to the best find, which is worth as much as it fits.
_HERE: Final = 2.0
_NOTE: Final = 1.0
_ENTRY: Final = 0.95
_PLACE: Final = 0.5
_PLACE_OF_STAND: Final = 0.85
_LAST_SAID: Final = 0.7
_OLDER_SAID: Final = 0.09
_PRESSING: Final = 0.6
_RECENT: Final = 0.15
_FAR_SHARE: Final = 0.4
_ROUTED: Final = 0.3
_LEAST: Final = 0.05
_SPARE: Final = 0.3
_FIND: Final = "find"
_MORE: Final = "more"
_OF_STAND: Final = 16
_MOST_WEIGHED: Final = 60


@dataclass(frozen=True, slots=True)
class Location:
    """The topic, and the task if it is one's, of a board chat."""

    topic: Topic
    task: Task | None = None


@dataclass(frozen=True, slots=True)
class Gathered:
    """All that may go into a block, each list with the most valuable first unless it is a history."""

    now: int
    working: WorkingSet
    location: Location | None = None
    routed: Sequence[Routed] = ()
    said: Sequence[Said] = ()
    recalled: SearchFound | None = None
    limit: int = 6
    """How many finds are shown at most."""
    stands: bool = False
    """Whether it is asked how a matter stands."""

    @property
    def most(self) -> dict[str, int]:
        """How many lines of each kind are shown: half as many more as finds, or what was said last."""
        return {_FIND: self.limit, _MORE: _OF_STAND if self.stands else self.limit // 2}


def sections(gathered: Gathered, about: str = "") -> list[Section]:
    """The sections in the order in which they stand, each line with what it is worth for a question."""
    recalled, limit = gathered.recalled or SearchFound(), gathered.limit
    brief = bool(recalled)
    topics = tuple(_working(one, gathered.now, brief) for one in gathered.working.topics)
    tasks = tuple(_working(one, gathered.now, brief) for one in gathered.working.tasks)
    return [
        Section(A_BOARD, "Active board location:", _located(gathered.location), True),
        Section(A_WORKING, "Working set topics:", topics, True),
        Section(A_WORKING, "Working set tasks:", tasks, True),
        Section(
            A_ROUTING,
            "Session routing memory (newest last):",
            tuple(map(_routed, gathered.routed)),
            not brief,
        ),
        Section(A_TIMELINE, "Recent session timeline:", _timeline(gathered.said), True),
        Section(B_SEMANTIC, RECALL, _recalled(gathered, about), most=gathered.most),
        Section(
            B_SEMANTIC, "Curated notes:", tuple(_found(recalled.notes, _NOTE, limit)), most=gathered.most
        ),
    ]


def data(gathered: Gathered, block: Block) -> dict[str, Any]:
    """The same as plain values, for pages and tools, with what was weighed and left out, and why."""
    place, found = gathered.location, gathered.recalled
    found = None if found is None else _told(found, sum(gathered.most.values()), block.shown)
    board = None
    if place is not None:
        task = None if place.task is None else task_form(place.task)
        board = {"topic": topic_form(place.topic), "task": task}
    return {
        "boardSession": board,
        "workingSet": {
            "topics": [topic_form(topic) for topic in gathered.working.topics],
            "tasks": [task_form(task) for task in gathered.working.tasks],
        },
        "routingMemory": [routed_form(one) for one in gathered.routed],
        "timeline": [said_form(one) for one in gathered.said],
        "semantic": None if found is None else found_forms(found) | fit_form(found),
        "leftOut": dict(block.counts),
        "weighed": [*_left_out(block), *_below(found)],
    }


def _left_out(block: Block) -> list[dict[str, str]]:
    return [
        {"section": one.title, "text": one.line.whole[:200], "reason": one.reason}
        for one in block.left_out[:_MOST_WEIGHED]
    ]


def _below(found: SearchFound | None) -> list[dict[str, str]]:
    """The nearest finds where nothing is likely enough to answer the question."""
    lines = [] if found is None else [_said(one.item, one.text, 0.0) for one in found.below]
    return [{"section": RECALL, "text": one.whole[:200], "reason": "floor"} for one in lines]


def _located(place: Location | None) -> tuple[Line, ...]:
    if place is None:
        return ()
    topic = _described(place.topic, _HERE, "topic: ")
    return (topic,) if place.task is None else (topic, _described(place.task, _HERE, "task: "))


def _working(item: Topic | Task, now: int, brief: bool) -> Line:
    """What presses, with where it stands; beside recall, what was merely touched of late by its name."""
    if pressure(item, now) or not brief:
        return _described(item, _PRESSING if pressure(item, now) else _RECENT)
    return Line(quoted(item.name if isinstance(item, Topic) else item.title, MOST_READ), _RECENT, id=item.id)


def _described(item: Topic | Task, worth: float, prefix: str = "") -> Line:
    """The name, what presses, and where it stands."""
    name = item.name if isinstance(item, Topic) else item.title
    marks = [] if item.status is TopicStatus.ACTIVE else [str(item.status)]
    marks += ["pinned"] if item.pinned else []
    marks += ["high priority"] if item.priority is Priority.HIGH else []
    marks += [f"due {iso(item.due_at)[:10]}"] if item.due_at is not None else []
    head = prefix + quoted(f"{name} ({', '.join(marks)})" if marks else name, MOST_READ)
    if not item.digest:
        return Line(head, worth, id=item.id)
    lines = [one.removeprefix("- ") for one in item.digest.splitlines() if one.strip()]
    parts = tuple(quoted(one, MOST_READ) for one in lines)
    return Line(joined(parts), worth, f"{head}: ", item.id, parts)


def _routed(one: Routed) -> Line:
    name = quoted(one.topic_name, MOST_READ)
    if not one.anchor:
        return Line(name, _ROUTED)
    return Line(quoted(one.anchor, MOST_READ), _ROUTED, f"{name}: ")


def _timeline(said: Sequence[Said]) -> tuple[Line, ...]:
    """The newest last, which is also worth most."""
    last = len(said) - 1
    return tuple(
        _said(one.entry, one.text, max(_LEAST, _LAST_SAID - _OLDER_SAID * (last - at)))
        for at, one in enumerate(said)
    )


def _said(entry: Shown, text: str, worth: float) -> Line:
    who = entry.agent_label or ("user" if entry.role == "user" else entry.agent_id) or "unknown"
    head = f"{iso(entry.created_at)[:10]} {quoted(who, 60)}: "
    return Line(quoted(text, MOST_READ), worth, head, entry.id)


def _recalled(gathered: Gathered, about: str) -> tuple[Line, ...]:
    """Topics, then tasks, then entries. A place is told of if the best find lies in it, or it names what is
    asked; where it is asked how a matter stands, also if several finds do, and it counts for more."""
    found, stands = gathered.recalled or SearchFound(), gathered.stands
    asked = asked_terms(about)
    held = Counter(id_ for one in found.logs for id_ in (one.item.topic_id, one.item.task_id) if id_)
    first = {id_ for one in found.logs[:1] for id_ in (one.item.topic_id, one.item.task_id)}

    def is_meant(item: Topic | Task) -> bool:
        name = item.name if isinstance(item, Topic) else item.title
        return item.id in first or (stands and held[item.id] > 1) or not asked.isdisjoint(terms(name))

    places: list[tuple[str, Topic | Task, float]]
    places = [("topic: ", one.item, share) for one, share in _shares(found.topics)]
    places += [("task: ", one.item, share) for one, share in _shares(found.tasks)]
    worth = _PLACE_OF_STAND if stands else _PLACE
    meant = [_described(item, worth * share, prefix) for prefix, item, share in places if is_meant(item)]
    return (*meant, *_found(found.logs, _ENTRY, gathered.limit))


def _found(found: Sequence[Found[Shown]], worth: float, limit: int) -> Iterator[Line]:
    """Entries as lines. Finds beyond the limit share the places of what was said later, and come last."""
    finds = 0
    for one, share in _shares(found):
        later = LATER in one.parts
        finds += not later
        spare = not later and finds > limit
        value = worth * (_FAR_SHARE + (1 - _FAR_SHARE) * share) * (_SPARE if spare else 1.0)
        yield replace(_said(one.item, one.text, value), kind=_MORE if later or spare else _FIND)


def _told(found: SearchFound, most: int, shown: Container[str]) -> SearchFound:
    """What is told of recall beside the block: the entries that are shown, and as many more as might be."""

    def told(several: Sequence[Found[Shown]]) -> list[Found[Shown]]:
        first = sorted(several, key=lambda one: one.item.id not in shown)[:most]
        chosen = {one.item.id for one in first}
        return [one for one in several if one.item.id in chosen]

    return replace(found, logs=told(found.logs), notes=told(found.notes))


def _shares(found: Sequence[Found[T]]) -> Iterator[tuple[Found[T], float]]:
    """Each find with its score next to the best one's."""
    best = found[0].score if found else 0.0
    return ((one, one.score / best if best > 0 else 1.0) for one in found)
