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
from holdfast.keys import ChannelBucketKey, ChannelKey, GroupKey, canonical_key, parse_key
from holdfast.log import sessions
from holdfast.log.audience import FOR_OWNER, Audience, Reader, for_group, group_of, heard_by, of_key
from holdfast.log.statements import Statement
from holdfast.log.store import Tx
from holdfast.log.tables import entries
from holdfast.log.tables import exposed_surfaces as table
from holdfast.log.tables import sessions as session_table

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
    heard, space = sessions.hearing(tx, key)
    named = of_key(key)
    if named != FOR_OWNER:
        heard = group_heard(tx, named, declared=_is_declared(key, declared))
    return heard_by(heard or FOR_OWNER, frozenset(() if space is None else (space,)))


def audiences_under(tx: Tx, key: str, *, most: int = 50) -> frozenset[Audience]:
    """Each audience of what was lately said under a key, and of its sessions.

    A look-up of the runtime's, whoever reads: it tells whether somebody may speak there, and nothing else.
    """
    return frozenset(Audience(row[0]) for row in _UNDER.rows(tx, key=key, own=_canonical(key), most=most))


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


def of_channel(tx: Tx, channel: str) -> list[tuple[str, Exposed]]:
    """The same for one channel, each with the id of its group."""
    begins = for_group(channel, None, "").removesuffix("::") + ":"
    return [
        (one.surface.removeprefix(begins).partition(":")[2], one)
        for one in listing(tx)
        if one.surface.startswith(begins)
    ]


def _canonical(key: str) -> str:
    try:
        return canonical_key(key)
    except InvalidInput:
        return key


def _is_declared(key: str, declared: Declared) -> bool:
    try:
        parsed = parse_key(key)
    except InvalidInput:
        return False
    if not isinstance(parsed, GroupKey | ChannelKey | ChannelBucketKey):
        return False
    return declared(parsed.channel, group_of(parsed))


_EXPOSED = Statement(sa.select(table.c.surface).where(table.c.surface == sa.bindparam("surface")))
_LATELY = (
    sa.select(entries.c.audience)
    .where(
        entries.c.session_key.in_((sa.bindparam("key"), sa.bindparam("own"))), entries.c.deleted_at.is_(None)
    )
    .order_by(entries.c.created_at.desc(), entries.c.position.desc())
    .limit(sa.bindparam("most"))
    .subquery()
)
_UNDER = Statement(
    sa.union(
        sa.select(_LATELY.c.audience),
        sa.select(session_table.c.audience).where(session_table.c.key == sa.bindparam("own")),
    )
)
