"""What each role may do: the one table that the API, the docs and the tests read.

The owner reads everything. Nobody else does, not even an administrator: who manages people reads what is
theirs and what is shared with their teams, like everyone. What could open the owner's words by a detour (the
config, agents, skills, plugins, backups) is therefore the owner's.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from holdfast.errors import InvalidInput


class Role(StrEnum):
    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"
    VIEWER = "viewer"

    @classmethod
    def parse(cls, text: str) -> Role:
        try:
            return cls(text.lower())
        except ValueError:
            raise InvalidInput(
                f"not a role: {text[:40]!r}", code="bad_role", hint=f"Use {', '.join(cls)}."
            ) from None


class Right(StrEnum):
    """What somebody may be allowed to do; the value is what people read."""

    READ_SHARED = "read what is shared with their teams"
    TALK = "talk to their teams' agents, in a session of their own and in the team's"
    WRITE_BOARD = "write on the board, in their teams' spaces"
    TOKENS = "make tokens that may do what they may"
    PEOPLE = "invite, change and remove people and teams"
    AUDIT = "read the audit trail"
    DECIDE = "decide what agents may run"
    READ_ALL = "read everything"
    HOME = "change the config, agents, skills, plugins and channels; back up and restore"


_VIEWER: Final = frozenset((Right.READ_SHARED, Right.TOKENS))
_MEMBER: Final = _VIEWER | {Right.TALK, Right.WRITE_BOARD}
_ADMIN: Final = _MEMBER | {Right.PEOPLE, Right.AUDIT}
RIGHTS: Final[Mapping[Role, frozenset[Right]]] = {
    Role.OWNER: frozenset(Right),
    Role.ADMIN: _ADMIN,
    Role.MEMBER: _MEMBER,
    Role.VIEWER: _VIEWER,
}


def may(role: Role, right: Right) -> bool:
    return right in RIGHTS[role]


def may_give(giver: Role, role: Role) -> bool:
    """Whether somebody may make or unmake another of this role: nobody hands out more than they have."""
    return may(giver, Right.PEOPLE) and RIGHTS[role] <= RIGHTS[giver]


def table() -> str:
    """The table of roles as the docs show it."""
    head = f"| may | {' | '.join(Role)} |\n|---|{'---|' * len(Role)}"
    rows = [
        f"| {right.value} | {' | '.join('yes' if may(role, right) else '' for role in Role)} |"
        for right in Right
    ]
    return "\n".join((head, *rows))
