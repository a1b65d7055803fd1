"""Taking a message in, in one transaction: its session, its entry, and the turn that will answer it.

A message for a session whose turn is under way may join that turn. Whether it still can is decided here, and
whether anyone joined is looked at again when a turn commits; both are transactions of the log, so a message
is answered once, by one turn or the other. How long messages wait for each other, and which go when too many
wait, are pure decisions with the writes around them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.agents.loop import ending
from holdfast.agents.loop.asks import ASK, RUNTIME, Accepted, Address, Ask, Mode, Terms, queue_mode
from holdfast.agents.loop.ending import SessionEnded, end_session
from holdfast.agents.loop.journal import DROPPED, DroppedMessages
from holdfast.agents.loop.parts import TurnHook
from holdfast.board.ingest import prepare
from holdfast.board.noise import is_of_the_runtime
from holdfast.board.rules import NOT_STORED
from holdfast.board.sharing import heard_under_key
from holdfast.clock import Millis, iso
from holdfast.config import Config
from holdfast.config.runtime import Queue
from holdfast.context import Trust, UserMessage, draft_of
from holdfast.errors import Busy, Forbidden, NotFound
from holdfast.ids import uuid7
from holdfast.log import (
    FOR_OWNER,
    Audience,
    Classification,
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
LONGEST_WAIT: Final = 10
FORGET: Final = "session.forget"
FORGET_AFTER_MS: Final = 10 * 60_000


def take_in(tx: Tx, ask: Ask, to: Address, config: Config, hooks: Sequence[TurnHook] = ()) -> Accepted:
    """Store a message and see to its turn; a repeat finds what the first one made."""
    key = ask.key or f"ask-{uuid7()}"
    known = None if ask.key is None else _repeated(tx, key, _said(key))
    if known is not None:
        return known
    entered, left = come_in(tx, ask, to, config, hooks)
    draft = None if ask.wordless else prepare(tx, _draft(ask, entered, to), config.board)
    known = None if draft is None else _repeated(tx, key, draft.idempotency_key or _said(key))
    if known is not None:
        return known
    named = None if draft is None else replace(draft, idempotency_key=draft.idempotency_key or _said(key))
    mode = queue_mode(ask, config, to.channel) if ask.external and draft else (ask.mode or "queue")
    terms = terms_of(ask, to, entered.session.audience)
    message = _Incoming(ask, entered, named, key, terms, mode, config.messages.queue)
    accepted = _placed(tx, message, hooks, config.default_agent_id)
    if ask.with_entry is not None and accepted.created and accepted.entry_id is not None:
        ask.with_entry(tx, accepted.entry_id)
    if not ask.stored:
        forget_later(tx, accepted.session_id)
    return _told(tx, accepted, left, terms) if ask.external else accepted


def forget_later(tx: Tx, session_id: str) -> None:
    """See to it that nothing is left of what is not stored, whatever becomes of who asked and of us."""
    due = tx.now + FORGET_AFTER_MS
    agenda.enqueue(tx, FORGET, {"sessionId": session_id}, lane=f"{FORGET}:{session_id}", due_at=due)


def _told(tx: Tx, accepted: Accepted, left: SessionEnded, terms: Terms) -> Accepted:
    """Whoever speaks learns at once and on their surface what ended with the session that they left, and that
    nothing is answered while the home is halted."""
    told = " ".join(text for text in (left.told, _halted(tx)) if text)
    if told:
        ending.tell(tx, turns.get(tx, accepted.run_id), terms, told)
    return replace(accepted, told=told or None, stops=(*accepted.stops, *left.stop))


def _halted(tx: Tx) -> str:
    halt = agenda.halted(tx)
    if halt is None:
        return ""
    return f"Everything is stopped since {iso(halt.since)} ({halt.reason}). This waits until it is released."


def come_in(
    tx: Tx, ask: Ask, to: Address, config: Config, hooks: Sequence[TurnHook] = ()
) -> tuple[Entered, SessionEnded]:
    """The session for a message, and what ended with the one that it left by hand.

    One from outside may find its session stale, and the owner's command begin anew.
    """
    session = entered_session(tx, ask, to, config)
    if not ask.external:
        return Entered(session, ask.text), SessionEnded()
    if ask.continues:
        return Entered(sessions.touch(tx, session, external=True), ask.text), SessionEnded()
    zone = config.agent(to.agent_id).user_timezone
    named = str(local_zone()) if zone == "local" else zone
    heard = ask.owner and ask.commands
    entered = enter(tx, session, ask.text if heard else "", config.session, user_zone=named)
    by_hand = entered.reset in _BY_HAND and entered.session.id != session.id
    left = end_session(tx, session, hooks, config.default_agent_id) if by_hand else SessionEnded()
    return entered if heard else replace(entered, text=ask.text), left


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
    prompt = ask.text if ask.wordless else None
    return replace(Terms.of(ask, to), owner_sent=owner_sent, deliver=deliver, prompt=prompt)


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
class _Incoming:
    """A message on its way to a turn, with all that decides where it goes; what nobody said joins none."""

    ask: Ask
    entered: Entered
    draft: EntryDraft | None
    key: str
    terms: Terms
    mode: Mode
    queue: Queue


def _placed(tx: Tx, message: _Incoming, hooks: Sequence[TurnHook], default_agent: str) -> Accepted:
    session, queue, mode = message.entered.session, message.queue, message.mode
    running = running_turn(tx, session) if mode in ("steer", "interrupt") and message.draft else None
    if running is not None and not _may_touch(running[1], message.terms):
        running, mode = None, "queue"
    stop: tuple[str, ...] = ()
    if running is not None and mode == "interrupt":
        stop = (running[0].id,)
        agenda.cancel(tx, running[0].id, reason="another message took its place")
    elif running is not None and _takes_more(running[1], queue):
        return _joined(tx, running[1], message)
    if not message.ask.external:
        return replace(_own_turn(tx, message, most_waiting=queue.cap), stops=stop)
    waiting = turns.waiting(tx, session.key)
    full = is_full(waiting, queue)
    if full and (queue.drop == "new" or message.ask.mode == "queue"):
        raise no_room(queue)
    joins = mode in ("steer", "collect") and message.draft is not None
    target = _waiting_turn(waiting, message) if joins else None
    accepted = _waited(tx, message, waiting, target)
    ended = relieve(tx, session.key, queue, hooks, default_agent) if full else []
    return replace(accepted, stops=stop, made_room=bool(ended))


def _waited(tx: Tx, message: _Incoming, waiting: Sequence[Waiting], target: Waiting | None) -> Accepted:
    """Into the turn that waits, or one of its own; whoever waited for more to be said may now begin."""
    ask, debounce = message.ask, message.queue.debounce_ms
    patient = debounces(ask, message.mode) and message.entered.reset is None
    holding = target if patient else None
    hold_no_more(tx, waiting, but=None if holding is None else holding.turn.id)
    if holding is not None:
        due = due_after(tx.now, holding.turn.accepted_at, debounce)
        move(tx, holding, max(due, holding.due_at))
    if target is not None:
        return _joined(tx, target.turn, message)
    return _own_turn(tx, message, due_at=tx.now + debounce if patient else None)


def _own_turn(
    tx: Tx, message: _Incoming, *, due_at: int | None = None, most_waiting: int = agenda.MAX_WAITING
) -> Accepted:
    made = turns.accept(
        tx,
        message.entered.session,
        message.draft,
        key=message.key,
        trigger=message.ask.trigger,
        due_at=due_at,
        most_waiting=most_waiting,
        meta={ASK: message.terms.json(), **message.ask.noted},
        fresh=message.ask.key is None,
        chain_id=message.ask.chain_id,
    )
    return _accepted(made.turn, made.input, reset=message.entered.reset, created=made.created)


def _may_touch(turn: Turn, terms: Terms) -> bool:
    """Only who a turn is run for may speak into it or stop it: its tools run in that person's name."""
    kept = Terms.read((turn.meta or {}).get(ASK) or {}, terms.agent_id)
    return (kept.sender, kept.owner) == (terms.sender, terms.owner)


def _takes_more(turn: Turn, queue: Queue) -> bool:
    """What was said into a turn and not yet answered is bounded too; the rest waits behind it."""
    return turn.trigger == "user" and len((turn.meta or {}).get("steered") or ()) < queue.cap


def _waiting_turn(waiting: Sequence[Waiting], message: _Incoming) -> Waiting | None:
    """The turn that waits to begin and would be run on the same terms: what comes meanwhile joins it."""
    own, terms = message.entered.session.id, message.terms.json()
    alike = (one for one in waiting if one.turn.session_id == own and (one.turn.meta or {}).get(ASK) == terms)
    return next(reversed(list(alike)), None)


def _joined(tx: Tx, turn: Turn, message: _Incoming) -> Accepted:
    assert message.draft is not None
    own = replace(message.draft, session_key=turn.session_key, session_id=turn.session_id)
    entry = turns.join(tx, turn, own)
    return replace(_accepted(turn, entry, reset=message.entered.reset), joined=True, accepted_at=tx.now)


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
    draft = replace(
        spoken,
        session_key=entered.session.key,
        session_id=entered.session.id,
        agent_label=ask.sender_label,
        source=source,
    )
    if not ask.stored:
        return replace(draft, status=Classification.CLASSIFIED, code=NOT_STORED)
    if ask.chain_id is None:
        return draft
    if ask.trust is Trust.OTHER_SESSION and is_of_the_runtime(source, draft.role, draft.content):
        return of_the_runtime(draft, label="Delegated work")
    return of_the_runtime(draft) if ask.trust is Trust.OPERATOR else draft


def of_the_runtime(draft: EntryDraft, label: str = "Holdfast") -> EntryDraft:
    """A wake or a return is nobody's words: no person is said to have spoken it, and the board makes nothing
    of it."""
    return replace(
        draft,
        agent_id=RUNTIME,
        agent_label=label,
        status=Classification.CLASSIFIED,
        code="filtered_non_semantic",
    )


def _said(key: str) -> str:
    return f"turn-input:{key}"


def debounces(ask: Ask, mode: Mode) -> bool:
    """Whether a message waits for others: one of a channel, where people write in several short ones.

    Who names a mode, or asks without a channel, waits for a run of his own and is not held up.
    """
    return ask.external and ask.origin is not None and ask.mode is None and mode == "collect"


def due_after(now: Millis, first: Millis, debounce_ms: int) -> int:
    """When a turn begins whose last message came now: after some quiet, but not put off for ever."""
    return min(now + debounce_ms, first + LONGEST_WAIT * debounce_ms)


def surplus(waiting: Sequence[Sequence[str]], cap: int) -> list[tuple[int, str]]:
    """The oldest messages above the cap, each with the place of its turn; the newest always stays."""
    flat = [(place, id_) for place, ids in enumerate(waiting) for id_ in ids]
    flat.sort(key=lambda one: one[1])
    return flat[: max(0, len(flat) - max(1, cap))]


def messages_of(turn: turns.Turn) -> tuple[str, ...]:
    """The messages that a turn will answer, its input first."""
    own = () if turn.input_id is None else (turn.input_id,)
    return (*own, *(str(id_) for id_ in (turn.meta or {}).get("steered") or ()))


def is_full(waiting: Sequence[Waiting], queue: Queue) -> bool:
    return sum(len(messages_of(one.turn)) for one in waiting) >= queue.cap


def no_room(queue: Queue) -> Busy:
    """What one is told whose message is not taken."""
    return Busy(
        f"{queue.cap} messages wait in this session already, so this one was not taken",
        code="queue_full",
        hint="Wait for an answer and send it again, or /stop what runs and waits.",
    )


def move(tx: Tx, one: Waiting, due_at: int) -> None:
    """Have a waiting turn begin at another time; one that has just begun is left alone."""
    item = None if one.turn.agenda_id is None else agenda.find(tx, one.turn.agenda_id)
    if item is None or item.status is not agenda.Status.QUEUED or item.due_at == due_at:
        return
    try:
        agenda.apply(tx, item, agenda.Reschedule(due_at))
    except agenda.IllegalTransition:
        return


def hold_no_more(tx: Tx, waiting: Sequence[Waiting], *, but: str | None = None) -> None:
    """Let turns begin that waited for more to be said: someone else spoke, or spoke without waiting."""
    for one in waiting:
        if one.due_at > tx.now and one.turn.id != but:
            move(tx, one, tx.now)


def relieve(tx: Tx, lane: str, queue: Queue, hooks: Sequence[TurnHook], default_agent: str) -> list[str]:
    """Leave the oldest messages above the cap out; gives the turns that ended with that.

    They stay in the log, for people. With `summarize` the next turn of their session is told of them.
    """
    waiting = turns.waiting(tx, lane)
    gone = surplus([messages_of(one.turn) for one in waiting], queue.cap)
    now: dict[int, turns.Turn] = {}
    ended: list[str] = []
    told: dict[str, DroppedMessages] = {}
    for place, id_ in gone:
        turn = now.get(place, waiting[place].turn)
        entry = entries.leave_out(tx, id_)
        lost = DroppedMessages.of(entry.content)
        if messages_of(turn) == (id_,):
            lost = DroppedMessages.read((turn.meta or {}).get(DROPPED)).and_then(lost)
            _end(tx, turn, queue.cap, hooks, default_agent)
            ended.append(turn.id)
        else:
            now[place] = turns.leave_out(tx, turn, id_)
        told[turn.session_id] = told.get(turn.session_id, DroppedMessages()).and_then(lost)
    if queue.drop == "summarize" and told:
        _tell(tx, turns.waiting(tx, lane), told)
    return ended


def _tell(tx: Tx, waiting: Sequence[Waiting], told: Mapping[str, DroppedMessages]) -> None:
    """With the oldest turn that still waits in each session."""
    first: dict[str, turns.Turn] = {one.turn.session_id: one.turn for one in reversed(waiting)}
    for session_id, left in told.items():
        turn = first.get(session_id)
        if turn is not None:
            before = DroppedMessages.read((turn.meta or {}).get(DROPPED))
            turns.note(tx, turn, {DROPPED: before.and_then(left).json()})


def _end(tx: Tx, turn: turns.Turn, cap: int, hooks: Sequence[TurnHook], default_agent: str) -> None:
    assert turn.agenda_id is not None
    item = agenda.cancel(tx, turn.agenda_id, reason=f"left out: more than {cap} messages waited")
    ending.cut_off(tx, item, hooks, default_agent)
