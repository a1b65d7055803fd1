"""Subagents: work that an agent delegates, whose results always come back, once.

parts = SubagentParts(store=store, threads=threads, config=config, context=context, models=models)
subagents = Subagents(parts)
toolbox.register_all(subagents.tools())
runs = Runs(LoopParts(..., hooks=(subagents.hook,)))
subagents.register(runner, runs)
subagents.recover()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from holdfast.agents.commands import Command
from holdfast.agents.loop.asks import Accepted, Ask, Terms
from holdfast.agents.loop.parts import Ended, TurnEnd, TurnHook
from holdfast.agents.subagents import ending, handlers, registry
from holdfast.agents.subagents.checks import Refusal, Requester, SpawnInput, Wish, chain_refusal, refusal
from holdfast.agents.subagents.ending import Watcher, stats, stopped_on_purpose
from holdfast.agents.subagents.handlers import Launcher, RegistryRuns, Stopper, Sweeper, Waker
from holdfast.agents.subagents.registry import Announce, Outcome, Run, Status
from holdfast.agents.subagents.spawning import Errand, OpenThread, Spawner, SubagentParts
from holdfast.agents.subagents.tools import SubagentCommands, SubagentTools
from holdfast.agents.tools.types import Tool
from holdfast.board import supervision
from holdfast.context import Occasion, Text
from holdfast.keys import parse_key
from holdfast.log import SYSTEM, Session, Turn, TurnStatus, Tx, entries, notes
from holdfast.log.agenda import Runner

__all__ = [
    "Announce",
    "Errand",
    "OpenThread",
    "Outcome",
    "Refusal",
    "Requester",
    "Run",
    "SpawnInput",
    "Status",
    "SubagentParts",
    "Subagents",
    "Watcher",
    "Wish",
    "chain_refusal",
    "refusal",
    "stats",
    "stopped_on_purpose",
]


MOST_ASKS = 3


class SubagentHook(TurnHook):
    """Everything here is in the transaction of the turn's own step."""

    name = "subagents"

    def __init__(self, parts: SubagentParts) -> None:
        self._parts = parts

    def begun(self, tx: Tx, turn: Turn, session: Session, terms: Terms) -> None:
        run = registry.by_run(tx, turn.id) if _is_child(session) else None
        if run is None or run.status is Status.RUNNING:
            return
        if run.live:
            begun = registry.save(tx, run, status=Status.RUNNING, started_at=tx.now)
        else:
            begun = _reopened(tx, run)
        registry.limit_time(tx, begun)

    def shown(self, tx: Tx, turn: Turn, session: Session, terms: Terms) -> Sequence[Text]:
        found: list[Text] = []
        run = registry.newest_of_child(tx, session.key) if _is_child(session) else None
        if run is not None:
            deepest = self._parts.config().agent(terms.agent_id).subagents.max_spawn_depth
            brief = ending.child_brief(run, may_spawn=run.depth < deepest)
            found.append(_word("subagent", brief, session))
        if turn.trigger == ending.RETURN:
            said = ending.go_on_text(to_parent=run is not None and run.live)
            found.append(_word("subagent-return", said, session))
        return found

    def committed(self, tx: Tx, end: TurnEnd) -> None:
        self._taken(tx, end)
        run = _run_of(tx, end)
        if run is not None:
            ending.note_turn(tx, run, end.turn, _said(tx, end))
            ending.settle_later(tx, self._parts.watchers, run.child_key)

    def failed(self, tx: Tx, end: TurnEnd) -> None:
        self._not_taken(tx, end)
        if end.turn.status is TurnStatus.CANCELLED:
            for child in registry.asked_by_turn(tx, end.turn.id):
                registry.stop_soon(tx, child, ending.PARENT_STOPPED)
        run = _run_of(tx, end)
        if run is not None:
            ending.note_turn(tx, run, end.turn, run.said or ending.last_words(tx, end.turn))
            ending.settle_later(tx, self._parts.watchers, run.child_key)

    def chain_stopped(self, tx: Tx, chain_id: str, reason: str) -> Sequence[Ended]:
        """Every run of the chain ends with it, the youngest first, and none of them asks for a turn."""
        live = registry.in_chain(tx, chain_id, live=True)
        for run in live:
            marked = registry.save(tx, run, stop_reason=run.stop_reason or reason)
            if not ending.abandon(tx, self._parts.watchers, run.id, reason):
                ending.close(tx, self._parts.watchers, marked, ending.stopped(marked))
        return Ended(len(live), "subagent"), Ended(registry.quiet(tx, chain_id), "return")

    def reset(self, tx: Tx, left: Session) -> Ended:
        """Someone left a session: what it delegated ends with it."""
        live = registry.children(tx, left.key, live=True)
        for run in live:
            registry.stop_soon(tx, run, "its session was left")
        return Ended(len(live), "subagent")

    def _taken(self, tx: Tx, end: TurnEnd) -> None:
        """Results that this turn was shown have arrived with its commit."""
        open_ = [] if end.terms.occasion is Occasion.FLUSH else registry.announced(tx, end.session.key)
        if not open_:
            return
        waiting = {note.key for note in notes.waiting(tx, end.session.key)}
        more = len(waiting) >= notes.MAX_SHOWN
        for run in open_:
            own = run.announce is Announce.ASKED and run.announce_turn == end.turn.id
            alone = run.own_surface and run.announce is not Announce.QUIET
            shown = own if alone else run.note_key not in waiting and not more
            if shown:
                registry.save(tx, run, announce=Announce.DELIVERED, announce_turn=end.turn.id)
            elif own:
                registry.save(tx, run, announce=Announce.WAITING, announce_turn=None)
                registry.wake_requester(tx, end.session.key)

    def _not_taken(self, tx: Tx, end: TurnEnd) -> None:
        """A turn that was to take results failed: ask again after a while, a few times; they stay anyway."""
        if end.turn.trigger != ending.RETURN:
            return
        for run in registry.announced(tx, end.session.key, (Announce.ASKED,)):
            if run.announce_turn != end.turn.id:
                continue
            if end.turn.status is TurnStatus.CANCELLED or run.asks >= MOST_ASKS:
                registry.save(tx, run, announce=Announce.QUIET, announce_turn=None)
            else:
                wait = self._parts.config().agent(run.requester_agent).subagents.announce_timeout_ms
                registry.save(tx, run, announce=Announce.WAITING, announce_turn=None)
                registry.wake_requester(tx, end.session.key, due_at=int(tx.now) + wait * run.asks)


def _reopened(tx: Tx, run: Run) -> Run:
    """Someone had an interrupted run go on: it will come back once more."""
    return registry.save(
        tx,
        run,
        status=Status.RUNNING,
        round=run.round + 1,
        outcome=None,
        error=None,
        stop_reason=None,
        parts=0,
        announce=Announce.NONE,
        announce_turn=None,
        asks=0,
        started_at=tx.now,
        ended_at=None,
    )


def _run_of(tx: Tx, end: TurnEnd) -> Run | None:
    """The live run that a turn belongs to: by its id, or as a further turn of the same chain."""
    if not _is_child(end.session):
        return None
    run = registry.by_run(tx, end.turn.id) or registry.live_of_child(tx, end.session.key)
    if run is None or not run.live:
        return None
    own = end.turn.id == run.run_id or end.turn.chain_id == run.chain_id or end.turn.trigger == ending.RETURN
    return run if own else None


def _said(tx: Tx, end: TurnEnd) -> str:
    if end.said or end.turn.reply_id is None:
        return end.said
    return entries.get(tx, end.turn.reply_id).content


def _word(name: str, text: str, session: Session) -> Text:
    """The runtime's word about a session, for those who hear it."""
    return Text(name, text, source="holdfast/subagent", audience=session.audience)


def _is_child(session: Session) -> bool:
    return parse_key(session.key).is_subagent


class Turns(Protocol):
    """What this room asks of the turn loop."""

    def accept_in(self, tx: Tx, ask: Ask) -> Accepted: ...

    async def stop_items(self, ids: Sequence[str], reason: str) -> None: ...


class Subagents:
    """Built before the loop, whose tools and hook it gives; `register` hands its work to the runner."""

    def __init__(self, parts: SubagentParts) -> None:
        self._parts = parts
        self.spawner = Spawner(parts)
        self.hook = SubagentHook(parts)
        self.supervised = RegistryRuns()
        self._tools = SubagentTools(parts, self.spawner)
        self._commands = SubagentCommands(parts)

    def tools(self) -> tuple[Tool[Any], ...]:
        return self._tools.tools()

    @property
    def commands(self) -> tuple[Command, ...]:
        return self._commands.commands()

    def watch(self, watcher: Watcher) -> None:
        """Have another room take part in how runs end."""
        self._parts.watchers.append(watcher)

    def register(self, runner: Runner, turns: Turns) -> None:
        """Have this runner begin runs, wake requesters, stop runs, clear up and supervise."""
        parts = self._parts
        runner.register(registry.LAUNCH, Launcher(parts, self.spawner).kind())
        runner.register(registry.WAKE, Waker(parts.store, parts.threads, turns.accept_in).kind())
        runner.register(registry.STOP, Stopper(parts, turns.stop_items).kind())
        runner.register(registry.SWEEP, Sweeper(parts).kind())
        supervisor = supervision.Supervisor(
            parts.store, parts.threads, lambda: parts.config().board, runs=self.supervised
        )
        runner.register(supervision.KIND, supervisor.kind())

    def recover(self) -> int:
        """At start-up, before the runner: how many runs were found over and are told of now."""

        def write(tx: Tx) -> int:
            ended = handlers.recover(tx, self._parts.watchers)
            supervision.recover(tx, self._parts.config().board.supervision)
            return ended

        return self._parts.store.run(SYSTEM, write)

    def children(self, session_key: str, *, live: bool | None = None) -> list[Run]:
        """What a session delegated, newest first."""
        with self._parts.store.read(SYSTEM) as tx:
            return registry.children(tx, session_key, live=live)
