"""Leaving a session by hand: what runs and waits there ends with it, and whoever left it is told.

Marks are written in the transaction that leaves; what runs in this process is stopped once that is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.agents.loop import finishing
from holdfast.agents.loop.hooks import Ended, TurnHook
from holdfast.log import Session, Tx, agenda, turns


@dataclass(frozen=True, slots=True)
class Left:
    """What ended with a session; `stop` are the agenda items of turns that still have to be stopped."""

    ended: tuple[Ended, ...] = ()
    stop: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """A sentence for whoever left; empty if nothing ended."""
        return f"Ended with the former session: {listed(self.ended)}." if self.ended else ""


def leave(tx: Tx, left: Session, hooks: Sequence[TurnHook], default_agent: str) -> Left:
    """End the turns of a session and what else belongs to it."""
    stop: list[str] = []
    live = [item for item in agenda.listing(tx, kinds=turns.KINDS, lane=left.key) if _is_of(tx, item, left)]
    for item in live:
        after = agenda.cancel(tx, item.id, reason="a new session was begun")
        if after.status is agenda.Status.CANCELLED:
            finishing.cut_off(tx, after, hooks, default_agent)
        else:
            stop.append(item.id)
    others = [ended for hook in hooks if (ended := hook.reset(tx, left)) is not None]
    return Left(some((Ended(len(live), "turn"), *others)), tuple(stop))


def some(ended: Sequence[Ended]) -> tuple[Ended, ...]:
    """Those of which there was at least one."""
    return tuple(one for one in ended if one.count)


def listed(ended: Sequence[Ended]) -> str:
    """`1 turn and 2 background commands`."""
    said = [f"{one.count} {one.what}{'' if one.count == 1 else 's'}" for one in ended]
    return " and ".join([", ".join(said[:-1]), said[-1]]) if len(said) > 1 else "".join(said)


def _is_of(tx: Tx, item: agenda.Item, session: Session) -> bool:
    """A lane is shared by all sessions that its key ever had. What saves lasting notes is let finish."""
    turn = turns.get(tx, str(item.payload["turnId"]))
    return turn.session_id == session.id and turn.trigger != finishing.FLUSH
