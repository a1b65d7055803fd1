"""Electing: written while the turn runs, so that no crash forgets it; counted when the turn ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.config.autonomy import Continuation
from holdfast.continuation import (
    budget,
    chains,
    delays,
    lookout,
    notices,
    records,
    superseding,
    targets,
    tracing,
)
from holdfast.continuation.asking import kept_terms
from holdfast.continuation.budget import Capped
from holdfast.continuation.chains import Chain
from holdfast.continuation.parts import Parts
from holdfast.continuation.payloads import Attachment
from holdfast.continuation.record import Election, Fanout, Kind, Mode, Phase, Record
from holdfast.continuation.state import Anchor, Cancel, Refuse, Supersede
from holdfast.continuation.tokens import DelegateToken, Token, WorkToken
from holdfast.log import EntryFilter, Session, Turn, Tx, entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a tool call or a token asks for. `call` tells it from the turn's others; `id` names its record."""

    text: str
    call: str
    id: str = field(default_factory=records.new_id)
    kind: Kind = Kind.WORK
    delay_ms: int | None = None
    source: str = "tool"
    mode: Mode = "normal"
    targets: tuple[str, ...] = ()
    fanout: Fanout | None = None
    model: str | None = None
    mount_path: str | None = None
    attachments: tuple[Attachment, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Elected:
    """The record, or why there is none."""

    record: Record | None
    refused: Capped | str | None = None


def elect(tx: Tx, parts: Parts, session: Session, turn: Turn, agent_id: str, wish: Wish) -> Elected:
    """Write an election of a running turn; the same call again finds the first."""
    settings = parts.settings(agent_id)
    live = records.live(tx, session.key)
    for known in live:
        if (known.election.turn_id, known.election.call) == (turn.id, wish.call):
            return Elected(known)
    refused = _refused(tx, session, turn, wish, settings, live)
    if refused is not None:
        return Elected(None, refused)
    delay = delays.work_delay if wish.kind is Kind.WORK else delays.delegate_delay
    election = Election(
        text=wish.text,
        turn_id=turn.id,
        elected_at=int(tx.now),
        call=wish.call,
        delay_ms=delay(wish.delay_ms, settings),
        source="token" if wish.source == "token" else "tool",
        terms=kept_terms(turn.meta, agent_id),
        mode=wish.mode,
        targets=wish.targets,
        fanout=wish.fanout,
        model=None if wish.model == "default" else wish.model,
        mount_path=wish.mount_path,
        attachments=len(wish.attachments),
        options=wish.options,
        parent_run_id=None if parts.registry is None else parts.registry.run_of(tx, session),
    )
    hedge = delays.hedge_at(int(tx.now), settings)
    made = records.create(
        tx, session, wish.kind, election, hedge_at=hedge, id_=wish.id, traceparent=wish.traceparent
    )
    lookout.arm(tx, session.key, hedge)
    return Elected(made)


def _refused(
    tx: Tx, session: Session, turn: Turn, wish: Wish, settings: Continuation, live: list[Record]
) -> Capped | str | None:
    """What is known to be in the way already; the chain's cost is known only when the turn has ended."""
    if wish.kind is not Kind.WORK:
        closed = targets.refusal(session.key, wish.targets, wish.fanout, settings)
        if closed is not None:
            return closed
        wide = budget.width_cap(live, turn.id, settings)
        if wide is not None:
            return wide
    chain = chains.load(tx, session)
    over = budget.chain_cap(chain, settings, ahead=budget.ahead_of(live, turn.id))
    return over or budget.pending_cap(live, wish.kind, settings)


def heard(
    tx: Tx, parts: Parts, session: Session, turn: Turn, agent_id: str, token: Token, found: list[Record]
) -> None:
    """Make an election of a token in the last words. It takes the place of a called `continue_work`."""
    if isinstance(token, WorkToken):
        called = [r for r in _of(found, turn) if r.kind is Kind.WORK]
        for record in called:
            records.apply(tx, record, Supersede("the reply's own token took its place"))
        reason = called[-1].election.text if called else "elected by the reply's last word"
        wish = Wish(
            text=reason,
            call="token",
            delay_ms=token.delay_ms,
            source="token",
            traceparent=token.traceparent,
        )
    else:
        wish = _delegate_wish(token)
    made = elect(tx, parts, session, turn, agent_id, wish)
    if made.refused is not None:
        why = made.refused.text if isinstance(made.refused, Capped) else made.refused
        notices.warn(
            tx, session.key, f"continuation-refused:{turn.id}", f"What you elected was refused: {why}."
        )


def _delegate_wish(token: DelegateToken) -> Wish:
    staged = token.mode == "post-compaction"
    return Wish(
        text=token.task,
        call="token",
        kind=Kind.POST_COMPACTION if staged else Kind.DELEGATE,
        delay_ms=token.delay_ms,
        source="token",
        mode=token.mode,
        targets=token.targets,
        fanout=token.fanout,
        model=token.model,
        traceparent=token.traceparent,
    )


def settle(tx: Tx, parts: Parts, session: Session, turn: Turn, chain: Chain, found: list[Record]) -> Chain:
    """Anchor what a turn elected, each within the caps; one that is over a cap is refused, with a notice."""
    settings = parts.settings(found[0].agent_id) if found else Continuation()
    elected = _of(found, turn)
    for record in elected:
        chain = anchor(tx, record, chain, settings)
    if any(record.kind is Kind.WORK for record in elected):
        for record in superseding.replaced(found, turn.id):
            records.apply(tx, record, Supersede())
    return chain


def anchor(tx: Tx, record: Record, chain: Chain, settings: Continuation) -> Chain:
    """Accept one election: work takes its step in the chain now, a delegate when it is spawned."""
    over = budget.chain_cap(chain, settings)
    if over is not None:
        notices.settle(tx, records.apply(tx, record, Refuse(over.text)))
        return chain
    stepped = chain.stepped(int(tx.now)) if record.kind is Kind.WORK else chain
    own = _trace(record, stepped, settings)
    hop = stepped.count if record.kind is Kind.WORK else chain.count + 1
    records.apply(tx, record, Anchor(hop, chain.chain_id, own))
    return replace(stepped, traceparent=stepped.traceparent or own)


def drop(tx: Tx, turn: Turn, found: list[Record], reason: str) -> None:
    """Forget what a turn elected that someone stopped."""
    for record in _of(found, turn):
        records.apply(tx, record, Cancel(reason))


def retract(tx: Tx, session: Session, turn: Turn) -> None:
    """An attempt was cut off: an election whose call has no result in the log is one that the model knows
    nothing of. The next attempt makes it again, under another id, or does not."""
    elected = [r for r in _of(records.live(tx, session.key), turn) if r.election.source == "tool"]
    answered = _answered(tx, turn) if elected else set()
    for record in elected:
        if record.election.call not in answered:
            records.apply(tx, record, Cancel("its call was cut off"))


def _answered(tx: Tx, turn: Turn) -> set[str]:
    found = entries.listing(tx, EntryFilter(turn_id=turn.id), limit=entries.MAX_PAGE).entries
    results = [entry.source or {} for entry in found if entry.role == "toolResult"]
    return {str(source.get("toolCallId")) for source in results if not source.get("isError")}


def _of(found: list[Record], turn: Turn) -> list[Record]:
    return [r for r in found if r.phase is Phase.ELECTING and r.election.turn_id == turn.id]


def _trace(record: Record, chain: Chain, settings: Continuation) -> str | None:
    left = budget.remaining(chain, settings)
    parent = record.traceparent or chain.traceparent
    facts: dict[str, Any] = {"chain.step.remaining": left, "chain.id": chain.chain_id}
    facts |= tracing.about_text(record.election.text)
    if record.kind is not Kind.WORK:
        facts |= {"delegate.mode": record.election.mode}
    facts |= {"delay.ms": record.election.delay_ms}
    name = "continuation.work" if record.kind is Kind.WORK else "continuation.delegate"
    with tracing.span(name, facts, parent=parent) as own:
        if left > 0:
            tracing.mark("continuation.queue.enqueue", {"signal.kind": record.kind.value}, parent=own)
    return own
