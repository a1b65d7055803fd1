"""The host's side of a context engine: every call of one goes through here, with a time limit, a look at what
came back, and an account of how it went. An engine's fault bears the engine's name and says what was
wrong."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from holdfast.clock import Clock, Millis
from holdfast.config.extensions import EngineLimits
from holdfast.context.engine import (
    AfterTurnParams,
    AssembleParams,
    AssembleResult,
    BaseEngine,
    BootstrapParams,
    CommitParams,
    CommitResult,
    CompactOutcome,
    CompactParams,
    CompactResult,
    EngineFailed,
    EngineInfo,
    IngestBatchParams,
    IngestParams,
    IngestResult,
    Rollback,
    SpawnParams,
    SubagentEndedParams,
    engine_failed,
)
from holdfast.context.messages import (
    AssistantMessage,
    CarrierMessage,
    SummaryMessage,
    SystemMessage,
    ToolCall,
    ToolResult,
    UserMessage,
)
from holdfast.errors import Conflict, HoldfastError

T = TypeVar("T")
_GRACE_SECONDS: Final = 1.0
_SPOKEN: Final = (UserMessage, AssistantMessage, ToolResult, SummaryMessage)
REQUIRED: Final = ("assemble", "compact")
HEARS: Final = ("bootstrap", "commit_turn", "ingest_batch", "ingest", "after_turn")
CALLS: Final = (*REQUIRED, *HEARS, "prepare_subagent_spawn", "on_subagent_ended", "dispose")


class Fault(Exception):
    """What was wrong with an engine's answer, in words that its author can act on."""


@dataclass(slots=True)
class Health:
    """How the calls of one engine have gone in this process.

    `last_ok_at` is when it last built a context, or did what it had failed at: an engine that takes turns
    in and builds none is not well.
    """

    calls: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    last_error: str | None = None
    last_error_at: Millis | None = None
    last_ok_at: Millis | None = None
    last_failed: str | None = None
    unsaved_calls: int = 0
    unsaved_failures: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def went_well(self, name: str, now: Millis) -> None:
        with self.lock:
            self.calls[name] += 1
            self.unsaved_calls += 1
            if name in ("assemble", self.last_failed):
                self.last_ok_at = now

    def went_wrong(self, name: str, error: str, now: Millis) -> None:
        with self.lock:
            self.calls[name] += 1
            self.failures[name] += 1
            self.unsaved_calls += 1
            self.unsaved_failures += 1
            self.last_error, self.last_error_at, self.last_failed = error, now, name


def provides(engine: object, name: str) -> bool:
    """Whether an engine does something at a call: it has the method, and not that of `BaseEngine`."""
    method = inspect.unwrap(getattr(engine, name, None) or unlooked)
    does = method is not unlooked and callable(method)
    return does and getattr(method, "__func__", method) is not getattr(BaseEngine, name, None)


class HostedEngine:
    """One agent's engine as the runtime calls it. Optional members that it lacks are passed over."""

    def __init__(
        self,
        id_: str,
        engine: Any,
        *,
        clock: Clock,
        health: Health | None = None,
        limits: Callable[[], EngineLimits] = EngineLimits,
        on_failure: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.id = id_
        self.engine = engine
        self._clock = clock
        self.health = health or Health()
        self._limits = limits
        self._on_failure = on_failure
        self.info = self._checked("start", lambda: checked_engine(id_, engine))
        self.has = frozenset(name for name in HEARS if provides(engine, name))

    @property
    def hears(self) -> bool:
        """Whether it is to be told of turns at all."""
        return bool(self.has)

    async def bootstrap(self, params: BootstrapParams) -> None:
        await self._call("bootstrap", unlooked, params)

    async def ingest(self, params: IngestParams) -> IngestResult:
        return await self._call("ingest", checked_ingest, params)

    async def ingest_batch(self, params: IngestBatchParams) -> IngestResult:
        return await self._call("ingest_batch", checked_ingest, params)

    async def commit_turn(self, params: CommitParams) -> CommitResult:
        return await self._call("commit_turn", checked_commit, params)

    async def after_turn(self, params: AfterTurnParams) -> None:
        await self._call("after_turn", unlooked, params)

    async def assemble(self, params: AssembleParams) -> AssembleResult:
        return await self._call("assemble", checked_assembly, params)

    async def compact(self, params: CompactParams) -> CompactResult:
        return await self._call("compact", checked_compaction, params)

    async def prepare_subagent_spawn(self, params: SpawnParams) -> Rollback:
        """What comes back never fails but by the engine's name, and never takes long."""
        made = await self._call("prepare_subagent_spawn", checked_rollback, params)

        async def rollback() -> None:
            if made is not None:
                await self._run("rollback", made, unlooked)

        return rollback

    async def on_subagent_ended(self, params: SubagentEndedParams) -> None:
        await self._call("on_subagent_ended", unlooked, params)

    async def dispose(self) -> None:
        await self._call("dispose", unlooked)

    async def _call(self, name: str, check: Callable[[Any], T], *params: Any) -> T:
        method = getattr(self.engine, name, None)
        if method is None:
            return check(None)
        return await self._run(name, lambda: method(*params), check)

    async def _run(self, name: str, begin: Callable[[], Any], check: Callable[[Any], T]) -> T:
        try:
            made = begin()
            if not inspect.isawaitable(made):
                raise Fault(f"`{name}` gave {described(made)} at once: write `async def`")
            limit = self._limits().seconds(name, owns_compaction=self.info.owns_compaction)
            result = check(await within(made, limit))
        except HoldfastError as error:
            if not isinstance(error, Conflict):  # what changed meanwhile is built again: nobody failed
                await self._failed(name, error.message)
            raise
        except Exception as error:
            failed = engine_failed(self.id, name, error)
            await self._failed(name, failed.message)
            raise failed from error
        self.health.went_well(name, self._clock.now())
        return result

    async def _failed(self, name: str, message: str) -> None:
        self.health.went_wrong(name, message, self._clock.now())
        if self._on_failure is not None:
            await self._on_failure()

    def _checked(self, name: str, look: Callable[[], T]) -> T:
        try:
            return look()
        except Exception as error:
            raise engine_failed(self.id, name, error) from error


async def within(made: Awaitable[T], seconds: float) -> T:
    """What an engine's call gives, if it does so in time. One that does not end when it is cancelled is left
    behind: nobody waits for it."""
    task = asyncio.ensure_future(_contained(made))
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        await _let_go(task)
        raise
    if not done:
        await _let_go(task)
        raise Fault(f"it took longer than {seconds:g} seconds")
    if task.cancelled():
        raise Fault("it was cancelled from within")
    return task.result()


async def _contained(made: Awaitable[T]) -> T:
    """An engine ends its own call at most, never the process."""
    try:
        return await made
    except SystemExit as error:
        raise Fault("it called sys.exit") from error


async def _let_go(task: asyncio.Future[Any]) -> None:
    task.cancel()
    task.add_done_callback(_looked_at)
    await asyncio.wait({task}, timeout=_GRACE_SECONDS)


def _looked_at(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


def checked_engine(id_: str, engine: Any) -> EngineInfo:
    """The engine's own account of itself, if what a factory made is an engine at all."""
    if engine is None:
        raise Fault("the factory gave None")
    info = getattr(engine, "info", None)
    if not isinstance(info, EngineInfo):
        raise Fault(f"`info` is {described(info)}, not an EngineInfo")
    if info.id != id_:
        raise Fault(f"`info.id` is {info.id!r}, and it is registered as {id_!r}")
    if not isinstance(info.version, str) or not isinstance(info.name, str):
        raise Fault("`info.name` and `info.version` must be text")
    lacks = [name for name in REQUIRED if not callable(getattr(engine, name, None))]
    if lacks:
        raise Fault(f"it has no `{'` and no `'.join(lacks)}`")
    return info


def checked_assembly(result: Any) -> AssembleResult:
    if not isinstance(result, AssembleResult):
        raise Fault(f"it returned {described(result)}, not an AssembleResult")
    found: Any = result.messages
    if isinstance(found, (str, bytes)) or not isinstance(found, Sequence):
        raise Fault(f"`messages` is {described(found)}, not a sequence of messages")
    for index, message in enumerate(found):
        check_message(message, f"messages[{index}]")
    _check_count(result.estimated_tokens, "estimated_tokens")
    addition = result.system_prompt_addition
    if addition is not None:
        _check_text(addition, "system_prompt_addition")
    if not isinstance(result.notes, Mapping):
        raise Fault(f"`notes` is {described(result.notes)}, not a mapping")
    _check_json(result.state, "state")
    return result


def check_message(message: Any, where: str) -> None:
    """Raise for what cannot stand in the history of a prompt; what came out of the log is in order."""
    if isinstance(message, SystemMessage):
        raise Fault(f"{where} is a SystemMessage: return its text as `system_prompt_addition`")
    if isinstance(message, CarrierMessage):
        raise Fault(f"{where} is a CarrierMessage, which is the runtime's own")
    if not isinstance(message, _SPOKEN):
        raise Fault(f"{where} is {described(message)}, not a message")
    if message.mark is not None:
        return
    _check_text(message.text, f"{where}.text")
    if isinstance(message, ToolResult):
        _check_text(message.call_id, f"{where}.call_id")
        _check_text(message.name, f"{where}.name")
    if isinstance(message, AssistantMessage):
        for call in message.calls:
            _check_call(call, f"{where}.calls")


def checked_compaction(result: Any) -> CompactResult:
    if not isinstance(result, CompactResult):
        raise Fault(f"it returned {described(result)}, not a CompactResult")
    if not isinstance(result.outcome, CompactOutcome):
        raise Fault(f"`outcome` is {described(result.outcome)}, not a CompactOutcome")
    for name in ("tokens_before", "tokens_after"):
        _check_count(getattr(result, name), name)
    for name in ("summary_id", "first_kept_id", "successor_session_id", "successor_session_key"):
        if getattr(result, name) is not None:
            _check_text(getattr(result, name), name)
    _check_text(result.reason, "reason")
    return result


def checked_ingest(result: Any) -> IngestResult:
    if not isinstance(result, IngestResult):
        raise Fault(f"it returned {described(result)}, not an IngestResult")
    _check_count(result.ingested, "ingested")
    return result


def checked_commit(result: Any) -> CommitResult:
    if not isinstance(result, CommitResult):
        raise Fault(f"it returned {described(result)}, not a CommitResult")
    if result.status not in ("committed", "duplicate"):
        raise Fault(f"`status` is {described(result.status)}, not 'committed' or 'duplicate'")
    return result


def checked_rollback(result: Any) -> Rollback | None:
    if result is not None and not callable(result):
        raise Fault(f"it returned {described(result)}, not a function that takes the spawn back, nor None")
    taken_back: Rollback | None = result
    return taken_back


def unlooked(result: Any) -> None:
    """What a call gives that promises nothing."""


def described(value: object) -> str:
    """A value in a few words, for whoever has to find out where it came from."""
    if value is None:
        return "None"
    shown = repr(value) if isinstance(value, (str, int, float, bool)) else ""
    article = "an" if type(value).__name__[0].lower() in "aeiou" else "a"
    name = f"{article} {type(value).__name__}"
    return f"{name} ({shown.encode('ascii', 'backslashreplace').decode()[:60]})" if shown else name


def _check_call(call: Any, where: str) -> None:
    if not isinstance(call, ToolCall):
        raise Fault(f"{where} holds {described(call)}, not a ToolCall")
    _check_text(call.id, f"{where}.id")
    _check_text(call.name, f"{where}.name")
    _check_json(dict(call.arguments), f"{where}.arguments")


def _check_text(text: Any, where: str) -> None:
    if not isinstance(text, str):
        raise Fault(f"{where} is {described(text)}, not text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = f"U+{ord(text[error.start]):04X}"
        raise Fault(
            f"{where} holds half a surrogate pair ({found} at {error.start}), which no wire takes"
        ) from None


def _check_json(value: Any, where: str) -> None:
    if value is None:
        return
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Fault(f"{where} is no JSON: {error}") from None


def _check_count(value: Any, where: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Fault(f"`{where}` is {described(value)}, not a count")


async def dispose_all(engines: Iterable[HostedEngine]) -> list[EngineFailed]:
    """Release engines side by side; one that fails or hangs does not keep the others from it."""
    results = await asyncio.gather(*(one.dispose() for one in engines), return_exceptions=True)
    failed = [one for one in results if isinstance(one, EngineFailed)]
    for one in results:
        if isinstance(one, BaseException) and not isinstance(one, Exception):
            raise one
    return failed
