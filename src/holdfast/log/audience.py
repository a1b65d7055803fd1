"""Audiences and readers: who may read something, and who is reading.

What a thing is *about* (its space, its topic) may be guessed and changed. Who may *read* it is its audience:
set once, when it is written, from the authenticated writer and the surface, never from what it says. To widen
it is an act of its own (`share`). A `Reader` is whoever reads, and for whom; every transaction carries one.

    owner                               the owner alone
    member:<id>                         one member of a team, and the owner
    peer:<channel>:<account>:<peer>     a guest in a direct chat, and the owner
    group:<channel>:<account>:<group>   everyone in a group or channel, and the owner
    space:<id>                          all who hold that space, and the owner
    anyone                              everyone
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NewType, TypeVar

from holdfast.errors import InvalidInput
from holdfast.keys import ChannelBucketKey, ChannelKey, ConversationKey, GroupKey, ParsedKey, parse_key

Audience = NewType("Audience", str)
T = TypeVar("T")

FOR_OWNER: Final = Audience("owner")
FOR_ANYONE: Final = Audience("anyone")
MAX_LENGTH: Final = 800
_KINDS: Final = ("member:", "peer:", "group:", "space:")


def for_peer(channel: str, account: str | None, peer: str) -> Audience:
    return Audience(f"peer:{_part(channel)}:{_part(account or '')}:{peer}")


def for_group(channel: str, account: str | None, group: str) -> Audience:
    return Audience(f"group:{_part(channel)}:{_part(account or '')}:{group}")


def for_member(user_id: str) -> Audience:
    return Audience(f"member:{user_id}")


def for_space(space_id: str) -> Audience:
    return Audience(f"space:{space_id}")


def parse_audience(text: str) -> Audience:
    """An audience that somebody names; `InvalidInput` for what is none."""
    known = text in (FOR_OWNER, FOR_ANYONE)
    named = text.startswith(_KINDS) and len(text) <= MAX_LENGTH and bool(text.partition(":")[2])
    if not (known or named) or not text.isprintable():
        raise InvalidInput(
            f"not an audience: {text[:80]!r}",
            code="bad_audience",
            hint="Use owner, anyone, space:<id>, or group: or peer: with <channel>:<account>:<id>.",
        )
    return Audience(text)


def covers(wide: str, narrow: str) -> bool:
    """Whether everyone who may read `narrow` may read `wide`, as far as their names tell."""
    return wide in (narrow, FOR_ANYONE) or narrow == FOR_OWNER


def meet(audiences: Iterable[str]) -> Audience:
    """Who may read all of these: the audience of what is made from them. Of nothing, anyone may read it."""
    found = set(audiences) - {FOR_ANYONE}
    if not found:
        return FOR_ANYONE
    return Audience(found.pop()) if len(found) == 1 else FOR_OWNER


def space_of(audience: str) -> str | None:
    """The space that an audience is shared with, if it is one's."""
    return audience.removeprefix("space:") if audience.startswith("space:") else None


_ROOM = re.compile(
    r"(?:(?P<channel>[a-z][a-z0-9_-]{0,31}):(?:[^:]+:)?)?(?:channel|group|room):(?P<id>.+)", re.IGNORECASE
)
"""A conversation that its provider's id tells to be a room's: `discord:channel:42`, `group:-100`."""


def of_key(key: str | None) -> Audience:
    """What a session's key tells by itself: groups and channels are heard by everyone in them.

    All else is the owner's, which nobody else may read. A guest's direct chat is told by who writes in it,
    not by its key: see `Session.audience`.
    """
    parsed = _parsed(key)
    if isinstance(parsed, ConversationKey) and (room := _ROOM.fullmatch(parsed.conversation)):
        return for_group(room["channel"] or "unknown", None, room["id"])
    if not isinstance(parsed, GroupKey | ChannelKey | ChannelBucketKey):
        return FOR_OWNER
    return for_group(parsed.channel, None, group_of(parsed))


def group_of(key: GroupKey | ChannelKey | ChannelBucketKey) -> str:
    """The id of the group that a key names; its threads are heard by the same people."""
    match key:
        case GroupKey():
            return key.group
        case ChannelKey():
            return key.room
    return "*"


@dataclass(frozen=True, slots=True)
class SurfaceName:
    """The surface that an audience is heard on."""

    channel: str
    account: str | None
    id: str


def surface_of(audience: str) -> SurfaceName | None:
    """The guest's chat or the group that an audience names; None for one that is no surface's."""
    kind, _, rest = audience.partition(":")
    parts = rest.split(":", 2)
    if kind not in ("peer", "group") or len(parts) != 3:
        return None
    channel, account = (one.replace("%3A", ":").replace("%25", "%") for one in parts[:2])
    return SurfaceName(channel, account or None, parts[2])


def _parsed(key: str | None) -> ParsedKey | None:
    if not key:
        return None
    try:
        return parse_key(key)
    except InvalidInput:
        return None


def _part(text: str) -> str:
    """A part before others: without the mark that ends it."""
    return text.replace("%", "%25").replace(":", "%3A")


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads: what they may read at most, and of which agents; None is no limit.

    `name` is for the audit trail and for people. Which spaces are looked at is the board's `View`: that
    narrows what is shown, and never adds to what may be read.
    """

    name: str
    audiences: frozenset[Audience] | None
    agents: frozenset[str] | None = None

    @property
    def reads_all(self) -> bool:
        return self.audiences is None and self.agents is None

    def may_read(self, audience: str) -> bool:
        return self.audiences is None or audience in self.audiences

    def may_read_of(self, audience: str, agent_id: str | None) -> bool:
        """Whether something of this audience, that this agent wrote or owns, may be read."""
        return self.may_read(audience) and (self.agents is None or agent_id in self.agents)

    def within(self, other: Reader) -> Reader:
        """Who may read no more than both."""
        if other.reads_all:
            return self
        return replace(
            self,
            audiences=_both(self.audiences, other.audiences),
            agents=_both(self.agents, other.agents),
        )


def _both(one: frozenset[T] | None, other: frozenset[T] | None) -> frozenset[T] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


@dataclass(frozen=True, slots=True)
class Origin:
    """Through which surface somebody acts, and from which address; for the audit trail."""

    surface: str
    address: str | None = None


# The home's owner: at the terminal, on the pages, with a token without limits.
OWNER: Final = Reader("owner", None)
# The runtime itself, where it acts for nobody: recovery, the index, retention, migrations.
SYSTEM: Final = Reader("system", None)
# Whoever may read nothing at all.
NOBODY: Final = Reader("nobody", frozenset())


@lru_cache(maxsize=4096)
def heard_by(audience: str, spaces: frozenset[str] = frozenset()) -> Reader:
    """All who hear what is said to an audience, as one reader: what it reads, each of them may read.

    `spaces` are those that a person gave the surface.
    """
    if audience == FOR_OWNER:
        return OWNER
    held = (for_space(one) for one in spaces)
    return Reader(audience, frozenset((Audience(audience), FOR_ANYONE, *held)))


def token_reader(name: str, spaces: frozenset[str] | None, agents: frozenset[str] | None) -> Reader:
    """Whoever holds a token: all, or what is shared with its spaces, and of its agents."""
    if spaces is None:
        return Reader(name, None, agents)
    return Reader(name, frozenset((FOR_ANYONE, *map(for_space, spaces))), agents)
