"""Delegates: spawned at most once, and their returns brought to whoever may have them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from holdfast.config.autonomy import Continuation
from holdfast.context import Trust
from holdfast.continuation import asking, budget, chains, notices, records, returns, targets, tracing
from holdfast.continuation.parts import Parts, SpawnOrder
from holdfast.continuation.record import Attempt, Kind, Phase, Record
from holdfast.continuation.state import (
    STAGED_TTL_MS,
    Claim,
    Fail,
    HandOff,
    Lapse,
    Release,
    Returned,
)
from holdfast.errors import Busy, Conflict, HoldfastError, Unavailable
from holdfast.ids import uuid7
from holdfast.log import Audience, Session, Tx, sessions

log = logging.getLogger(__name__)


def dispatch(tx: Tx, parts: Parts, session: Session, record: Record, settings: Continuation) -> Record:
    """Spawn one: claim, child and step of the chain in one transaction. A no is told to its session."""
    chain = chains.load(tx, session)
    over = budget.chain_cap(chain, settings)
    refused = targets.refusal(record.owner, record.election.targets, record.election.fanout, settings)
    why = refused or (None if over is None else over.text)
    claimed = records.apply(tx, record, Claim(_attempt(record, int(tx.now))))
    if why is not None:
        return notices.settle(tx, records.apply(tx, claimed, Fail(why, final=True)))
    facts = {
        "delegate.mode": record.election.mode,
        "delegate.delivery": "immediate" if record.election.delay_ms == 0 else "timer",
        "chain.id": record.chain_id,
        "chain.step.remaining": budget.remaining(chain, settings) - 1,
        **tracing.about_text(record.election.text),
    }
    if record.election.delay_ms > 0:
        deferred = {"fire.deferred_ms": int(tx.now) - (record.due_at or int(tx.now))}
        tracing.mark("continuation.delegate.fire", facts | deferred, parent=record.traceparent)
    with tracing.span("continuation.delegate.dispatch", facts, parent=record.traceparent) as own:
        try:
            child = _spawn(tx, parts, session, claimed, chain.count + 1, own)
        except HoldfastError as error:
            passing = isinstance(error, Busy | Unavailable | Conflict)
            failed = records.apply(tx, claimed, Fail(error.message, final=not passing))
            return notices.settle(tx, failed)
    chains.save(tx, replace(chain.stepped(int(tx.now)), traceparent=chain.traceparent or own))
    return records.apply(tx, claimed, HandOff(child, chain.count + 1, own))


def _attempt(record: Record, now: int) -> Attempt:
    id_ = uuid7()
    return Attempt(id_, f"continuation:{record.id}:{id_}", now)


def _spawn(
    tx: Tx, parts: Parts, session: Session, record: Record, hop: int, traceparent: str | None
) -> str | None:
    if parts.spawner is None:
        raise Unavailable("nothing here can spawn delegates", code="no_spawner")
    order = order_of(parts, session, record, hop, traceparent)
    with tx.apart():
        return parts.spawner.spawn(tx, order).child_session_key


def order_of(parts: Parts, owner: Session, record: Record, hop: int, traceparent: str | None) -> SpawnOrder:
    """What the subagent room is asked for."""
    election = record.election
    return SpawnOrder(
        run_id=record.attempts[-1].child_run_id,
        record_id=record.id,
        owner=owner,
        task=election.text,
        terms=election.terms,
        hop=hop,
        model=election.model,
        attachments=parts.payloads.read(record.id) if election.attachments else (),
        mount_path=election.mount_path,
        traceparent=traceparent,
    )


def returned(
    tx: Tx, parts: Parts, record_id: str, text: str, status: str, *, tokens: int = 0, stats: str = ""
) -> bool:
    """A delegate has ended: bring its return where it belongs, once. False if that was done before.

    Called in the transaction in which the child's run ends. What it says is another session's word.
    """
    record = records.find(tx, record_id)
    if record is None or record.phase is not Phase.HANDED_OFF:
        return False
    done = records.apply(tx, record, Returned())
    owner = sessions.active(tx, record.owner)
    if owner is not None and tokens:
        chain = chains.load(tx, owner)
        if chain.chain_id == record.chain_id:
            chains.save(tx, replace(chain, tokens=chain.tokens + tokens))
    if done.delivered:
        _route(tx, parts, record, returns.text(record, text, status, stats), status)
    return True


def _route(tx: Tx, parts: Parts, record: Record, said: str, status: str) -> None:
    settings = parts.settings(record.agent_id)
    audience = sessions.heard_in(tx, record.child_session_key or record.owner)
    resolved = targets.resolve(tx, record.owner, record.election, settings, child=record.child_session_key)
    found = targets.readable(tx, resolved, audience)
    if found.withheld is not None:
        key = f"continuation-withheld:{record.id}"
        notices.warn(tx, record.owner, key, f"Not everyone named got a delegate's return: {found.withheld}.")
    mode = {"delegate.mode": record.election.mode, "delegate.status": status}
    queued = _queued(record, settings)
    with tracing.span("continuation.queue.announce", mode, parent=queued) as told:
        many = {"queue.recipients": len(found.keys)}
        with tracing.span("continuation.queue.fanout", many, parent=told) as fan:
            for index, key in enumerate(found.keys):
                _deliver(tx, parts, record, _Return(said, audience), index, key, fan)


def _queued(record: Record, settings: Continuation) -> str | None:
    """The return in the queue, under the dispatch; no span of its own when the chain has no step left."""
    if settings.max_chain_length <= record.hop:
        return record.traceparent
    return tracing.mark("continuation.queue.enqueue", {"signal.kind": "return"}, parent=record.traceparent)


@dataclass(frozen=True, slots=True)
class _Return:
    """What a delegate brought back, and who may read it."""

    said: str
    audience: Audience


def _deliver(
    tx: Tx, parts: Parts, record: Record, back: _Return, index: int, key: str, fan: str | None
) -> None:
    """One recipient's note, and a turn for it that goes on with the trace."""
    facts = {"recipient.index": index, "recipient.self": key == record.owner}
    own = tracing.mark("continuation.queue.deliver", facts, parent=fan, links=[fan])
    note = f"continuation-return:{record.id}:{index}:{key}"
    words = back.said
    notices.tell(tx, key, notices.RETURN, note, words, trust=Trust.OTHER_SESSION, audience=back.audience)
    if record.election.mode != "silent":
        _wake(tx, parts, record, key, own)


def _wake(tx: Tx, parts: Parts, record: Record, key: str, traceparent: str | None) -> None:
    """A turn for the return, unless one waits that will be shown it; a full queue leaves the note alone."""
    session = sessions.active(tx, key)
    if session is None or (record.election.mode != "normal" and asking.waiting_wake(tx, session)):
        return
    try:
        asking.wake(tx, parts, record, notices.delegate_wake(record), session, traceparent=traceparent)
    except Busy as error:
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
