"""Which sessions a caller may see or write to: its agent's, its family's, or those that the config opens."""

from __future__ import annotations

from typing import Final

from holdfast.agents.tools.settings import tools_of
from holdfast.agents.tools.types import Caller
from holdfast.errors import Forbidden, NotFound
from holdfast.log import Session, Tx, sessions

ANY: Final = "*"


def family_only(caller: Caller) -> bool:
    """Where others read along, and for a subagent, other conversations are none of its business."""
    return caller.subagent or not (caller.owner and caller.alone)


def agents_seen(caller: Caller) -> frozenset[str] | None:
    """The agents whose sessions are open to the caller; None for all. Both sides must be allowed."""
    rules = tools_of(caller).agent_to_agent
    own = frozenset((caller.agent_id,))
    if not rules.enabled or not {caller.agent_id, ANY} & set(rules.allow):
        return own
    return None if ANY in rules.allow else own | frozenset(rules.allow)


def sees(caller: Caller, other: Session) -> bool:
    if other.key == caller.session.key:
        return True
    if family_only(caller):
        return _related(caller.session, other)
    seen = agents_seen(caller)
    return seen is None or other.agent_id in seen


def found(tx: Tx, caller: Caller, key: str | None) -> Session:
    """A session by its key or id; one that the caller may not see is as good as none."""
    if key is None:
        return sessions.get(tx, caller.session.id)
    try:
        other = sessions.find(tx, key.strip())
    except NotFound:
        raise _none(key) from None
    if sees(caller, other):
        return other
    seen = agents_seen(caller)
    if not family_only(caller) and seen is not None:
        raise Forbidden(
            f"session {key[:80]!r} is out of reach: agents may not look at each other's here",
            code="other_agent",
            hint="The operator can allow it in tools.agentToAgent.",
        )
    raise _none(key)


def visible(tx: Tx, caller: Caller, *, limit: int, offset: int = 0) -> list[Session]:
    """Most recently used first."""
    if not family_only(caller):
        return sessions.listing(tx, agent_ids=agents_seen(caller), limit=limit, offset=offset)
    own = sessions.get(tx, caller.session.id)
    parent = sessions.active(tx, own.parent_key) if own.parent_key else None
    children = sessions.listing(tx, parent_key=own.key, limit=limit, offset=offset)
    near = [own, *([parent] if parent is not None else [])] if offset == 0 else []
    return [*near, *children][:limit]


def _related(own: Session, other: Session) -> bool:
    return other.parent_key == own.key or other.key == own.parent_key


def _none(key: str) -> NotFound:
    return NotFound(f"no session {key[:80]!r}", code="unknown_session", hint="See sessions_list.")
