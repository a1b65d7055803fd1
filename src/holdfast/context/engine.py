"""The contract of context engines, and the slot of the one that builds: never replaced by another in silence.

The log is the runtime's: an engine is told of what was written, never asked to guess what it has seen.
`ingest` and `commit_turn` carry keys that make a repeat harmless, `assemble` may be called any number of
times for one turn and gives the same answer for the same state.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

from holdfast.clock import Clock
from holdfast.context.history import Past
from holdfast.context.messages import Message
from holdfast.context.summaries import Summariser
from holdfast.errors import Conflict, HoldfastError, NotFound, Unavailable
from holdfast.log import Store, Threads

Rollback: TypeAlias = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """`owns_compaction`: the runtime leaves the decision when to compact to the engine. An engine that
    reads the log itself sets `wants_messages` to False and is given none. With `recall_tools` agents have
    `context_read` and `context_search`, which page and find the exact words of what is no longer shown."""

    id: str
    name: str
    version: str = ""
    owns_compaction: bool = False
    wants_messages: bool = True
    recall_tools: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionParams:
    session_id: str
    session_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapParams(SessionParams):
    """The engine sees this session for the first time, or for the first time in this version; `messages` is
    its history so far, the newest of it where that is long."""

    messages: Sequence[Message] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestParams(SessionParams):
    message: Message
    key: str | None = None
    is_heartbeat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestBatchParams(SessionParams):
    messages: Sequence[Message]
    key: str | None = None
    is_heartbeat: bool = False


@dataclass(frozen=True, slots=True)
class IngestResult:
    ingested: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AssembleParams(SessionParams):
    """`messages` is the session's history as the runtime projects it, pruned and oldest first. Entries in
    `skip` (this turn's input, and what waits behind it) are the runtime's to place.

    `past` is set where an old context is built again: an engine that reads the log itself looks no further
    than `past.until`, calls no model and writes nothing. `state` is what the engine gave as such back then.
    """

    messages: Sequence[Message] = field(repr=False)
    token_budget: int
    estimate: Callable[[Message], int]
    available_tools: frozenset[str] = frozenset()
    citations_mode: str = "auto"
    model: str | None = None
    prompt: str | None = None
    skip: frozenset[str] = frozenset()
    is_heartbeat: bool = False
    state: Any = None
    past: Past | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssembleResult:
    """`system_prompt_addition` is put before the system prompt: keep it stable, it heads the cache. It
    and the
    messages together have `token_budget`. `state` is whatever JSON the engine needs, beside the log, to build
    this very context again; it is kept with the account of the context."""

    messages: Sequence[Message] = field(repr=False)
    estimated_tokens: int
    system_prompt_addition: str | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    state: Any = None


class CompactOutcome(StrEnum):
    COMPACTED = "compacted"
    NOTHING_TO_DO = "nothing_to_do"
    NO_PROGRESS = "no_progress"
    FAILED = "failed"


CompactReason = Literal["threshold", "overflow", "manual", "request"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactParams(SessionParams):
    """`token_budget` is what a prompt may hold, `current_tokens` what the last one held."""

    token_budget: int
    current_tokens: int | None = None
    reason: CompactReason = "threshold"
    force: bool = False
    instructions: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactResult:
    """What became of a compaction. Where it rotated the transcript, the successor is what comes next."""

    outcome: CompactOutcome
    reason: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    summary_id: str | None = None
    first_kept_id: str | None = None
    extractive: bool = False
    successor_session_id: str | None = None
    successor_session_key: str | None = None

    @property
    def ok(self) -> bool:
        return self.outcome is not CompactOutcome.FAILED

    @property
    def compacted(self) -> bool:
        return self.outcome is CompactOutcome.COMPACTED


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterTurnParams(SessionParams):
    turn_id: str
    messages: Sequence[Message] = ()
    prompt_tokens: int | None = None
    token_budget: int | None = None
    is_heartbeat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitParams(SessionParams):
    """All that one accepted turn adds, under the key that makes it count once: a turn that was told before,
    perhaps before a crash, comes again under the same key. `turn_id` is None for a turn of another host."""

    advancement_key: str
    messages: Sequence[Message] = field(repr=False)
    turn_id: str | None = None
    is_heartbeat: bool = False


@dataclass(frozen=True, slots=True)
class CommitResult:
    status: Literal["committed", "duplicate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnParams:
    parent_session_id: str
    parent_session_key: str
    child_session_id: str
    child_session_key: str
    context_mode: Literal["isolated", "fork"] = "isolated"
    ttl_ms: int | None = None
    before: int | None = None
    """A fork has only what was said before this position of the log; None: all that is settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentEndedParams:
    child_session_id: str
    child_session_key: str
    reason: Literal["completed", "deleted", "swept", "released"] = "completed"


@runtime_checkable
class ContextEngine(Protocol):
    """Subclass `BaseEngine` and write the three that matter: `info`, `assemble` and `compact`.

    Of `commit_turn`, `ingest_batch` and `ingest` an engine writes those it wants: a turn comes through the
    first of them that it has, a message outside any turn through `ingest` if it has that.
    """

    @property
    def info(self) -> EngineInfo: ...

    async def bootstrap(self, params: BootstrapParams) -> None: ...

    async def ingest(self, params: IngestParams) -> IngestResult: ...

    async def ingest_batch(self, params: IngestBatchParams) -> IngestResult: ...

    async def assemble(self, params: AssembleParams) -> AssembleResult: ...

    async def compact(self, params: CompactParams) -> CompactResult: ...

    async def commit_turn(self, params: CommitParams) -> CommitResult: ...

    async def after_turn(self, params: AfterTurnParams) -> None: ...

    async def prepare_subagent_spawn(self, params: SpawnParams) -> Rollback | None: ...

    async def on_subagent_ended(self, params: SubagentEndedParams) -> None: ...

    async def dispose(self) -> None: ...


class CompactionRuntime(Protocol):
    """The built-in compaction, for engines that do not bring their own."""

    async def compact(self, params: CompactParams) -> CompactResult: ...

    async def rotate(self, session_id: str) -> str:
        """End a session's transcript and begin its successor under the same key; gives the successor's id,
        for `CompactResult.successor_session_id`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineContext:
    """What a factory is given. `config` is the plugin's own settings and nothing else of the config;
    `summariser` gives the model that summarises at the time, if there is one."""

    store: Store
    threads: Threads
    clock: Clock
    runtime: CompactionRuntime
    agent_id: str
    workspace_dir: Path
    agent_dir: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    summariser: Callable[[], Summariser | None] = lambda: None


EngineFactory: TypeAlias = Callable[[EngineContext], ContextEngine]


class BaseEngine:
    """The optional members, doing nothing."""

    async def bootstrap(self, params: BootstrapParams) -> None:
        return None

    async def ingest(self, params: IngestParams) -> IngestResult:
        return IngestResult(0)

    async def ingest_batch(self, params: IngestBatchParams) -> IngestResult:
        return IngestResult(0)

    async def commit_turn(self, params: CommitParams) -> CommitResult:
        return CommitResult("committed")

    async def after_turn(self, params: AfterTurnParams) -> None:
        return None

    async def prepare_subagent_spawn(self, params: SpawnParams) -> Rollback | None:
        return None

    async def on_subagent_ended(self, params: SubagentEndedParams) -> None:
        return None

    async def dispose(self) -> None:
        return None


async def delegate_compaction_to_runtime(context: EngineContext, params: CompactParams) -> CompactResult:
    """Compact as the `legacy` engine does; for engines with `owns_compaction=False`."""
    return await context.runtime.compact(params)


def build_memory_system_prompt_addition(
    *, available_tools: frozenset[str] = frozenset(), citations_mode: str = "auto"
) -> str | None:
    """What a system prompt says of memory's tools, for engines that want it in `system_prompt_addition`; None
    where a model has none of them. Depends on nothing that changes from turn to turn."""
    told = [line for name, line in _MEMORY_TOOLS.items() if name in available_tools]
    if not told:
        return None
    if citations_mode != "off" and "memory_search" in available_tools:
        told.append("Say where it comes from: give the path and the lines of what you use.")
    return "\n".join(["## Memory", *told])


_MEMORY_TOOLS: Final = {
    "memory_search": "Before you answer about earlier work, decisions, dates, people or preferences, look "
    "with memory_search.",
    "memory_get": "Read with memory_get just the lines that you need of what was found.",
    "memory_write": "What should outlast this conversation goes into memory with memory_write.",
    "context_search": "What was said earlier in this conversation and is no longer shown: context_search.",
    "context_read": "Its exact words: context_read.",
}


DEFAULT_ENGINE = "legacy"

_HINT = 'Fix or install its plugin, or set plugins.slots.contextEngine to "legacy".'


class EngineFailed(Unavailable):
    code = "engine_failed"


class Registry:
    """Factories by engine id. One of a home, for what its plugins bring, stands on the one of the process."""

    def __init__(self, below: Registry | None = None) -> None:
        self._below = below
        self._factories: dict[str, EngineFactory] = {}
        self._lock = threading.Lock()

    def register(self, id_: str, factory: EngineFactory, *, replace: bool = False) -> None:
        with self._lock:
            if id_ in self and not replace:
                raise Conflict(f"there is an engine {id_!r} already", code="engine_taken")
            self._factories[id_] = factory

    def unregister(self, id_: str) -> None:
        with self._lock:
            self._factories.pop(id_, None)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._factories, *(self._below or ())}))

    def make(self, id_: str, context: EngineContext) -> ContextEngine:
        """What the factory of this id makes, or an error that says what to do; nothing stands in for it.
        Whether it is an engine is the host's to look at."""
        if id_ not in self._factories and self._below is not None and id_ in self._below:
            return self._below.make(id_, context)
        factory = self._factories.get(id_)
        if factory is None:
            known = ", ".join(self)
            raise NotFound(
                f"no context engine {id_!r} is registered (there are: {known})",
                code="unknown_engine",
                hint=_HINT,
            )
        try:
            engine = factory(context)
        except HoldfastError:
            raise
        except Exception as error:
            raise engine_failed(id_, "start", error) from error
        return engine


def engine_failed(id_: str, doing: str, error: BaseException) -> EngineFailed:
    """The error of an engine's own code, named as such."""
    said = str(error) or type(error).__name__
    shown = said.encode("utf-8", "backslashreplace").decode()
    return EngineFailed(f"context engine {id_!r} failed in {doing}: {shown}"[:500], hint=_HINT)


engines = Registry()


def register_context_engine(id_: str, factory: EngineFactory, *, replace: bool = False) -> None:
    """Offer an engine under an id; `plugins.slots.contextEngine` selects it."""
    engines.register(id_, factory, replace=replace)
