"""Who hears what is said under a session's key, and surfaces that only the owner reads.

A group is heard by everyone in it. Many people keep a private server with a channel for each matter: to the
service it is a group, to them it is their desk. The owner declares such a surface private, once; it then
writes and reads as the owner, until somebody else writes there: from then on it is a group, whatever was
declared. In the same way a group may be given to a space (a team's), until somebody who does not hold it
writes there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.errors import InvalidInput
from holdfast.keys import (
    ChannelBucketKey,
    ChannelKey,
    ConversationKey,
    DirectKey,
    GroupKey,
    ParsedKey,
    parse_key,
)
from holdfast.log import sessions
from holdfast.log.audience import (
    FOR_ANYONE,
    FOR_OWNER,
    Audience,
    Reader,
    for_group,
    for_peer,
    for_space,
    group_of,
    heard_by,
    meet,
    of_key,
    surface_of,
)
from holdfast.log.statements import Statement
from holdfast.log.store import Tx
from holdfast.log.tables import entries
from holdfast.log.tables import exposed_surfaces as table
from holdfast.log.tables import sessions as session_table
from holdfast.log.tables import surface_spaces as given_table

Declared = Callable[[str, str], bool]
"""Whether the owner declared a surface private: by its channel and the id of the group."""


@dataclass(frozen=True, slots=True)
class Exposed:
    """A surface on which somebody else than the owner wrote first, and when."""

    surface: Audience
    sender: str
    exposed_at: Millis


def group_heard(tx: Tx, group: Audience, *, declared: bool) -> Audience:
    """Who hears a group: the space that it was given to, or the owner alone where that was declared, as long
    as nobody else was seen to write."""
    space = space_given(tx, group)
    if (space is None and not declared) or is_exposed(tx, group):
        return group
    return FOR_OWNER if space is None else for_space(space)


def space_given(tx: Tx, group: Audience) -> str | None:
    """The space that a group was given to, whoever was seen there since."""
    found = _GIVEN.first(tx, surface=group)
    return None if found is None else str(found[0])


def give(tx: Tx, group: Audience, space_id: str, address: str) -> None:
    """Let a group be a space's from now on; what was said there before stays as it was."""
    take_back(tx, group)
    row = {"surface": group, "space_id": space_id, "address": address, "given_at": tx.now}
    tx.conn.execute(sa.insert(given_table), row)
    reclaim(tx, group)


def take_back(tx: Tx, group: Audience) -> bool:
    """Let a group be one like others again; whether it was a space's."""
    return tx.conn.execute(sa.delete(given_table).where(given_table.c.surface == group)).rowcount > 0


def take_all_back(tx: Tx, space_id: str) -> None:
    tx.conn.execute(sa.delete(given_table).where(given_table.c.space_id == space_id))


def given(tx: Tx, spaces: Sequence[str]) -> list[tuple[str, str, bool]]:
    """Every group of these spaces: the space, the group's address, and whether others were seen there."""
    seen = sa.exists().where(table.c.surface == given_table.c.surface)
    query = sa.select(given_table.c.space_id, given_table.c.address, seen)
    query = query.where(given_table.c.space_id.in_(spaces))
    rows = tx.conn.execute(query.order_by(given_table.c.given_at, given_table.c.address))
    return [(row[0], row[1], bool(row[2])) for row in rows]


def heard_under(tx: Tx, key: str | None, declared: Declared) -> Audience:
    """Who hears what is said under a session's key, as far as is known now."""
    named = of_key(key)
    if key is None:
        return FOR_OWNER
    if named != FOR_OWNER:
        return group_heard(tx, named, declared=_is_declared(key, declared))
    heard, _ = sessions.hearing(tx, key)
    return heard or meet(_guests(tx, key) or (FOR_OWNER,))


def reader_under(tx: Tx, key: str, declared: Declared) -> Reader:
    """All who hear what is said under a key, as one reader."""
    heard, space = sessions.hearing(tx, key)
    named = of_key(key)
    if named != FOR_OWNER:
        heard = group_heard(tx, named, declared=_is_declared(key, declared))
    elif heard is None:
        guests = _guests(tx, key)
        heard = FOR_ANYONE if len(guests) > 1 else next(iter(guests), FOR_OWNER)
    return heard_by(heard, frozenset(() if space is None else (space,)))


def _guests(tx: Tx, key: str) -> frozenset[Audience]:
    """Whose a chat is of which there is no session here: a guest's, if its host said so of words in it or of
    others of that guest's; of nobody that is known, it is the owner's."""
    match _parsed(key):
        case DirectKey(channel=str(channel), account=account, peer=peer):
            told = [for_peer(channel, one, peer) for one in (account, None)]
            return frozenset(Audience(row[0]) for row in _TOLD.rows(tx, one=told[0], other=told[1]))
        case ConversationKey() as chat:
            whole = str(replace(chat, thread=None))
            said = {audience for one in {key, whole} for audience in audiences_under(tx, one)}
            return frozenset(one for one in said if surface_of(one) is not None)
    return frozenset()


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
    parsed = _parsed(key)
    return key if parsed is None else parsed.key


def _parsed(key: str) -> ParsedKey | None:
    try:
        return parse_key(key)
    except InvalidInput:
        return None


def _is_declared(key: str, declared: Declared) -> bool:
    parsed = _parsed(key)
    if not isinstance(parsed, GroupKey | ChannelKey | ChannelBucketKey):
        return False
    return declared(parsed.channel, group_of(parsed))


_GIVEN = Statement(sa.select(given_table.c.space_id).where(given_table.c.surface == sa.bindparam("surface")))
_FOR_GUEST = sa.select(entries.c.audience).where(entries.c.audience != sa.text("'owner'")).limit(1)
_TOLD = Statement(
    sa.union_all(
        *(
            sa.select(_FOR_GUEST.where(entries.c.audience == sa.bindparam(name)).subquery())
            for name in ("one", "other")
        )
    )
)
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
