"""What memory finds, and the limits within which a search may find it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

from holdfast.errors import InvalidInput

Source = Literal["file", "transcript", "log", "note", "topic", "task"]
SOURCES: tuple[Source, ...] = get_args(Source)


class Lying(NamedTuple):
    """Where a document lies, and so for whom: what of it changes while its text stays the same."""

    audience: str
    spaces: frozenset[str]
    topic: str | None
    task: str | None


@dataclass(frozen=True, slots=True)
class Document:
    """One findable piece of text with the places that it belongs to.

    A document may belong to several spaces. `thread` and `ordinal` give it its neighbours: the
    documents of the same thread with the next lower and the next higher ordinal. `agent` is whose
    conversation it is, `writer` the id of who wrote it, `speaker` the name under which that one speaks,
    `audience` who may read it.
    """

    id: str
    text: str
    source: Source = "log"
    audience: str = "owner"
    agent: str | None = None
    spaces: frozenset[str] = frozenset()
    collection: str | None = None
    topic: str | None = None
    task: str | None = None
    session: str | None = None
    speaker: str | None = None
    writer: str | None = None
    at: int = 0
    curated: bool = False
    thread: str | None = None
    ordinal: int = 0
    position: int | None = None
    path: str | None = None
    from_line: int | None = None
    to_line: int | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)

    @property
    def lies(self) -> Lying:
        return Lying(self.audience, self.spaces, self.topic, self.task)

    def moved(self, to: Lying) -> Document:
        return replace(self, audience=to.audience, spaces=to.spaces, topic=to.topic, task=to.task)

    def __post_init__(self) -> None:
        if not self.id:
            raise InvalidInput("a document needs an id", hint="Use the entry's id or path and lines.")
        if self.source not in SOURCES:
            raise InvalidInput(f"no such source: {self.source!r}", hint=f"Use one of {', '.join(SOURCES)}.")
        if not 0 <= self.ordinal < 2**31:
            raise InvalidInput(
                f"ordinal {self.ordinal} is out of range", hint="Count from 0 within the thread."
            )


@dataclass(frozen=True, slots=True)
class Filter:
    """Who may see what: per field a set of which one must match, `None` for no restriction.

    An empty set matches nothing, and a document without a value in a restricted field never matches.
    `chatter_since` bounds only what is not curated: conversations grow old, notes do not.
    """

    audiences: frozenset[str] | None = None
    agents: frozenset[str] | None = None
    spaces: frozenset[str] | None = None
    collections: frozenset[str] | None = None
    sources: frozenset[Source] | None = None
    topics: frozenset[str] | None = None
    tasks: frozenset[str] | None = None
    sessions: frozenset[str] | None = None
    speakers: frozenset[str] | None = None
    writers: frozenset[str] | None = None
    curated: bool | None = None
    since: int | None = None
    until: int | None = None
    chatter_since: int | None = None
    exclude: frozenset[str] = frozenset()

    def matches_scope(self, document: Document) -> bool:
        """The coarse part (audience, agent, spaces, collection, source), over which BM25 counts its terms."""
        return (
            _within(document.audience, self.audiences)
            and (self.spaces is None or not self.spaces.isdisjoint(document.spaces))
            and _within(document.agent, self.agents)
            and _within(document.collection, self.collections)
            and _within(document.source, self.sources)
        )

    def matches(self, document: Document) -> bool:
        """The whole rule for one document; every engine must agree with it."""
        return (
            self.matches_scope(document)
            and _within(document.topic, self.topics)
            and _within(document.task, self.tasks)
            and _within(document.session, self.sessions)
            and _within(document.speaker, self.speakers)
            and _within(document.writer, self.writers)
            and (self.curated is None or self.curated == document.curated)
            and (self.since is None or document.at >= self.since)
            and (self.until is None or document.at < self.until)
            and (self.chatter_since is None or document.curated or document.at >= self.chatter_since)
            and document.id not in self.exclude
        )


def _within(value: str | None, allowed: frozenset[Any] | None) -> bool:
    return allowed is None or value in allowed
