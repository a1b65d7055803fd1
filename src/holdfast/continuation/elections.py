"""Electing: written while the turn runs, so that no crash forgets it; counted when the turn ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast import traces
from holdfast.agents.subagents import registry
from holdfast.config.agents import Continuation
from holdfast.continuation import delegates, limits, notices, records, wakes
from holdfast.continuation.attachments import Attachment
from holdfast.continuation.dependencies import Dependencies
from holdfast.continuation.limits import Capped
from holdfast.continuation.state import (
    Anchor,
    Cancel,
    Election,
    Fanout,
    Kind,
    Mode,
    Phase,
    Record,
    Refuse,
    Supersede,
)
from holdfast.continuation.tokens import DelegateToken, Token, WorkToken
from holdfast.continuation.wakes import kept_terms
from holdfast.keys import parse_key
from holdfast.log import Chain, EntryFilter, Session, Turn, Tx, chains, entries


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


def elect(tx: Tx, deps: Dependencies, session: Session, turn: Turn, agent_id: str, wish: Wish) -> Elected:
    """Write an election of a running turn, in the turn's chain; the same call again finds the first."""
    known = records.of_call(tx, turn.id, wish.call)
    if known is not None:
        return Elected(known)
    settings = deps.settings(agent_id)
    chain = chains.opened(tx, turn)
    refused = _refused(tx, deps, session, turn, wish, settings, chain)
    if refused is not None:
        notices.logged_refusal(tx, session, turn, wish.kind, wish.text, _why(refused))
        return Elected(None, refused)
    hedge = limits.hedge_at(int(tx.now), settings)
    made = records.create(
        tx,
        session,
        wish.kind,
        _election(tx, session, turn, agent_id, wish, settings),
        hedge_at=hedge,
        chain_id=chain.id,
        id_=wish.id,
        traceparent=wish.traceparent,
    )
    notices.logged_election(tx, session, turn, made)
    wakes.arm(tx, session.key, hedge)
    return Elected(made)


def _election(
    tx: Tx, session: Session, turn: Turn, agent_id: str, wish: Wish, settings: Continuation
) -> Election:
    delay = limits.work_delay if wish.kind is Kind.WORK else limits.delegate_delay
    parent = registry.live_of_child(tx, session.key) if parse_key(session.key).is_subagent else None
    return Election(
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
        parent_run_id=None if parent is None else parent.run_id,
    )


def _refused(
    tx: Tx, deps: Dependencies, session: Session, turn: Turn, wish: Wish, settings: Continuation, chain: Chain
) -> Capped | str | None:
    """What is known to be in the way already; the chain's cost is known only when the turn has ended."""
    waiting = records.waiting(tx, session.key, turn.id)
    if wish.kind is not Kind.WORK:
        closed = delegates.target_refusal(session.key, wish.targets, wish.fanout, settings)
        if closed is not None:
            return closed
        wide = limits.width_cap(waiting, settings)
        if wide is not None:
            return wide
    allowed = deps.budget(chain, str(session.agent_id or ""))
    over = limits.chain_cap(chain, allowed, int(tx.now), ahead=waiting.electing)
    return over or limits.pending_cap(waiting, wish.kind, settings)


def _why(refused: Capped | str) -> str:
    return refused.text if isinstance(refused, Capped) else refused


def heard(
    tx: Tx, deps: Dependencies, session: Session, turn: Turn, agent_id: str, token: Token, found: list[Record]
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
    made = elect(tx, deps, session, turn, agent_id, wish)
    if made.refused is not None:
        text = f"What you elected was refused: {_why(made.refused)}."
        notices.warn(tx, session.key, f"continuation-refused:{turn.id}", text)


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


def settle(tx: Tx, deps: Dependencies, turn: Turn, found: list[Record]) -> None:
    """Anchor what a turn elected, each within the caps; one that is over a cap is refused, with a notice."""
    elected = _of(found, turn)
    if not elected:
        return
    chain = chains.opened(tx, turn)
    for record in elected:
        chain = anchor(tx, deps, record, chain)
    if any(record.kind is Kind.WORK for record in elected):
        for record in limits.replaced(found, turn.id):
            records.apply(tx, record, Supersede())


def anchor(tx: Tx, deps: Dependencies, record: Record, chain: Chain) -> Chain:
    """Accept one election: work takes its step in the chain now, a delegate when it is spawned."""
    allowed = deps.budget(chain, record.agent_id)
    over = limits.chain_cap(chain, allowed, int(tx.now))
    if over is not None:
        notices.settle(tx, records.apply(tx, record, Refuse(over.text)))
        return chain
    stepped = chains.count(tx, chain) if record.kind is Kind.WORK else chain
    own = _trace(record, stepped, allowed.left(stepped))
    hop = stepped.steps if record.kind is Kind.WORK else chain.steps + 1
    records.apply(tx, record, Anchor(hop, chain.id, own))
    return chains.traced(tx, stepped, own)


def drop(tx: Tx, turn: Turn, found: list[Record], reason: str) -> None:
    """Forget what a turn elected that someone stopped."""
    for record in _of(found, turn):
        records.apply(tx, record, Cancel(reason))


def retract(tx: Tx, turn: Turn) -> None:
    """An attempt was cut off: an election whose call has no result in the log is one that the model knows
    nothing of. The next attempt makes it again, under another id, or does not."""
    elected = [r for r in _of(records.of_turn(tx, turn.id), turn) if r.election.source == "tool"]
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


def _trace(record: Record, chain: Chain, left: int) -> str | None:
    parent = record.traceparent or chain.traceparent
    facts: dict[str, Any] = {"chain.step.remaining": left, "chain.id": chain.id}
    facts |= traces.about_text(record.election.text)
    if record.kind is not Kind.WORK:
        facts |= {"delegate.mode": record.election.mode}
    facts |= {"delay.ms": record.election.delay_ms}
    name = "continuation.work" if record.kind is Kind.WORK else "continuation.delegate"
    with traces.span(name, facts, parent=parent) as own:
        if left > 0:
            traces.mark("continuation.queue.enqueue", {"signal.kind": record.kind.value}, parent=own)
    return own
