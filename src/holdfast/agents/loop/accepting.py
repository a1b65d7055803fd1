"""Taking a message in, in one transaction: its session, its entry, and the turn that will answer it.

A message for a session whose turn is under way may join that turn. Whether it still can is decided here, and
whether anyone joined is looked at again when a turn commits; both are transactions of the log, so a message
is answered once, by one turn or the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.agents.loop import finishing, queueing
from holdfast.agents.loop.addressing import Address, queue_mode
from holdfast.agents.loop.asks import Accepted, Ask, Mode, Terms
from holdfast.agents.loop.finishing import ASK
from holdfast.agents.loop.hooks import TurnHook
from holdfast.agents.loop.parting import Left, leave
from holdfast.board.ingest import prepare
from holdfast.board.sharing import heard_under_key
from holdfast.config import Config
from holdfast.config.runtime import Queue
from holdfast.context import UserMessage, draft_of
from holdfast.errors import Forbidden, NotFound
from holdfast.ids import uuid7
from holdfast.log import (
    FOR_OWNER,
    Audience,
    Entered,
    Entry,
    EntryDraft,
    Session,
    Turn,
    Tx,
    agenda,
    enter,
    entries,
    sessions,
    turns,
)
from holdfast.log.reset import local_zone
from holdfast.log.turns import Waiting

_BY_HAND: Final = ("new", "reset")


@dataclass(frozen=True, slots=True)
class Taken:
    """A message that was taken in; `stop` are the agenda items of turns that end because of it.

    `ended` says that older turns ended to make room for it.
    """

    accepted: Accepted
    stop: tuple[str, ...] = ()
    ended: bool = False


def take_in(tx: Tx, ask: Ask, to: Address, config: Config, hooks: Sequence[TurnHook] = ()) -> Taken:
    """Store a message and see to its turn; a repeat finds what the first one made."""
    key = ask.key or f"ask-{uuid7()}"
    known = None if ask.key is None else _repeated(tx, key, _said(key))
    if known is not None:
        return Taken(known)
    came = come_in(tx, ask, to, config, hooks)
    entered = came.entered
    draft = prepare(tx, _draft(ask, entered, to), config.board)
    known = None if draft.idempotency_key is None else _repeated(tx, key, draft.idempotency_key)
    if known is not None:
        return Taken(known)
    named = replace(draft, idempotency_key=draft.idempotency_key or _said(key))
    mode = queue_mode(ask, config, to.channel) if ask.external else (ask.mode or "queue")
    terms = terms_of(ask, to, entered.session.audience)
    coming = _Coming(ask, entered, named, key, terms, mode, config.messages.queue)
    taken = _placed(tx, coming, hooks, config.default_agent_id)
    return taken if came.left is None else _told(tx, taken, came.left, coming.terms)


def _told(tx: Tx, taken: Taken, left: Left, terms: Terms) -> Taken:
    """Whoever left a session with this message learns what ended with it, at once and on their surface."""
    if left.told:
        finishing.tell(tx, turns.get(tx, taken.accepted.run_id), terms, left.told)
    accepted = replace(taken.accepted, told=left.told or None)
    return replace(taken, accepted=accepted, stop=(*taken.stop, *left.stop))


@dataclass(frozen=True, slots=True)
class Came:
    """Where a message came in, and what ended with the session that it left by hand, if it did."""

    entered: Entered
    left: Left | None = None


def come_in(tx: Tx, ask: Ask, to: Address, config: Config, hooks: Sequence[TurnHook] = ()) -> Came:
    """The session for a message; one from outside may find it stale, and the owner's command begin anew."""
    session = entered_session(tx, ask, to, config)
    if not ask.external:
        return Came(Entered(session, ask.text))
    zone = config.agent(to.agent_id).user_timezone
    named = str(local_zone()) if zone == "local" else zone
    heard = ask.owner and ask.commands
    entered = enter(tx, session, ask.text if heard else "", config.session, user_zone=named)
    by_hand = entered.reset in _BY_HAND and entered.session.id != session.id
    left = leave(tx, session, hooks, config.default_agent_id) if by_hand else None
    return Came(entered if heard else replace(entered, text=ask.text), left)


def entered_session(tx: Tx, ask: Ask, to: Address, config: Config) -> Session:
    """The session of an address, as it is heard now: where more people hear it than before, a new one."""
    heard = ask.heard or heard_under_key(tx, to.session_key, config.is_private)
    theirs = ask.owner or ask.by_token or ask.heard is not None
    if ask.external and heard == FOR_OWNER and not theirs:
        raise Forbidden(
            f"session {to.session_key[:80]!r} is the owner's alone",
            code="session_forbidden",
            hint="Say on which surface the message was heard, or ask as the owner.",
        )
    session = sessions.ensure(tx, to.session_key, audience=heard, agent_id=to.agent_id, channel=to.channel)
    return sessions.heard_now(tx, session, heard)


def terms_of(ask: Ask, to: Address, heard: Audience) -> Terms:
    """Where the owner has a session's replies sent without a word on who hears them there, it is those who
    hear the session: so what follows from the turn may speak there too."""
    owner_sent = ask.owner_sent or (ask.external and ask.owner)
    deliver = ask.deliver
    if owner_sent and deliver is not None and deliver.heard is None:
        deliver = replace(deliver, heard=heard)
    return Terms(
        agent_id=to.agent_id,
        model=ask.model,
        thinking=ask.thinking,
        sender=ask.sender,
        owner=ask.owner,
        channel=to.channel,
        occasion=ask.occasion,
        timeout_seconds=ask.timeout_seconds,
        deliver=deliver,
        tools=ask.tools,
        must_call=ask.must_call,
        form=ask.form,
        owner_sent=owner_sent,
        limited_to=ask.limited_to,
        one_off=ask.one_off,
    )


def running_turn(tx: Tx, session: Session) -> tuple[agenda.Item, Turn] | None:
    """The turn that the session's lane is busy with, if it is one of this session; not one about to end."""
    items = agenda.listing(tx, statuses=[agenda.Status.RUNNING], kinds=turns.KINDS, lane=session.key, limit=1)
    for item in items:
        if item.cancel_requested:
            return None
        turn = turns.get(tx, str(item.payload["turnId"]))
        if turn.session_id == session.id:
            return item, turn
    return None


@dataclass(frozen=True, slots=True)
class _Coming:
    """A message on its way to a turn, with all that decides where it goes."""

    ask: Ask
    entered: Entered
    draft: EntryDraft
    key: str
    terms: Terms
    mode: Mode
    queue: Queue


def _placed(tx: Tx, coming: _Coming, hooks: Sequence[TurnHook], default_agent: str) -> Taken:
    session, queue, mode = coming.entered.session, coming.queue, coming.mode
    running = running_turn(tx, session) if mode in ("steer", "interrupt") else None
    if running is not None and not _may_touch(running[1], coming.terms):
        running, mode = None, "queue"
    stop: tuple[str, ...] = ()
    if running is not None and mode == "interrupt":
        stop = (running[0].id,)
        agenda.cancel(tx, running[0].id, reason="another message took its place")
    elif running is not None and _takes_more(running[1], queue):
        return Taken(_joined(tx, running[1], coming))
    if not coming.ask.external:
        return Taken(_own_turn(tx, coming, most_waiting=queue.cap), stop)
    waiting = turns.waiting(tx, session.key)
    full = queueing.is_full(waiting, queue)
    if full and (queue.drop == "new" or coming.ask.mode == "queue"):
        raise queueing.no_room(queue)
    target = _waiting_turn(waiting, coming) if mode in ("steer", "collect") else None
    accepted = _waited(tx, coming, waiting, target)
    ended = queueing.relieve(tx, session.key, queue, hooks, default_agent) if full else []
    return Taken(accepted, stop, bool(ended))


def _waited(tx: Tx, coming: _Coming, waiting: Sequence[Waiting], target: Waiting | None) -> Accepted:
    """Into the turn that waits, or one of its own; whoever waited for more to be said may now begin."""
    ask, debounce = coming.ask, coming.queue.debounce_ms
    patient = queueing.debounces(ask, coming.mode) and coming.entered.reset is None
    holding = target if patient else None
    queueing.hold_no_more(tx, waiting, but=None if holding is None else holding.turn.id)
    if holding is not None:
        due = queueing.due_after(tx.now, holding.turn.accepted_at, debounce)
        queueing.move(tx, holding, max(due, holding.due_at))
    if target is not None:
        return _joined(tx, target.turn, coming)
    return _own_turn(tx, coming, due_at=tx.now + debounce if patient else None)


def _own_turn(
    tx: Tx, coming: _Coming, *, due_at: int | None = None, most_waiting: int = agenda.MAX_WAITING
) -> Accepted:
    made = turns.accept(
        tx,
        coming.entered.session,
        coming.draft,
        key=coming.key,
        trigger=coming.ask.trigger,
        due_at=due_at,
        most_waiting=most_waiting,
        meta={ASK: coming.terms.json()},
        fresh=coming.ask.key is None,
    )
    return _accepted(made.turn, made.input, reset=coming.entered.reset, created=made.created)


def _may_touch(turn: Turn, terms: Terms) -> bool:
    """Only who a turn is run for may speak into it or stop it: its tools run in that person's name."""
    kept = Terms.read((turn.meta or {}).get(ASK) or {}, terms.agent_id)
    return (kept.sender, kept.owner) == (terms.sender, terms.owner)


def _takes_more(turn: Turn, queue: Queue) -> bool:
    """What was said into a turn and not yet answered is bounded too; the rest waits behind it."""
    return turn.trigger == "user" and len((turn.meta or {}).get("steered") or ()) < queue.cap


def _waiting_turn(waiting: Sequence[Waiting], coming: _Coming) -> Waiting | None:
    """The turn that waits to begin and would be run on the same terms: what comes meanwhile joins it."""
    own, terms = coming.entered.session.id, coming.terms.json()
    alike = (one for one in waiting if one.turn.session_id == own and (one.turn.meta or {}).get(ASK) == terms)
    return next(reversed(list(alike)), None)


def _joined(tx: Tx, turn: Turn, coming: _Coming) -> Accepted:
    own = replace(coming.draft, session_key=turn.session_key, session_id=turn.session_id)
    entry = turns.join(tx, turn, own)
    return replace(_accepted(turn, entry, reset=coming.entered.reset), joined=True, accepted_at=tx.now)


def _repeated(tx: Tx, key: str, entry_key: str) -> Accepted | None:
    """What an earlier delivery of the same message became, whether a turn or a part of one."""
    turn = turns.by_key(tx, key)
    entry: Entry | None
    try:
        entry = entries.by_key(tx, entry_key)
    except NotFound:
        entry = None if turn is None or turn.input_id is None else entries.get(tx, turn.input_id)
    if turn is not None:
        return _accepted(turn, entry, created=False)
    if entry is None or entry.turn_id is None:
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
