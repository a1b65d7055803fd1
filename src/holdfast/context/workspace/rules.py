"""Which workspace files a session is given, in which order; pure, from the kind of session and occasion."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from holdfast.context.messages import Trust
from holdfast.keys import (
    AgentKey,
    BoardTaskKey,
    BoardTopicKey,
    ChannelBucketKey,
    ChannelKey,
    DirectKey,
    GroupKey,
    MainKey,
    SubagentKey,
    parse_key,
)
from holdfast.log import FOR_OWNER

ORDER: Final = (
    "IDENTITY.md",
    "SOUL.md",
    "USER.md",
    "AGENTS.md",
    "TOOLS.md",
    "MEMORY.md",
    "HEARTBEAT.md",
    "BOOTSTRAP.md",
    "BOOT.md",
)
REQUIRED: Final = frozenset({"AGENTS.md", "TOOLS.md"})
# Given for one occasion only, so they ride in the carrier and leave the stable prefix alone.
OCCASIONAL: Final = frozenset({"HEARTBEAT.md", "BOOTSTRAP.md", "BOOT.md"})
# Instructions, which every chat is answered by; and what the owner may open to chats that others are in.
FOR_ALL: Final = frozenset({"AGENTS.md"})
OPENABLE: Final = frozenset({"IDENTITY.md", "SOUL.md", "TOOLS.md"})
_PERSONA: Final = frozenset({"IDENTITY.md", "SOUL.md", "USER.md"})
_ALWAYS: Final = frozenset({"AGENTS.md", "TOOLS.md"})


class SessionKind(StrEnum):
    MAIN = "main"
    PRIVATE = "private"
    SHARED = "shared"
    SUBAGENT = "subagent"
    OTHER = "other"


class Occasion(StrEnum):
    MESSAGE = "message"
    HEARTBEAT = "heartbeat"
    HEARTBEAT_LIGHT = "heartbeat-light"
    BOOT = "boot"
    FLUSH = "flush"


def kind_of(session_key: str, audience: str) -> SessionKind:
    """The kind of a session, by its key and by who hears it.

    A direct chat with somebody else than the owner is as shared as a group; a group that only the owner reads
    is as private as a direct chat.
    """
    kind = _kind(session_key)
    if audience == FOR_OWNER:
        return SessionKind.PRIVATE if kind is SessionKind.SHARED else kind
    return SessionKind.SHARED if kind in (SessionKind.MAIN, SessionKind.PRIVATE) else kind


def _kind(session_key: str) -> SessionKind:
    match parse_key(session_key):
        case SubagentKey():
            return SessionKind.SUBAGENT
        case MainKey():
            return SessionKind.MAIN
        case DirectKey():
            return SessionKind.PRIVATE
        case GroupKey() | ChannelKey() | ChannelBucketKey():
            return SessionKind.SHARED
        case AgentKey() | BoardTopicKey() | BoardTaskKey():
            return SessionKind.OTHER
    return SessionKind.OTHER


def names_for(
    kind: SessionKind,
    occasion: Occasion = Occasion.MESSAGE,
    *,
    first_session: bool = False,
    subagent_files: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """The names of the files to inject, in order.

    Subagents get AGENTS and TOOLS, or the files that are configured for them: of the persona's too, as older
    hosts did, and of nothing that is private.
    """
    if occasion is Occasion.HEARTBEAT_LIGHT:
        return ("HEARTBEAT.md",)
    wanted = set(_ALWAYS)
    if kind is SessionKind.SUBAGENT and subagent_files is not None:
        wanted = {*subagent_files} & (_ALWAYS | _PERSONA)
    if kind is not SessionKind.SUBAGENT:
        wanted |= _PERSONA
    if kind in (SessionKind.MAIN, SessionKind.PRIVATE):
        wanted.add("MEMORY.md")
        if first_session and occasion is Occasion.MESSAGE:
            wanted.add("BOOTSTRAP.md")
    if kind is not SessionKind.SUBAGENT:
        if occasion is Occasion.HEARTBEAT:
            wanted.add("HEARTBEAT.md")
        if occasion is Occasion.BOOT:
            wanted.add("BOOT.md")
    return tuple(name for name in ORDER if name in wanted)


def trust_of(name: str) -> Trust:
    """Workspace files are the operator's word; what the agent itself writes into is not."""
    base = name.rsplit("/", 1)[-1]
    return Trust.MODEL if base == "MEMORY.md" or name.startswith("memory/") else Trust.OPERATOR
