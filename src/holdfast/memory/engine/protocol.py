"""What memory asks of an index, whichever engine stands behind it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from holdfast.memory.damage import Health
from holdfast.memory.documents import Document, Filter

Numbers = NDArray[np.int64]
Scores = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Top:
    """The best of one component, best first, and the greatest score in the whole scope."""

    numbers: Numbers
    scores: Scores
    maximum: float


@dataclass(frozen=True, slots=True)
class Metadata:
    """Columns of some documents, in the order in which their numbers were given."""

    at: NDArray[np.int64]
    curated: NDArray[np.bool_]
    source: list[str]
    thread: Sequence[Hashable]
    """What each belongs to (a conversation, a file), by a mark that means something within the view only."""


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where some documents belong, likewise: what names them without reading them."""

    source: list[str]
    topic: list[str | None]
    task: list[str | None]
    session: list[str | None]
    ordinal: list[int]


class View(Protocol):
    """One moment of an index within one filter. Numbers mean something only within their view."""

    @property
    def count(self) -> int:
        """How many documents the filter lets through."""
        ...

    def with_vector(self, fingerprint: str) -> int:
        """How many of them have a vector of this fingerprint."""
        ...

    def lexical(self, terms: Sequence[str], limit: int) -> Top: ...

    def dense(self, fingerprint: str, vector: NDArray[Any], limit: int) -> Top: ...

    def lexical_each(self, asked: Sequence[Sequence[str]], limit: int) -> list[Top]:
        """`lexical` for each of many questions, which share what they have in common."""
        ...

    def dense_each(self, fingerprint: str, vectors: Sequence[NDArray[Any]], limit: int) -> list[Top]:
        """`dense` likewise."""
        ...

    def lexical_scores(self, terms: Sequence[str], numbers: Numbers) -> Scores: ...

    def holding(self, terms: Sequence[str], numbers: Numbers) -> NDArray[np.bool_]:
        """Term by term which of these documents hold it."""
        ...

    def frequencies(self, terms: Sequence[str]) -> list[int]:
        """How many documents of the scope have each term, as BM25 counts them."""
        ...

    def dense_scores(self, fingerprint: str, vector: NDArray[Any], numbers: Numbers) -> Scores:
        """Cosines; NaN where a document has no vector of this fingerprint."""
        ...

    def neighbours(self, numbers: Numbers) -> Numbers:
        """Per document the previous and the next of its thread within the filter, -1 for none."""
        ...

    def speakers(self) -> list[str]:
        """Everyone who speaks in a document that the filter lets through."""
        ...

    def speakers_of(self, numbers: Numbers) -> list[str | None]:
        """Who speaks in each of these documents."""
        ...

    def recent(self, limit: int) -> Numbers:
        """The youngest documents, newest first."""
        ...

    def metadata(self, numbers: Numbers) -> Metadata: ...

    def whereabouts(self, numbers: Numbers) -> Whereabouts:
        """As they were when the view was taken, whatever became of the documents since."""
        ...

    def documents(self, numbers: Numbers) -> list[Document | None]:
        """The documents themselves; `None` for one that was deleted since the view was taken."""
        ...


class Index(Protocol):
    """A derived, searchable copy of log and files. Writes are findable when the call returns."""

    @property
    def identity(self) -> str:
        """Minted when the index was made: under another one, nothing put in before is there."""
        ...

    @property
    def position(self) -> int:
        """The highest log position taken in; 0 when nothing was."""
        ...

    @property
    def count(self) -> int: ...

    @property
    def writes(self) -> int:
        """How many writes it holds; one that falls has lost some, for instance with a damaged journal."""
        ...

    @property
    def health(self) -> Health:
        """What was found damaged, and whether all is searched."""
        ...

    @property
    def must_compare(self) -> bool:
        """Whether documents were lost to damage, so that all has to be held against log and files again."""
        ...

    def compared(self) -> None:
        """Log and files are being compared, which whoever fills the index has noted durably."""
        ...

    def mend(self, seconds: float, *, thorough: bool = False) -> bool:
        """Check and repair for about so long; true while there is more to do."""
        ...

    def heal(self, error: Exception) -> bool:
        """Look for damage that explains an error and set it aside; true when it is worth trying again."""
        ...

    @property
    def computes_here(self) -> bool:
        """Whether a search is this interpreter's work, one thread at a time, and not a server's."""
        ...

    def upsert(
        self,
        documents: Sequence[Document],
        vectors: Mapping[str, NDArray[Any]] | None = None,
        *,
        position: int | None = None,
    ) -> None:
        """Add or replace by id; `vectors` has one row per document under each fingerprint."""
        ...

    def delete(self, ids: Sequence[str], *, position: int | None = None) -> int: ...

    def move(self, documents: Sequence[Document], *, position: int | None = None) -> int:
        """Let documents that are there lie where these do (`Document.lies`), with the words and vectors that
        they have; all else about them stays. Returns how many there were."""
        ...

    def put_vectors(self, fingerprint: str, ids: Sequence[str], vectors: NDArray[Any]) -> int: ...

    def without_vector(self, fingerprint: str, limit: int) -> list[Document]:
        """Documents that still need a vector, newest first."""
        ...

    def get(self, ids: Sequence[str]) -> dict[str, Document]: ...

    def view(self, wanted: Filter) -> View: ...

    def flush(self) -> None: ...

    def tidy(self) -> None:
        """Begin, beside the work, what makes later searches cheaper; for hours when nothing is written."""
        ...

    def rebuild(self) -> None: ...

    def close(self) -> None: ...
