"""Projections: the ordered list of what a session's model sees, as values and in the store.

The items of a projection cover its part of the log without gaps or overlaps, in log order. All changes are
pure functions here; the store only compares revisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from holdfast.context.blobs import insert_new
from holdfast.context.history import require_unsummarised, settled_until
from holdfast.context.lossless.tables import debts
from holdfast.context.lossless.tables import projections as table
from holdfast.errors import Conflict
from holdfast.log import Tx, entries
from holdfast.log.tables import entries as entry_table
from holdfast.log.tables import sessions as session_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """The entries of a session from `first` up to, not including, `until` (None: open), shown as they are
    or by the summary that is named."""

    session_id: str
    first: int
    until: int | None = None
    summary_id: str | None = None
    depth: int = 0
    tokens: int = 0

    @property
    def is_summary(self) -> bool:
        return self.summary_id is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """`base` is what the session began with that is not its own: a fork's parent, what `/new` retained."""

    session_id: str
    items: tuple[Item, ...]
    base: tuple[Item, ...] = ()
    revision: int = 0
    stored: bool = False

    @property
    def summaries(self) -> tuple[Item, ...]:
        return tuple(item for item in self.items if item.is_summary)

    @property
    def raw(self) -> tuple[Item, ...]:
        return tuple(item for item in self.items if not item.is_summary)

    @property
    def summary_tokens(self) -> int:
        return sum(item.tokens for item in self.summaries)


def fresh(session_id: str, base: Sequence[Item] = ()) -> Projection:
    """A projection that has just begun: what it was given, which lies before, then the session's own log."""
    own = Item(session_id=session_id, first=own_start(base))
    return Projection(session_id=session_id, items=(*base, own), base=tuple(base))


def own_start(base: Sequence[Item]) -> int:
    """The position from which on a session's own entries lie."""
    return max((item.until or 0 for item in base), default=0)


def with_leaf(known: Projection, source: Item, until: int, leaf: Item) -> Projection:
    """The head of a raw range, up to `until`, replaced by its summary."""
    index = _index(known, source)
    if source.until == until:
        rest: tuple[Item, ...] = ()
    else:
        rest = (replace(source, first=until),)
    return _replaced(known, index, 1, (leaf, *rest))


def with_condensed(known: Projection, sources: Sequence[Item], node: Item) -> Projection:
    """A run of summaries replaced by one over them."""
    index = _index(known, sources[0])
    if known.items[index : index + len(sources)] != tuple(sources):
        raise _stale()
    return _replaced(known, index, len(sources), (node,))


def closed(known: Projection, until: int) -> tuple[Item, ...]:
    """The items as they are up to a position, for another session that may look but not change them."""
    found = (replace(i, until=until) if i.until is None else i for i in known.items)
    return tuple(i for i in found if i.until is not None and i.first < i.until)


def retained(known: Projection, depth: int, until: int) -> tuple[Item, ...]:
    """What `/new` keeps: summaries from a depth on; with -1 everything, the log's tail included."""
    if depth < 0:
        return closed(known, until)
    return tuple(item for item in known.summaries if item.depth >= depth)


def as_json(items: Sequence[Item]) -> list[dict[str, Any]]:
    return [
        {
            "session": i.session_id,
            "first": i.first,
            "until": i.until,
            **({"id": i.summary_id, "depth": i.depth, "tokens": i.tokens} if i.is_summary else {}),
        }
        for i in items
    ]


def from_json(found: Sequence[Mapping[str, Any]]) -> tuple[Item, ...]:
    return tuple(
        Item(
            session_id=row["session"],
            first=row["first"],
            until=row["until"],
            summary_id=row.get("id"),
            depth=row.get("depth", 0),
            tokens=row.get("tokens", 0),
        )
        for row in found
    )


def _index(known: Projection, item: Item) -> int:
    try:
        return known.items.index(item)
    except ValueError:
        raise _stale() from None


def _stale() -> Conflict:
    return Conflict("the projection changed meanwhile", code="stale_context", hint="Read it again.")


def _replaced(known: Projection, index: int, count: int, new: tuple[Item, ...]) -> Projection:
    return replace(known, items=(*known.items[:index], *new, *known.items[index + count :]))


NEW = "new"


def find(tx: Tx, session_id: str) -> Projection | None:
    row = tx.conn.execute(sa.select(table).where(table.c.session_id == session_id)).mappings().first()
    if row is None:
        return None
    return Projection(
        session_id=session_id,
        items=from_json(row["items"]),
        base=from_json(row["base"]),
        revision=row["revision"],
        stored=True,
    )


def of(tx: Tx, session_id: str, *, retain_depth: int) -> Projection:
    """The projection as it stands, or as it will begin; nothing is written.

    After `/new` it begins with the deep summaries of the session before, after `/reset` with nothing.
    """
    known = find(tx, session_id)
    if known is not None:
        return known
    before = _before(tx, session_id)
    if before is None:
        return fresh(session_id)
    earlier = of(tx, before, retain_depth=retain_depth)
    return fresh(session_id, retained(earlier, retain_depth, entries.head(tx) + 1))


def save(tx: Tx, known: Projection) -> Projection:
    """Write a changed projection as the next revision; `Conflict` if another writer was faster."""
    new = replace(known, revision=known.revision + 1, stored=True)
    row = {
        "session_id": new.session_id,
        "revision": new.revision,
        "items": as_json(new.items),
        "base": as_json(new.base),
        "updated_at": tx.now,
    }
    if known.stored:
        where = (table.c.session_id == known.session_id, table.c.revision == known.revision)
        done = tx.conn.execute(sa.update(table).where(*where).values(**row)).rowcount == 1
    else:
        done = tx.conn.execute(insert_new(tx, table).returning(table.c.revision), row).first() is not None
    if not done:
        raise Conflict("the projection changed meanwhile", code="stale_context", hint="Read it again.")
    return new


def fork(
    tx: Tx, parent_id: str, child_id: str, *, before: int | None = None, retain_depth: int
) -> Projection:
    """The child begins with the parent's projection as it is now, or as it was when the child began, or with
    what was said before a position; it cannot change the parent's."""
    parent = of(tx, parent_id, retain_depth=retain_depth)
    column = entry_table.c.position
    own = tx.conn.execute(sa.select(sa.func.min(column)).where(entry_table.c.session_id == child_id)).scalar()
    until = settled_until(tx, parent_id) + 1
    if before is not None:
        summed = [item.until for item in parent.summaries if item.until is not None]
        require_unsummarised(max(summed, default=0), before)
        until = min(until, before)
    return begin(tx, child_id, closed(parent, until if own is None else min(own, until)))


def begin(tx: Tx, session_id: str, base: Sequence[Item]) -> Projection:
    return save(tx, fresh(session_id, base))


def drop(tx: Tx, session_id: str) -> None:
    """Forget a projection and what it owes; the log and the summaries stay."""
    for one in (table, debts):
        tx.conn.execute(sa.delete(one).where(one.c.session_id == session_id))


def _before(tx: Tx, session_id: str) -> str | None:
    """The session that `/new` ended in favour of this one."""
    own = sa.select(session_table.c.key).where(session_table.c.id == session_id).scalar_subquery()
    query = sa.select(session_table.c.id).where(
        session_table.c.key == own,
        session_table.c.successor_id == session_id,
        session_table.c.archive_cause == NEW,
    )
    return tx.conn.execute(query.limit(1)).scalar()
