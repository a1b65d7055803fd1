"""What the gateway, the command line, the tools and the cycles ask of memory, whoever serves it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from holdfast.config.memory import CollectionPath, MemoryConfig
from holdfast.errors import Unavailable
from holdfast.log import Reader
from holdfast.memory.catalogue import Catalogue
from holdfast.memory.collections import Collection
from holdfast.memory.damage import Health
from holdfast.memory.embedders.batch import BatchIndexing
from holdfast.memory.embedding import EmbedderChain
from holdfast.memory.engine.protocol import Index
from holdfast.memory.indexing import Progress, Update
from holdfast.memory.results import Found
from holdfast.memory.scope import PRIVATE, Chat
from holdfast.memory.service import Ask

T = TypeVar("T")


class BackendFailed(Unavailable):
    """A backend beside the built-in index has no answer; that serves in its place."""

    code = "backend_failed"


class Backend(Protocol):
    """What may answer searches before the built-in index, of a plugin. It knows no readers."""

    @property
    def name(self) -> str: ...

    def ready(self, agent: str) -> bool: ...

    def search(self, ask: Ask) -> Found:
        """`BackendFailed` where it has no answer."""
        ...

    def update(self, agent: str) -> int: ...

    def embed(self, agent: str) -> None: ...

    def status(self, agent: str) -> dict[str, Any]: ...


class MemoryService(Protocol):
    """Memory as its users see it. `index`, `catalogue` and `chain` are those of the built-in one."""

    @property
    def index(self) -> Index: ...

    @property
    def catalogue(self) -> Catalogue: ...

    @property
    def chain(self) -> EmbedderChain: ...

    @property
    def health(self) -> Health: ...

    def whole(self, work: Callable[[], T]) -> T: ...

    def mend(self, seconds: float, *, thorough: bool = False) -> bool: ...

    def search(self, ask: Ask) -> Found: ...

    def find(self, query: str, *, agent: str = "main", limit: int | None = None) -> Found: ...

    def read(
        self,
        agent: str,
        path: str,
        reader: Reader,
        *,
        start: int = 1,
        lines: int | None = None,
        chat: Chat = PRIVATE,
    ) -> dict[str, Any]: ...

    def write(self, agent: str, text: str, reader: Reader, *, path: str | None = None) -> dict[str, Any]: ...

    def update(self, agent: str, *, progress: Progress | None = None, force: bool = False) -> Update: ...

    def forget(self, agent: str) -> int: ...

    def follow(self, limit: int = 50_000, *, patience: float | None = None) -> int: ...

    def refine(
        self, agent: str | None = None, *, limit: int = 10_000, progress: Progress | None = None
    ) -> int: ...

    def awaits_embedding(self) -> bool: ...

    @property
    def batches(self) -> BatchIndexing: ...

    def collections(self, agent: str) -> Sequence[Collection]: ...

    def status(self, agent: str) -> dict[str, Any]: ...

    def close(self) -> None: ...


def rules_of(config: MemoryConfig) -> MemoryConfig:
    """The rules that hold, in `search`: with the `qmd` backend those of `qmd`, whoever serves in the end."""
    if config.backend != "qmd":
        return config
    own = config.qmd
    values = {
        "scope": own.scope,
        "limits": own.limits,
        "sessions": own.sessions,
        "update": own.update,
        "include_default_memory": own.include_default_memory,
        "vector_weight": own.vector_weight,
        "text_weight": own.text_weight,
        "paths": _joined(config.search.paths, own.paths),
    }
    return config.model_copy(update={"search": config.search.model_copy(update=values)})


def _joined(*lists: Sequence[CollectionPath]) -> tuple[CollectionPath, ...]:
    """One of each name; the later wins."""
    return tuple({one.name: one for paths in lists for one in paths}.values())
