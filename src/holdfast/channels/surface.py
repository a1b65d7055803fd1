"""A surface: the place where people see messages, as a value, as an address, and as a session's key."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Final, get_args

from holdfast.agents import Origin
from holdfast.agents.loop.asks import Deliver
from holdfast.config.session import PeerKind
from holdfast.errors import InvalidInput
from holdfast.ids import AgentId
from holdfast.keys import ChannelKey, DirectKey, GroupKey, ParsedKey, parse_key
from holdfast.log import Audience

KINDS: Final = get_args(PeerKind)
MAX_ADDRESS: Final = 480
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_THREAD: Final = ":thread:"
_FORMS: Final = "Addresses look like slack:channel:C42, telegram:dm:7 or discord:channel:42:thread:9."


@dataclass(frozen=True, slots=True)
class Surface:
    """A direct chat, a group or a channel, or a thread in one; only what has a session key can be built."""

    channel: str
    kind: PeerKind
    peer: str
    thread: str | None = None
    account: str | None = None

    def __post_init__(self) -> None:
        names = (self.channel, *(() if self.account is None else (self.account,)))
        if self.kind not in KINDS or not all(_NAME.fullmatch(name) for name in names):
            raise _refused(f"{self.channel}:{self.kind}:{self.peer}")
        if len(self.address) > MAX_ADDRESS:
            raise _refused(self.address)
        self.key("main")

    @property
    def address(self) -> str:
        """Its one name in targets and tables: `channel[/account]:kind:peer[:thread:id]`."""
        head = self.channel if self.account is None else f"{self.channel}/{self.account}"
        tail = "" if self.thread is None else f"{_THREAD}{self.thread}"
        return f"{head}:{self.kind}:{self.peer}{tail}"

    @classmethod
    def parse(cls, address: str) -> Surface:
        """Read an address; without a kind it is a channel's, as in `discord:42`."""
        head, mark, thread = address.partition(_THREAD)
        first, _, rest = head.partition(":")
        kind, _, peer = rest.partition(":")
        channel, slash, account = first.partition("/")
        if kind not in KINDS or not peer:
            kind, peer = "channel", rest
        if not peer or (mark and not thread) or (slash and not account):
            raise _refused(address)
        found: Any = kind
        return cls(channel, found, peer, thread if mark else None, account if slash else None)

    def key(self, agent_id: str) -> ParsedKey:
        """The session that an agent has here, where each surface has its own.

        A group's key has no account in it: its id is the same for all of them.
        """
        agent = AgentId(agent_id)
        match self.kind:
            case "dm":
                return DirectKey(agent, self.channel, self.peer, self.account, thread=self.thread)
            case "group":
                return GroupKey(agent, self.channel, self.peer, self.thread)
            case _:
                return ChannelKey(agent, self.channel, self.peer, self.thread)

    @classmethod
    def of_key(cls, key: str) -> Surface | None:
        """The surface that a key names; None for sessions that people see nowhere."""
        match parse_key(key):
            case DirectKey(channel=str(channel), peer=peer, account=account, thread=thread):
                return cls(channel, "dm", peer, thread, account)
            case GroupKey(channel=channel, group=peer, thread=thread):
                return cls(channel, "group", peer, thread)
            case ChannelKey(channel=channel, room=peer, thread=thread):
                return cls(channel, "channel", peer, thread)
        return None

    @property
    def parent(self) -> Surface | None:
        """Where a thread was opened."""
        return None if self.thread is None else replace(self, thread=None)

    def in_thread(self, thread: str) -> Surface:
        return replace(self, thread=thread)

    @property
    def direct(self) -> bool:
        return self.kind == "dm"

    def origin(self, *, guild_id: str | None = None, team_id: str | None = None) -> Origin:
        return Origin(self.channel, self.account, self.kind, self.peer, guild_id, team_id)

    def deliver(self, heard: Audience | None = None, **payload: Any) -> Deliver:
        """How words reach it: a parcel of the outbox, whose kind is the channel."""
        given = {name: value for name, value in payload.items() if value is not None}
        return Deliver(kind=self.channel, target=self.address, payload=given, heard=heard)


def _refused(text: str) -> InvalidInput:
    return InvalidInput(f"not a surface: {text[:80]!r}", code="bad_surface", hint=_FORMS)
