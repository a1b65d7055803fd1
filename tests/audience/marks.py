"""Marks: a word of each audience that nobody else may ever see, and who may read which."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from holdfast.log import (
    FOR_ANYONE,
    FOR_OWNER,
    Audience,
    Reader,
    for_group,
    for_member,
    for_peer,
    for_space,
    heard_by,
)
from holdfast.log.audience import token_reader

CHANNEL: Final = "pier"
SPACE_A, SPACE_B = "space-a", "space-b"
TIDE, REEF = "team-tide", "team-reef"
MARK: Final = re.compile(r"mk[a-z]+q[0-9a-f]{10}")


@dataclass(frozen=True, slots=True)
class Mark:
    """Words of one audience: `word` is the secret, `hook` the word beside it that others might look for."""

    name: str
    audience: Audience
    agent: str | None
    word: str
    hook: str

    @property
    def text(self) -> str:
        return f"the {self.hook} of {self.name} is {self.word}"


def mark(name: str, audience: Audience, agent: str | None = "main") -> Mark:
    plain = re.sub(r"[^a-z]", "", name)
    return Mark(name, audience, agent, f"mk{plain}q{secrets.token_hex(5)}", f"hook{plain}")


@dataclass(frozen=True, slots=True)
class Marks:
    """All of them. `beta` are the owner's words to another agent, `desk` those in a private group."""

    owner: Mark = field(default_factory=lambda: mark("owner", FOR_OWNER))
    beta: Mark = field(default_factory=lambda: mark("beta", FOR_OWNER, "beta"))
    desk: Mark = field(default_factory=lambda: mark("desk", FOR_OWNER))
    guest: Mark = field(default_factory=lambda: mark("guest", for_peer(CHANNEL, None, "gil")))
    one: Mark = field(default_factory=lambda: mark("groupone", for_group(CHANNEL, None, "g1")))
    two: Mark = field(default_factory=lambda: mark("grouptwo", for_group(CHANNEL, None, "g2")))
    space_a: Mark = field(default_factory=lambda: mark("spacea", for_space(SPACE_A), None))
    space_b: Mark = field(default_factory=lambda: mark("spaceb", for_space(SPACE_B), None))
    member: Mark = field(default_factory=lambda: mark("member", for_member("usr-member")))
    team: Mark = field(default_factory=lambda: mark("team", for_space(TIDE)))
    other: Mark = field(default_factory=lambda: mark("other", for_member("usr-other"), "beta"))
    reef: Mark = field(default_factory=lambda: mark("reef", for_space(REEF), None))
    beta_in_a: Mark = field(default_factory=lambda: mark("betaina", for_space(SPACE_A), "beta"))

    @property
    def all(self) -> tuple[Mark, ...]:
        return tuple(getattr(self, name) for name in self.__dataclass_fields__)

    def foreign(self, reader: Reader) -> tuple[Mark, ...]:
        return tuple(one for one in self.all if not reader.may_read_of(one.audience, one.agent))

    def own(self, reader: Reader) -> tuple[Mark, ...]:
        return tuple(one for one in self.all if reader.may_read_of(one.audience, one.agent))

    def named(self, words: Iterable[str]) -> list[str]:
        by_word = {one.word: one.name for one in self.all}
        return sorted({by_word[word] for word in words if word in by_word})

    def leaked(self, text: str, reader: Reader) -> list[str]:
        """The names of marks in a text that this reader may not read."""
        words = set(MARK.findall(text))
        return self.named(words & {one.word for one in self.foreign(reader)}) if words else []

    def found(self, text: str) -> list[str]:
        return self.named(MARK.findall(text))


# People who log in, one of each role and one of another team: their login, role and team.
PEOPLE: Final[dict[str, tuple[str, str, str | None]]] = {
    "owner in person": ("boss", "owner", None),
    "admin": ("admin", "admin", "reef"),
    "member": ("member", "member", "tide"),
    "viewer": ("viewer", "viewer", "tide"),
    "other member": ("other", "member", "reef"),
}
TEAMS: Final = {"tide": "main", "reef": "beta"}


def person(name: str) -> Reader:
    """What is theirs and their team's; an administrator reads no more than that."""
    login, role, team = PEOPLE[name]
    if role == "owner":
        return token_reader(name, None, None)
    held = frozenset((FOR_ANYONE, for_member(f"usr-{login}"), for_space(f"team-{team}")))
    return Reader(name, held)


# Who holds a token. Each is as the specification has it, not as the product computes it for a request.
HOLDERS: Final[dict[str, Reader]] = {
    "owner": token_reader("owner", None, None),
    "unlimited": token_reader("unlimited", None, None),
    "space A": token_reader("space A", frozenset((SPACE_A,)), None),
    "space B": token_reader("space B", frozenset((SPACE_B,)), None),
    "beta": token_reader("beta", None, frozenset(("beta",))),
    "beta in A": token_reader("beta in A", frozenset((SPACE_A,)), frozenset(("beta",))),
    "stranger": Reader("stranger", frozenset()),
    **{name: person(name) for name in PEOPLE},
}
LIMITS: Final[dict[str, dict[str, list[str]]]] = {
    "unlimited": {},
    "space A": {"spaces": [SPACE_A]},
    "space B": {"spaces": [SPACE_B]},
    "beta": {"agents": ["beta"]},
    "beta in A": {"spaces": [SPACE_A], "agents": ["beta"]},
}

# The chats in which an agent speaks, by the key of their session, and who hears them.
SURFACES: Final[dict[str, Audience]] = {
    "agent:main:main": FOR_OWNER,
    "agent:main:pier:dm:ada": FOR_OWNER,
    "agent:beta:main": FOR_OWNER,
    "agent:main:pier:group:desk": FOR_OWNER,
    "agent:main:pier:dm:gil": for_peer(CHANNEL, None, "gil"),
    "agent:main:pier:group:g1": for_group(CHANNEL, None, "g1"),
    "agent:main:pier:group:g2": for_group(CHANNEL, None, "g2"),
    "agent:main:dm:usr-member": for_member("usr-member"),
    "agent:main:team:tide": for_space(TIDE),
    "agent:beta:dm:usr-other": for_member("usr-other"),
}


def hears(key: str) -> Reader:
    """All who hear a chat, as one reader."""
    return heard_by(SURFACES[key])
