"""The memory map: topics, what they name, who speaks in them, and what occurs together. Bounded and scoped.

It looks at the newest entries within sight, never at tool traces. What an entry names is worked out once and
kept, so that the next map costs little more than reading.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final, Literal

from typing_extensions import TypedDict

from holdfast.board import log_view, topics
from holdfast.board.context_cache import ShortCache, stamp
from holdfast.board.graph_entities import entities
from holdfast.board.semantic import semantic_text
from holdfast.board.topics import Topic
from holdfast.board.visibility import Sight, View
from holdfast.board.work import TopicStatus
from holdfast.config.board import BoardConfig
from holdfast.log import Classification, Entry, Store, Tx
from holdfast.records import NotRequired, record

PAGE: Final = 200
MAX_LOGS: Final = 5_000
KEPT: Final = 20_000
MAX_EDGES: Final = 1_200
_TOPIC_CHUNK: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class MapAsk:
    sight: Sight
    include_pending: bool = True
    max_entities: int = 120
    max_nodes: int = 260
    min_edge_weight: float = 0.16
    limit_logs: int = 2400


@record
class MapNode(TypedDict):
    """A topic, an agent or whoever wrote without being one, or a name that entries name."""

    id: str
    type: Literal["topic", "agent", "entity"]
    label: str
    count: int
    spaceId: NotRequired[str]
    status: NotRequired[TopicStatus]
    agentId: NotRequired[str | None]


@record
class MapEdge(TypedDict):
    """The weight is how much of both is shared, between 0 and 1."""

    source: str
    target: str
    type: Literal["co_occurs", "mentions", "speaks_in"]
    weight: float
    count: int


@record
class LeftOut(TypedDict):
    edges: int
    topics: int


@record
class MapStats(TypedDict):
    entries: int
    topics: int
    entities: int
    nodes: int
    edges: int
    leftOut: LeftOut


class Drawn(TypedDict):
    nodes: list[MapNode]
    edges: list[MapEdge]
    stats: MapStats


@dataclass(frozen=True, slots=True)
class Mention:
    """What one entry adds to the map."""

    topic_id: str | None
    agent: str
    names: Mapping[str, str]
    agent_id: str | None = None


@dataclass(slots=True)
class Tally:
    """Counts over all mentions."""

    entries: int = 0
    names: Counter[str] = field(default_factory=Counter)
    labels: dict[str, Counter[str]] = field(default_factory=dict)
    topics: Counter[str] = field(default_factory=Counter)
    agents: Counter[str] = field(default_factory=Counter)
    in_topic: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_agent: Counter[tuple[str, str]] = field(default_factory=Counter)
    agent_ids: dict[str, str | None] = field(default_factory=dict)

    def add(self, mention: Mention) -> None:
        self.entries += 1
        self.agents[mention.agent] += 1
        self.agent_ids[mention.agent] = mention.agent_id
        for key, label in mention.names.items():
            self.names[key] += 1
            self.labels.setdefault(key, Counter())[label] += 1
        if mention.topic_id is not None:
            self.topics[mention.topic_id] += 1
            self.by_agent[mention.agent, mention.topic_id] += 1
            for key in mention.names:
                self.in_topic[key, mention.topic_id] += 1


class MemoryMap:
    def __init__(self, store: Store, options: Callable[[], BoardConfig]) -> None:
        self._store = store
        self._options = options
        self._cache: ShortCache[Drawn] = ShortCache(kept=16, seconds=30)
        self._lock = threading.Lock()
        self._named: OrderedDict[tuple[str, int], Mapping[str, str]] = OrderedDict()

    def build(self, ask: MapAsk) -> Drawn:
        """Nodes and edges as JSON; given again while nothing was written since."""
        with self._store.read(ask.sight.reader) as tx:
            now = stamp(tx, ask.sight.session_key)
            kept = self._cache.get(ask, now)
            if kept is not None:
                return kept
            view = ask.sight.view(tx)
            mentions = [self._mention(entry, text) for entry, text in _told(tx, ask, view)]
            tally = Tally()
            for mention in mentions:
                tally.add(mention)
            known = _seen_topics(tx, tally.topics, view)
        made = draw(mentions, tally, known, ask)
        self._cache.put(ask, now, made)
        return made

    def _mention(self, entry: Entry, text: str) -> Mention:
        who = "user" if entry.role == "user" else entry.agent_label or entry.agent_id or "unknown"
        return Mention(entry.topic_id, who, self._names(entry, text), entry.agent_id)

    def _names(self, entry: Entry, text: str) -> Mapping[str, str]:
        key = (entry.id, entry.revision)
        with self._lock:
            if key in self._named:
                return self._named[key]
        found = entities(text)
        with self._lock:
            self._named[key] = found
            while len(self._named) > KEPT:
                self._named.popitem(last=False)
        return found


def draw(mentions: Iterable[Mention], tally: Tally, known: Mapping[str, Topic], ask: MapAsk) -> Drawn:
    """The map from the counts: the most telling names, the busiest topics, the strongest links."""
    names = _telling(tally, min(ask.max_entities, ask.max_nodes))
    left = max(0, ask.max_nodes - len(names))
    agents = [agent for agent, _ in tally.agents.most_common(max(1, left // 8) if left else 0)]
    busiest = [id_ for id_, _ in tally.topics.most_common() if id_ in known]
    shown = busiest[: max(0, left - len(agents))]
    edges = _edges(mentions, tally, frozenset(names), frozenset(shown), frozenset(agents))
    strong = sorted((e for e in edges if e["weight"] >= ask.min_edge_weight), key=_by_weight)[:MAX_EDGES]
    nodes = [_topic_node(known[id_], tally) for id_ in shown]
    nodes += [_agent_node(agent, tally) for agent in agents]
    nodes += [_name_node(key, tally) for key in names]
    stats: MapStats = {
        "entries": tally.entries,
        "topics": len(known),
        "entities": len(tally.names),
        "nodes": len(nodes),
        "edges": len(strong),
        "leftOut": {"edges": len(edges) - len(strong), "topics": len(known) - len(shown)},
    }
    return {"nodes": nodes, "edges": strong, "stats": stats}


def _told(tx: Tx, ask: MapAsk, view: View) -> Iterator[tuple[Entry, str]]:
    """The newest entries within sight that say something, a page at a time."""
    left = max(1, min(ask.limit_logs, MAX_LOGS))
    cursor = None
    while left > 0:
        page = log_view.listing(tx, view, limit=min(PAGE, left), cursor=cursor)
        for entry in page.entries:
            if ask.include_pending or entry.status is Classification.CLASSIFIED:
                text = semantic_text(entry)
                if text:
                    yield entry, text
        left -= max(1, len(page.entries))
        cursor = page.next
        if cursor is None:
            return


def _seen_topics(tx: Tx, counted: Counter[str], view: View) -> dict[str, Topic]:
    ids = [id_ for id_, _ in counted.most_common(_TOPIC_CHUNK)]
    return {t.id: t for t in topics.get_many(tx, ids) if view.sees(t.space_ids)}


def _telling(tally: Tally, most: int) -> list[str]:
    """Names that come up more than once but not everywhere; one with a capital or a digit counts more."""
    total = max(1, tally.entries)

    def worth(key: str) -> float:
        count = tally.names[key]
        proper = 1.6 if _label(tally, key) != key and not _label(tally, key).islower() else 1.0
        return proper * count * math.log(1 + total / count)

    often = [key for key, count in tally.names.items() if count > 1 and (total < 20 or count < 0.5 * total)]
    return sorted(often, key=lambda key: (-worth(key), key))[:most]


def _edges(
    mentions: Iterable[Mention],
    tally: Tally,
    names: frozenset[str],
    shown: frozenset[str],
    agents: frozenset[str],
) -> list[MapEdge]:
    together: Counter[tuple[str, str]] = Counter()
    for mention in mentions:
        together.update(combinations(sorted(names & mention.names.keys()), 2))
    edges = [
        _edge("co_occurs", f"entity:{a}", f"entity:{b}", n, tally.names[a], tally.names[b])
        for (a, b), n in together.items()
        if n > 1
    ]
    edges += [
        _edge("mentions", topic, f"entity:{key}", n, tally.names[key], tally.topics[topic])
        for (key, topic), n in tally.in_topic.items()
        if key in names and topic in shown
    ]
    edges += [
        _edge("speaks_in", f"agent:{agent}", topic, n, tally.topics[topic], n)
        for (agent, topic), n in tally.by_agent.items()
        if agent in agents and topic in shown
    ]
    return edges


def _edge(
    kind: Literal["co_occurs", "mentions", "speaks_in"],
    source: str,
    target: str,
    count: int,
    one: int,
    other: int,
) -> MapEdge:
    weight = round(count / math.sqrt(max(1, one) * max(1, other)), 4)
    return {"source": source, "target": target, "type": kind, "weight": weight, "count": count}


def _by_weight(edge: MapEdge) -> tuple[float, str, str]:
    return (-edge["weight"], edge["source"], edge["target"])


def _label(tally: Tally, key: str) -> str:
    return min(tally.labels[key].items(), key=lambda one: (-one[1], one[0]))[0]


def _topic_node(topic: Topic, tally: Tally) -> MapNode:
    return {
        "id": topic.id,
        "type": "topic",
        "label": topic.name,
        "count": tally.topics[topic.id],
        "spaceId": topic.space_id,
        "status": topic.status,
    }


def _agent_node(agent: str, tally: Tally) -> MapNode:
    """By the name that it goes by; the id is what its entries are listed by."""
    return {
        "id": f"agent:{agent}",
        "type": "agent",
        "label": agent,
        "count": tally.agents[agent],
        "agentId": tally.agent_ids[agent],
    }


def _name_node(key: str, tally: Tally) -> MapNode:
    return {"id": f"entity:{key}", "type": "entity", "label": _label(tally, key), "count": tally.names[key]}
