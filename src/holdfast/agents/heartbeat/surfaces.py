"""Where people last spoke to an agent, so that what it has to say unasked can reach them there."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from holdfast.agents.heartbeat.tables import last_surfaces as table
from holdfast.agents.loop.asks import Deliver, Terms
from holdfast.keys import MainKey, parse_key
from holdfast.log import Session, Turn, Tx

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
        "deliver": {"kind": to.kind, "target": to.target, "payload": payload},
        "at": tx.now,
    }
    insert = postgresql.insert(table) if tx.postgres else sqlite.insert(table)
    changed = {name: value for name, value in values.items() if name != "session_key"}
    tx.conn.execute(insert.values(values).on_conflict_do_update(index_elements=["session_key"], set_=changed))


def place(tx: Tx, target: str, session_key: str, agent_id: str) -> Deliver | None:
    """Where a target leads: `last`, `none`, or a channel with a place in it, as in `discord:42`."""
    if target == NONE:
        return None
    if target == LAST:
        return _last(tx, session_key, agent_id)
    kind, _, to = target.partition(":")
    return Deliver(kind=kind, target=target, payload={"to": to} if to else {})


def _last(tx: Tx, session_key: str, agent_id: str) -> Deliver | None:
    """The session's own surface. The main session has none where direct chats have sessions of their own:
    then it is the owner's newest direct chat with the agent."""
    own = sa.select(table.c.deliver).where(table.c.session_key == session_key)
    found = tx.conn.execute(own).scalar()
    if found is None and isinstance(parse_key(session_key), MainKey):
        newest = sa.select(table.c.deliver).where(table.c.agent_id == agent_id, table.c.direct.is_(True))
        found = tx.conn.execute(newest.order_by(table.c.at.desc()).limit(1)).scalar()
    return None if found is None else Deliver(**found)
