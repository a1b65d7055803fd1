"""Runs, as the rest of Holdfast asks for them: accepted at once, followed, waited for, stopped, resumed.

How a run stands is read from its turn, so it is true in every process and after a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from holdfast.agents.commands import CommandRegistry, standard_commands
from holdfast.agents.loop.accepting import FORGET, forget_later, take_in
from holdfast.agents.loop.asks import Accepted, Address, Ask, address
from holdfast.agents.loop.ending import (
    Marked,
    SessionEnded,
    Stopped,
    end_session,
    stop_background,
    stop_chains,
)
from holdfast.agents.loop.events import Hub, RunEvent
from holdfast.agents.loop.parts import LoopParts
from holdfast.agents.loop.run_status import EndWatch, RunStatus, status_of
from holdfast.agents.loop.slash import SlashCommands
from holdfast.agents.loop.turn import AFTER_TURN, TurnLoop
from holdfast.agents.plugin_hooks import MessageReceived
from holdfast.log import (
    SYSTEM,
    Reader,
    Session,
    Tx,
    agenda,
    chains,
    sessions,
    turns,
)
from holdfast.log.agenda import Runner
from holdfast.log.retention import forget_session

GRACE_SECONDS: Final = 2.0
STOP_SECONDS: Final = 10.0
MOST_LOOKS: Final = 5
SOON_SECONDS: Final = 1.0
Find: TypeAlias = Callable[[Tx], Session]
T = TypeVar("T")


class Runs:
    """One for a store and process. `register` hands its work to the agenda's runner."""

    def __init__(self, parts: LoopParts, *, commands: CommandRegistry | None = None) -> None:
        self.parts = parts
        self.hub = Hub(parts.store.clock)
        self._watch = EndWatch(parts.store, parts.threads)
        self.loop = TurnLoop(parts, self.hub, self._watch.look)
        self.commands = standard_commands() if commands is None else commands
        self._slash = SlashCommands(parts, self.commands, self)
        self._runner: Runner | None = None

    def kind(self) -> agenda.Kind:
        """How turns are run."""
        return self.loop.kind()

    def register(self, runner: Runner) -> None:
        """Have this runner run turns and what follows from them."""
        runner.register(turns.KIND, self.kind())
        runner.register(turns.SUBAGENT, self.loop.subagent_kind())
        runner.register(AFTER_TURN, self.loop.after_kind())
        runner.register(FORGET, agenda.Kind(self._forget_due, relative=True))
        self._runner = runner

    async def accept(self, ask: Ask) -> Accepted:
        """Store a message and promise its turn; a command is answered at once. A repeat changes nothing."""
        config = self.parts.config()
        to = address(ask, config)
        if ask.external and ask.commands:
            answered = await self._slash.answer(ask, to)
            if isinstance(answered, Accepted):
                return answered
            ask = answered
        accepted = await self.parts.threads(self._take_in, ask, to)
        await self.stop_items(accepted.stops, "another message took its place")
        if accepted.made_room:
            self._watch.look()
        if accepted.created and not accepted.joined:
            self.hub.open(accepted.run_id)
        return accepted

    async def steer(self, ask: Ask) -> Accepted:
        """A message for the turn that runs; if none does any more, it is a turn of its own."""
        return await self.accept(replace(ask, mode="steer"))

    def accept_in(self, tx: Tx, ask: Ask) -> Accepted:
        """The same within a transaction of the caller's, for rooms that ask for turns themselves."""
        config = self.parts.config()
        return take_in(tx, ask, address(ask, config), config, self.parts.hooks)

    async def reset(self, find: Find) -> Session:
        """Leave a session by hand and begin its successor; what belonged to it ends with it."""
        return await self._leave(find, partial(sessions.reset, cause="reset"))

    async def archive(self, find: Find) -> Session:
        """The same without a successor."""
        return await self._leave(find, partial(sessions.archive, cause="archive"))

    async def _leave(self, find: Find, end: Callable[[Tx, Session], Session]) -> Session:
        """`find` says which session, in the transaction that ends it."""

        def write(tx: Tx) -> tuple[Session, SessionEnded]:
            session = find(tx)
            after = end(tx, session)
            return after, end_session(tx, session, self.parts.hooks, self.parts.config().default_agent_id)

        after, left = await self.parts.threads(self.parts.store.run, SYSTEM, write)
        await self.stop_items(left.stop, "a new session was begun")
        return after

    async def status(self, run_id: str) -> RunStatus:
        return await self.parts.threads(self._status, run_id)

    async def wait(self, run_id: str, timeout: float | None = None) -> RunStatus:
        """The run once it has ended, wherever it runs; as it stands if it has not in that time."""
        try:
            return await asyncio.wait_for(self._watch.ended(run_id), timeout)
        except TimeoutError:
            return await self.status(run_id)

    async def cancel(self, run_id: str, *, reason: str = "cancelled") -> RunStatus:
        """Stop a run: at once if it waits or runs here, within a third of a lease if it runs elsewhere.

        How it ended is told if that is soon; a run that winds up for longer is told as it stands.
        """
        item_id = await self.parts.threads(self._live_item, run_id)
        if item_id is not None:
            await self._stop_item(item_id, reason)
        return await self.wait(run_id, SOON_SECONDS)

    async def forget(self, session_id: str) -> bool:
        """Erase the words of a session that was not to be stored; False if a turn of it has not ended."""
        return await self._write(lambda tx: forget_session(tx, session_id))

    async def _forget_due(self, job: agenda.Job) -> None:
        """For those whose asker never came back for the end."""
        id_ = str(job.item.payload["sessionId"])

        def write(tx: Tx) -> None:
            if not forget_session(tx, id_):
                forget_later(tx, id_)

        await self._write(write)

    async def resume(self, run_id: str) -> RunStatus:
        """Go on with an interrupted turn, because someone asked for it."""
        await self.parts.threads(self._resume, run_id)
        self.hub.open(run_id)
        return await self.status(run_id)

    async def stop_session(
        self, session: Session, reader: Reader = SYSTEM, *, reason: str = "stopped"
    ) -> Stopped:
        """Stop every chain that something lives of in a session, wherever it is, and what the session set
        going in the background; of chains that began where `reader` may not look, nothing."""

        def find(tx: Tx) -> tuple[list[str], Session | None]:
            with tx.reading_as(reader):
                return chains.readable(tx, chains.live_in(tx, session.key)), session

        return await self._stop(find, reason)

    async def stop_chain(self, chain_id: str, *, reason: str = "stopped") -> Stopped:
        """Stop one chain with all that lives in it; once more changes nothing."""

        def find(tx: Tx) -> tuple[list[str], Session | None]:
            return [chains.get(tx, chain_id).id], None

        return await self._stop(find, reason)

    async def stop_all(self, *, reason: str = "stopped") -> Stopped:
        """Stop every chain of the home; what began meanwhile in another process too."""
        done = Stopped()
        for _ in range(MOST_LOOKS):
            more = await self._stop(lambda tx: (chains.all_live(tx), None), reason)
            if not more.chains:
                break
            done = done.and_then(more)
        return done

    async def halt(self, *, reason: str = "stopped by the owner") -> Stopped:
        """Stop everything, and begin nothing more until `release`, in any process and after any restart."""
        await self._write(lambda tx: agenda.halt(tx, reason))
        return await self.stop_all(reason=reason)

    async def release(self) -> agenda.Halt | None:
        """Let work begin again; what was halted, if anything was."""
        return await self._write(agenda.release)

    async def _stop(self, find: Callable[[Tx], tuple[list[str], Session | None]], reason: str) -> Stopped:
        hooks, agent = self.parts.hooks, self.parts.config().default_agent_id

        def mark(tx: Tx) -> tuple[Marked, Session | None]:
            ids, session = find(tx)
            return stop_chains(tx, ids, reason, hooks, agent), session

        marked, session = await self._write(mark)
        await self.stop_items(marked.items, reason)
        late = await self._not_ended(marked.turns)
        beside = await self._write(lambda tx: stop_background(tx, marked.chains, session, hooks))
        return Stopped(marked.chains, marked.ended, late).and_then(Stopped(ended=beside, running=late))

    async def _write(self, work: Callable[[Tx], T]) -> T:
        return await self.parts.threads(self.parts.store.run, SYSTEM, work)

    async def _not_ended(self, run_ids: Sequence[str]) -> tuple[str, ...]:
        """Those of the runs that have not ended after a while."""
        waits = [asyncio.ensure_future(self._watch.ended(run_id)) for run_id in run_ids]
        if waits:
            await asyncio.wait(waits, timeout=STOP_SECONDS)
        late = tuple(id_ for id_, wait in zip(run_ids, waits, strict=True) if not wait.done())
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        return late

    async def stop_items(self, ids: Sequence[str], reason: str) -> None:
        """Stop turns by their agenda items."""
        for id_ in ids:
            await self._stop_item(id_, reason)

    async def subscribe(self, run_id: str) -> AsyncGenerator[RunEvent]:
        """What a run has said so far, then what it says, to its end; one elsewhere tells the end alone."""
        status = await self.status(run_id)
        if not self.hub.knows(run_id):
            if status.ended:
                for event in _end_event(status, 0):
                    yield event
                return
            self.hub.open(run_id)
        async with aclosing(self._followed(run_id)) as events:
            async for event in events:
                yield event

    async def _followed(self, run_id: str) -> AsyncGenerator[RunEvent]:
        """Live events until the end; where the end is known from the log alone, it is told from there."""
        over = asyncio.ensure_future(self._watch.ended(run_id))
        seq = 0
        try:
            async with aclosing(self.hub.follow(run_id)) as live:
                while (event := await _next(live, over, GRACE_SECONDS if seq else 0.0)) is not None:
                    seq = event.seq
                    yield event
                    if event.final:
                        return
            for event in _end_event(await over, seq):
                yield event
        finally:
            over.cancel()

    def _take_in(self, ask: Ask, to: Address) -> Accepted:
        config = self.parts.config()

        def write(tx: Tx) -> Accepted:
            accepted = take_in(tx, ask, to, config, self.parts.hooks)
            if ask.external and accepted.created and self.parts.plugin_hooks.wants(MessageReceived):
                event = _received(sessions.get(tx, accepted.session_id), accepted, ask, to)
                tx.on_commit(lambda: self.parts.plugin_hooks.tell(event))
            return accepted

        return self.parts.store.run(SYSTEM, write)

    async def _stop_item(self, item_id: str, reason: str) -> None:
        """Through the runner, which stops a handler that is here; else by a mark that its owner will see."""
        try:
            if self._runner is not None:
                await self._runner.cancel(item_id, reason=reason)
            else:
                await self.parts.threads(self._mark_cancelled, item_id, reason)
        except agenda.IllegalTransition:
            return  # it ended by itself meanwhile
        finally:
            self._watch.look()

    def _mark_cancelled(self, item_id: str, reason: str) -> None:
        with self.parts.store.write(SYSTEM) as tx:
            item = agenda.cancel(tx, item_id, reason=reason)
            if item.status is agenda.Status.CANCELLED:
                self.loop.cut_off(tx, item)

    def _resume(self, run_id: str) -> None:
        with self.parts.store.write(SYSTEM) as tx:
            turns.resume(tx, turns.get(tx, run_id))

    def _live_item(self, run_id: str) -> str | None:
        """The agenda item of a run that has not ended, one that was interrupted and goes on too."""
        with self.parts.store.read(SYSTEM) as tx:
            turn = turns.get(tx, run_id)
            return None if turns.has_ended(tx, turn) else turn.agenda_id

    def _status(self, run_id: str) -> RunStatus:
        with self.parts.store.read(SYSTEM) as tx:
            return status_of(tx, run_id)


def _received(session: Session, accepted: Accepted, ask: Ask, to: Address) -> MessageReceived:
    return MessageReceived(
        audience=session.audience,
        session_key=session.key,
        session_id=session.id,
        agent_id=to.agent_id,
        text=ask.text,
        run_id=accepted.run_id,
        channel=to.channel,
        sender=ask.sender,
    )


async def _next(
    live: AsyncGenerator[RunEvent], over: asyncio.Future[RunStatus], grace: float
) -> RunEvent | None:
    """The next live event; None if the run is over and says nothing more here."""
    following = asyncio.ensure_future(anext(live))
    both: set[asyncio.Future[Any]] = {following, over}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not following.done():
            await asyncio.wait({following}, timeout=grace)
        return following.result() if following.done() else None
    finally:
        if not following.done():
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def _end_event(status: RunStatus, seq: int) -> list[RunEvent]:
    """A run's end as the log tells it, for those who were not there."""
    at = status.ended_at or status.accepted_at
    data: dict[str, Any] = {"status": status.status.value, "text": status.reply or ""}
    data |= {"model": status.model, "usage": dict(status.usage), "replayed": True}
    data |= {name: status.meta.get(name) for name in ("finish", "handed")}
    if status.ok or status.status.value == "cancelled":
        return [RunEvent(status.run_id, seq + 1, "lifecycle", {"phase": "end", **data}, at)]
    data |= {"error": status.error, "resumable": status.resumable}
    return [RunEvent(status.run_id, seq + 1, "lifecycle", {"phase": "error", **data}, at)]
