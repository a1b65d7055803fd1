"""Taking a message in, in one transaction: its session, its entry, and the turn that will answer it.

A message for a session whose turn is under way may join that turn. Whether it still can is decided here, and
whether anyone joined is looked at again when a turn commits; both are transactions of the log, so a message
is answered once, by one turn or the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.agents.loop.addressing import Address, queue_mode
from holdfast.agents.loop.asks import Accepted, Ask, Terms
from holdfast.agents.loop.finishing import ASK
from holdfast.agents.loop.hooks import TurnHook
from holdfast.board.ingest import prepare
from holdfast.config import Config
from holdfast.context import UserMessage, draft_of
from holdfast.errors import NotFound
from holdfast.ids import uuid7
from holdfast.log import (
    Entered,
    Entry,
    EntryDraft,
    Session,
    Turn,
    TurnStatus,
    Tx,
    agenda,
    enter,
    entries,
    sessions,
    turns,
)
from holdfast.log.reset import local_zone

_BY_HAND: Final = ("new", "reset")


@dataclass(frozen=True, slots=True)
class Taken:
    """A message that was taken in; `stop` is the agenda item of a turn that it interrupts."""

    accepted: Accepted
    stop: str | None = None


def take_in(tx: Tx, ask: Ask, to: Address, config: Config, hooks: Sequence[TurnHook] = ()) -> Taken:
    """Store a message and see to its turn; a repeat finds what the first one made."""
    key = ask.key or f"ask-{uuid7()}"
    known = None if ask.key is None else _repeated(tx, key, _said(key))
    if known is not None:
        return Taken(known)
    entered = come_in(tx, ask, to, config, hooks)
    draft = prepare(tx, _draft(ask, entered, to), config.board)
    known = None if draft.idempotency_key is None else _repeated(tx, key, draft.idempotency_key)
    if known is not None:
        return Taken(known)
    named = replace(draft, idempotency_key=draft.idempotency_key or _said(key))
    return _placed(tx, ask, to, config, entered, named, key)


def come_in(tx: Tx, ask: Ask, to: Address, config: Config, hooks: Sequence[TurnHook] = ()) -> Entered:
    """The session for a message; one from outside may find it stale, and the owner may ask for a new one."""
    session = sessions.ensure(tx, to.session_key, agent_id=to.agent_id, channel=to.channel)
    if not ask.external:
        return Entered(session, ask.text)
    zone = config.agent(to.agent_id).user_timezone
    named = str(local_zone()) if zone == "local" else zone
    entered = enter(tx, session.key, ask.text if ask.owner else "", config.session, user_zone=named)
    if entered.reset in _BY_HAND and entered.session.id != session.id:
        for hook in hooks:
            hook.reset(tx, session)
    return entered if ask.owner else replace(entered, text=ask.text)


def terms_of(ask: Ask, to: Address) -> Terms:
    return Terms(
        agent_id=to.agent_id,
        model=ask.model,
        thinking=ask.thinking,
        sender=ask.sender,
        owner=ask.owner,
        channel=to.channel,
        occasion=ask.occasion,
        timeout_seconds=ask.timeout_seconds,
        deliver=ask.deliver,
        tools=ask.tools,
    )


def running_turn(tx: Tx, session: Session) -> tuple[agenda.Item, Turn] | None:
    """The turn that the session's lane is busy with, if it is one of this session."""
    items = agenda.listing(tx, statuses=[agenda.Status.RUNNING], kinds=turns.KINDS, lane=session.key, limit=1)
    for item in items:
        turn = turns.get(tx, str(item.payload["turnId"]))
        if turn.session_id == session.id:
            return item, turn
    return None


def _placed(
    tx: Tx, ask: Ask, to: Address, config: Config, entered: Entered, draft: EntryDraft, key: str
) -> Taken:
    session, terms = entered.session, terms_of(ask, to)
    mode = queue_mode(ask, config, to.channel) if ask.external else (ask.mode or "queue")
    running = running_turn(tx, session) if mode in ("steer", "interrupt") else None
    if running is not None and not _may_touch(running[1], terms):
        running, mode = None, "queue"
    stop: str | None = None
    if running is not None and mode == "interrupt":
        stop = running[0].id
        agenda.cancel(tx, stop, reason="another message took its place")
    elif mode in ("steer", "collect"):
        target = running[1] if running is not None else _waiting_turn(tx, session, terms)
        if target is not None and target.trigger == "user":
            return Taken(_joined(tx, target, draft, entered))
    made = turns.accept(
        tx,
        session,
        draft,
        key=key,
        trigger=ask.trigger,
        most_waiting=config.messages.queue.cap,
        meta={ASK: terms.json()},
    )
    return Taken(_accepted(made.turn, made.input, reset=entered.reset, created=made.created), stop)


def _may_touch(turn: Turn, terms: Terms) -> bool:
    """Only who a turn is run for may speak into it or stop it: its tools run in that person's name."""
    kept = Terms.read((turn.meta or {}).get(ASK) or {}, terms.agent_id)
    return (kept.sender, kept.owner) == (terms.sender, terms.owner)


def _waiting_turn(tx: Tx, session: Session, terms: Terms) -> Turn | None:
    """The turn that waits to begin and would be run on the same terms: what comes meanwhile joins it."""
    items = agenda.listing(tx, statuses=[agenda.Status.QUEUED], kinds=turns.KINDS, lane=session.key, limit=50)
    for item in reversed(items):
        turn = turns.get(tx, str(item.payload["turnId"]))
        same = turn.session_id == session.id and (turn.meta or {}).get(ASK) == terms.json()
        if same and turn.status is TurnStatus.ACCEPTED and turn.trigger == "user":
            return turn
    return None


def _joined(tx: Tx, turn: Turn, draft: EntryDraft, entered: Entered) -> Accepted:
    own = replace(draft, session_key=turn.session_key, session_id=turn.session_id)
    entry = turns.join(tx, turn, own)
    return replace(_accepted(turn, entry, reset=entered.reset), joined=True, accepted_at=tx.now)


def _repeated(tx: Tx, key: str, entry_key: str) -> Accepted | None:
    """What an earlier delivery of the same message became, whether a turn or a part of one."""
    turn = turns.by_key(tx, key)
    if turn is not None:
        said = None if turn.input_id is None else entries.get(tx, turn.input_id)
        return _accepted(turn, said, created=False)
    try:
        entry = entries.by_key(tx, entry_key)
    except NotFound:
        return None
    if entry.turn_id is None:
        return None
    own = turns.by_key(tx, f"steered:{entry.id}") or turns.get(tx, entry.turn_id)
    return replace(_accepted(own, entry, created=False), joined=own.input_id != entry.id)


def _accepted(turn: Turn, entry: Entry | None, *, reset: str | None = None, created: bool = True) -> Accepted:
    return Accepted(
        run_id=turn.id,
        accepted_at=turn.accepted_at,
        session_key=turn.session_key,
        session_id=turn.session_id,
        turn=turn.number,
        entry_id=None if entry is None else entry.id,
        created=created,
        reset=reset,
    )


def _draft(ask: Ask, entered: Entered, to: Address) -> EntryDraft:
    spoken = draft_of(UserMessage(text=entered.text, images=ask.images, trust=ask.trust))
    source: dict[str, Any] = {"channel": to.channel or ask.trigger, **ask.source, **(spoken.source or {})}
    if ask.sender is not None:
        source["sender"] = ask.sender
    return replace(
        spoken,
        session_key=entered.session.key,
        session_id=entered.session.id,
        agent_label=ask.sender_label,
        source=source,
    )


def _said(key: str) -> str:
    return f"turn-input:{key}"
