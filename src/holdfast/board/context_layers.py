"""What is gathered for a continuity block, and how each piece of it reads as a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.board.block import Line, Section, line_chars, quoted
from holdfast.board.routing import Routed
from holdfast.board.search import Found, SearchFound
from holdfast.board.search_forms import found_forms, routed_form, said_form, task_form, topic_form
from holdfast.board.shown import Shown
from holdfast.board.tasks import Task
from holdfast.board.timeline import Said
from holdfast.board.topics import Topic
from holdfast.board.work import Priority, TopicStatus
from holdfast.board.working_set import WorkingSet
from holdfast.clock import iso

A_BOARD = "A:board_session"
A_WORKING = "A:working_set"
A_ROUTING = "A:routing_memory"
A_TIMELINE = "A:timeline"
B_SEMANTIC = "B:semantic"


@dataclass(frozen=True, slots=True)
class Location:
    """The topic, and the task if it is one's, of a board chat."""

    topic: Topic
    task: Task | None = None


@dataclass(frozen=True, slots=True)
class Gathered:
    """All that may go into a block, each list with the most valuable first unless it is a history."""

    working: WorkingSet
    location: Location | None = None
    routed: Sequence[Routed] = ()
    said: Sequence[Said] = ()
    recalled: SearchFound | None = None


def sections(gathered: Gathered, max_chars: int) -> list[Section]:
    """The sections in the order in which they stand; `value` says which is cut first."""
    most = line_chars(max_chars)
    recalled = gathered.recalled or SearchFound()
    topics, tasks = gathered.working.topics, gathered.working.tasks
    return [
        Section(A_BOARD, "Active board location:", _located(gathered.location, most), 100, 2),
        Section(A_WORKING, "Working set topics:", _best_first([_topic(t, most) for t in topics]), 40),
        Section(A_WORKING, "Working set tasks:", _best_first([_task(t, most) for t in tasks]), 60, 2),
        Section(
            A_ROUTING,
            "Session routing memory (newest last):",
            _newest_last([_routed(one, most) for one in gathered.routed]),
            30,
        ),
        Section(
            A_TIMELINE,
            "Recent session timeline:",
            _newest_last([_said(one.entry, one.text, most) for one in gathered.said]),
            50,
            2,
        ),
        Section(B_SEMANTIC, "Semantic recall topics/tasks/logs:", _recalled(recalled, most), 70, 3),
        Section(B_SEMANTIC, "Curated notes:", _best_first([_note(one, most) for one in recalled.notes]), 80),
    ]


def data(gathered: Gathered) -> dict[str, Any]:
    """The same as plain values, for pages and tools."""
    place = gathered.location
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
        "semantic": None if gathered.recalled is None else found_forms(gathered.recalled),
    }


def _best_first(lines: Sequence[str]) -> tuple[Line, ...]:
    return tuple(Line(text, -at) for at, text in enumerate(lines))


def _newest_last(lines: Sequence[str]) -> tuple[Line, ...]:
    return tuple(Line(text, at) for at, text in enumerate(lines))


def _located(place: Location | None, most: int) -> tuple[Line, ...]:
    if place is None:
        return ()
    lines = [f"topic: {_topic(place.topic, most - 7)}"]
    if place.task is not None:
        lines.append(f"task: {_task(place.task, most - 6)}")
    return _best_first(lines)


def _topic(topic: Topic, most: int) -> str:
    return _described(topic.name, topic, most)


def _task(task: Task, most: int) -> str:
    return _described(task.title, task, most)


def _described(name: str, item: Topic | Task, most: int) -> str:
    """The name, what presses, and the digest as far as there is room."""
    marks = [] if item.status is TopicStatus.ACTIVE else [str(item.status)]
    marks += ["pinned"] if item.pinned else []
    marks += ["high priority"] if item.priority is Priority.HIGH else []
    marks += [f"due {iso(item.due_at)[:10]}"] if item.due_at is not None else []
    head = f"{name} ({', '.join(marks)})" if marks else name
    return quoted(f"{head}: {item.digest}" if item.digest else head, most)


def _routed(one: Routed, most: int) -> str:
    return quoted(f"{one.topic_name}: {one.anchor}" if one.anchor else one.topic_name, most)


def _said(entry: Shown, text: str, most: int) -> str:
    who = entry.agent_label or ("user" if entry.role == "user" else entry.agent_id) or "unknown"
    return quoted(f"{who}: {text}", most)


def _note(one: Found[Shown], most: int) -> str:
    return quoted(one.text, most)


def _recalled(found: SearchFound, most: int) -> tuple[Line, ...]:
    """Topics, then tasks, then entries; the best of each kind is worth more than the second of any."""
    lines = [Line(f"topic: {_topic(one.item, most - 7)}", -at) for at, one in enumerate(found.topics)]
    lines += [Line(f"task: {_task(one.item, most - 6)}", -at) for at, one in enumerate(found.tasks)]
    for at, log in enumerate(found.logs):
        day = iso(log.item.created_at)[:10]
        lines.append(Line(f"{day} {_said(log.item, log.text, most - 11)}", 0.5 - at))
    return tuple(lines)
