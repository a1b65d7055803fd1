"""Where people last spoke to an agent, so that what it has to say unasked can reach them there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from holdfast.agents.heartbeat.tables import last_surfaces as table
from holdfast.agents.loop.asks import Deliver, Terms
from holdfast.keys import MainKey, parse_key
from holdfast.log import FOR_OWNER, Audience, Session, Turn, Tx

LAST: Final = "last"
NONE: Final = "none"
# What belongs to the one message that was answered, not to the place.
_OF_ONE_MESSAGE: Final = frozenset(("replyTo", "messageId"))


def note(tx: Tx, turn: Turn, session: Session, terms: Terms) -> None:
    """Remember where a turn from outside is answered. What runs by itself, and strangers, leave no trace."""
    if turn.trigger != "user" or terms.deliver is None or not terms.owner:
        return
    to = terms.deliver
    payload = {name: value for name, value in to.payload.items() if name not in _OF_ONE_MESSAGE}
    values: dict[str, Any] = {
        "session_key": session.key,
        "agent_id": terms.agent_id,
        "direct": session.chat_type == "direct",
        "deliver": replace(to, payload=payload).json(),
        "at": tx.now,
    }
    insert = postgresql.insert(table) if tx.postgres else sqlite.insert(table)
    changed = {name: value for name, value in values.items() if name != "session_key"}
    tx.conn.execute(insert.values(values).on_conflict_do_update(index_elements=["session_key"], set_=changed))


HeardAt = Callable[[Tx, str], Audience | None]
"""Who hears an address of a channel; None where that is not known."""


def nobody_knows(_: Tx, __: str) -> Audience | None:
    """Who hears a place, where no channels are."""
    return None


def place(
    tx: Tx, target: str, session_key: str, agent_id: str, heard_at: HeardAt = nobody_knows
) -> Deliver | None:
    """Where a target leads: `last`, `none`, or a channel with a place in it, as in `discord:42`.

    Who hears a place is asked anew each time: others may have come since the owner last spoke there.
    """
    if target == NONE:
        return None
    if target == LAST:
        found = _last(tx, session_key, agent_id)
        return None if found is None else replace(found, heard=heard_at(tx, found.target) or found.heard)
    kind, _, to = target.partition(":")
    payload = {"to": to} if to else {}
    return Deliver(kind=kind, target=target, payload=payload, heard=heard_at(tx, target))


def _last(tx: Tx, session_key: str, agent_id: str) -> Deliver | None:
    """The session's own surface. The main session has none where direct chats have sessions of their own:
    then it is the owner's newest direct chat with the agent."""
    kept = sa.select(table.c.deliver, table.c.direct)
    found = tx.conn.execute(kept.where(table.c.session_key == session_key)).first()
    if found is None and isinstance(parse_key(session_key), MainKey):
        newest = kept.where(table.c.agent_id == agent_id, table.c.direct.is_(True))
        found = tx.conn.execute(newest.order_by(table.c.at.desc()).limit(1)).first()
    if found is None:
        return None
    # Only the owner leaves a trace here, so that a direct chat of which nothing more is known is theirs.
    heard = {"heard": FOR_OWNER} if found.direct else {}
    return Deliver(**(heard | found.deliver))
