"""What the board asks of the search index. The index is another room's: it is handed in at start-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

from holdfast.log import Reader

Kind = Literal["topic", "task", "log", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One question to the index: for whom, and within which spaces and topic it may find.

    `seq` is the newest change that the asker knows of: what was written until then must be findable.
    """

    question: str
    reader: Reader
    spaces: frozenset[str] | None = None
    topic_id: str | None = None
    logs: int = 36
    places: int = 24
    seq: int = 0


class Recalled(NamedTuple):
    """One find: a topic or task by its id, an entry by its place in the log, which no change gives another.

    `parts` add up to `score`, which lies between 0 and 1.
    """

    kind: Kind
    score: float
    id: str = ""
    position: int = 0
    parts: Mapping[str, float] = MappingProxyType({})
    topic_id: str | None = None
    task_id: str | None = None
    session_key: str | None = None


@dataclass(frozen=True, slots=True)
class Recollection:
    """What was found, best first within logs and within places; `behind` counts what is not indexed yet.

    `confidence` is how likely something that was said answers the question; whether it `fits` is that held
    against the floor.
    """

    logs: Sequence[Recalled] = ()
    places: Sequence[Recalled] = ()
    mode: str = "none"
    behind: int = 0
    embed_ms: float = 0.0
    confidence: float = 1.0
    fits: bool = True


class Recall(Protocol):
    def search(self, wanted: Wanted) -> Recollection:
        """The best of the whole history for a question. Called in a thread, outside any transaction."""
        ...

    def follow(self, seq: int) -> int:
        """Have what was written up to this change be findable; how much of it is not yet."""
        ...


class NoRecall:
    """A board without an index: it finds nothing and says so."""

    def search(self, wanted: Wanted) -> Recollection:
        return Recollection()

    def follow(self, seq: int) -> int:
        return 0
