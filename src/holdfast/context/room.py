"""The context room as the rest of Holdfast uses it: build, ingest, compact, after the turn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.config import AgentSettings, Compaction, Config
from holdfast.context import budget, calibration, manifest
from holdfast.context import engine_records as records
from holdfast.context.assembly import Assembly, addition_too_large, within_budget
from holdfast.context.budget import Budgets, Pressure, how_full, needs_compaction
from holdfast.context.compaction import Compactor
from holdfast.context.deliveries import TOLD, Deliverer
from holdfast.context.engine import (
    DEFAULT_ENGINE,
    AfterTurnParams,
    AssembleParams,
    AssembleResult,
    CompactParams,
    CompactReason,
    CompactResult,
    ContextEngine,
    EngineContext,
    Registry,
    Rollback,
    SpawnParams,
    SubagentEndedParams,
    engine_failed,
    engines,
)
from holdfast.context.history import History
from holdfast.context.host import Fault, Health, HostedEngine, dispose_all
from holdfast.context.intake import Intake, Prepare, as_it_is
from holdfast.context.legacy import LegacyEngine
from holdfast.context.lossless import LosslessEngine
from holdfast.context.messages import Message
from holdfast.context.replay import Hindsight, Replay, replay
from holdfast.context.request import BuildRequest, Built
from holdfast.context.summaries import Summariser
from holdfast.context.transcript import unseen, whole_pairs
from holdfast.context.workspace import FileReader, Workspace
from holdfast.errors import Conflict, HoldfastError, NotFound
from holdfast.home import Home
from holdfast.keys import parse_key
from holdfast.log import SYSTEM, Session, Store, Threads, Turn, TurnStatus, Tx, agenda, sessions

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
        prepare: Prepare = as_it_is,
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
        self._health: dict[str, Health] = {}
        self._deliverer = Deliverer(store, threads, self.history)
        self._engines: dict[tuple[str, str], HostedEngine] = {}
        self.intake = Intake(store, threads, self._deliverer, self.hosted, prepare)
        self.bootstrap, self.commit_turn = self.intake.bootstrap, self.intake.commit_turn
        self.ingest, self.ingest_batch = self.intake.ingest, self.intake.ingest_batch
        self.host_keys = self.intake.host_keys
        self.hindsight = Hindsight(store, threads, self._assembly, self.history, self._engine_named)
        self._compacted: list[Callable[[Session], None]] = []

    @property
    def slot(self) -> str:
        return self._config().plugins.engine

    def use_summariser(self, summariser: Summariser | None) -> None:
        self.compactor.summariser = summariser

    def engine(self, agent_id: str | None) -> ContextEngine:
        """The engine of the slot for an agent; raises if there is none: nothing stands in for it."""
        made: ContextEngine = self.hosted(agent_id).engine
        return made

    def hosted(self, agent_id: str | None) -> HostedEngine:
        """The same, as it is called: within its time, its answers looked at, its faults counted."""
        return self._engine_named(self.slot, agent_id)

    def has_recall_tools(self, agent_id: str | None) -> bool:
        """Whether the engine in use has agents read back what it no longer shows."""
        try:
            return self.hosted(agent_id).info.recall_tools
        except HoldfastError:  # told where a context is built
            return False

    def _start(self, slot: str, agent: str) -> HostedEngine:
        health = self._health.setdefault(slot, Health())
        clock = self.store.clock
        try:
            made = self._registry.make(slot, self._engine_context(agent, slot))
            save = partial(self._threads, self._save_health, slot, health)
            return HostedEngine(
                slot,
                made,
                clock=clock,
                health=health,
                limits=lambda: self._config().plugins.limits.engine,
                on_failure=save,
            )
        except HoldfastError as error:
            health.went_wrong("start", error.message, clock.now())
            self._save_health(slot, health)
            raise

    def engine_health(self) -> list[records.EngineOut]:
        """Every engine there is or was: whether it is in use, its calls and failures, its last error, and
        what it is still to be told."""
        slot = self.slot
        for id_, health in self._health.items():
            if health.unsaved_calls:
                self._save_health(id_, health)
        with self.store.read(SYSTEM) as tx:
            known = {*self._registry, *records.known_engines(tx), slot}
            found = {id_: records.health_of(tx, id_) for id_ in sorted(known)}
        running = {id_: hosted.info for (id_, _), hosted in self._engines.items()}
        return [
            {
                **one,
                "selected": id_ == slot,
                "registered": id_ in self._registry,
                "running": id_ in running,
                "version": running[id_].version if id_ in running else None,
                "byCall": dict(self._health[id_].calls) if id_ in self._health else {},
            }
            for id_, one in found.items()
        ]

    def turn_ended(
        self,
        tx: Tx,
        turn: Turn,
        *,
        is_heartbeat: bool = False,
        prompt_tokens: int | None = None,
        token_budget: int | None = None,
    ) -> None:
        """Note, in the transaction that ends a turn, that the engine is to be told of it. One that cannot be
        had hears of it by its history, when it is there again. No engine is started for it: that may
        write."""
        slot = self.slot
        running = self._engines.get((slot, self._agent(parse_key(turn.session_key).agent_id)))
        deaf = slot == DEFAULT_ENGINE if running is None else not running.hears
        if turn.status not in TOLD or slot not in self._registry or deaf:
            return
        body = {
            "turnId": turn.id,
            "isHeartbeat": is_heartbeat,
            "committed": turn.status is TurnStatus.COMMITTED,
            "promptTokens": prompt_tokens,
            "tokenBudget": token_budget,
        }
        records.post(tx, slot, turn.session_id, key=turn.id, kind="turn", number=turn.number, body=body)
        if turn.status is not TurnStatus.COMMITTED:  # of one that was, it is told right after the commit
            records.enqueue(tx, slot, turn.session_id, int(tx.now))

    async def tell_engine(self, session: Session) -> None:
        """Tell the engine what waits for it of a session. What fails is told again later, by the agenda."""
        hosted = self.hosted(session.agent_id)
        try:
            await self._deliverer.deliver(hosted, session)
        except HoldfastError as error:
            if agenda.is_store_trouble(error):
                raise
            log.info("session %s is told to its engine later: %s", session.key, error.message)

    def delivery_kind(self) -> agenda.Kind:
        """The agenda's kind of what engines failed to take in."""
        return self._deliverer.kind(self.hosted)

    def recover(self) -> int:
        """Take up what a process that is gone was still to tell engines."""
        return self._deliverer.recover()

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
        engine = self.hosted(request.session.agent_id)
        if request.call == 0 and request.record and engine.hears:
            await self._deliverer.meet(engine, request.session, number=request.number)
            await self.tell_engine(request.session)
        prepared = await self._threads(self._assembly.prepare, request, engine.info)
        result = await engine.assemble(self._assembly.params(request, prepared))
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
        is_heartbeat: bool = False,
    ) -> AssembleResult:
        """The history of a session for a host with prompts of its own. Any number of calls give the same.

        `transcript` is all that the host has: what the log lacks of it is added. `live` is new for certain.
        """
        engine = self.hosted(session.agent_id)
        await self._deliverer.meet(engine, session)
        await self.tell_engine(session)
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
            is_heartbeat=is_heartbeat,
        )
        result = await engine.assemble(params)
        addition = estimator.text(result.system_prompt_addition or "")
        if addition > token_budget:
            raise addition_too_large(engine.id, addition, token_budget)
        added = [*unseen(transcript, result.messages), *live]
        chosen = within_budget(result.messages, estimator, token_budget - addition)
        messages = whole_pairs([*chosen, *added])
        return replace(result, messages=messages, estimated_tokens=estimator.messages(messages) + addition)

    async def host_after_turn(
        self,
        session: Session,
        *,
        turn_id: str,
        messages: Sequence[Message],
        used: int,
        window: int,
        is_heartbeat: bool = False,
    ) -> AfterTurn:
        """After-work for a host that runs its own turns."""
        settings = self._compaction(session.key)
        engine = self.hosted(session.agent_id)
        params = AfterTurnParams(
            session_id=session.id,
            session_key=session.key,
            turn_id=turn_id,
            messages=messages,
            prompt_tokens=used,
            token_budget=Budgets.for_window(window, settings).prompt,
            is_heartbeat=is_heartbeat,
        )
        await engine.after_turn(params)
        due = needs_compaction(settings, used=used, window=window) and not engine.info.owns_compaction
        return AfterTurn(
            how_full(settings, window, counted=used),
            budget.flush_due(session, settings, used=used, window=window),
            due,
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
        """Have the slot's engine compact. An overflow error of the provider is `reason="overflow"`. A
        successor that it names is a session of the same key, which what comes next is built from."""
        engine = self.hosted(session.agent_id)
        params = CompactParams(
            session_id=session.id,
            session_key=session.key,
            token_budget=Budgets.for_window(window, self._compaction(session.key)).prompt,
            current_tokens=current_tokens,
            reason=reason,
            force=force,
            instructions=instructions,
        )
        result = await engine.compact(params)
        if result.successor_session_id is not None:
            session = await self._threads(self._successor, engine.id, session, result)
            result = replace(result, successor_session_key=session.key)
        if result.compacted:
            await self.tell_compacted(session)
        return result

    def _successor(self, engine: str, session: Session, result: CompactResult) -> Session:
        with self.store.read(SYSTEM) as tx:
            now = sessions.active(tx, session.key)
        if now is None or now.id != result.successor_session_id:
            named = Fault(
                f"it names {result.successor_session_id!r} as the successor of session {session.id}, which "
                f"{session.key} does not go on with: get one from `context.runtime.rotate`"
            )
            raise engine_failed(engine, "compact", named)
        return now

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
    ) -> AfterTurn:
        """Learn from the reported usage, let the engine hear of the turn, and say what is due."""
        account = built.manifest
        if reported_input_tokens:
            await self._threads(self._learn, account.model, account.raw_tokens, reported_input_tokens)
        await self.tell_engine(session)
        engine = self.hosted(session.agent_id)
        used, window = reported_input_tokens or account.used, account.window
        settings = self._compaction(session.key)
        due = needs_compaction(settings, used=used, window=window) or built.needs_compaction
        near = budget.is_near(settings, used=used, window=window)
        fresh = await self._threads(self._fresh, session) if near else session
        return AfterTurn(
            how_full(settings, window, counted=reported_input_tokens, estimate=account.used),
            flush_due=near and budget.flush_due(fresh, settings, used=used, window=window),
            compaction_due=due and settings.enabled and not engine.info.owns_compaction,
        )

    async def prepare_subagent_spawn(self, params: SpawnParams) -> Rollback:
        """Let the engine ready the child's context; call what comes back if the spawn fails after all."""
        engine = self.hosted(parse_key(params.child_session_key).agent_id)
        return await engine.prepare_subagent_spawn(params)

    async def on_subagent_ended(self, params: SubagentEndedParams) -> None:
        await self.hosted(parse_key(params.child_session_key).agent_id).on_subagent_ended(params)

    async def dispose(self) -> None:
        """Release every engine; one that fails to, or takes long, does not keep the others from it."""
        made, self._engines = self._engines, {}
        for failed in await dispose_all(made.values()):
            log.error("%s", failed.message)

    def stored(self, session: Session, number: int | None = None, call: int | None = None) -> manifest.Stored:
        with self.store.read(SYSTEM) as tx:
            return manifest.load(tx, session.id, number, call)

    def replay(self, session: Session, number: int | None = None, call: int | None = None) -> Replay:
        """A stored context made again; its digest says whether every byte is the same."""
        with self.store.read(SYSTEM) as tx:
            return replay(tx, manifest.load(tx, session.id, number, call))

    def _engine_named(self, id_: str, agent_id: str | None) -> HostedEngine:
        """An engine by its id, in the slot or not."""
        agent = self._agent(agent_id)
        known = self._engines.get((id_, agent))
        if known is None:
            known = self._engines[id_, agent] = self._start(id_, agent)
        return known

    def _fresh(self, session: Session) -> Session:
        with self.store.read(SYSTEM) as tx:
            return sessions.get(tx, session.id)

    def _learn(self, model: str, estimated: int, reported: int) -> None:
        def observe(tx: Tx) -> None:
            calibration.observe(tx, model, estimated_raw=estimated, reported=reported)

        self.store.run(SYSTEM, observe, ordered=False, durable=False)

    def _save_health(self, slot: str, health: Health) -> None:
        self.store.run(SYSTEM, lambda tx: records.save_health(tx, slot, health), ordered=False, durable=False)

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

    def _engine_context(self, agent: str, slot: str | None = None) -> EngineContext:
        entry = self._config().plugins.entries.get(slot or self.slot)
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
