"""What a caller limited to spaces or agents may see and write. Deny by default: what is not known to lie
within the limits lies outside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.board import View
from holdfast.errors import Conflict, Forbidden, InvalidInput
from holdfast.gateway.tokens import Principal
from holdfast.keys import parse_key
from holdfast.log import Change, Entry, EntryDraft, Session


def sees_session(caller: Principal, session: Session) -> bool:
    """A session lies in no space, so that one limited to spaces sees none."""
    return caller.spaces is None and caller.may_see_agent(session.agent_id)


def seen_agents(caller: Principal, agent_id: str | None) -> frozenset[str] | None:
    """Whose runtime the caller sees, of the agent asked for; it lies in no space, as sessions do not."""
    agents = frozenset[str]() if caller.spaces is not None else caller.agents
    if agent_id is None:
        return agents
    return frozenset((agent_id,)) if agents is None else agents & {agent_id}


def sees_change(
    caller: Principal,
    change: Change,
    data: Mapping[str, Any] | None,
    view: View,
    places: frozenset[str] | None,
) -> bool:
    """Whether the view shows what the change is about; `places` are its spaces if it is on the board.

    What is not on the board lies in no space: a caller limited to spaces does not see it, others do.
    """
    if data is None:
        return view.spaces is None and not caller.limited
    if places is None:
        return caller.may_see_space(data.get("spaceId")) and caller.may_see_agent(data.get("agentId"))
    by_agent = not change.type.startswith("log.") or caller.may_see_agent(data.get("agentId"))
    return by_agent and view.sees(places)


def repeated(entry: Entry, *, shown: bool) -> Entry:
    """The entry that a repeated key found; a key must not open what the caller could not read."""
    if entry.deleted_at is not None:
        raise Conflict("the entry with this idempotency key was deleted", code="entry_deleted")
    if not shown:
        raise Conflict("this idempotency key is in use", code="key_in_use", hint="Send another key.")
    return entry


def require_write(caller: Principal, draft: EntryDraft) -> None:
    """Whether the caller may write this: as its agents, into their sessions."""
    if caller.agents is None:
        return
    owner = draft.agent_id if draft.session_key is None else _owner(draft.session_key, draft.agent_id)
    if draft.agent_id not in caller.agents or owner not in caller.agents:
        raise Forbidden(
            "this token may write only for its own agents",
            code="agent_forbidden",
            hint="Send an agentId that it may write for, and a sessionKey of that agent.",
        )


def _owner(session_key: str, otherwise: str | None) -> str | None:
    """The agent that a session's key names; a key that names none belongs to whoever writes."""
    try:
        return parse_key(session_key).agent_id or otherwise
    except InvalidInput:
        return otherwise
