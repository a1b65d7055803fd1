"""Which agent and which session a message is for. Pure: the config and what the message says decide."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.agents.loop.asks import Ask, Mode
from holdfast.agents.routing import Origin, route
from holdfast.config import Config
from holdfast.config.session import SessionConfig
from holdfast.ids import AgentId
from holdfast.keys import (
    ChannelKey,
    DirectKey,
    GroupKey,
    MainKey,
    ParsedKey,
    canonical_agent_id,
    canonical_key,
    parse_key,
)
from holdfast.log import FOR_OWNER

_MODES: dict[str, Mode] = {"steer": "steer", "collect": "collect", "interrupt": "interrupt"}


@dataclass(frozen=True, slots=True)
class Address:
    agent_id: str
    session_key: str
    channel: str | None = None


def address(ask: Ask, config: Config) -> Address:
    """The key as given, else the one that the origin makes, else the agent's main session."""
    origin = ask.origin
    named = None if ask.agent_id is None else str(canonical_agent_id(ask.agent_id))
    channel = None if origin is None else origin.channel
    if ask.session_key is not None:
        key = canonical_key(ask.session_key)
        agent = parse_key(key).agent_id or named or _routed(origin, config)
        config.agent(agent)
        return Address(agent, key, parse_key(key).channel or channel)
    agent = named or _routed(origin, config)
    config.agent(agent)
    if origin is None:
        return Address(agent, str(MainKey(AgentId(agent))), channel)
    made = _key(agent, origin, config.session, ask.thread_id, alone=_is_alone(ask, origin, config))
    return Address(agent, str(made), channel)


def _is_alone(ask: Ask, origin: Origin, config: Config) -> bool:
    """Whether nobody but the owner hears what is said there: only then may it share the main session."""
    if ask.heard is not None:
        return ask.heard == FOR_OWNER
    if origin.peer_kind == "dm" or origin.peer_id is None:
        return ask.owner
    return config.is_private(origin.channel, origin.peer_id)


def queue_mode(ask: Ask, config: Config, channel: str | None) -> Mode:
    """What becomes of a message while a turn runs."""
    if ask.mode is not None:
        return ask.mode
    queue = config.messages.queue
    return _MODES.get(queue.by_channel.get(channel or "", queue.mode), "queue")


def _routed(origin: Origin | None, config: Config) -> str:
    if origin is None:
        return config.default_agent_id
    return route(origin, config.bindings, config.agent_list).agent_id


def _key(agent: str, origin: Origin, config: SessionConfig, thread: str | None, *, alone: bool) -> ParsedKey:
    id_ = AgentId(agent)
    if origin.peer_id is None or origin.peer_kind is None:
        return MainKey(id_, thread)
    if origin.peer_kind == "dm":
        return _direct(id_, origin, config, thread, alone=alone)
    if origin.peer_kind == "group" and config.group_scope == "main" and alone:
        return MainKey(id_, thread)
    if origin.peer_kind == "group":
        return GroupKey(id_, origin.channel, origin.peer_id, thread)
    return ChannelKey(id_, origin.channel, origin.peer_id, thread)


def _direct(
    agent: AgentId, origin: Origin, config: SessionConfig, thread: str | None, *, alone: bool
) -> ParsedKey:
    """One person's chats share a session as widely as `dmScope` says; linked ids count as one person.

    The main session is the owner's: nobody else's chat is ever a part of it.
    """
    assert origin.peer_id is not None
    spoken = f"{origin.channel}:{origin.peer_id}"
    person = next((name for name, ids in config.identity_links.items() if spoken in ids), None)
    match config.dm_scope:
        case "main" if alone:
            return MainKey(agent, thread)
        case "per-peer":
            return DirectKey(agent, None, person or origin.peer_id, thread=thread)
        case "per-account-channel-peer" if origin.account_id is not None:
            return DirectKey(agent, origin.channel, origin.peer_id, origin.account_id, thread=thread)
        case _:
            if person is not None:
                return DirectKey(agent, None, person, thread=thread)
            return DirectKey(agent, origin.channel, origin.peer_id, thread=thread)
