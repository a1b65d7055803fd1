"""Delegates: spawned at most once, and their returns brought to whoever may have them."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Final

from holdfast.agents.loop.asks import Terms
from holdfast.agents.subagents import Errand, Run, SpawnInput, stats, stopped_on_purpose
from holdfast.config.autonomy import Continuation
from holdfast.context import Trust
from holdfast.continuation import asking, attaching, budget, notices, records, returns, targets, tracing
from holdfast.continuation.parts import Parts
from holdfast.continuation.record import Kind, Phase, Record
from holdfast.continuation.returns import Return
from holdfast.continuation.state import STAGED_TTL_MS, Fail, Lapse, Release, Returned, Spawn, Stop
from holdfast.errors import Busy, Conflict, HoldfastError, Unavailable
from holdfast.ids import uuid7
from holdfast.log import Audience, Chain, ChainStopped, Session, Tx, chains, sessions

log = logging.getLogger(__name__)

_SPAWN_KEY: Final = re.compile(r"continuation:(cont-[0-9a-f-]+):[0-9a-f-]+")


def dispatch(tx: Tx, parts: Parts, session: Session, record: Record, settings: Continuation) -> Record:
    """Spawn one: its run and the step of the chain in one transaction. A no is told to its session."""
    chain = chain_of(tx, record)
    over = budget.chain_cap(chain, parts.budget(chain, record.agent_id), int(tx.now))
    refused = targets.refusal(record.owner, record.election.targets, record.election.fanout, settings)
    why = refused or (None if over is None else over.text)
    if why is not None:
        return notices.settle(tx, records.apply(tx, record, Fail(why, final=True)))
    facts = {
        "delegate.mode": record.election.mode,
        "delegate.delivery": "immediate" if record.election.delay_ms == 0 else "timer",
        "chain.id": chain.id,
        "chain.step.remaining": parts.budget(chain, record.agent_id).left(chain) - 1,
        **tracing.about_text(record.election.text),
    }
    if record.election.delay_ms > 0:
        deferred = {"fire.deferred_ms": int(tx.now) - (record.due_at or int(tx.now))}
        tracing.mark("continuation.delegate.fire", facts | deferred, parent=record.traceparent)
    with tracing.span("continuation.delegate.dispatch", facts, parent=record.traceparent) as own:
        try:
            with tx.apart():
                run = _sent_off(tx, parts, session, record, chain, own)
        except HoldfastError as error:
            passing = isinstance(error, Busy | Unavailable | Conflict)
            failed = records.apply(tx, record, Fail(error.message, final=not passing))
            return notices.settle(tx, failed)
    stepped = chains.traced(tx, chains.count(tx, chain), own)
    return records.apply(tx, record, Spawn(run.spawn_key, run.child_key, stepped.steps, own))


def chain_of(tx: Tx, record: Record) -> Chain:
    """The chain of an election; it was opened when that was made."""
    return chains.get(tx, record.chain_id or "")


def _sent_off(
    tx: Tx, parts: Parts, session: Session, record: Record, chain: Chain, traceparent: str | None
) -> Run:
    if parts.spawner is None or parts.caller_of is None:
        raise Unavailable("nothing here can spawn delegates", code="no_spawner")
    terms = Terms.read(record.election.terms, record.agent_id)
    key = f"continuation:{record.id}:{uuid7()}"
    asked = SpawnInput(task=_equipped(parts, record), model=record.election.model)
    errand = Errand(key, terms, chain, traceparent)
    return parts.spawner.send_off(tx, parts.caller_of(session, terms), asked, errand)


def _equipped(parts: Parts, record: Record) -> str:
    """The task, with its files where the child will find them; a repeat writes the same."""
    election = record.election
    if not election.attachments or parts.workspace is None:
        return election.text
    files = parts.payloads.read(record.id)
    placed = attaching.place(parts.workspace(record.agent_id), record.id, files, election.mount_path)
    return attaching.told(election.text, placed)


def run_ended(tx: Tx, parts: Parts, run: Run) -> None:
    """A run has ended: if it is a delegate's, its return goes where it belongs, once.

    In the transaction in which the run ends. What it says is another session's word. One that someone
    stopped brings nothing back.
    """
    record = _delegate_of(tx, run.spawn_key)
    if record is None or record.phase is not Phase.HANDED_OFF:
        return
    done = records.apply(tx, record, Returned(stopped=stopped_on_purpose(run)))
    if done.delivered:
        status = run.outcome.value if run.outcome is not None else "unknown"
        said = run.said or run.error or ""
        _route(tx, parts, record, returns.Return(said, status, stats(run, int(tx.now)), run.parts))


def run_stopping(tx: Tx, run: Run) -> None:
    """Someone has a run end: what the child elected is not to come, and the delegate brings nothing back."""
    for record in records.live(tx, run.child_key):
        if record.chain_id == run.chain_id:
            records.apply(tx, record, Stop(run.stop_reason or "stopped"))


def _delegate_of(tx: Tx, spawn_key: str) -> Record | None:
    found = _SPAWN_KEY.fullmatch(spawn_key)
    return None if found is None else records.find(tx, found[1])


def _route(tx: Tx, parts: Parts, record: Record, back: Return) -> None:
    settings = parts.settings(record.agent_id)
    audience = sessions.heard_in(tx, record.child_session_key or record.owner)
    resolved = targets.resolve(tx, record.owner, record.election, settings, child=record.child_session_key)
    found = targets.readable(tx, resolved, audience)
    if found.withheld is not None:
        key = f"continuation-withheld:{record.id}"
        notices.warn(tx, record.owner, key, f"Not everyone named got a delegate's return: {found.withheld}.")
    mode = {"delegate.mode": record.election.mode, "delegate.status": back.status}
    queued = _queued(record, settings)
    with tracing.span("continuation.queue.announce", mode, parent=queued) as told:
        many = {"queue.recipients": len(found.keys)}
        with tracing.span("continuation.queue.fanout", many, parent=told) as fan:
            for index, key in enumerate(found.keys):
                _deliver(tx, parts, record, _Told(back, audience), index, key, fan)


def _queued(record: Record, settings: Continuation) -> str | None:
    """The return in the queue, under the dispatch; no span of its own when the chain has no step left."""
    if settings.max_chain_length <= record.hop:
        return record.traceparent
    return tracing.mark("continuation.queue.enqueue", {"signal.kind": "return"}, parent=record.traceparent)


@dataclass(frozen=True, slots=True)
class _Told:
    """What a delegate brought back, and who may read it."""

    back: Return
    audience: Audience


def _deliver(
    tx: Tx, parts: Parts, record: Record, told: _Told, index: int, key: str, fan: str | None
) -> None:
    """One recipient's notes, the runtime's account and the delegate's words apart, and a turn for them."""
    facts = {"recipient.index": index, "recipient.self": key == record.owner}
    own = tracing.mark("continuation.queue.deliver", facts, parent=fan, links=[fan])
    base = f"continuation-return:{record.id}:{index}:{key}"
    account, words = returns.account(record, told.back), returns.words(record, told.back)
    notices.tell(tx, key, notices.ACCOUNT, f"{base}:account", account, audience=told.audience)
    notices.tell(tx, key, notices.RETURN, base, words, trust=Trust.OTHER_SESSION, audience=told.audience)
    if record.election.mode != "silent":
        _wake(tx, parts, record, key, own)


def _wake(tx: Tx, parts: Parts, record: Record, key: str, traceparent: str | None) -> None:
    """A turn for the return, unless one waits that will be shown it; a full queue leaves the note alone."""
    session = sessions.active(tx, key)
    if session is None or (record.election.mode != "normal" and asking.waiting_wake(tx, session)):
        return
    try:
        asking.wake(tx, parts, record, notices.delegate_wake(record), session, traceparent=traceparent)
    except (Busy, ChainStopped) as error:
        log.info("no turn for the return of %s: %s", record.id, error.message)


def release(tx: Tx, session: Session, found: list[Record], settings: Continuation) -> tuple[int, int]:
    """After a compaction: what was staged for it goes on its way; how many did, and how many stay."""
    staged = [r for r in found if r.phase is Phase.STAGED]
    old = [r for r in staged if tx.now - r.created_at > STAGED_TTL_MS]
    for record in old:
        notices.settle(tx, records.apply(tx, record, Lapse("it was staged for too long")))
    fresh = [r for r in staged if r not in old]
    going, kept = fresh[: settings.max_delegates_per_turn], fresh[settings.max_delegates_per_turn :]
    for record in going:
        refused = targets.refusal(record.owner, record.election.targets, record.election.fanout, settings)
        event = Release() if refused is None else Lapse(refused)
        notices.settle(tx, records.apply(tx, record, event))
    if going:
        facts = {"queue.drained_count": len(going), "queue.kept_count": len(kept)}
        tracing.mark("continuation.compaction.released", facts, parent=going[0].traceparent)
    return len(going), len(kept)


def pending(found: list[Record]) -> tuple[int, int]:
    """Delegates under way or waiting, and those staged for a compaction."""
    mine = [r for r in found if r.kind is not Kind.WORK]
    staged = sum(r.phase is Phase.STAGED for r in mine)
    return len(mine) - staged, staged
