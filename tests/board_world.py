"""A random board, written through the rooms, beside a model of it so simple that it can be believed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from holdfast.board import routing, spaces, tasks, topics
from holdfast.board.visibility import RECENT_ENTRIES
from holdfast.config.board import RoutingMemory
from holdfast.log import OWNER, Audience, EntryDraft, Reader, Store, covers, entries, heard_by
from holdfast.log.audience import token_reader

LABELS = ("default", "alpha", "beta", "gamma")
SPACES = tuple(f"space-{label}" for label in LABELS)
SESSIONS = ("discord:dm:1", "discord:dm:2")
TAGS = ("space:alpha", "Beta", "GAMMA", "all", "system:alpha", "agent:beta")
TAG_SPACES = {"space:alpha": SPACES[1], "Beta": SPACES[2], "GAMMA": SPACES[3], "all": SPACES[0]}

OPTIONS = RoutingMemory()
GUEST, ONE, TWO = "peer:discord::1", "group:discord::1", "group:discord::2"
AUDIENCES = ("owner", GUEST, ONE, TWO, "space:space-alpha", "space:space-beta", "anyone")
AGENTS = (None, "user", "main", "coder")
# Everyone there is: as the rooms know them, and in plain words what they may read and of whom.
PEOPLE: dict[str, tuple[Reader, set[str], set[str | None]]] = {
    "owner": (OWNER, set(AUDIENCES), set(AGENTS)),
    "guest": (heard_by(GUEST), {GUEST, "anyone"}, set(AGENTS)),
    "group one": (heard_by(ONE), {ONE, "anyone"}, set(AGENTS)),
    "group two, given alpha": (
        heard_by(TWO, frozenset((SPACES[1],))),
        {TWO, "space:space-alpha", "anyone"},
        set(AGENTS),
    ),
    "token of beta": (
        token_reader("beta", frozenset((SPACES[2],)), None),
        {"space:space-beta", "anyone"},
        set(AGENTS),
    ),
    "token of a coder": (token_reader("coder", None, frozenset(("coder",))), set(AUDIENCES), {"coder"}),
}

_space = st.none() | st.sampled_from(SPACES)
_tags = st.lists(st.sampled_from(TAGS), max_size=2, unique=True)
_which = st.integers(0, 99)
_maybe = st.none() | _which
_audience = st.sampled_from(AUDIENCES)
_agent = st.sampled_from(AGENTS)
_set = st.none() | st.frozensets(st.sampled_from(SPACES), max_size=3)

plans = st.fixed_dictionaries(
    {
        "edges": st.lists(st.booleans(), min_size=12, max_size=12),
        "topics": st.lists(st.tuples(_space, _tags, _audience, _agent), min_size=1, max_size=4),
        "tasks": st.lists(st.tuples(_which, _space, _audience), max_size=3),
        "entries": st.lists(
            st.tuples(_space, _maybe, _maybe, st.integers(0, 3), _audience, _agent), max_size=8
        ),
        "sorted": st.lists(st.tuples(_which, _which, _space), max_size=3),
        "shared": st.lists(st.tuples(_which, _audience), max_size=2),
        "routed": st.lists(st.tuples(st.sampled_from(SESSIONS), _which, _audience), max_size=2),
        "retags": st.lists(st.tuples(_which, _tags), max_size=2),
        "deletes": st.lists(_which, max_size=1),
        "hides": st.lists(_which, max_size=2),
    }
)
asks = st.tuples(_space, _set, _set)
people = st.sampled_from(sorted(PEOPLE))


@dataclass
class World:
    """What was written: a topic has an owner and tags, a task a topic and a space, an entry all three."""

    edges: dict[tuple[str, str], bool] = field(default_factory=dict)
    topics: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    tasks: dict[str, tuple[str, str]] = field(default_factory=dict)
    entries: dict[str, tuple[str | None, str | None, str | None]] = field(default_factory=dict)
    said: list[tuple[int, str, str]] = field(default_factory=list)
    """When each entry was said, in which session, and its id; in the order of the log."""
    given: dict[str, str | None] = field(default_factory=dict)
    """The space that each entry was given, wherever it was sorted."""
    owned: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    """Who may read each thing, and whose it is."""
    routed: dict[str, tuple[list[str], str]] = field(default_factory=dict)
    """The topics that each session was about, newest last, and who may read all the words of that."""

    def told_by(self, session: str) -> str | None:
        """The space that the newest entry of a session was given, among the last few of them; else that of
        the last topic that it was about."""
        spoken = [(at, n, id_) for n, (at, key, id_) in enumerate(self.said) if key == session]
        there = [self.given[id_] for _, _, id_ in sorted(spoken, reverse=True) if id_ in self.entries]
        about = [self.topics[id_][0] for id_ in self.routed.get(session, ([], ""))[0] if id_ in self.topics]
        return next((one for one in (*there[:RECENT_ENTRIES], *about[::-1]) if one is not None), None)

    def waiting_in(self, who: str, session: str, allowed: Iterable[str] | None) -> set[str]:
        """What lies nowhere yet: it counts for the space that its session has."""
        space = self.told_by(session) or SPACES[0]
        if allowed is not None and space not in allowed:
            return set()
        own = {id_ for _, key, id_ in self.said if key == session and self.entries.get(id_) == (None,) * 3}
        return {id_ for id_ in own if self.reads(who, id_)}

    def reads(self, who: str, id_: str) -> bool:
        """The ten lines that all is held against: who may read something, wherever it lies."""
        audience, agent = self.owned[id_]
        _, audiences, agents = PEOPLE[who]
        return audience in audiences and (who != "token of a coder" or agent in agents)

    def about(self, who: str, session: str, allowed: Iterable[str] | None) -> list[str]:
        ids, audience = self.routed.get(session, ([], "owner"))
        seen = self.seen("topic", allowed, who)
        return [id_ for id_ in ids if id_ in seen] if audience in PEOPLE[who][1] else []

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

    def seen(self, kind: str, allowed: Iterable[str] | None, who: str) -> set[str]:
        of = {"topic": self.of_topic, "task": self.of_task, "entry": self.of_entry}[kind]
        ids = {"topic": self.topics, "task": self.tasks, "entry": self.entries}[kind]
        shown = {id_ for id_ in ids if allowed is None or of(id_) & set(allowed)}
        return {id_ for id_ in shown if self.reads(who, id_)}


def build(store: Store, world: World, plan: dict[str, Any], name: str) -> None:
    """Write the plan, and note in the model what it means."""
    with store.write(OWNER) as tx:
        for label in LABELS:
            spaces.upsert(tx, label.title())
        pairs = [(of, to) for of in SPACES for to in SPACES if of != to]
        for (of, to), on in zip(pairs, plan["edges"], strict=True):
            spaces.connect(tx, of, {to: on})
            world.edges[of, to] = on
        for number, (space, tags, audience, agent) in enumerate(plan["topics"]):
            whose = {"audience": audience, "agent_id": agent}
            topic = topics.upsert(tx, f"{name} {number}", space_id=space, tags=tags, **whose).topic
            world.owned[topic.id] = (audience, agent)
            world.topics[topic.id] = (space or first(tags) or SPACES[0], tags)
    topic_ids = list(world.topics)
    for which, space, audience in plan["tasks"]:
        parent = topic_ids[which % len(topic_ids)]
        with store.write(OWNER) as tx:
            task = tasks.upsert(tx, "task", topic_id=parent, space_id=space, audience=audience).task
        world.owned[task.id] = (audience, None)
        world.tasks[task.id] = (parent, space or world.topics[parent][0])
    _write_entries(store, world, plan)
    for which, topic_number, space in plan["sorted"]:
        sort(store, world, which, topic_ids[topic_number % len(topic_ids)], space)
    for which, audience in plan["shared"]:
        share(store, world, which, audience)
    for session, which, audience in plan["routed"]:
        route(store, world, session, topic_ids[which % len(topic_ids)], audience)
    for which, tags in plan["retags"]:
        retag(store, world, topic_ids[which % len(topic_ids)], tags)
    for which in plan["hides"]:
        hide(store, world, which)
    for which in plan["deletes"]:
        delete(store, world, topic_ids[which % len(topic_ids)])


def _write_entries(store: Store, world: World, plan: dict[str, Any]) -> None:
    topic_ids, task_ids = [*world.topics, "topic-unknown"], [*world.tasks, "task-unknown"]
    for space, topic, task, minute, audience, agent in plan["entries"]:
        places = {
            "space_id": space,
            "topic_id": None if topic is None else topic_ids[topic % len(topic_ids)],
            "task_id": None if task is None else task_ids[task % len(task_ids)],
        }
        with store.write(OWNER) as tx:
            at = minute * 60_000
            session = SESSIONS[minute % len(SESSIONS)]
            whose = {"audience": audience, "agent_id": agent}
            draft = EntryDraft(content="text", created_at=at, session_key=session, **places, **whose)
            made = entries.append(tx, draft).entry
        world.entries[made.id] = (places["space_id"], places["topic_id"], places["task_id"])
        world.said.append((at, session, made.id))
        world.given[made.id] = space
        world.owned[made.id] = (audience, agent)


def sort(store: Store, world: World, which: int, topic: str, space: str | None) -> None:
    """Sorting at its worst: anything is put anywhere."""
    if world.entries:
        id_ = list(world.entries)[which % len(world.entries)]
        with store.write(OWNER) as tx:
            entries.annotate(tx, id_, {"topic_id": topic, "space_id": space})
        world.entries[id_] = (space, topic, world.entries[id_][2])


def share(store: Store, world: World, which: int, audience: str) -> None:
    if world.entries:
        id_ = list(world.entries)[which % len(world.entries)]
        before, agent = world.owned[id_]
        if covers(audience, before):
            with store.write(OWNER) as tx:
                entries.widen(tx, id_, Audience(audience))
            world.owned[id_] = (audience, agent)


def route(store: Store, world: World, session: str, topic: str, audience: str) -> None:
    with store.write(OWNER) as tx:
        item = routing.Routed(int(tx.now), topic, topic, "words")
        routing.remember(tx, session, item, OPTIONS, Audience(audience))
    ids, before = world.routed.get(session, ([], audience))
    kept = [id_ for id_ in ids if id_ != topic]
    if kept and before != audience:
        audience = before if audience == "anyone" else audience if before == "anyone" else "owner"
    world.routed[session] = ([*kept, topic][-OPTIONS.max_items :], audience)


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
