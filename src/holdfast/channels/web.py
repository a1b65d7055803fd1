"""The pages' chat as a channel: what is delivered there stands in the conversation that the person reads.

    web:dm:owner        the owner's main session with the agent
    web:dm:<chat>       a chat that the owner began on the pages
    web:dm:<person>     a person's own session with the agent, by their id or login
    web:group:<team>    the session that a team shares with the agent

What an agent answers in such a session is there already and needs no delivery.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from holdfast.agents import route
from holdfast.channels.files import FileRoom
from holdfast.channels.surface import Surface
from holdfast.channels.transport import Abilities, BaseChannel, Message, SendFailed
from holdfast.config import Config
from holdfast.config.channels import WEB
from holdfast.errors import HoldfastError, InvalidInput, NotFound
from holdfast.ids import AgentId
from holdfast.keys import DirectKey, MainKey
from holdfast.log import (
    FOR_OWNER,
    SYSTEM,
    Audience,
    EntryDraft,
    Session,
    Store,
    Threads,
    Tx,
    entries,
    for_member,
    for_space,
    sessions,
)
from holdfast.log.tables import sessions as table
from holdfast.people import Right, Role, roles, teams, users

OWNER_HERE: Final = "owner"
_ABLE: Final = Abilities(most_chars=64_000, blocks=False, most_file_bytes=10 * 1024**2)
_LOOKED_AT: Final = 200


@dataclass(frozen=True, slots=True)
class WebChat:
    """A conversation on the pages: its session's key, and who reads it."""

    key: str
    heard: Audience


class WebChannel(BaseChannel):
    """Writes into the log what the outbox brings; the same key again is the same entry."""

    name = WEB
    abilities = _ABLE

    def __init__(self, store: Store, threads: Threads, config: Callable[[], Config], files: FileRoom) -> None:
        self._store = store
        self._threads = threads
        self._config = config
        self._files = files

    async def send(self, message: Message) -> str | None:
        return await self._threads(self._store.run, SYSTEM, lambda tx: self._write(tx, message))

    def _write(self, tx: Tx, message: Message) -> str:
        agent = speaker(self._config(), message)
        chat = chat_at(tx, message.surface, agent, self._config())
        if chat is None:
            raise SendFailed(f"nobody reads {message.surface.address} on the pages", final=True)
        try:
            kept = self._files.checked(message.files)
        except HoldfastError as error:
            raise SendFailed(error.message, final=True) from error
        session = sessions.ensure(tx, chat.key, audience=chat.heard, agent_id=agent)
        draft = EntryDraft(
            content=message.text,
            audience=session.audience,
            role="assistant",
            agent_id=agent,
            session_key=session.key,
            session_id=session.id,
            source={"channel": WEB, "surface": message.surface.address, "delivered": message.key},
            idempotency_key=f"web:{message.key}",
        )
        done = entries.append(tx, draft)
        if done.created:
            self._files.keep(tx, kept, str(done.entry.id), session.audience)
        return str(done.entry.id)


def own_surface(session: Session) -> Surface | None:
    """Where a person, or a team, reads a session that is theirs by login."""
    kind, _, id_ = session.audience.partition(":")
    if kind == "member":
        return Surface(WEB, "dm", id_)
    _, _, team = session.key.partition(":team:")
    return Surface(WEB, "group", team) if kind == "space" and team else None


def speaker(config: Config, message: Message) -> str:
    """The agent that says it: whose turn it is from, else the one that bindings choose for the chat."""
    named = str(message.meta.get("agentId") or "")
    of_session = str(message.meta.get("sessionKey") or "").split(":")
    if not named and of_session[0] == "agent" and len(of_session) > 1:
        named = of_session[1]
    known = {agent.id for agent in config.agent_list}
    return named if named in known else chosen(config, message.surface)


def chosen(config: Config, surface: Surface, team_ids: Sequence[str] = ()) -> AgentId:
    """The agent that answers on the pages where none is named: as for any channel, by `bindings`."""
    asked = [surface.origin(team_id=team) for team in team_ids or (None,)]
    found = [route(one, config.bindings, config.agent_list) for one in asked]
    return next((one for one in found if one.binding is not None), found[0]).agent_id


def require_whole(surface: Surface) -> None:
    """`InvalidInput` for a part of a chat on the pages: they have neither threads nor accounts."""
    if surface.channel == WEB and (surface.thread is not None or surface.account is not None):
        raise InvalidInput(
            f"chats on the pages have no threads and no accounts: {surface.address[:80]!r}",
            code="thread_unavailable",
            hint="Leave them out, as in web:dm:ann or web:group:research.",
        )


def chat_at(tx: Tx, surface: Surface, agent_id: str, config: Config) -> WebChat | None:
    """The conversation that an address of the pages names; None where there is no such chat or person."""
    agent = AgentId(agent_id)
    if surface.thread is not None or surface.account is not None:
        return None
    if surface.kind == "group":
        return _of_team(tx, surface.peer, agent)
    if surface.kind != "dm":
        return None
    if surface.peer == OWNER_HERE:
        return WebChat(str(MainKey(agent)), FOR_OWNER)
    return _begun(tx, surface.peer, agent, config) or _of_person(tx, surface.peer, agent)


def _of_team(tx: Tx, team_id: str, agent: AgentId) -> WebChat | None:
    try:
        team = teams.get(tx, team_id)
    except NotFound:
        return None
    if agent not in team.agents:
        return None
    return WebChat(f"agent:{agent}:team:{team.id}", for_space(team.space_id))


def _begun(tx: Tx, chat: str, agent: AgentId, config: Config) -> WebChat | None:
    """A chat has one agent, whoever writes into it."""
    for one in (agent, *(known.id for known in config.agent_list)):
        key = str(DirectKey(AgentId(one), WEB, chat))
        heard, _ = sessions.hearing(tx, key)
        if heard is not None:
            return WebChat(key, heard)
    return None


def _of_person(tx: Tx, named: str, agent: AgentId) -> WebChat | None:
    """A person who may talk to this agent: by a team of theirs that has it."""
    try:
        user = users.get(tx, named)
    except HoldfastError:
        return None
    if not user.active or not roles.may(user.role, Right.TALK):
        return None
    if user.role is Role.OWNER:
        return WebChat(str(MainKey(agent)), FOR_OWNER)
    able = any(user.id in team.members and agent in team.agents for team in teams.listing(tx))
    return WebChat(str(DirectKey(agent, None, user.id)), for_member(user.id)) if able else None


def last_inbound(tx: Tx) -> int | None:
    """When somebody last wrote on the pages, among the sessions that were last used."""
    newest = sa.select(table.c.channel, table.c.audience, table.c.last_external_at)
    newest = newest.where(table.c.status == "active").order_by(table.c.updated_at.desc()).limit(_LOOKED_AT)
    on_pages = [
        at for channel, heard, at in tx.conn.execute(newest) if channel == WEB or heard.startswith("member:")
    ]
    return max(on_pages, default=None)
