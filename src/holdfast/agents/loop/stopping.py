"""Stopping: a chain with all that lives in it, or everything; and the switch that halts a whole home.

What is stopped is marked in one transaction: nothing more can come of the chain from then on, what waits is
gone, and turns that run are asked to end. They are then stopped where they run, and waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.agents.loop import ending
from holdfast.agents.loop.hooks import Ended, TurnHook
from holdfast.keys import parse_key
from holdfast.log import Session, Tx, agenda, chains, sessions, turns

_LEFT: Final = "a new session was begun"


@dataclass(frozen=True, slots=True)
class Stopped:
    """What was stopped, and which turns had not ended yet when that was told."""

    chains: tuple[str, ...] = ()
    ended: tuple[Ended, ...] = ()
    running: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """A sentence for whoever stopped it."""
        if not self.ended and not self.chains:
            return "Nothing was running."
        said = f"Stopped {listed(self.ended) or 'what was left of it'}."
        late = len(self.running)
        return f"{said} {late} of them {'is' if late == 1 else 'are'} still winding up." if late else said

    def and_then(self, more: Stopped) -> Stopped:
        chains_ = tuple(dict.fromkeys((*self.chains, *more.chains)))
        return Stopped(chains_, _sum([*self.ended, *more.ended]), more.running)

    def json(self) -> dict[str, object]:
        return {
            "stopped": sum(one.count for one in self.ended),
            "chains": list(self.chains),
            "ended": {one.what: one.count for one in self.ended},
            "stillRunning": list(self.running),
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class Marked:
    """What was marked in a transaction: the agenda items and ids of turns that still have to be stopped."""

    chains: tuple[str, ...] = ()
    ended: tuple[Ended, ...] = ()
    items: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()


def stop_chains(
    tx: Tx,
    ids: Sequence[str],
    reason: str,
    hooks: Sequence[TurnHook],
    default_agent: str,
    *,
    leaving: bool = False,
) -> Marked:
    """Have nothing more come of these chains, and end all that lives in them. Where a session is only left,
    what saves lasting notes is let finish."""
    ended: list[Ended | None] = []
    items: dict[str, str] = {}
    for id_ in ids:
        chains.stop(tx, id_, reason)
        ended += [one for hook in hooks for one in hook.chain_stopped(tx, id_, reason)]
        live = [one for one in _live_turns(tx, id_) if not (leaving and one[1].trigger == ending.FLUSH)]
        running = _cancelled(tx, [item for item, _ in live], reason, hooks, default_agent)
        items |= {item.id: turn.id for item, turn in live if item.id in running}
        ended.append(Ended(len(live), "turn"))
    return Marked(tuple(ids), _sum(ended), tuple(items), tuple(items.values()))


def stop_background(
    tx: Tx, ids: Sequence[str], session: Session | None, hooks: Sequence[TurnHook]
) -> tuple[Ended, ...]:
    """End what a session, and those that were spawned in the chains, set going beside their turns.

    After the turns have ended: what they wait for must not come while they could still go on with it.
    """
    children = [child for id_ in ids for child in _child_sessions(tx, id_)]
    whose = [*([] if session is None else [session]), *children]
    return _sum([hook.stopped(tx, one) for one in whose for hook in hooks])


def _live_turns(tx: Tx, chain_id: str) -> list[tuple[agenda.Item, turns.Turn]]:
    found = turns.get_many(tx, chains.live_turns(tx, chain_id))
    items = [(agenda.find(tx, turn.agenda_id), turn) for turn in found if turn.agenda_id is not None]
    return [(item, turn) for item, turn in items if item is not None and not item.status.ended]


def _child_sessions(tx: Tx, chain_id: str) -> list[Session]:
    """The sessions that were spawned in a chain, with what they set going in the background."""
    keys = [key for key in chains.sessions_of(tx, chain_id) if parse_key(key).is_subagent]
    return [session for key in keys if (session := sessions.active(tx, key)) is not None]


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """What ended with a session; `stop` are the agenda items of turns that still have to be stopped."""

    ended: tuple[Ended, ...] = ()
    stop: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """A sentence for whoever left; empty if nothing ended."""
        return f"Ended with the former session: {listed(self.ended)}." if self.ended else ""


def end_session(tx: Tx, left: Session, hooks: Sequence[TurnHook], default_agent: str) -> SessionEnded:
    """End the turns of a session and what else belongs to it: whatever began there ends wherever it is."""
    began = [chain.id for id_ in chains.live_in(tx, left.key) if (chain := _begun_in(tx, id_, left))]
    marked = stop_chains(tx, began, _LEFT, hooks, default_agent, leaving=True)
    live = [item for item in agenda.listing(tx, kinds=turns.KINDS, lane=left.key) if _is_of(tx, item, left)]
    rest = [item for item in live if item.id not in marked.items]
    stop = [*marked.items, *_cancelled(tx, rest, _LEFT, hooks, default_agent)]
    others = [ended for hook in hooks if (ended := hook.reset(tx, left)) is not None]
    return SessionEnded(_sum([*marked.ended, Ended(len(rest), "turn"), *others]), tuple(stop))


def _begun_in(tx: Tx, chain_id: str, session: Session) -> chains.Chain | None:
    """A chain of which something followed, if it began in a session; a turn alone is ended as one."""
    chain = chains.find(tx, chain_id)
    return chain if chain is not None and chain.session_key == session.key else None


def _cancelled(
    tx: Tx, items: Sequence[agenda.Item], reason: str, hooks: Sequence[TurnHook], default_agent: str
) -> list[str]:
    """Cancel turns by their items; those that run have still to be stopped."""
    running: list[str] = []
    for item in items:
        after = agenda.cancel(tx, item.id, reason=reason)
        if after.status is agenda.Status.CANCELLED:
            ending.cut_off(tx, after, hooks, default_agent)
        else:
            running.append(item.id)
    return running


def _sum(ended: Sequence[Ended | None]) -> tuple[Ended, ...]:
    """What ended, each sort once."""
    counts: dict[str, int] = {}
    for one in ended:
        if one is not None:
            counts[one.what] = counts.get(one.what, 0) + one.count
    return with_any([Ended(count, what) for what, count in counts.items()])


def with_any(ended: Sequence[Ended]) -> tuple[Ended, ...]:
    """Those of which there was at least one."""
    return tuple(one for one in ended if one.count)


def listed(ended: Sequence[Ended]) -> str:
    """`1 turn and 2 background commands`."""
    said = [f"{one.count} {one.what}{'' if one.count == 1 else 's'}" for one in ended]
    return " and ".join([", ".join(said[:-1]), said[-1]]) if len(said) > 1 else "".join(said)


def _is_of(tx: Tx, item: agenda.Item, session: Session) -> bool:
    """A lane is shared by all sessions that its key ever had. What saves lasting notes is let finish."""
    turn = turns.get(tx, str(item.payload["turnId"]))
    return turn.session_id == session.id and turn.trigger != ending.FLUSH
