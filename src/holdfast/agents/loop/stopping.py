"""Stopping: a chain with all that lives in it, or everything; and the switch that halts a whole home.

What is stopped is marked in one transaction: nothing more can come of the chain from then on, what waits is
gone, and turns that run are asked to end. They are then stopped where they run, and waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.agents.loop import finishing
from holdfast.agents.loop.hooks import Ended, TurnHook
from holdfast.agents.loop.parting import listed, some
from holdfast.log import Tx, agenda, chains, sessions, turns


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
    tx: Tx, ids: Sequence[str], reason: str, hooks: Sequence[TurnHook], default_agent: str
) -> Marked:
    """Have nothing more come of these chains, and end all that lives in them."""
    ended: dict[str, int] = {}
    items: list[str] = []
    running: list[str] = []
    for id_ in ids:
        chains.stop(tx, id_, reason)
        for hook in hooks:
            _add(ended, hook.chain_stopped(tx, id_, reason))
        live = _live_turns(tx, id_)
        _add(ended, Ended(len(live), "turn"))
        for item, turn in live:
            after = agenda.cancel(tx, item.id, reason=reason)
            if after.status is agenda.Status.CANCELLED:
                finishing.cut_off(tx, after, hooks, default_agent)
            else:
                items.append(item.id)
                running.append(turn.id)
        for key in _child_sessions(tx, id_):
            session = sessions.active(tx, key)
            for hook in hooks if session is not None else ():
                _add(ended, hook.stopped(tx, session))
    found = some([Ended(count, what) for what, count in ended.items()])
    return Marked(tuple(ids), found, tuple(items), tuple(running))


def _live_turns(tx: Tx, chain_id: str) -> list[tuple[agenda.Item, turns.Turn]]:
    found = turns.get_many(tx, chains.live_turns(tx, chain_id))
    items = [(agenda.find(tx, turn.agenda_id), turn) for turn in found if turn.agenda_id is not None]
    return [(item, turn) for item, turn in items if item is not None and not item.status.ended]


def _child_sessions(tx: Tx, chain_id: str) -> list[str]:
    return [key for key in chains.sessions_of(tx, chain_id) if ":subagent:" in key]


def _add(ended: dict[str, int], more: Ended | None) -> None:
    if more is not None:
        ended[more.what] = ended.get(more.what, 0) + more.count
