"""Delegating: a place is taken, the engine readies the child's context, and then the child's turn, its
lineage and its supervision are written in one transaction, or nothing of it stays."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from holdfast.agents.loop.asks import ASK, Deliver, Terms
from holdfast.agents.loop.parts import Answers
from holdfast.agents.plugin_hooks import NO_HOOKS, HookBus, SubagentSpawned, SubagentSpawning
from holdfast.agents.sandbox import is_sandboxed
from holdfast.agents.subagents import ending, registry
from holdfast.agents.subagents.checks import Requester, SpawnInput, Wish, chain_refusal, refusal
from holdfast.agents.subagents.ending import Watcher
from holdfast.agents.subagents.registry import Run, Status
from holdfast.agents.tools.settings import sandboxed
from holdfast.agents.tools.types import Caller
from holdfast.board import lineage, supervision
from holdfast.board.ingest import prepare
from holdfast.config import AgentEntry, Config
from holdfast.context import ContextRoom, SpawnParams, Trust, UserMessage, draft_of
from holdfast.errors import Conflict, Forbidden, HoldfastError, InvalidInput, NotFound
from holdfast.ids import AgentId, uuid7
from holdfast.keys import SubagentKey, parse_key
from holdfast.log import (
    SYSTEM,
    Chain,
    Session,
    Store,
    Threads,
    Turn,
    Tx,
    chains,
    sessions,
    this_process,
    to_the_end,
    turns,
)
from holdfast.traces import here

log = logging.getLogger(__name__)

TRIGGER: Final = "subagent"
MOST_DEEP: Final = 16
_SAME: Final = ("child_key", "agent_id", "binding", "label", "depth", "mode", "cleanup", "context", "expects")

OpenThread = Callable[[Session, Deliver | None, str], Awaitable[Deliver]]
"""Opens a thread on a session's surface under a name, and says how words reach it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentParts:
    """What delegating works on."""

    store: Store
    threads: Threads
    config: Callable[[], Config]
    context: Callable[[], ContextRoom]
    models: Answers
    open_thread: OpenThread | None = None
    bind: Callable[[Tx, Run], None] = lambda tx, run: None
    plugin_hooks: HookBus = NO_HOOKS
    watchers: list[Watcher] = field(default_factory=list)
    """Rooms that take part in how runs end."""


@dataclass(frozen=True, slots=True)
class Errand:
    """A delegate that another room sends off: under a key of its own, on whose terms, in which chain.

    That room counts it as a step of the chain, and takes its return.
    """

    key: str
    terms: Terms
    chain: Chain
    traceparent: str | None = None


class Spawner:
    def __init__(self, parts: SubagentParts) -> None:
        self._parts = parts

    async def spawn(self, caller: Caller, given: SpawnInput, *, traceparent: str | None = None) -> Run:
        """A child on its way. Its turn continues a trace."""
        parts = self._parts
        run = await parts.threads(parts.store.run, SYSTEM, lambda tx: self._reserve(tx, caller, given))
        return await self._carried_out(run, caller.session, given.thread, traceparent)

    def send_off(self, tx: Tx, caller: Caller, given: SpawnInput, errand: Errand) -> Run:
        """A child for another room, in its own transaction: reserved now, begun by the agenda. The same key
        again finds the one that it made."""
        known = registry.by_spawn(tx, errand.key)
        if known is not None:
            return known
        run = self._reserve(tx, caller, given, errand)
        registry.launch_soon(tx, run, errand.traceparent)
        return run

    async def launch(self, id_: str, traceparent: str | None) -> Run:
        """Begin a run that was reserved; one that is begun or over is left as it is."""

        def look() -> tuple[Run, Session]:
            with self._parts.store.read(SYSTEM) as tx:
                run = registry.get(tx, id_)
                return run, sessions.find(tx, run.requester_key)

        run, requester = await self._parts.threads(look)
        if run.status is not Status.PREPARING:
            return run
        return await self._carried_out(run, requester, False, traceparent, keep=True)

    def settle(self, tx: Tx, child_key: str) -> None:
        """Something ended that a child elected: with it, perhaps, the child's run."""
        ending.settle_later(tx, self._parts.watchers, child_key)

    async def further(self, run: Run, text: str, caller: Caller) -> Run:
        """Another task for a child whose session is still there, with a return of its own."""
        parts = self._parts
        trace = here()
        return await parts.threads(
            parts.store.run, SYSTEM, lambda tx: self._further(tx, run, text, caller, trace)
        )

    async def _carried_out(
        self, run: Run, requester: Session, thread: bool, traceparent: str | None, *, keep: bool = False
    ) -> Run:
        """Have the engine ready the child's context, and begin; with `keep` a failed one is tried again."""
        rollback: Callable[[], Awaitable[None]] | None = None
        launched: Run | None = None
        try:
            await self._ask_plugins(run, requester)
            minutes = self._parts.config().agent(run.requester_agent).subagents.archive_after_minutes
            ttl_ms = _ttl_ms(run, minutes)
            rollback = await self._parts.context().prepare_subagent_spawn(_params(run, requester, ttl_ms))
            binding = await self._binding(run, requester) if thread else None
            launched = await self._parts.threads(
                self._parts.store.run, SYSTEM, lambda tx: self._launch(tx, run.id, binding, traceparent)
            )
            self._parts.plugin_hooks.tell(_spawned(run, requester))
            return launched
        finally:
            if launched is None:
                await to_the_end(self._taken_back(run, rollback, keep=keep))

    async def _ask_plugins(self, run: Run, requester: Session) -> None:
        if not self._parts.plugin_hooks.wants(SubagentSpawning):
            return
        event = SubagentSpawning(
            audience=requester.audience,
            session_key=requester.key,
            session_id=requester.id,
            agent_id=run.requester_agent,
            task=run.task,
        )
        blocked = (await self._parts.plugin_hooks.ask(event)).blocked
        if blocked is not None:
            raise Forbidden(f"the subagent was not sent off: {blocked}", code="plugin_blocked")

    async def _taken_back(
        self, run: Run, rollback: Callable[[], Awaitable[None]] | None, *, keep: bool
    ) -> None:
        """Undo what was prepared, unless the run was launched after all while we were told to stop."""

        def write(tx: Tx) -> bool:
            if keep:
                return registry.get(tx, run.id).status is Status.PREPARING
            return ending.abandon(tx, self._parts.watchers, run.id, "it could not be begun")

        undone = await self._parts.threads(self._parts.store.run, SYSTEM, write)
        if undone and rollback is not None:
            try:
                await rollback()
            except HoldfastError:
                log.exception("the context of %s could not be taken back", run.child_key)

    async def _binding(self, run: Run, requester: Session) -> Deliver:
        assert self._parts.open_thread is not None
        origin = Terms.read(run.origin, run.requester_agent)
        opened = await self._parts.open_thread(requester, origin.deliver, run.name)
        above = None if origin.deliver is None else origin.deliver.heard
        return replace(opened, heard=opened.heard or above or requester.audience)

    def _reserve(self, tx: Tx, caller: Caller, given: SpawnInput, errand: Errand | None = None) -> Run:
        """Check everything, and take a place with the child's session; nothing runs yet."""
        wish = given.wish(caller.agent_id)
        depth = depth_of(tx, caller.session, caller.depth)
        parent = caller.session.key
        if errand is not None and depth >= caller.settings.subagents.max_spawn_depth > 0:
            # The deepest may send off delegates too: they stand beside it, and its chain bounds them.
            parent, depth = caller.session.parent_key or parent, depth - 1
        self._require_allowed(tx, caller, wish, depth)
        target = caller.config.agent(wish.agent_id)
        turn = _turn(tx, caller.turn_id)
        origin = origin_of(turn, caller) if errand is None else errand.terms
        chain = self._chain(tx, caller, turn) if errand is None else errand.chain
        meta = self._meta(given, wish, target, caller, origin, depth + 1)
        id_ = uuid7()
        child = sessions.ensure(
            tx,
            str(SubagentKey(AgentId(wish.agent_id), id_)),
            audience=caller.session.audience,
            space_id=caller.session.space_id,
            agent_id=wish.agent_id,
            chat_type=caller.session.chat_type,
            channel=caller.channel,
            label=given.label,
            parent_key=parent,
            meta=meta | {"spawnId": id_, "mode": wish.mode},
        )
        timeout = given.runTimeoutSeconds
        rules = caller.settings.subagents
        return _record(
            tx,
            caller,
            turn,
            origin,
            chain_id=None if chain is None else chain.id,
            id=id_,
            spawn_key=f"spawn:{id_}" if errand is None else errand.key,
            child_key=child.key,
            child_session_id=child.id,
            agent_id=wish.agent_id,
            task=given.task,
            label=given.label,
            depth=depth + 1,
            mode=wish.mode,
            cleanup=given.cleanup or rules.cleanup,
            context=wish.context,
            expects=given.expectsCompletionMessage,
            timeout_seconds=rules.run_timeout_seconds if timeout is None else timeout,
        )

    def _require_allowed(self, tx: Tx, caller: Caller, wish: Wish, depth: int) -> None:
        refused = refusal(wish, caller.settings.subagents, self._standing(tx, caller, wish, depth))
        if refused is not None:
            raise refused.error()

    def _chain(self, tx: Tx, caller: Caller, turn: Turn | None) -> Chain | None:
        """The chain that a spawn follows from, with one thing more that was sent off in it."""
        if turn is None:
            return None
        chain = chains.opened(tx, turn)
        full = chain_refusal(chain.sent, caller.settings.subagents)
        if full is not None:
            raise full.error()
        return chains.count(tx, chain, "sent")

    def _standing(self, tx: Tx, caller: Caller, wish: Wish, depth: int) -> Requester:
        known = frozenset(agent.id for agent in caller.config.agent_list)
        probe = str(SubagentKey(AgentId(wish.agent_id), "x"))
        target = caller.config.agent(wish.agent_id).sandbox if wish.agent_id in known else None
        return Requester(
            agent_id=caller.agent_id,
            known_agents=known,
            depth=depth,
            live_children=registry.live_count(tx, caller.session.key),
            sandboxed=sandboxed(caller),
            target_sandboxed=not caller.alone or (target is not None and is_sandboxed(target, probe)),
            threads=self._parts.open_thread is not None,
        )

    def _meta(
        self, given: SpawnInput, wish: Wish, target: AgentEntry, caller: Caller, origin: Terms, depth: int
    ) -> dict[str, Any]:
        """Model and thinking by the call, then the config, then what was chosen for the parent."""
        own = (caller.session.meta or {}) if wish.agent_id == caller.agent_id else {}
        chosen = origin if wish.agent_id == caller.agent_id else Terms(agent_id=wish.agent_id)
        model = given.model or target.subagents.model or chosen.model or own.get("model")
        thinking = given.thinking or target.subagents.thinking or chosen.thinking or own.get("thinking")
        if given.model is not None:
            self._require_model(target, given.model)
        made = {"depth": depth, "model": model, "thinking": thinking}
        return {name: value for name, value in made.items() if value is not None}

    def _require_model(self, target: AgentEntry, model: str) -> None:
        try:
            self._parts.models.about(self._parts.models.choice(target, model)[0])
        except HoldfastError as error:
            raise InvalidInput(
                f"model {model[:80]!r} cannot be used: {error.message}",
                code="unknown_model",
                hint=error.hint or "Leave it out for the configured one.",
            ) from error

    def _launch(self, tx: Tx, id_: str, binding: Deliver | None, traceparent: str | None) -> Run:
        run = registry.get(tx, id_)
        asker = _turn(tx, run.requester_turn)
        if run.status is not Status.PREPARING or (asker is not None and asker.status.ended):
            raise Conflict("the turn that asked for it has ended", code="spawn_stopped")
        request = None if asker is None else asker.input_id
        scope = lineage.link_spawn(tx, run.requester_key, run.child_key, request_id=request)
        bound = None if binding is None else binding.json()
        run = registry.save(tx, run, binding=bound)
        self._parts.bind(tx, run)
        return self._begun(tx, run, traceparent, None if scope is None else scope.topic_id)

    def _begun(self, tx: Tx, run: Run, traceparent: str | None, topic_id: str | None = None) -> Run:
        turn = self._accepted(tx, run, traceparent)
        options = self._parts.config().board.supervision
        supervision.watch(
            tx, turn.id, run.requester_key, options, topic_id=topic_id, meta={"label": run.name, "id": run.id}
        )
        return registry.save(tx, run, run_id=turn.id, status=Status.QUEUED, chain_id=turn.chain_id)

    def _accepted(self, tx: Tx, run: Run, traceparent: str | None) -> Turn:
        """The child's turn, in the name of who asked; a failed one is told, never repeated.

        The task is a model's words: they are the child's orders, so they stand in no fence, but they rank
        below a user's, and nothing in them can pass for the runtime's own.
        """
        session = sessions.get(tx, run.child_session_id)
        origin = Terms.read(run.origin, run.requester_agent)
        speaks = Deliver(**run.binding) if run.binding is not None and not run.expects else None
        terms = replace(origin, agent_id=run.agent_id, model=None, thinking=None, deliver=speaks)
        key = f"{TRIGGER}:{run.id}"
        spoken = draft_of(UserMessage(text=run.task, trust=Trust.MODEL))
        source = {"channel": TRIGGER, "fromSessionKey": run.requester_key, **(spoken.source or {})}
        if traceparent is not None:
            source["traceparent"] = traceparent
        draft = replace(
            spoken,
            session_key=session.key,
            session_id=session.id,
            agent_id=run.requester_agent,
            source=source,
        )
        prepared = replace(
            prepare(tx, draft, self._parts.config().board), idempotency_key=f"turn-input:{key}"
        )
        made = turns.accept(
            tx,
            session,
            prepared,
            key=key,
            trigger=TRIGGER,
            max_attempts=1,
            meta={ASK: terms.json()},
            chain_id=run.chain_id,
        )
        return made.turn

    def _further(self, tx: Tx, run: Run, text: str, caller: Caller, traceparent: str | None) -> Run:
        session = sessions.active(tx, run.child_key)
        if session is None:
            raise Conflict(
                f"the session of {run.name} is archived", code="session_archived", hint="Spawn a new one."
            )
        if registry.live_of_child(tx, run.child_key) is not None:
            raise Conflict(
                f"{run.name} waits for others",
                code="subagent_busy",
                hint="It comes back by itself; wait for that.",
            )
        wish = Wish(agent_id=run.agent_id, mode=run.mode)
        self._require_allowed(tx, caller, wish, depth_of(tx, caller.session, caller.depth))
        id_, turn = uuid7(), _turn(tx, caller.turn_id)
        chain = self._chain(tx, caller, turn)
        fresh = _record(
            tx,
            caller,
            turn,
            origin_of(turn, caller),
            chain_id=None if chain is None else chain.id,
            id=id_,
            spawn_key=f"further:{id_}",
            child_session_id=session.id,
            task=text,
            timeout_seconds=run.timeout_seconds,
            **{name: getattr(run, name) for name in _SAME},
        )
        return self._begun(tx, fresh, traceparent)

    def addressed(self, tx: Tx, run: Run, text: str, who: Terms, key: str) -> Run:
        """Somebody spoke to a child on its own surface: a further task in their name, whose result the parent
        relays; the same key again finds the one that it made."""
        known = registry.by_spawn(tx, key)
        if known is not None:
            return known
        fresh = Run(
            id=uuid7(),
            spawn_key=key,
            child_session_id=sessions.find(tx, run.child_key).id,
            requester_key=run.requester_key,
            requester_agent=run.requester_agent,
            origin=who.json(),
            task=text,
            timeout_seconds=run.timeout_seconds,
            owner=this_process(),
            created_at=tx.now,
            updated_at=tx.now,
            **{name: getattr(run, name) for name in _SAME},
        )
        return self._begun(tx, registry.insert(tx, fresh), None)


def depth_of(tx: Tx, session: Session, told: int = 0) -> int:
    """How many spawns lie above a session; a reset forgets its notes, but never who its parent is."""
    depth, here = 0, session
    while parse_key(here.key).is_subagent and depth < MOST_DEEP:
        depth += 1
        if here.parent_key is None:
            break
        try:
            here = sessions.find(tx, here.parent_key)
        except NotFound:
            break
    return max(depth, told)


def origin_of(turn: Turn | None, caller: Caller) -> Terms:
    """In whose name the work is done, and where the answer to who asked for it goes."""
    kept: Mapping[str, Any] = {} if turn is None else ((turn.meta or {}).get(ASK) or {})
    asked = Terms.read(kept, caller.agent_id)
    return Terms(
        agent_id=caller.agent_id,
        model=asked.model,
        thinking=asked.thinking,
        sender=caller.sender,
        owner=caller.owner,
        channel=caller.channel,
        deliver=asked.deliver,
        limited_to=asked.limited_to,
    )


def _record(tx: Tx, caller: Caller, turn: Turn | None, origin: Terms, **fields: Any) -> Run:
    """A run in the registry, with who asks for it and in whose name."""
    run = Run(
        requester_key=caller.session.key,
        requester_agent=caller.agent_id,
        requester_turn=None if turn is None else turn.id,
        origin=origin.json(),
        owner=this_process(),
        created_at=tx.now,
        updated_at=tx.now,
        **fields,
    )
    return registry.insert(tx, run)


def _spawned(run: Run, requester: Session) -> SubagentSpawned:
    return SubagentSpawned(
        audience=requester.audience,
        session_key=requester.key,
        session_id=requester.id,
        agent_id=run.requester_agent,
        child_key=run.child_key,
        run_id=run.id,
        task=run.task,
    )


def _ttl_ms(run: Run, archive_minutes: int) -> int | None:
    """For how long a child's context is wanted: as long as its run may take, and until its session is
    archived; None for one that stays for more."""
    kept = 0 if run.cleanup == "delete" else archive_minutes * 60_000
    return None if run.mode == "session" else run.timeout_seconds * 1_000 + kept or None


def _params(run: Run, requester: Session, ttl_ms: int | None) -> SpawnParams:
    return SpawnParams(
        parent_session_id=requester.id,
        parent_session_key=requester.key,
        child_session_id=run.child_session_id,
        child_session_key=run.child_key,
        context_mode=run.context,
        ttl_ms=ttl_ms,
    )


def _turn(tx: Tx, id_: str | None) -> Turn | None:
    found = turns.get_many(tx, [id_]) if id_ else []
    return found[0] if found else None
