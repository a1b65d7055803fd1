"""The handler of a turn: from the agenda's item to a committed reply, and what follows from it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from opentelemetry import trace

from holdfast.agents.loop import ending, parts
from holdfast.agents.loop.asks import ASK, Terms
from holdfast.agents.loop.calling import Calling, Shape
from holdfast.agents.loop.events import Hub, Reporter
from holdfast.agents.loop.journal import Journal
from holdfast.agents.loop.parts import LoopParts
from holdfast.agents.loop.planning import Plan, Planner
from holdfast.agents.loop.rounds import Rounds
from holdfast.agents.models.types import ModelFailure, ModelReply
from holdfast.agents.plugin_hooks import before_compaction
from holdfast.context import (
    AfterTurn,
    Message,
    Occasion,
    ShownData,
    Text,
    Trust,
    UserMessage,
    configured_identity,
    flush_plan,
    is_silent,
    mark_flushed,
    shown_data,
)
from holdfast.errors import HoldfastError, Unavailable
from holdfast.log import FOR_OWNER, SYSTEM, Session, Turn, Tx, agenda, sessions, to_the_end, turns
from holdfast.log.turns import Committed
from holdfast.memory.scope import Chat
from holdfast.traces import context_of

log = logging.getLogger(__name__)
tracer = trace.get_tracer("holdfast")
T = TypeVar("T")
EMPTY: Final = "[Your last answer was empty. Answer the user now, in words; NO_REPLY if none is wanted.]"
NUDGE: Final = UserMessage(text=EMPTY, trust=Trust.OPERATOR, source="holdfast")
AFTER_TURN: Final = "turn.after"
MOST_FLUSH_ROUNDS: Final = 8


class TurnLoop:
    """Runs turns. One serves all sessions; the agenda sees to it that a session has one at a time."""

    def __init__(self, parts: LoopParts, hub: Hub, ended: Callable[[], None] = lambda: None) -> None:
        self._parts = parts
        self._hub = hub
        self._ended = ended
        self._planner = Planner(parts)
        self._after = AfterWork(parts)

    def kind(self) -> agenda.Kind:
        return self._turns(self._most)

    def subagent_kind(self) -> agenda.Kind:
        """Turns of spawned sessions, in places of their own."""
        return self._turns(self._most_children)

    def _turns(self, most: Callable[[], int]) -> agenda.Kind:
        return agenda.Kind(self.run, limit=most, on_interrupt=self.cut_off, relative=True, halts=True)

    def _most(self) -> int:
        """How many turns run at once, as the config says now."""
        return self._parts.config().agents.defaults.max_concurrent

    def _most_children(self) -> int:
        return self._parts.config().agents.defaults.subagents.max_concurrent

    def cut_off(self, tx: Tx, item: agenda.Item) -> None:
        """An attempt ended by no doing of its own, or a turn was cancelled before it ran."""
        ending.cut_off(tx, item, self._parts.hooks, self._parts.config().default_agent_id)

    def after_kind(self) -> agenda.Kind:
        return self._after.kind()

    async def run(self, job: agenda.Job) -> None:
        """One attempt. However it ends, the item ends with it, or the runner ends both."""
        turn_id = str(job.item.payload["turnId"])
        self._hub.open(turn_id)
        parent = context_of(job.item.payload.get("traceparent"))
        with tracer.start_as_current_span("holdfast.turn", parent) as span:
            span.set_attribute("holdfast.turn_id", turn_id)
            attempt = _Attempt(self._parts, self._hub, self._planner, job)
            try:
                done = await attempt.run(turn_id)
            finally:
                self._ended()
            span.set_attribute("holdfast.committed", done is not None)
        if done is not None and attempt.calling is not None:
            await self._after.consider(done.turn, attempt.calling)


class _Attempt:
    """One attempt of one turn."""

    def __init__(self, parts: LoopParts, hub: Hub, planner: Planner, job: agenda.Job) -> None:
        self._parts = parts
        self._hub = hub
        self._planner = planner
        self._job = job
        self.terms = Terms(agent_id="")
        self._shown: tuple[Text, ...] = ()
        self.calling: Calling | None = None

    async def run(self, turn_id: str) -> Committed | None:
        parts = self._parts
        journal = await parts.threads(self._begin, turn_id)
        reporter = Reporter(self._hub, turn_id, journal.session.id, parts.debug, self._tellable)
        turn = journal.turn
        reporter.lifecycle("start", sessionKey=turn.session_key, turn=turn.number, attempt=turn.attempt)
        if turn.attempt > 1:  # whoever heard words of an attempt before this hears them anew
            reporter.lifecycle("restarted", reason="interrupted")
        reporter.step("turn.start", turn=turn.number, attempt=turn.attempt, trigger=turn.trigger)
        try:
            settled = await self._planner.plan(turn, journal.session, self.terms, self._shown)
            done = await limited(self._work(settled, journal, reporter), settled.timeout_seconds, parts.sleep)
        except asyncio.CancelledError:
            await self._stopped(journal, reporter)
            raise
        except HoldfastError as error:
            if agenda.is_store_trouble(error):  # not the turn's failure: it goes on once the store does
                reporter.lifecycle("interrupted")
                raise
            await self._failed(journal, reporter, error)
            return None
        except Exception as error:  # a fault of ours is not retried, since tools may have run: it is logged
            log.exception("turn %s failed", turn_id)
            fault = Unavailable(f"the turn failed through a fault: {type(error).__name__}", code="turn_fault")
            await self._failed(journal, reporter, fault)
            return None
        finally:
            parts.tools.forget(turn_id)
        self._tell_end(reporter, done)
        if reporter.has_steps:
            await parts.threads(reporter.write_steps)
        return done

    def _begin(self, turn_id: str) -> Journal:
        config = self._parts.config

        def write(tx: Tx) -> Journal:
            turn = turns.get(tx, turn_id)
            kept = (turn.meta or {}).get(ASK) or {}
            self.terms = Terms.read(kept, config().default_agent_id)
            journal = Journal.begin(tx, turn, self.terms.agent_id, lambda: config().board)
            about = (journal.turn, journal.session, self.terms)
            for hook in self._parts.hooks:
                hook.begun(tx, *about)
            self._shown = tuple(text for hook in self._parts.hooks for text in hook.shown(tx, *about))
            journal.skips_notes = self.terms.occasion is Occasion.FLUSH
            journal.stored = self.terms.stored
            journal.listen(tx)
            journal.advanced = self._job.advance
            journal.name = lambda: self._name(journal.session)
            return journal

        return self._parts.store.run(SYSTEM, write, durable=False)

    def _name(self, session: Session) -> str | None:
        """As the config calls the agent; among the owner's own also as its IDENTITY.md does."""
        agent = self._parts.config().agent(self.terms.agent_id)
        if session.audience != FOR_OWNER:
            return configured_identity(agent).name
        return self._parts.context().workspace(agent.id).identity(agent).name

    async def _work(self, settled: Plan, journal: Journal, reporter: Reporter) -> Committed:
        """Ask, run what was asked for, ask again; until there is a reply that nobody spoke into."""
        self.calling = calling = Calling(self._parts, settled, journal, reporter, self._cancelled)
        most = settled.settings.max_tool_rounds
        if settled.terms.occasion is Occasion.FLUSH:
            most = min(most, MOST_FLUSH_ROUNDS)
        rounds = Rounds(self._parts, journal, reporter, most, client_tools=settled.terms.client_tools)
        shape = Shape(settled.terms)
        nudge: Message | None = None
        while True:
            reply = await calling.ask(nudge)
            last: ModelReply | None = shape.kept(reply)
            if reply.calls and not rounds.refused:
                reporter.message(reply)
                nudge = None
                assert calling.about is not None
                await rounds.run(reply, settled.caller(calling.about, self._cancelled))
                if not rounds.ended:
                    continue
                last = None
            elif not reply.text.strip():
                reporter.message(reply)
                if nudge is None:
                    nudge = NUDGE
                    continue
                _require_words(journal)
                last = None
            elif (mending := shape.mend(reply)) is not None:
                reporter.message(reply)
                nudge = mending
                continue
            elif settled.terms.occasion is Occasion.FLUSH and is_silent(reply.text):
                reporter.message(reply)
                last = None
            said = "" if last is None else last.text
            heard = parts.listen(self._parts.hooks, said, self.terms, _shown(settled, calling, journal))
            if last is not None:
                reporter.message(reply, heard.text)
            words_left = None if last is None or not heard.text.strip() else _last_words(last, heard.text)
            done = await self._parts.threads.patiently(self._commit, journal, calling, words_left, heard)
            nudge = None
            if done is not None:
                return done
            await rounds.take_back()

    def _commit(
        self,
        journal: Journal,
        calling: Calling,
        reply: ModelReply | None,
        heard: parts.Understood,
    ) -> Committed | None:
        def write(tx: Tx) -> Committed | None:
            done = ending.commit(tx, journal, calling, self.terms, reply, self._job)
            if done is not None:
                self._tell_hooks(tx, journal, calling, done, heard.signals)
            if done is not None and heard.spoke:
                ending.tell_spoken(tx, done.turn)
            return done

        return self._parts.store.run(SYSTEM, write)

    def _tell_hooks(
        self, tx: Tx, journal: Journal, calling: Calling, done: Committed, signals: Mapping[str, Any]
    ) -> None:
        said = [entry.content for entry in done.entries if entry.id == done.turn.reply_id]
        end = parts.TurnEnd(
            turn=done.turn,
            session=journal.session,
            terms=self.terms,
            said=said[-1] if said else "",
            tools=journal.called,
            pressure=calling.pressure,
            signals=signals,
            prompt_tokens=calling.prompt_tokens,
            token_budget=None if calling.built is None else calling.built.manifest.budget,
        )
        for hook in self._parts.hooks:
            hook.committed(tx, end)

    async def _failed(self, journal: Journal, reporter: Reporter, error: HoldfastError) -> None:
        said = self._kept_words(reporter, error)

        def write(tx: Tx) -> Turn | None:
            ended = ending.fail(tx, journal, self.terms, error, self._job, said)
            if ended is not None:
                self._tell_failed(tx, journal, ended)
            return ended

        if await self._parts.threads.patiently(self._parts.store.run, SYSTEM, write) is None:
            return  # it was committed or cancelled just before; that end is the one to be told
        log.warning("turn %s failed: %s", journal.turn.id, error.message)
        reporter.step("turn.end", status="failed", error=error.message, code=error.code)
        told = {"error": error.message, "code": error.code, "hint": error.hint}
        reporter.lifecycle("error", status="failed", **told, **({"partial": said} if said else {}))
        await self._parts.threads(reporter.write_steps)

    def _kept_words(self, reporter: Reporter, error: HoldfastError) -> str:
        """What was said of an answer that failed: as far as it was shown, else the last that came at all."""
        said = error.partial if isinstance(error, ModelFailure) else ""
        return (reporter.saying or said[: self._tellable(said)]).strip()

    async def _stopped(self, journal: Journal, reporter: Reporter) -> None:
        """Cut off from outside: by someone who asked for it, or because this process ends."""
        if not self._job.item.cancel_requested:
            reporter.lifecycle("interrupted")
            return
        said = reporter.saying
        if not await to_the_end(self._parts.threads(self._cancel, journal, said)):
            return
        reporter.step("turn.end", status="cancelled")
        reporter.lifecycle("end", status="cancelled", text=said)
        await to_the_end(self._parts.threads(reporter.write_steps))

    def _cancel(self, journal: Journal, said: str) -> bool:
        """End the turn as asked, if it has not ended. What the user saw of a reply stays in the log."""

        def write(tx: Tx) -> None:
            if said.strip():
                journal.partial(tx, said, "cancelled")
            self._tell_failed(tx, journal, ending.stop(tx, journal, self._job))

        try:
            self._parts.store.run(SYSTEM, write)
        except HoldfastError as error:
            log.info("turn %s had ended before it was cancelled: %s", journal.turn.id, error.message)
            return False
        return True

    def _tell_failed(self, tx: Tx, journal: Journal, turn: Turn) -> None:
        end = parts.TurnEnd(turn=turn, session=journal.session, terms=self.terms, tools=journal.called)
        for hook in self._parts.hooks:
            hook.failed(tx, end)

    def _tell_end(self, reporter: Reporter, done: Committed) -> None:
        turn = done.turn
        replies = [e.content for e in done.entries if e.id == turn.reply_id]
        text = replies[-1] if replies else ""
        usage = dict(turn.usage or {})
        reporter.step("turn.end", status="committed", usage=usage, model=turn.model)
        more = {name: (turn.meta or {}).get(name) for name in ("finish", "handed")}
        reporter.lifecycle("end", status="committed", text=text, model=turn.model, usage=usage, **more)

    def _tellable(self, text: str) -> int:
        return parts.tellable(self._parts.hooks, text, self.terms)

    def _cancelled(self) -> bool:
        return self._job.item.cancel_requested


async def limited(
    work: Coroutine[Any, Any, T], seconds: float, sleep: Callable[[float], Awaitable[None]]
) -> T:
    """The work, for as long as a run may take; whoever cancels this cancels the work."""
    task = asyncio.ensure_future(work)
    clock = asyncio.ensure_future(sleep(seconds))
    try:
        await asyncio.wait({task, clock}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Unavailable(
            f"the turn took longer than {seconds:g} seconds",
            code="turn_timeout",
            hint="Raise agents.defaults.timeoutSeconds, or ask for less at a time.",
        )
    finally:
        for each in (task, clock):
            each.cancel()
        await asyncio.gather(task, clock, return_exceptions=True)


def _shown(plan: Plan, calling: Calling, journal: Journal) -> ShownData:
    """The data that the model read: others' words among people's too, where others than the owner speak."""
    guest = not plan.terms.owner
    shared = guest or not Chat.of(plan.session.key, plan.session.chat_type).private

    def is_others(message: Message) -> bool:
        id_ = None if message.mark is None else message.mark.entry_id
        if id_ is not None and (id_ == plan.turn.input_id or id_ in journal.people):
            return guest and plan.turn.trigger == "user"
        return shared

    built = () if calling.built is None else calling.built.messages
    return shown_data([*built, *journal.messages], is_others=is_others)


def _require_words(journal: Journal) -> None:
    """A model that says nothing twice is at its end; if it said nothing all the while, that is a failure."""
    if journal.said_id is None:
        raise Unavailable(
            "the model gave an empty answer twice",
            code="empty_reply",
            hint="Ask again, or use another model.",
        )


def _last_words(reply: ModelReply, text: str) -> ModelReply:
    """What is kept of the last words; calls after the limit are left out, as nothing answers them."""
    return reply if reply.text == text and not reply.calls else replace(reply, text=text, calls=())


class AfterWork:
    """Decides with what the provider reported; flush and compaction wait in the session's own lane, so that
    they never run beside its next turn, and stand before it."""

    def __init__(self, parts: LoopParts) -> None:
        self._parts = parts

    def kind(self) -> agenda.Kind:
        return agenda.Kind(self._compact, limit=2, relative=True)

    async def consider(self, turn: Turn, calling: Calling) -> None:
        """Never fails the turn, which is committed: what goes wrong here is due again after the next one."""
        session, terms = calling.plan.session, calling.plan.terms
        if calling.built is None or calling.last is None or not terms.stored:
            return
        try:
            verdict = await self._parts.context().after_turn(
                session,
                calling.built,
                reported_input_tokens=calling.last.usage.input or None,
            )
            # The daily notes are the owner's: what others hear is not written into them.
            flush = verdict.flush_due and terms.occasion is not Occasion.FLUSH and turn.audience == FOR_OWNER
            if flush or verdict.compaction_due:
                await self._parts.threads(self._schedule, turn, terms, verdict, flush)
        except HoldfastError as error:
            log.warning("the work after turn %s is left to the next one: %s", turn.id, error.message)

    def _schedule(self, turn: Turn, terms: Terms, verdict: AfterTurn, flush: bool) -> None:
        self._parts.store.run(SYSTEM, lambda tx: self._schedule_in(tx, turn, terms, verdict, flush))

    def _schedule_in(self, tx: Tx, turn: Turn, terms: Terms, verdict: AfterTurn, flush: bool) -> None:
        session = sessions.get(tx, turn.session_id)
        if flush:
            mark_flushed(tx, session)
            ending.accept_flush(tx, session, turn, self._flush_terms(terms, int(tx.now)))
        if verdict.compaction_due:
            for hook in self._parts.hooks:
                hook.before_compaction(tx, turn, session, terms)
            facts = {"window": verdict.pressure.window, "used": verdict.pressure.used}
            agenda.enqueue(
                tx,
                AFTER_TURN,
                {"sessionId": session.id, **facts},
                lane=session.key,
                key=f"{AFTER_TURN}:{session.id}",
                due_at=turn.accepted_at,
                max_attempts=2,
            )

    def _flush_terms(self, terms: Terms, now: int) -> Terms:
        from holdfast.clock import Millis

        settings = self._parts.config().agent(terms.agent_id)
        plan = flush_plan(settings.compaction, Millis(now), settings.user_timezone)
        return Terms(
            agent_id=terms.agent_id,
            model=terms.model,
            channel=terms.channel,
            occasion=Occasion.FLUSH,
            prompt=plan.prompt,
            system_prompt=plan.system_prompt,
        )

    async def _compact(self, job: agenda.Job) -> None:
        """Compact a session between its turns. What brings nothing now is due again after its next turn."""
        payload: Mapping[str, Any] = job.item.payload
        session = await self._parts.threads(self._session, str(payload["sessionId"]))
        self._parts.plugin_hooks.tell(before_compaction(session, "threshold"))
        result = await self._parts.context().compact(
            session, window=int(payload["window"]), reason="threshold", current_tokens=int(payload["used"])
        )
        log.info("compaction of %s: %s (%s)", session.key, result.outcome, result.reason)

    def _session(self, session_id: str) -> Session:
        with self._parts.store.read(SYSTEM) as tx:
            return sessions.get(tx, session_id)
