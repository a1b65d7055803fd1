"""A random board, written through the rooms, beside a model of it so simple that it can be believed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from holdfast.board import spaces, tasks, topics
from holdfast.board.visibility import RECENT_ENTRIES
from holdfast.log import FOR_OWNER, OWNER, Audience, EntryDraft, Store, entries

LABELS = ("default", "alpha", "beta", "gamma")
SPACES = tuple(f"space-{label}" for label in LABELS)
SESSIONS = ("discord:dm:1", "discord:dm:2")
TAGS = ("space:alpha", "Beta", "GAMMA", "all", "system:alpha", "agent:beta")
TAG_SPACES = {"space:alpha": SPACES[1], "Beta": SPACES[2], "GAMMA": SPACES[3], "all": SPACES[0]}

_space = st.none() | st.sampled_from(SPACES)
_tags = st.lists(st.sampled_from(TAGS), max_size=2, unique=True)
_which = st.integers(0, 99)
_maybe = st.none() | _which
_set = st.none() | st.frozensets(st.sampled_from(SPACES), max_size=3)

plans = st.fixed_dictionaries(
    {
        "edges": st.lists(st.booleans(), min_size=12, max_size=12),
        "topics": st.lists(st.tuples(_space, _tags), min_size=1, max_size=4),
        "tasks": st.lists(st.tuples(_which, _space), max_size=3),
        "entries": st.lists(st.tuples(_space, _maybe, _maybe, st.integers(0, 3)), max_size=8),
        "retags": st.lists(st.tuples(_which, _tags), max_size=2),
        "deletes": st.lists(_which, max_size=1),
        "hides": st.lists(_which, max_size=2),
    }
)
asks = st.tuples(_space, _set, _set)


@dataclass
class World:
    """What was written: a topic has an owner and tags, a task a topic and a space, an entry all three."""

    edges: dict[tuple[str, str], bool] = field(default_factory=dict)
    topics: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    tasks: dict[str, tuple[str, str]] = field(default_factory=dict)
    entries: dict[str, tuple[str | None, str | None, str | None]] = field(default_factory=dict)
    said: list[tuple[int, str, str]] = field(default_factory=list)
    """When each entry was said, in which session, and its id; in the order of the log."""

    def told_by(self, session: str) -> str | None:
        """The space of the newest entry of a session that lies in one, among the last few of them."""
        spoken = [(at, n, id_) for n, (at, key, id_) in enumerate(self.said) if key == session]
        there = [self.entries[id_][0] for _, _, id_ in sorted(spoken, reverse=True) if id_ in self.entries]
        return next((space for space in there[:RECENT_ENTRIES] if space is not None), None)

    def allowed(self, source: str | None, wanted: Any, own: Any) -> frozenset[str] | None:
        limits = [set(limit) for limit in (wanted, own) if limit is not None]
        if source is not None:
            limits.append({source} | {to for (of, to), on in self.edges.items() if of == source and on})
        return frozenset(set.intersection(*limits)) if limits else None

    def of_topic(self, id_: str | None) -> set[str]:
        if id_ not in self.topics:
            return set()
        owner, tags = self.topics[id_]
        return {owner} | {TAG_SPACES[tag] for tag in tags if tag in TAG_SPACES}

    def of_task(self, id_: str | None) -> set[str]:
        if id_ not in self.tasks:
            return set()
        topic, space = self.tasks[id_]
        return {space} | self.of_topic(topic)

    def of_entry(self, id_: str) -> set[str]:
        space, topic, task = self.entries[id_]
        return ({space} if space else set()) | self.of_topic(topic) | self.of_task(task)

    def seen(self, kind: str, allowed: Iterable[str] | None) -> set[str]:
        of = {"topic": self.of_topic, "task": self.of_task, "entry": self.of_entry}[kind]
        ids = {"topic": self.topics, "task": self.tasks, "entry": self.entries}[kind]
        return {id_ for id_ in ids if allowed is None or of(id_) & set(allowed)}


def build(
    store: Store, world: World, plan: dict[str, Any], name: str, audience: Audience = FOR_OWNER
) -> None:
    """Write the plan for an audience, and note in the model what it means."""
    with store.write(OWNER) as tx:
        for label in LABELS:
            spaces.upsert(tx, label.title())
        pairs = [(of, to) for of in SPACES for to in SPACES if of != to]
        for (of, to), on in zip(pairs, plan["edges"], strict=True):
            spaces.connect(tx, of, {to: on})
            world.edges[of, to] = on
        for number, (space, tags) in enumerate(plan["topics"]):
            known = {"space_id": space, "tags": tags, "audience": audience}
            topic = topics.upsert(tx, f"{name} {number}", **known).topic
            world.topics[topic.id] = (space or first(tags) or SPACES[0], tags)
    topic_ids = list(world.topics)
    for which, space in plan["tasks"]:
        parent = topic_ids[which % len(topic_ids)]
        with store.write(OWNER) as tx:
            task = tasks.upsert(tx, "task", topic_id=parent, space_id=space, audience=audience).task
        world.tasks[task.id] = (parent, space or world.topics[parent][0])
    _write_entries(store, world, plan, audience)
    for which, tags in plan["retags"]:
        retag(store, world, topic_ids[which % len(topic_ids)], tags)
    for which in plan["hides"]:
        hide(store, world, which)
    for which in plan["deletes"]:
        delete(store, world, topic_ids[which % len(topic_ids)])


def _write_entries(store: Store, world: World, plan: dict[str, Any], audience: Audience) -> None:
    topic_ids, task_ids = [*world.topics, "topic-unknown"], [*world.tasks, "task-unknown"]
    for space, topic, task, minute in plan["entries"]:
        places: dict[str, Any] = {
            "space_id": space,
            "topic_id": None if topic is None else topic_ids[topic % len(topic_ids)],
            "task_id": None if task is None else task_ids[task % len(task_ids)],
        }
        with store.write(OWNER) as tx:
            at = minute * 60_000
            session = SESSIONS[minute % len(SESSIONS)]
            said = {"created_at": at, "session_key": session, "audience": audience}
            made = entries.append(tx, EntryDraft(content="text", **said, **places)).entry
        world.entries[made.id] = (places["space_id"], places["topic_id"], places["task_id"])
        world.said.append((at, session, made.id))


def retag(store: Store, world: World, id_: str, tags: list[str]) -> None:
    if id_ not in world.topics:
        return
    old = world.topics[id_][0]
    new = first(tags) or old
    with store.write(OWNER) as tx:
        topics.update(tx, id_, {"tags": tags})
    world.topics[id_] = (new, tags)
    for task, (parent, space) in world.tasks.items():
        if parent == id_ and space == old:
            world.tasks[task] = (parent, new)


def delete(store: Store, world: World, id_: str) -> None:
    if world.topics.pop(id_, None) is None:
        return
    with store.write(OWNER) as tx:
        topics.delete(tx, id_)
    world.tasks = {task: place for task, place in world.tasks.items() if place[0] != id_}


def hide(store: Store, world: World, which: int) -> None:
    if world.entries:
        id_ = list(world.entries)[which % len(world.entries)]
        with store.write(OWNER) as tx:
            entries.delete(tx, id_)
        del world.entries[id_]


def first(tags: list[str]) -> str | None:
    return next((TAG_SPACES[tag] for tag in tags if tag in TAG_SPACES), None)
