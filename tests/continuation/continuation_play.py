"""A stage for continuation: turns are played by hand through the hook, on a real store and a manual clock."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from holdfast.agents.loop import Ask
from holdfast.agents.loop.accepting import take_in
from holdfast.agents.loop.asks import ASK, Terms, address
from holdfast.agents.loop.parts import TurnEnd, TurnHook
from holdfast.agents.subagents import Errand, Run, SpawnInput, SubagentParts, Subagents, ending, registry
from holdfast.agents.subagents import Outcome as RunOutcome
from holdfast.agents.subagents.spawning import Spawner
from holdfast.agents.tools.types import Caller, Tool, ToolOutput
from holdfast.clock import ManualClock
from holdfast.config import Config
from holdfast.context import CompactOutcome, CompactResult, Pressure, ShownData
from holdfast.continuation import Continuation, Record, Status, compaction, records, wakes
from holdfast.errors import HoldfastError
from holdfast.log import (
    OWNER,
    Chain,
    EntryDraft,
    Note,
    Outcome,
    Session,
    Store,
    Threads,
    Turn,
    TurnStatus,
    Tx,
    agenda,
    chains,
    notes,
    sessions,
    turns,
)
from holdfast.memory.scope import Chat

KEY = "agent:main:main"
OTHER = "agent:main:discord:group:42"
WORKER = "tests"


def home_config(url: str, *, window: int = 128_000, **continuation: Any) -> str:
    """The config of a whole home with a scripted model, at work by itself and not distracted."""
    cost = {"input": 1.0, "output": 2.0}
    model = {"id": "scripted", "contextWindow": window, "maxTokens": 1_000, "cost": cost}
    provider = {"baseUrl": url, "apiKey": "none", "models": [model]}
    defaults: dict[str, Any] = {
        "model": "scripted/scripted",
        "skipBootstrap": True,
        "skills": [],
        "continuation": {"enabled": True, **continuation},
        "heartbeat": {"every": "0m"},
    }
    return json.dumps(
        {
            "models": {"mode": "replace", "providers": {"scripted": provider}},
            "agents": {"defaults": defaults},
            "board": {"enabled": False, "classifier": {"enabled": False}},
            "memory": {"search": {"embedding": {"providers": []}}},
        }
    )


@dataclass
class Nursery:
    """The real subagents' room, whose runs nobody begins; it remembers what it was asked for."""

    spawner: Spawner
    orders: list[Run] = field(default_factory=list)
    trouble: HoldfastError | None = None

    def send_off(self, tx: Tx, caller: Caller, given: SpawnInput, errand: Errand) -> Run:
        if self.trouble is not None:
            raise self.trouble
        run = self.spawner.send_off(tx, caller, given, errand)
        self.orders.append(run)
        return run

    def settle(self, tx: Tx, child_key: str) -> None:
        self.spawner.settle(tx, child_key)


@dataclass
class Live:
    """A turn under way."""

    job: agenda.Job
    turn: Turn
    session: Session
    terms: Terms
    told: list[Note]
    tools: list[str] = field(default_factory=list)
    calls: int = 0


class Play:
    """Everything is real but the model, and that nobody runs the subagents' turns."""

    def __init__(
        self, store: Store, clock: ManualClock, threads: Threads, folder: Path, **given: Any
    ) -> None:
        self.store, self.clock, self.threads, self.folder = store, clock, threads, folder
        self.given: dict[str, Any] = {"enabled": True, **given}
        self.subagents = Subagents(
            SubagentParts(
                store=store, threads=threads, config=self.config, context=_nobody, models=cast("Any", None)
            )
        )
        self.nursery = Nursery(self.subagents.spawner)
        self.compaction: CompactResult | HoldfastError = CompactResult(outcome=CompactOutcome.COMPACTED)
        self._made: tuple[str, Config] | None = None
        self.stopped: set[str] = set()
        self.room = self.opened()

    def opened(self) -> Continuation:
        """The room as a process finds it at its start."""
        room = Continuation(
            self.store,
            self.threads,
            self.config,
            self.accept,
            payloads=self.folder,
            spawner=self.nursery,
            caller_of=self._caller_of,
            stop_turn=self._stop_turn,
            compact=self._compact,
            workspace=lambda _: self.folder,
        )
        self.watchers[:] = [room.hook]
        return room

    @property
    def watchers(self) -> list[Any]:
        return self.subagents._parts.watchers

    def config(self) -> Config:
        text = json.dumps(self.given, sort_keys=True)
        if self._made is None or self._made[0] != text:
            defaults = {"continuation": self.given, "subagents": {"maxSpawnDepth": 1}}
            self._made = (text, Config.model_validate({"agents": {"defaults": defaults}}))
        return self._made[1]

    def accept(self, tx: Tx, ask: Ask) -> Any:
        return take_in(tx, ask, address(ask, self.config()), self.config(), self.hooks)

    @property
    def hooks(self) -> tuple[TurnHook, ...]:
        return (self.subagents.hook, self.room.hook)

    def say(self, text: str = "hello", *, to: str = KEY, **more: Any) -> str:
        """A message from outside, or whatever trigger is given; the id of its run."""
        with self.store.write(OWNER) as tx:
            return str(self.accept(tx, Ask(text=text, session_key=to, **more)).run_id)

    async def _stop_turn(self, turn_id: str, reason: str) -> None:
        """One that waits ends at once; one that runs is for whoever plays it to end."""
        self.stopped.add(turn_id)
        with self.store.write(OWNER) as tx:
            turn = turns.get(tx, turn_id)
            if turn.status is not TurnStatus.ACCEPTED:
                return
            for item in agenda.listing(tx, kinds=turns.KINDS, lane=KEY):
                if item.payload["turnId"] == turn_id:
                    agenda.cancel(tx, item.id, reason=reason)
            terms = Terms.read((turn.meta or {}).get(ASK) or {}, "main")
            ended = turns.end(tx, turn, TurnStatus.CANCELLED, reason)
            session = sessions.get(tx, turn.session_id)
            self.room.hook.failed(tx, TurnEnd(turn=ended, session=session, terms=terms))

    def begin(self, key: str = KEY) -> Live | None:
        """Start the next turn that waits in a session."""
        with self.store.write(OWNER) as tx:
            items = agenda.claim(tx, dict.fromkeys(turns.KINDS, 50), owner=WORKER, lease_ms=10**12)
            for item in items:
                if item.lane != key:
                    agenda.settle(tx, item, agenda.Postpone(WORKER, item.due_at))
            mine = [item for item in items if item.lane == key]
            return None if not mine else self._started(tx, mine[0])

    def _started(self, tx: Tx, item: agenda.Item) -> Live:
        turn = turns.start(tx, turns.get(tx, str(item.payload["turnId"])))
        session = sessions.get(tx, turn.session_id)
        terms = Terms.read((turn.meta or {}).get(ASK) or {}, "main")
        self.room.hook.begun(tx, turn, session, terms)
        live = Live(agenda.Job(item), turn, session, terms, [])
        self._listen(tx, live)
        return live

    def _listen(self, tx: Tx, live: Live) -> None:
        waiting = notes.waiting(tx, live.session.key)
        notes.take(tx, [note.id for note in waiting], live.turn.id)
        live.told += waiting

    def call(self, live: Live, name: str, **given: Any) -> dict[str, Any]:
        """A tool call of a running turn; what the model is told."""
        tool = self.tool(name)
        live.tools.append(name)
        live.calls += 1
        caller = self.caller(live)
        output: ToolOutput = asyncio.run(tool.run(caller, tool.input(**given), f"call-{live.calls}"))
        with self.store.write(OWNER) as tx:
            self._listen(tx, live)
        return dict(json.loads(output.text))

    def tool(self, name: str) -> Tool[Any]:
        return next(tool for tool in self.room.tools() if tool.name == name)

    def caller(self, live: Live, **more: Any) -> Caller:
        return self._caller(live.session, live.turn.id, **more)

    def _caller(self, session: Session, turn_id: str, **more: Any) -> Caller:
        config = self.config()
        facts: dict[str, Any] = {"chat": Chat.of(session.key), "workspace": self.folder}
        return Caller(
            config=config,
            settings=config.agent("main"),
            agent_id="main",
            session=session,
            turn_id=turn_id,
            **{**facts, **more},
        )

    def end(
        self, live: Live, said: str = "done", *, tokens: int = 0, pressure: Pressure | None = None
    ) -> TurnEnd:
        """Commit a turn with its last words."""
        heard = self.room.hook.heard(said, live.terms, ShownData())
        drafts = [EntryDraft(content=heard.text, role="assistant")] if heard.text else []
        with self.store.write(OWNER) as tx:
            usage = {"inputTokens": tokens, "outputTokens": 0}
            done = turns.commit(tx, live.turn.key, Outcome(entries=drafts, usage=usage), live.job)
            end = TurnEnd(
                turn=done.turn,
                session=live.session,
                terms=live.terms,
                said=heard.text,
                tools=tuple(live.tools),
                pressure=pressure,
                signals={} if heard.signal is None else {"continuation": heard.signal},
            )
            self.room.hook.committed(tx, end)
        return end

    def fail(self, live: Live, status: TurnStatus = TurnStatus.FAILED) -> None:
        with self.store.write(OWNER) as tx:
            live.job.settle(tx, agenda.Fail(WORKER, "broken", final=True))
            turn = turns.end(tx, turns.get(tx, live.turn.id), status, "broken")
            self.room.hook.failed(tx, TurnEnd(turn=turn, session=live.session, terms=live.terms))

    def turn(
        self, *calls: tuple[str, dict[str, Any]], said: str = "done", **more: Any
    ) -> list[dict[str, Any]]:
        """A whole turn of whoever waits; a user's, if nobody does."""
        live = self.begin()
        if live is None:
            self.say()
            live = self.begin()
        assert live is not None
        answers = [self.call(live, name, **given) for name, given in calls]
        self.end(live, said, **more)
        return answers

    def due(self) -> int:
        """Look after what is due now, as the runner would; how many sessions were looked at."""
        with self.store.write(OWNER, ordered=False) as tx:
            kinds = {wakes.KIND: 50, compaction.KIND: 5}
            items = agenda.claim(tx, kinds, owner=WORKER, lease_ms=10**12)
        for item in items:
            handler = self.room.dispatch if item.kind == wakes.KIND else self.room._compacting
            asyncio.run(handler.run(agenda.Job(item)))
        return len(items)

    def later(self, seconds: float) -> int:
        self.clock.advance(seconds=seconds)
        return self.due()

    def returned(self, order: Run, text: str = "found it", status: str = "success") -> bool:
        """A delegate's run ends, as its last turn would have it; False if that was done before."""
        with self.store.write(OWNER) as tx:
            run = registry.get(tx, order.id)
            if not run.live:
                return False
            run = registry.save(tx, run, said=text, parts=1)
            ending.close(tx, self.watchers, run, ending.Verdict(RunOutcome(status)))
            return True

    def chain(self, key: str = KEY) -> Chain:
        """The chain that the session's last turn belongs to."""
        with self.store.read(OWNER) as tx:
            session = sessions.active(tx, key)
            assert session is not None
            last = turns.listing(tx, session.id, limit=1)[0]
            return chains.get(tx, str(last.chain_id))

    def _caller_of(self, session: Session, terms: Terms) -> Caller:
        return replace(
            self._caller(session, ""), agent_id=terms.agent_id, sender=terms.sender, owner=terms.owner
        )

    def compacted(self, key: str = KEY) -> None:
        with self.store.write(OWNER) as tx:
            session = sessions.ensure(tx, key)
            self.room.hook.compacted(
                tx, sessions.update(tx, session, compaction_count=session.compaction_count + 1)
            )

    def records(self, key: str = KEY) -> list[Record]:
        """All of a session, ended ones too, as they were elected."""
        with self.store.read(OWNER) as tx:
            found = records.listing(tx, owner=key, statuses=list(Status), limit=500)
        return sorted(found, key=lambda r: (r.created_at, r.id))

    def waiting_notes(self, key: str = KEY) -> list[Note]:
        with self.store.read(OWNER) as tx:
            return notes.waiting(tx, key)

    def waiting_words(self, key: str = KEY) -> list[Note]:
        """What others said that waits for a session, without the runtime's own account of it."""
        return [note for note in self.waiting_notes(key) if note.trust == "other_session"]

    def waiting_turns(self, key: str = KEY) -> list[Turn]:
        with self.store.read(OWNER) as tx:
            items = agenda.listing(tx, kinds=turns.KINDS, lane=key)
            return turns.get_many(tx, [str(item.payload["turnId"]) for item in items])

    def waiting_session(self, key: str = KEY) -> Session:
        with self.store.read(OWNER) as tx:
            found = sessions.active(tx, key)
        assert found is not None
        return found

    async def _compact(self, session: Session, window: int, used: int) -> CompactResult:
        if isinstance(self.compaction, HoldfastError):
            raise self.compaction
        return self.compaction


def _nobody() -> Any:
    raise AssertionError("nobody begins a run here")
