"""The context room as the rest of Holdfast uses it: build, ingest, compact, after the turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.config import AgentSettings, Compaction, Config
from holdfast.context import calibration, flush, manifest
from holdfast.context.assembly import Assembly
from holdfast.context.budget import Budgets
from holdfast.context.compactor import Compactor
from holdfast.context.engine import (
    AfterTurnParams,
    AssembleParams,
    AssembleResult,
    BootstrapParams,
    CommitParams,
    CommitResult,
    CompactParams,
    CompactReason,
    CompactResult,
    ContextEngine,
    EngineContext,
    IngestBatchParams,
    IngestParams,
    IngestResult,
    Rollback,
    SpawnParams,
    SubagentEndedParams,
)
from holdfast.context.history import History
from holdfast.context.legacy import LegacyEngine
from holdfast.context.lossless import LosslessEngine
from holdfast.context.messages import Message
from holdfast.context.pressure import Pressure, how_full, needs_compaction
from holdfast.context.registry import DEFAULT_ENGINE, Registry, engine_failed, engines
from holdfast.context.replay import Replay, replay
from holdfast.context.request import BuildRequest, Built
from holdfast.context.summaries import Summariser
from holdfast.context.transcript import draft_of, unseen, whole_pairs
from holdfast.context.workspace import FileReader, Workspace
from holdfast.errors import Conflict, HoldfastError, NotFound
from holdfast.home import Home
from holdfast.keys import parse_key
from holdfast.log import SYSTEM, Session, Store, Threads, Tx, entries, sessions

log = logging.getLogger(__name__)

if DEFAULT_ENGINE not in engines:
    engines.register(DEFAULT_ENGINE, LegacyEngine)
    engines.register("lossless", LosslessEngine)


@dataclass(frozen=True, slots=True)
class AfterTurn:
    """What the turn loop should do next, decided from what the provider reported."""

    pressure: Pressure
    flush_due: bool
    compaction_due: bool


class ContextRoom:
    """One for a store. Reads the config where it is used, so a change of slot counts from the next run."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        home: Home,
        config: Callable[[], Config],
        *,
        summariser: Summariser | None = None,
        registry: Registry = engines,
    ) -> None:
        self.store = store
        self._threads = threads
        self._home = home
        self._config = config
        self._registry = registry
        self.history = History()
        self.reader = FileReader()
        self._assembly = Assembly(store, self.history, self.reader)
        self.compactor = Compactor(
            store, threads, self.history, self._compaction, summariser, lambda: self.slot
        )
        self._engines: dict[tuple[str, str], ContextEngine] = {}
        self._compacted: list[Callable[[Session], None]] = []

    @property
    def slot(self) -> str:
        return self._config().plugins.engine

    def use_summariser(self, summariser: Summariser | None) -> None:
        self.compactor.summariser = summariser

    def engine(self, agent_id: str | None) -> ContextEngine:
        """The engine of the slot for an agent; raises if there is none: nothing stands in for it."""
        agent = self._agent(agent_id)
        key = (self.slot, agent)
        known = self._engines.get(key)
        if known is None:
            known = self._engines[key] = self._registry.make(self.slot, self._engine_context(agent))
        return known

    def workspace(self, agent_id: str | None) -> Workspace:
        return Workspace(self._workspace_dir(self._agent(agent_id)), self.reader)

    async def build(self, request: BuildRequest) -> Built:
        """The context of one model call, and its manifest, stored before the call is made."""
        for _ in range(2):
            try:
                return await self._build(request)
            except Conflict:
                log.info("the context of %s changed while it was built; once more", request.session.key)
        return await self._build(request)

    async def _build(self, request: BuildRequest) -> Built:
        engine = self.engine(request.session.agent_id)
        prepared = await self._threads(self._assembly.prepare, request, engine.info)
        params = self._assembly.params(request, prepared)
        async with _named(engine, "assemble"):
            result = await engine.assemble(params)
        return await self._threads(self._assembly.finish, request, prepared, result, engine.info)

    async def assemble(
        self,
        session: Session,
        *,
        token_budget: int,
        model: str = "",
        available_tools: frozenset[str] = frozenset(),
        citations_mode: str = "auto",
        prompt: str | None = None,
        transcript: Sequence[Message] = (),
        live: Sequence[Message] = (),
    ) -> AssembleResult:
        """The history of a session for a host with prompts of its own. Any number of calls give the same.

        `transcript` is all that the host has: what the log lacks of it is added. `live` is new for certain.
        """
        engine = self.engine(session.agent_id)
        found, estimator = await self._threads(
            self._assembly.project, session, engine.info, budget=token_budget, model=model
        )
        params = AssembleParams(
            session_id=session.id,
            session_key=session.key,
            messages=found,
            token_budget=token_budget,
            estimate=estimator.message,
            available_tools=available_tools,
            citations_mode=citations_mode,
            model=model or None,
            prompt=prompt,
        )
        async with _named(engine, "assemble"):
            result = await engine.assemble(params)
        added = [*unseen(transcript, result.messages), *live]
        messages = whole_pairs([*result.messages, *added])
        return replace(result, messages=messages, estimated_tokens=estimator.messages(messages))

    async def host_after_turn(
        self, session: Session, *, turn_id: str, messages: Sequence[Message], used: int, window: int
    ) -> AfterTurn:
        """After-work for a host that runs its own turns."""
        settings = self._compaction(session.key)
        engine = self.engine(session.agent_id)
        params = AfterTurnParams(
            session_id=session.id,
            session_key=session.key,
            turn_id=turn_id,
            messages=messages,
            prompt_tokens=used,
            token_budget=Budgets.for_window(window, settings).prompt,
        )
        async with _named(engine, "after_turn"):
            await engine.after_turn(params)
        due = needs_compaction(settings, used=used, window=window) and not engine.info.owns_compaction
        return AfterTurn(
            how_full(settings, window, counted=used),
            flush.flush_due(session, settings, used=used, window=window),
            due,
        )

    async def bootstrap(self, session: Session, messages: Sequence[Message] = ()) -> None:
        """The engine meets a session; history that came along is written to the log first, once."""
        await self._threads(self._write, session, messages, f"bootstrap:{session.id}")
        engine = self.engine(session.agent_id)
        async with _named(engine, "bootstrap"):
            await engine.bootstrap(
                BootstrapParams(session_id=session.id, session_key=session.key, messages=messages)
            )

    async def ingest(
        self, session: Session, message: Message, *, key: str | None = None, is_heartbeat: bool = False
    ) -> IngestResult:
        written = await self._threads(self._write, session, [message], key and f"ingest:{session.id}:{key}")
        engine = self.engine(session.agent_id)
        params = IngestParams(
            session_id=session.id,
            session_key=session.key,
            message=message,
            key=key,
            is_heartbeat=is_heartbeat,
        )
        async with _named(engine, "ingest"):
            await engine.ingest(params)
        return IngestResult(written, duplicate=not written)

    async def ingest_batch(
        self,
        session: Session,
        messages: Sequence[Message],
        *,
        key: str | None = None,
        is_heartbeat: bool = False,
    ) -> IngestResult:
        written = await self._threads(self._write, session, messages, key and f"ingest:{session.id}:{key}")
        engine = self.engine(session.agent_id)
        params = IngestBatchParams(
            session_id=session.id,
            session_key=session.key,
            messages=messages,
            key=key,
            is_heartbeat=is_heartbeat,
        )
        async with _named(engine, "ingest"):
            await engine.ingest_batch(params)
        return IngestResult(written, duplicate=bool(messages) and not written)

    async def commit_turn(self, session: Session, key: str, messages: Sequence[Message]) -> CommitResult:
        """What a host's turn added, written once whatever is repeated."""
        written = await self._threads(self._write, session, messages, f"commit:{session.id}:{key}")
        if messages and not written:
            return CommitResult("duplicate")
        engine = self.engine(session.agent_id)
        async with _named(engine, "commit_turn"):
            return await engine.commit_turn(
                CommitParams(
                    session_id=session.id, session_key=session.key, advancement_key=key, messages=messages
                )
            )

    async def compact(
        self,
        session: Session,
        *,
        window: int,
        reason: CompactReason = "manual",
        force: bool = False,
        current_tokens: int | None = None,
        instructions: str | None = None,
    ) -> CompactResult:
        """Have the slot's engine compact. An overflow error of the provider is `reason="overflow"`."""
        engine = self.engine(session.agent_id)
        params = CompactParams(
            session_id=session.id,
            session_key=session.key,
            token_budget=Budgets.for_window(window, self._compaction(session.key)).prompt,
            current_tokens=current_tokens,
            reason=reason,
            force=force,
            instructions=instructions,
        )
        async with _named(engine, "compact"):
            result = await engine.compact(params)
        if result.compacted:
            await self.tell_compacted(session)
        return result

    def on_compacted(self, callback: Callable[[Session], None]) -> None:
        """Call back, in a thread, whenever a session's history was summarised."""
        self._compacted.append(callback)

    async def tell_compacted(self, session: Session) -> None:
        for callback in self._compacted:
            await self._threads(callback, session)

    async def after_turn(
        self,
        session: Session,
        built: Built,
        *,
        reported_input_tokens: int | None = None,
        messages: Sequence[Message] = (),
        is_heartbeat: bool = False,
    ) -> AfterTurn:
        """Learn from the reported usage, let the engine do its after-work, and say what is due."""
        account = built.manifest
        if reported_input_tokens:
            await self._threads(self._learn, account.model, account.raw_tokens, reported_input_tokens)
        engine = self.engine(session.agent_id)
        params = AfterTurnParams(
            session_id=session.id,
            session_key=session.key,
            turn_id=account.turn_id,
            messages=messages,
            prompt_tokens=reported_input_tokens or account.used,
            token_budget=account.budget,
            is_heartbeat=is_heartbeat,
        )
        async with _named(engine, "after_turn"):
            await engine.after_turn(params)
        used, window = reported_input_tokens or account.used, account.window
        settings = self._compaction(session.key)
        due = needs_compaction(settings, used=used, window=window) or built.needs_compaction
        near = flush.is_near(settings, used=used, window=window)
        fresh = await self._threads(self._fresh, session) if near else session
        return AfterTurn(
            how_full(settings, window, counted=reported_input_tokens, estimate=account.used),
            flush_due=near and flush.flush_due(fresh, settings, used=used, window=window),
            compaction_due=due and settings.enabled and not engine.info.owns_compaction,
        )

    async def prepare_subagent_spawn(self, params: SpawnParams) -> Rollback:
        """Let the engine ready the child's context; call what comes back if the spawn fails after all."""
        engine = self.engine(parse_key(params.child_session_key).agent_id)
        async with _named(engine, "prepare_subagent_spawn"):
            rollback = await engine.prepare_subagent_spawn(params)
        return rollback if rollback is not None else _nothing

    async def on_subagent_ended(self, params: SubagentEndedParams) -> None:
        engine = self.engine(parse_key(params.child_session_key).agent_id)
        async with _named(engine, "on_subagent_ended"):
            await engine.on_subagent_ended(params)

    async def dispose(self) -> None:
        """Release every engine; one that fails to does not keep the others from it."""
        made, self._engines = self._engines, {}
        results = await asyncio.gather(*(e.dispose() for e in made.values()), return_exceptions=True)
        for (id_, _), result in zip(made, results, strict=True):
            if isinstance(result, BaseException):
                log.error("engine %s failed to dispose", id_, exc_info=result)

    def stored(self, session: Session, number: int | None = None, call: int | None = None) -> manifest.Stored:
        with self.store.read(SYSTEM) as tx:
            return manifest.load(tx, session.id, number, call)

    def replay(self, session: Session, number: int | None = None, call: int | None = None) -> Replay:
        """A stored context made again; its digest says whether every byte is the same."""
        with self.store.read(SYSTEM) as tx:
            return replay(tx, manifest.load(tx, session.id, number, call))

    def _fresh(self, session: Session) -> Session:
        with self.store.read(SYSTEM) as tx:
            return sessions.get(tx, session.id)

    def _learn(self, model: str, estimated: int, reported: int) -> None:
        def observe(tx: Tx) -> None:
            calibration.observe(tx, model, estimated_raw=estimated, reported=reported)

        self.store.run(SYSTEM, observe, ordered=False, durable=False)

    def _write(self, session: Session, messages: Sequence[Message], key: str | None) -> int:
        """Entries for messages; with a key each is written once. Gives how many were new."""
        drafts = [
            replace(
                draft_of(message),
                audience=session.audience,
                session_key=session.key,
                session_id=session.id,
                agent_id="user" if message.kind == "user" else session.agent_id,
                idempotency_key=None if key is None else f"{key}:{index}",
            )
            for index, message in enumerate(messages)
            if message.kind in ("user", "assistant", "tool_result")
        ]
        with self.store.write(SYSTEM) as tx:
            return sum(done.created for done in entries.append_many(tx, drafts))

    def _agent(self, agent_id: str | None) -> str:
        return agent_id or self._config().default_agent_id

    def _settings(self, agent_id: str) -> AgentSettings:
        config = self._config()
        try:
            return config.agent(agent_id)
        except NotFound:
            return config.agents.defaults

    def _compaction(self, session_key: str) -> Compaction:
        return self._settings(self._agent(parse_key(session_key).agent_id)).compaction

    def _workspace_dir(self, agent: str) -> Path:
        given = self._settings(agent).workspace
        if given:
            return Path(given).expanduser()
        return self._home.workspace(agent, default=agent == self._config().default_agent_id)

    def _engine_context(self, agent: str) -> EngineContext:
        entry = self._config().plugins.entries.get(self.slot)
        own: Mapping[str, Any] = {} if entry is None else entry.config
        return EngineContext(
            store=self.store,
            threads=self._threads,
            clock=self.store.clock,
            runtime=self.compactor,
            agent_id=agent,
            workspace_dir=self._workspace_dir(agent),
            agent_dir=self._config().agent_dir(agent, self._home.agent_dir(agent)),
            config=own,
            summariser=lambda: self.compactor.summariser,
        )


async def _nothing() -> None:
    return None


@asynccontextmanager
async def _named(engine: ContextEngine, doing: str) -> AsyncIterator[None]:
    """An engine's own failure under its own name; ours pass as they are."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        raise engine_failed(engine.info.id, doing, error) from error
