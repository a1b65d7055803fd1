"""Who hears what is said under a session's key, and surfaces that only the owner reads.

A group is heard by everyone in it. Many people keep a private server with a channel for each matter: to the
service it is a group, to them it is their desk. The owner declares such a surface private, once; it then
writes and reads as the owner, until somebody else writes there: from then on it is a group, whatever was
declared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.errors import InvalidInput
from holdfast.keys import ChannelBucketKey, ChannelKey, GroupKey, parse_key
from holdfast.log import sessions
from holdfast.log.audience import FOR_OWNER, Audience, Reader, group_of, heard_by, of_key
from holdfast.log.statements import Statement
from holdfast.log.store import Tx
from holdfast.log.tables import exposed_surfaces as table

Declared = Callable[[str, str], bool]
"""Whether the owner declared a surface private: by its channel and the id of the group."""


@dataclass(frozen=True, slots=True)
class Exposed:
    """A surface on which somebody else than the owner wrote first, and when."""

    surface: Audience
    sender: str
    exposed_at: Millis


def group_heard(tx: Tx, group: Audience, *, declared: bool) -> Audience:
    """Who hears a group: the owner alone where that was declared and nobody else was seen to write."""
    return FOR_OWNER if declared and not is_exposed(tx, group) else group


def heard_under(tx: Tx, key: str | None, declared: Declared) -> Audience:
    """Who hears what is said under a session's key, as far as is known now."""
    named = of_key(key)
    if key is None:
        return FOR_OWNER
    if named != FOR_OWNER:
        return group_heard(tx, named, declared=_is_declared(key, declared))
    return sessions.heard_in(tx, key)


def reader_under(tx: Tx, key: str, declared: Declared) -> Reader:
    """All who hear what is said under a key, as one reader."""
    space = sessions.given_space(tx, key)
    return heard_by(heard_under(tx, key, declared), frozenset(() if space is None else (space,)))


def expose(tx: Tx, surface: Audience, sender: str) -> bool:
    """Somebody who is not the owner wrote on a surface; whether that is new."""
    if is_exposed(tx, surface):
        return False
    row = {"surface": surface, "sender": sender, "exposed_at": tx.now}
    tx.conn.execute(sa.insert(table), row)
    return True


def is_exposed(tx: Tx, surface: Audience) -> bool:
    return _EXPOSED.first(tx, surface=surface) is not None


def reclaim(tx: Tx, surface: Audience) -> bool:
    """The owner says once more that a surface is theirs alone; whether it had been exposed."""
    return tx.conn.execute(sa.delete(table).where(table.c.surface == surface)).rowcount > 0


def listing(tx: Tx, *, limit: int = 200) -> list[Exposed]:
    """The surfaces on which others were seen to write, newest first."""
    rows = tx.conn.execute(sa.select(table).order_by(table.c.exposed_at.desc()).limit(limit))
    return [Exposed(Audience(row.surface), row.sender, row.exposed_at) for row in rows]


def _is_declared(key: str, declared: Declared) -> bool:
    try:
        parsed = parse_key(key)
    except InvalidInput:
        return False
    if not isinstance(parsed, GroupKey | ChannelKey | ChannelBucketKey):
        return False
    return declared(parsed.channel, group_of(parsed))


_EXPOSED = Statement(sa.select(table.c.surface).where(table.c.surface == sa.bindparam("surface")))
