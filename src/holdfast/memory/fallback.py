"""Memory that asks a plugin's backend where that is configured, and the built-in index where it fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from holdfast.clock import Clock
from holdfast.config.memory import MemoryConfig
from holdfast.errors import HoldfastError
from holdfast.log import OWNER, Reader
from holdfast.memory.backend import Backend, BackendFailed
from holdfast.memory.catalogue import Catalogue
from holdfast.memory.collections import Collection
from holdfast.memory.damage import Health
from holdfast.memory.embedders.batch import BatchIndexing
from holdfast.memory.embedding import EmbedderChain
from holdfast.memory.engine.protocol import Index
from holdfast.memory.indexing import Progress, Update
from holdfast.memory.results import MOST_OF_A_REASON, Found
from holdfast.memory.scope import PRIVATE, Chat, may_search
from holdfast.memory.service import Ask, Memory
from holdfast.text import clip

log = logging.getLogger(__name__)

T = TypeVar("T")

NOT_READY: Final = "it has not indexed this agent's files yet"


@dataclass(frozen=True, slots=True)
class _Trouble:
    failures: int
    until: int
    why: str


class Breaker:
    """After a failure nothing is tried for a while, longer each time, so that no question waits in vain."""

    def __init__(self, clock: Clock, *, first_ms: int = 30_000, longest_ms: int = 600_000) -> None:
        self._clock = clock
        self._first = first_ms
        self._longest = longest_ms
        self._lock = threading.Lock()
        self._troubles: dict[str, _Trouble] = {}

    def why_not(self, name: str) -> str | None:
        """Why it is not tried now; None: try."""
        with self._lock:
            trouble = self._troubles.get(name)
        return None if trouble is None or trouble.until <= self._clock.now() else trouble.why

    def failed(self, name: str, why: str) -> None:
        with self._lock:
            before = self._troubles.get(name)
            count = 1 if before is None else before.failures + 1
            pause = min(self._first * 2 ** min(count - 1, 30), self._longest)
            self._troubles[name] = _Trouble(count, self._clock.now() + pause, why)

    def worked(self, name: str) -> None:
        with self._lock:
            self._troubles.pop(name, None)


class FallbackMemory:
    """One memory of two: what `backend` gives for an agent, and the built-in one for all else."""

    def __init__(
        self,
        builtin: Memory,
        backend: Callable[[str], Backend | None],
        *,
        config: Callable[[str], MemoryConfig],
        clock: Clock,
    ) -> None:
        self.builtin = builtin
        self._backend = backend
        self._config = config
        self._breaker = Breaker(clock)

    @property
    def index(self) -> Index:
        return self.builtin.index

    @property
    def catalogue(self) -> Catalogue:
        return self.builtin.catalogue

    @property
    def chain(self) -> EmbedderChain:
        return self.builtin.chain

    @property
    def health(self) -> Health:
        return self.builtin.health

    def whole(self, work: Callable[[], T]) -> T:
        return self.builtin.whole(work)

    def mend(self, seconds: float, *, thorough: bool = False) -> bool:
        return self.builtin.mend(seconds, thorough=thorough)

    def search(self, ask: Ask) -> Found:
        """What memory has on a question; `fallback` tells why another backend did not serve."""
        backend = self._asked_first(ask)
        if backend is None:
            return self.builtin.search(ask)
        why = self._why_not(backend, ask.agent)
        if why is None:
            try:
                found = backend.search(ask)
                self._breaker.worked(ask.agent)
                return found
            except BackendFailed as error:
                why = error.message
                self._breaker.failed(ask.agent, why)
                log.warning("%s of agent %s: %s; the built-in index serves", backend.name, ask.agent, why)
        found = self.builtin.search(ask)
        told = clip(f"{backend.name}: {why}", MOST_OF_A_REASON)
        return replace(found, fallback="; ".join(filter(None, (told, found.fallback))))

    def find(self, query: str, *, agent: str = "main", limit: int | None = None) -> Found:
        """`search` for a program of the owner's: one question, asked in private."""
        return self.search(Ask(query, agent, OWNER, max_results=limit))

    def read(
        self,
        agent: str,
        path: str,
        reader: Reader,
        *,
        start: int = 1,
        lines: int | None = None,
        chat: Chat = PRIVATE,
    ) -> dict[str, Any]:
        return self.builtin.read(agent, path, reader, start=start, lines=lines, chat=chat)

    def write(self, agent: str, text: str, reader: Reader, *, path: str | None = None) -> dict[str, Any]:
        return self.builtin.write(agent, text, reader, path=path)

    def update(self, agent: str, *, progress: Progress | None = None, force: bool = False) -> Update:
        """Bring the files into both: the built-in index must be able to take over at any moment."""
        done = self.builtin.update(agent, progress=progress, force=force)
        backend = self._backend(agent)
        if backend is not None:
            try:
                backend.update(agent)
                self._breaker.worked(agent)
            except (HoldfastError, OSError) as error:
                done.problems.append(self._told(backend, agent, error))
        return done

    def forget(self, agent: str) -> int:
        """The built-in index is shared; what another backend keeps of an agent nobody asks for any more."""
        return self.builtin.forget(agent)

    def follow(self, limit: int = 50_000, *, patience: float | None = None) -> int:
        return self.builtin.follow(limit, patience=patience)

    def refine(
        self, agent: str | None = None, *, limit: int = 10_000, progress: Progress | None = None
    ) -> int:
        """Let the better embedders catch up, and a backend its own; that it cannot is no reason to fail."""
        backend = None if agent is None else self._backend(agent)
        if agent is not None and backend is not None:
            try:
                backend.embed(agent)
            except (HoldfastError, OSError) as error:
                log.warning("%s of agent %s made no vectors: %s", backend.name, agent, error)
        return self.builtin.refine(agent, limit=limit, progress=progress)

    @property
    def batches(self) -> BatchIndexing:
        return self.builtin.batches

    def awaits_embedding(self) -> bool:
        return self.builtin.awaits_embedding()

    def collections(self, agent: str) -> Sequence[Collection]:
        return self.builtin.collections(agent)

    def status(self, agent: str) -> dict[str, Any]:
        """What the built-in one tells, with who would serve a question now, and why that is not another."""
        told = self.builtin.status(agent)
        backend = self._backend(agent)
        if backend is None:
            return told
        why = self._why_not(backend, agent)
        return {
            **told,
            "backend": backend.name if why is None else "builtin",
            "configured": backend.name,
            "fallback": None if why is None else f"{backend.name}: {why}",
            backend.name: backend.status(agent),
        }

    def close(self) -> None:
        self.builtin.close()

    def __enter__(self) -> FallbackMemory:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _asked_first(self, ask: Ask) -> Backend | None:
        """What others have indexed are the owner's files, which they cannot tell apart by reader."""
        if not ask.reader.reads_all:
            return None
        allowed = may_search(ask.chat, self._config(ask.agent).search.scope).allowed
        return self._backend(ask.agent) if allowed else None

    def _why_not(self, backend: Backend, agent: str) -> str | None:
        why = self._breaker.why_not(agent)
        return why if why is not None else None if backend.ready(agent) else NOT_READY

    def _told(self, backend: Backend, agent: str, error: Exception) -> str:
        why = error.message if isinstance(error, HoldfastError) else str(error)
        self._breaker.failed(agent, why)
        return f"{backend.name}: {why}"
