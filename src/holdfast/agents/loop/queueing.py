"""Messages that wait for their turn: how long they wait for each other, and which go when they are too many.

The decisions are pure; around them stand the writes, within the transaction that takes a message in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.agents.loop import finishing
from holdfast.agents.loop.asks import Ask, Mode
from holdfast.agents.loop.hooks import TurnHook
from holdfast.agents.loop.leaving import LEFT, LeftOut
from holdfast.clock import Millis
from holdfast.config.runtime import Queue
from holdfast.errors import Busy
from holdfast.log import Tx, agenda, entries, turns
from holdfast.log.turns import Waiting

LONGEST_WAIT: Final = 10


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
    told: dict[str, LeftOut] = {}
    for place, id_ in gone:
        turn = now.get(place, waiting[place].turn)
        entry = entries.leave_out(tx, id_)
        lost = LeftOut.of(entry.content)
        if messages_of(turn) == (id_,):
            lost = LeftOut.read((turn.meta or {}).get(LEFT)).and_then(lost)
            _end(tx, turn, queue.cap, hooks, default_agent)
            ended.append(turn.id)
        else:
            now[place] = turns.leave_out(tx, turn, id_)
        told[turn.session_id] = told.get(turn.session_id, LeftOut()).and_then(lost)
    if queue.drop == "summarize" and told:
        _tell(tx, turns.waiting(tx, lane), told)
    return ended


def _tell(tx: Tx, waiting: Sequence[Waiting], told: Mapping[str, LeftOut]) -> None:
    """With the oldest turn that still waits in each session."""
    first: dict[str, turns.Turn] = {one.turn.session_id: one.turn for one in reversed(waiting)}
    for session_id, left in told.items():
        turn = first.get(session_id)
        if turn is not None:
            before = LeftOut.read((turn.meta or {}).get(LEFT))
            turns.note(tx, turn, {LEFT: before.and_then(left).json()})


def _end(tx: Tx, turn: turns.Turn, cap: int, hooks: Sequence[TurnHook], default_agent: str) -> None:
    assert turn.agenda_id is not None
    item = agenda.cancel(tx, turn.agenda_id, reason=f"left out: more than {cap} messages waited")
    finishing.cut_off(tx, item, hooks, default_agent)
