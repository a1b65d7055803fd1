"""What a caller limited to spaces or agents may write, and where.

Reading needs nothing of this: a transaction of the caller's shows what the caller may read. Deny by default:
what is not known to lie within the limits lies outside them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from holdfast.board import View, sharing, tasks, topics
from holdfast.errors import Conflict, Forbidden, InvalidInput
from holdfast.gateway.tokens import Principal
from holdfast.keys import BoardTaskKey, DirectKey, ParsedKey, board_key_of, parse_key
from holdfast.log import Audience, Entry, EntryDraft, Tx, entries, for_space, surfaces
from holdfast.log.surfaces import Declared


def own_view(caller: Principal) -> View:
    """Where the caller may change things: in its spaces."""
    return View(caller.spaces)


def seen_agents(caller: Principal, agent_id: str | None) -> frozenset[str] | None:
    """Whose runtime the caller sees, of the agent asked for; it lies in no space."""
    agents = frozenset[str]() if caller.spaces is not None else caller.agents
    if agent_id is None:
        return agents
    return frozenset((agent_id,)) if agents is None else agents & {agent_id}


def repeated(entry: Entry) -> Entry:
    """The entry that a repeated key found."""
    if entry.deleted_at is not None:
        raise Conflict("the entry with this idempotency key was deleted", code="entry_deleted")
    return entry


def require_spaces(caller: Principal, space_ids: Iterable[str]) -> None:
    """A caller limited to spaces puts nothing into others."""
    if caller.spaces is not None and not caller.spaces.issuperset(space_ids):
        raise sharing.outside()


def require_key(tx: Tx, caller: Principal, key: str | None) -> None:
    """Nobody speaks in a session that is not theirs; one that is not there is refused in the same words."""
    if not may_use_key(tx, caller, key):
        raise Forbidden(
            "this token may not speak under this session key",
            code="session_forbidden",
            hint="Leave the key out, or use one of a conversation or an agent of its own.",
        )


def may_use_key(tx: Tx, caller: Principal, key: str | None) -> bool:
    """Whether what the caller writes may stand under this key.

    Keys of agents are for tokens that name the agent, and those have no others. A chat of the board is for
    who sees its topic; any other key for who may read what was said under it, if anything was.
    """
    if key is None or not caller.limited:
        return True
    try:
        parsed, board = parse_key(key), board_key_of(key)
    except InvalidInput:
        return False
    if not _is_own(caller, parsed):
        return False
    if board is not None:
        task_id = board.task_id if isinstance(board, BoardTaskKey) else None
        if not _may_file_under(tx, caller, [board.topic_id], [] if task_id is None else [task_id]):
            return False
    return all(map(caller.reader.may_read, surfaces.audiences_under(tx, key)))


def _is_own(caller: Principal, key: ParsedKey) -> bool:
    if caller.user_id is not None and key.agent_id is not None:
        own = isinstance(key, DirectKey) and key.channel is None and key.peer == caller.user_id
        team = any(str(key) == f"agent:{key.agent_id}:team:{one.id}" for one in caller.teams)
        return key.agent_id in (caller.agents or ()) and (own or team)
    if key.agent_id is None:
        return caller.agents is None
    return caller.agents is not None and key.agent_id in caller.agents


def require_draft(tx: Tx, caller: Principal, draft: EntryDraft) -> None:
    """Whether the caller may write this: as whom, under which key, and about what."""
    if not caller.limited:
        return
    if caller.user_id is not None and draft.agent_id != "user":
        raise Forbidden(
            "people write as themselves, not as an agent", code="agent_forbidden", hint="Send agentId user."
        )
    if caller.user_id is None and caller.agents is not None and draft.agent_id not in caller.agents:
        raise Forbidden(
            "this token may write only for its own agents",
            code="agent_forbidden",
            hint="Send an agentId that it may write for, and a sessionKey of that agent.",
        )
    require_key(tx, caller, draft.session_key)
    require_places(tx, caller, draft)


def require_places(tx: Tx, caller: Principal, draft: EntryDraft) -> None:
    """A limited caller names only spaces of its own, and topics, tasks and entries that it sees."""
    source = draft.source or {}
    require_spaces(caller, _ids(draft.space_id, source.get("boardScopeSpaceId")))
    topic_ids = _ids(draft.topic_id, source.get("boardScopeTopicId"))
    task_ids = _ids(draft.task_id, source.get("boardScopeTaskId"))
    if caller.limited and not _may_file_under(tx, caller, topic_ids, task_ids):
        raise sharing.outside()
    if caller.limited and draft.related_id is not None:
        entries.get(tx, draft.related_id)


def _may_file_under(tx: Tx, caller: Principal, topic_ids: list[str], task_ids: list[str]) -> bool:
    view = own_view(caller)
    found = {one.id for one in topics.get_many(tx, topic_ids) if view.sees(one.space_ids)}
    found |= {one.id for one in tasks.get_many(tx, task_ids) if view.sees(one.space_ids)}
    return found.issuperset((*topic_ids, *task_ids))


def audience_of(tx: Tx, caller: Principal, draft: EntryDraft, declared: Declared) -> Audience:
    """Who may read what the caller writes. Only the owner, and who holds it, shares by naming a space."""
    if caller.spaces is None and caller.agents is not None:
        scope = {k: v for k, v in (draft.source or {}).items() if k != "boardScopeSpaceId"}
        draft = replace(draft, space_id=None, source=scope)
    return sharing.for_draft(tx, draft, declared, held=caller.spaces, may_widen=caller.is_owner)


def placed_by(tx: Tx, caller: Principal, space_id: str | None) -> Audience:
    """The same for what is put into a space by its name: topics, tasks, files."""
    named = None if caller.spaces is None and caller.agents is not None else space_id
    return sharing.for_placed(tx, named, caller.spaces)


def heard_under(tx: Tx, caller: Principal, key: str, declared: Declared) -> Audience:
    """Who hears a session that the caller begins: the topic's if it is about one, else its one space's."""
    heard = sharing.heard_under_key(tx, key, declared)
    if caller.reader.may_read(heard):
        return heard
    if caller.spaces is None or len(caller.spaces) != 1:
        raise sharing.outside()
    return for_space(min(caller.spaces))


def _ids(*named: object) -> list[str]:
    return [one for one in named if isinstance(one, str) and one]
