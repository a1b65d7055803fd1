"""Where a delegate's return goes; beyond its own session and its ancestors only where that is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.config.autonomy import Continuation
from holdfast.continuation.record import Election
from holdfast.log import Audience, Tx, heard_by, sessions

MAX_RECIPIENTS: Final = 200
MAX_DEPTH: Final = 16


@dataclass(frozen=True, slots=True)
class Resolved:
    """Who gets a return, and why someone who was named does not."""

    keys: tuple[str, ...]
    withheld: str | None = None


def crosses(owner: str, targets: Sequence[str], fanout: str | None) -> bool:
    """Whether a return would reach a session beyond its own one and its ancestors."""
    return fanout == "all" or any(key != owner for key in targets)


def refusal(owner: str, targets: Sequence[str], fanout: str | None, settings: Continuation) -> str | None:
    """Why these targets may not be used now. Asked at the tool, at dispatch, at release and for tokens."""
    if settings.cross_session_targeting == "enabled" or not crosses(owner, targets, fanout):
        return None
    return "returns to other sessions are disabled (continuation.crossSessionTargeting)"


def resolve(
    tx: Tx, owner: str, election: Election, settings: Continuation, *, child: str | None = None
) -> Resolved:
    """The recipients as things stand now; if the gate was closed meanwhile, the own session alone."""
    closed = refusal(owner, election.targets, election.fanout, settings)
    if closed is not None:
        return Resolved((owner,), closed)
    if election.fanout == "tree":
        return Resolved(lineage(tx, owner))
    if election.fanout == "all":
        return _everyone(tx, owner, child)
    if not election.targets:
        return Resolved((owner,))
    known = tuple(key for key in election.targets if key == owner or sessions.active(tx, key) is not None)
    missing = len(election.targets) - len(known)
    return Resolved(known or (owner,), f"{missing} of the named sessions do not exist" if missing else None)


def readable(tx: Tx, found: Resolved, audience: Audience) -> Resolved:
    """Without those whose hearers may not all read what comes back."""
    keys = tuple(key for key in found.keys if heard_by(sessions.heard_in(tx, key)).may_read(audience))
    if len(keys) == len(found.keys):
        return found
    told = "in some of the sessions others listen who may not read it"
    return Resolved(keys, told if found.withheld is None else f"{found.withheld}; {told}")


def lineage(tx: Tx, owner: str) -> tuple[str, ...]:
    """A session and its ancestors, nearest first."""
    found = [owner]
    while len(found) < MAX_DEPTH:
        session = sessions.active(tx, found[-1])
        parent = None if session is None else session.parent_key
        if parent is None or parent in found:
            break
        found.append(parent)
    return tuple(found)


def _everyone(tx: Tx, owner: str, child: str | None) -> Resolved:
    found = sessions.listing(tx, limit=MAX_RECIPIENTS + 2)
    keys = tuple(dict.fromkeys((owner, *(s.key for s in found if s.key != child))))
    over = len(keys) > MAX_RECIPIENTS
    told = f"there are more sessions than a return may go to; the {MAX_RECIPIENTS} last used got it"
    return Resolved(keys[:MAX_RECIPIENTS], told if over else None)
