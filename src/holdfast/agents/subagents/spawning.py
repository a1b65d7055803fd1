"""Delegating: a place is taken, the engine readies the child's context, and then the child's turn, its
lineage and its supervision are written in one transaction, or nothing of it stays."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.agents.loop.asks import ASK, Deliver, Terms
from holdfast.agents.loop.parts import Answers
from holdfast.agents.sandbox import is_sandboxed
from holdfast.agents.subagents import ending, registry, returning
from holdfast.agents.subagents.asking import SpawnInput
from holdfast.agents.subagents.checks import Standing, Wish, refusal
from holdfast.agents.subagents.registry import Outcome, Run, Status
from holdfast.agents.tools.settings import sandboxed
from holdfast.agents.tools.types import Caller
from holdfast.board import lineage, supervision
from holdfast.board.ingest import prepare
from holdfast.config import AgentEntry, Config
from holdfast.context import ContextRoom, SpawnParams, Trust, UserMessage, draft_of
from holdfast.errors import Conflict, HoldfastError, InvalidInput, NotFound
from holdfast.ids import AgentId, uuid7
from holdfast.keys import SubagentKey, parse_key
from holdfast.log import SYSTEM, Session, Store, Threads, Turn, Tx, sessions, this_process, to_the_end, turns
from holdfast.traces import here

log = logging.getLogger(__name__)

TRIGGER: Final = "subagent"
MOST_DEEP: Final = 16
_SAME: Final = ("child_key", "agent_id", "binding", "label", "depth", "mode", "cleanup", "context", "expects")

OpenThread = Callable[[Session, Deliver | None, str], Awaitable[Deliver]]
"""Opens a thread on a session's surface under a name, and says how words reach it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What delegating works on."""

    store: Store
    threads: Threads
    config: Callable[[], Config]
    context: Callable[[], ContextRoom]
    models: Answers
    open_thread: OpenThread | None = None
    bind: Callable[[Tx, Run], None] = lambda tx, run: None


class Spawner:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def spawn(
        self, caller: Caller, given: SpawnInput, *, key: str | None = None, traceparent: str | None = None
    ) -> Run:
        """A child on its way; the same key again finds the one that it made. Its turn continues a trace."""
        parts = self._parts
        wish = given.wish(caller.agent_id)
        run = await parts.threads(
            parts.store.run, SYSTEM, lambda tx: self._reserve(tx, caller, given, wish, key)
        )
        if run.status is not Status.PREPARING:
            return run
        return await self._carried_out(run, caller, wish, traceparent)

    async def further(self, run: Run, text: str, caller: Caller) -> Run:
        """Another task for a child whose session is still there, with a return of its own."""
        parts = self._parts
        trace = here()
        return await parts.threads(
            parts.store.run, SYSTEM, lambda tx: self._further(tx, run, text, caller, trace)
        )

    async def _carried_out(self, run: Run, caller: Caller, wish: Wish, traceparent: str | None) -> Run:
        rollback: Callable[[], Awaitable[None]] | None = None
        launched: Run | None = None
        try:
            rollback = await self._parts.context().prepare_subagent_spawn(_params(run, caller, wish))
            binding = await self._binding(run, caller) if wish.thread else None
            launched = await self._parts.threads(
                self._parts.store.run, SYSTEM, lambda tx: self._launch(tx, run.id, binding, traceparent)
            )
            return launched
        finally:
            if launched is None:
                await to_the_end(self._taken_back(run, rollback))

    async def _taken_back(self, run: Run, rollback: Callable[[], Awaitable[None]] | None) -> None:
        """Undo what was prepared, unless the run was launched after all while we were told to stop."""
        undone = await self._parts.threads(
            self._parts.store.run, SYSTEM, lambda tx: abandon(tx, run.id, "it could not be begun")
        )
        if undone and rollback is not None:
            try:
                await rollback()
            except HoldfastError:
                log.exception("the context of %s could not be taken back", run.child_key)

    async def _binding(self, run: Run, caller: Caller) -> Deliver:
        assert self._parts.open_thread is not None
        origin = Terms.read(run.origin, run.requester_agent)
        opened = await self._parts.open_thread(caller.session, origin.deliver, run.name)
        above = None if origin.deliver is None else origin.deliver.heard
        return replace(opened, heard=opened.heard or above or caller.session.audience)

    def _reserve(self, tx: Tx, caller: Caller, given: SpawnInput, wish: Wish, key: str | None) -> Run:
        """Check everything, and take a place with the child's session; nothing runs yet."""
        known = None if key is None else registry.by_spawn(tx, key)
        if known is not None:
            return known
        depth = depth_of(tx, caller.session, caller.depth)
        refused = refusal(wish, caller.settings.subagents, self._standing(tx, caller, wish, depth))
        if refused is not None:
            raise refused.error()
        target = caller.config.agent(wish.agent_id)
        turn = _turn(tx, caller.turn_id)
        meta = self._meta(given, wish, target, caller, origin_of(turn, caller), depth + 1)
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
            parent_key=caller.session.key,
            meta=meta | {"spawnId": id_, "mode": wish.mode},
        )
        timeout = given.runTimeoutSeconds
        rules = caller.settings.subagents
        return _record(
            tx,
            caller,
            turn,
            id=id_,
            spawn_key=key or f"spawn:{id_}",
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

    def _standing(self, tx: Tx, caller: Caller, wish: Wish, depth: int) -> Standing:
        known = frozenset(agent.id for agent in caller.config.agent_list)
        probe = str(SubagentKey(AgentId(wish.agent_id), "x"))
        target = caller.config.agent(wish.agent_id).sandbox if wish.agent_id in known else None
        return Standing(
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
        return registry.save(tx, run, run_id=turn.id, status=Status.QUEUED)

    def _accepted(self, tx: Tx, run: Run, traceparent: str | None) -> Turn:
        """The child's turn, in the name of who asked, and tried once: a cut-off one is told, never repeated.

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
        meta = {ASK: terms.json()}
        return turns.accept(tx, session, prepared, key=key, trigger=TRIGGER, max_attempts=1, meta=meta).turn

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
        depth = depth_of(tx, caller.session, caller.depth)
        refused = refusal(wish, caller.settings.subagents, self._standing(tx, caller, wish, depth))
        if refused is not None:
            raise refused.error()
        id_ = uuid7()
        fresh = _record(
            tx,
            caller,
            _turn(tx, caller.turn_id),
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


def abandon(tx: Tx, id_: str, why: str) -> bool:
    """End a run that was never launched, with its empty session; False if it is launched or over."""
    run = registry.get(tx, id_)
    if run.status is not Status.PREPARING:
        return False
    registry.save(
        tx, run, status=Status.ENDED, outcome=Outcome.ERROR, error=why, ended_at=tx.now, archived_at=tx.now
    )
    child = sessions.get(tx, run.child_session_id)
    if child.status is sessions.SessionStatus.ACTIVE:
        sessions.archive(tx, child, cause="spawn_failed")
    if run.on_errand:
        returning.bring(tx, run)
    ending.release(tx, run.requester_key)
    return True


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


def _record(tx: Tx, caller: Caller, turn: Turn | None, **fields: Any) -> Run:
    """A run in the registry, with who asks for it and in whose name."""
    run = Run(
        requester_key=caller.session.key,
        requester_agent=caller.agent_id,
        requester_turn=None if turn is None else turn.id,
        origin=origin_of(turn, caller).json(),
        owner=this_process(),
        created_at=tx.now,
        updated_at=tx.now,
        **fields,
    )
    return registry.insert(tx, run)


def _params(run: Run, caller: Caller, wish: Wish) -> SpawnParams:
    return SpawnParams(
        parent_session_id=caller.session.id,
        parent_session_key=caller.session.key,
        child_session_id=run.child_session_id,
        child_session_key=run.child_key,
        context_mode=wish.context,
    )


def _turn(tx: Tx, id_: str | None) -> Turn | None:
    found = turns.get_many(tx, [id_]) if id_ else []
    return found[0] if found else None
