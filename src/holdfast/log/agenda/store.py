"""The agenda in the database: each change is a pure transition, applied only at the revision it was made for.

That two items of one lane never run at once is not left to queries: a unique index on the lanes of
running items makes it impossible, whatever processes share the database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import IntegrityError

from holdfast.clock import Millis
from holdfast.errors import Busy, NotFound
from holdfast.ids import agenda_id
from holdfast.log.agenda.state import (
    MOST_LOSSES,
    SUSPECT_LOSSES,
    Cancel,
    Claim,
    Event,
    Expire,
    IllegalTransition,
    Item,
    Renew,
    Reschedule,
    Status,
    transition,
)
from holdfast.log.statements import Row, Statement, among
from holdfast.log.store import Tx
from holdfast.log.tables import agenda as table
from holdfast.log.tables import halts
from holdfast.text import clean_json, clean_text

SIGNAL: Final = "agenda"
CANCEL_SIGNAL: Final = "agenda.cancel"
MAX_PAGE: Final = 500
MAX_CLAIM: Final = 256
MAX_WAITING: Final = 1_000

# Written into the SQL rather than bound, so that the partial indexes on the status can be used.
_QUEUED: Final[sa.ColumnElement[str]] = sa.literal_column("'queued'")
_RUNNING: Final[sa.ColumnElement[str]] = sa.literal_column("'running'")


def enqueue(
    tx: Tx,
    kind: str,
    payload: Mapping[str, Any],
    *,
    lane: str | None = None,
    key: str | None = None,
    due_at: int | None = None,
    max_attempts: int = 1,
    most_waiting: int = MAX_WAITING,
) -> Item:
    """Put something on the agenda, in the caller's transaction.

    While an item with the same `key` waits or runs, that one is returned, brought forward if the new due
    time is earlier. Items without a lane run side by side; those of one lane run one at a time, in order,
    and at most `most_waiting` wait there (`Busy`, code `queue_full`).
    """
    due = tx.now if due_at is None else due_at
    key = clean_json(key)
    if key is not None:
        known = _live_by_key(tx, key)
        if known is not None:
            return _brought_forward(tx, known, due)
    id_ = agenda_id()
    _check_room(tx, lane, most_waiting)
    item = Item(
        id=id_,
        kind=kind,
        lane=lane or id_,
        key=key,
        status=Status.QUEUED,
        due_at=due,
        payload=clean_json(payload),
        max_attempts=max_attempts,
        created_at=tx.now,
        updated_at=tx.now,
    )
    insert = _INSERT_POSTGRES if tx.postgres else _INSERT
    if insert.first(tx, **_values(item)) is None:
        return _brought_forward(tx, _live_by_key(tx, key or "") or item, due)
    tx.wake(SIGNAL)
    return item


def get(tx: Tx, id_: str) -> Item:
    item = find(tx, id_)
    if item is None:
        raise NotFound(f"no agenda item {id_[:80]!r}", code="unknown_agenda_item")
    return item


def find(tx: Tx, id_: str) -> Item | None:
    row = _BY_ID.first(tx, id=id_)
    return None if row is None else _read(row)


def listing(
    tx: Tx,
    *,
    statuses: Collection[Status] = (Status.QUEUED, Status.RUNNING),
    kinds: Collection[str] | None = None,
    lane: str | None = None,
    limit: int = 100,
) -> list[Item]:
    """What is due next comes first."""
    query = _listing(tuple(sorted(statuses)), kinds=kinds is not None, lane=lane is not None)
    rows = query.rows(tx, kinds=sorted(kinds or ()), lane=lane, most=max(1, min(limit, MAX_PAGE)))
    return [_read(row) for row in rows]


def apply(tx: Tx, item: Item, event: Event) -> Item:
    """Make the transition durable; `IllegalTransition` if the item has moved on since it was read."""
    after = transition(item, event, tx.now)
    if _UPDATE.run(tx, **_values(after), id_=item.id, expected=item.revision) != 1:
        raise IllegalTransition(f"agenda item {item.id} was changed by someone else")
    if after.status is Status.QUEUED or (after.status.ended and _frees_someone(tx, after)):
        tx.wake(SIGNAL)
    return after


def settle(tx: Tx, item: Item, event: Event) -> Item:
    """Like `apply` for the owner of a claim: a renewal or a request to cancel meanwhile is no obstacle."""
    try:
        return apply(tx, item, event)
    except IllegalTransition:
        now = _locked(tx, item.id)
        if now.revision == item.revision or (now.owner, now.claims) != (item.owner, item.claims):
            raise
        return apply(tx, now, event)


def renew(
    tx: Tx, items: Collection[Item], *, owner: str, lease_ms: int, heard: Collection[str] = ()
) -> list[Item]:
    """Renew those of the items that this owner still holds by the same claim; the others are left out.

    `heard` are the ids of those that gave a sign of life.
    """
    query = _BY_IDS_LOCKED if tx.postgres else _BY_IDS
    rows = query.rows(tx, ids=[item.id for item in items])
    claims = {item.id: item.claims for item in items}
    held = [
        item
        for item in map(_read, rows)
        if item.status is Status.RUNNING and item.owner == owner and item.claims == claims[item.id]
    ]
    until = tx.now + lease_ms
    renewed = [transition(item, Renew(owner, until, item.id in heard), tx.now) for item in held]
    _write_all(tx, renewed)
    return renewed


def claim(
    tx: Tx,
    kinds: Mapping[str, int],
    *,
    owner: str,
    lease_ms: int,
    most: int = MAX_CLAIM,
    suspects: bool = True,
) -> list[Item]:
    """Take what is due, oldest first: of each kind at most so many, of each lane at most one; of those that
    may have ended the processes before this one at most one in all, and with `suspects` false none."""
    room = {kind: free for kind, free in kinds.items() if free > 0}
    if not room:
        return []
    most = min(most, sum(room.values()), MAX_CLAIM)
    found = _heads(tx, room, most, suspects)
    if sum(item.is_suspect for item in found) > 1:
        first = next(item for item in found if item.is_suspect)
        rest = [item for item in _heads(tx, room, most, False) if item.lane != first.lane]
        found = sorted([first, *rest], key=lambda item: (item.due_at, item.id))[:most]
    wanted: list[Item] = []
    for item in found:
        if room[item.kind] > 0:
            room[item.kind] -= 1
            wanted.append(transition(item, Claim(owner, tx.now + lease_ms), tx.now))
    if not tx.postgres or len(wanted) < 2:
        return wanted if _try_write(tx, wanted) else []
    if _try_write(tx, wanted):
        return wanted
    return [item for item in wanted if _try_write(tx, [item])]


def _heads(tx: Tx, room: Mapping[str, int], most: int, suspects: bool) -> list[Item]:
    """The first of each lane that is free, as far as they are due."""
    query = _HEADS_POSTGRES if tx.postgres else _HEADS
    below = MOST_LOSSES if suspects else SUSPECT_LOSSES
    rows = query.rows(tx, now=tx.now, kinds=sorted(room), most=most, losses_below=below)
    return [_read(row) for row in rows]


def next_due(tx: Tx, kinds: Collection[str], *, after: int = -1) -> int | None:
    """When the next queued item of these kinds falls due after a moment, whether or not its lane is free."""
    row = _NEXT_DUE.first(tx, kinds=sorted(kinds), after=after)
    return None if row is None else row[0]


def expire(
    tx: Tx,
    *,
    dead: Callable[[str], bool] = lambda owner: False,
    orphans: Collection[str] = (),
    limit: int = MAX_PAGE,
) -> list[Item]:
    """Take back what nobody works on any more: leases that ran out, and owners known to be dead.

    `orphans` are ids of items that their owner knows nothing of, as when the answer to its claim was lost.
    """
    query = _HELD_LOCKED if tx.postgres else _HELD
    back: list[Item] = []
    for item in map(_read, query.rows(tx, most=limit)):
        orphan = item.id in orphans
        gone = orphan or (item.owner is not None and dead(item.owner))
        if gone or (item.lease_until or 0) <= tx.now:
            back.append(apply(tx, item, Expire(owner_dead=gone, planned=orphan)))
    return back


def held_by(tx: Tx, owner: str) -> list[Item]:
    """What an owner runs by what the agenda knows."""
    return [_read(row) for row in _HELD_BY.rows(tx, owner=owner)]


def bring_forward(tx: Tx, kinds: Collection[str], *, ms: int, since: int) -> int:
    """After the clock was set back by `ms`: whoever waits for time to pass waits no longer for that, a lease
    lasts no longer either.

    Moved are items of these kinds, those between two attempts, and what was due when it was written; the
    times of the others stand. What was written from `since` on, by the new clock, is left alone; so is on
    PostgreSQL all that is not in the future, since another machine with a right clock may have written it.
    """
    before = -1 if tx.postgres else since
    moved = _BRING_FORWARD.run(tx, kinds=sorted(kinds), ms=ms, now=tx.now, before=before)
    _UPDATED_NOW.run(tx, now=tx.now)
    _LEASES_SHORTENED.run(tx, ms=ms, after=tx.now + ms)
    if moved:
        tx.wake(SIGNAL)
    return moved


def written_ahead(tx: Tx) -> int:
    """By how much what waits and runs was last written after now: the clock was set back since then."""
    row = _LAST_WRITTEN.first(tx)
    return max(0, int(row[0]) - tx.now) if row is not None and row[0] is not None else 0


def cancel(tx: Tx, id_: str, *, reason: str = "cancelled") -> Item:
    """Cancel an item; whoever runs it, in whatever process, is rung for to stop its handler."""
    after = apply(tx, _locked(tx, id_), Cancel(reason))
    if after.status is Status.RUNNING:
        tx.wake(CANCEL_SIGNAL)
    return after


def asked_to_stop(tx: Tx, owner: str) -> list[Item]:
    """What an owner still runs though it was cancelled."""
    return [_read(row) for row in _TO_STOP.rows(tx, owner=owner)]


def cancel_lane(tx: Tx, lane: str, *, kinds: Collection[str], reason: str) -> int:
    """Cancel what waits in a lane; what runs there is left alone."""
    count = 0
    while waiting := listing(tx, statuses=[Status.QUEUED], kinds=kinds, lane=lane, limit=MAX_PAGE):
        for item in waiting:
            cancel(tx, item.id, reason=reason)
        count += len(waiting)
    return count


def _locked(tx: Tx, id_: str) -> Item:
    """An item as it is now and, until the end of the transaction, stays for everyone else."""
    row = (_BY_ID_LOCKED if tx.postgres else _BY_ID).first(tx, id=id_)
    return get(tx, id_) if row is None else _read(row)


def _try_write(tx: Tx, items: Sequence[Item]) -> bool:
    """False if a lane was taken meanwhile, which on SQLite cannot be: there is one writer."""
    if not tx.postgres:
        _write_all(tx, items)
        return True
    try:
        with tx.savepoint():
            _write_all(tx, items)
    except IntegrityError:
        return False
    return True


def _write_all(tx: Tx, items: Sequence[Item]) -> None:
    """Write items that were read, and on PostgreSQL locked, in this transaction."""
    for item in items:
        _UPDATE.run(tx, **_values(item), id_=item.id, expected=item.revision - 1)


def is_live(tx: Tx, key: str) -> bool:
    """Whether an item with this key waits or runs: the cheapest way to leave well alone, for hot paths."""
    sql = _IS_LIVE.replace("?", "%s") if tx.postgres else _IS_LIVE
    with tx.driver(sql) as connection:
        return connection.execute(sql, (clean_text(key),)).fetchone() is not None


_IS_LIVE: Final = "SELECT 1 FROM agenda WHERE key = ? AND status IN ('queued', 'running') LIMIT 1"


def _live_by_key(tx: Tx, key: str) -> Item | None:
    row = _LIVE_KEY.first(tx, key=key)
    return None if row is None else _read(row)


def _frees_someone(tx: Tx, item: Item) -> bool:
    """Whether something may wait for the lane that an item leaves; a lane of its own has nobody else.

    On PostgreSQL another transaction may put something there that is not seen yet: there it always may.
    """
    if item.lane == item.id:
        return False
    return tx.postgres or _WAITING.first(tx, lane=item.lane, before=0) is not None


def _brought_forward(tx: Tx, item: Item, due: int) -> Item:
    if item.status is Status.QUEUED and due < item.due_at:
        return apply(tx, item, Reschedule(due))
    return item


def _check_room(tx: Tx, lane: str | None, most: int) -> None:
    if lane is None:
        return
    if _WAITING.first(tx, lane=lane, before=most - 1) is not None:
        raise Busy(
            f"{most} items wait in this lane already",
            code="queue_full",
            hint="Wait for the running work to finish, or cancel some of what waits.",
        )


@dataclass(frozen=True, slots=True)
class Halt:
    """Why nothing of an agent's work is begun, and since when."""

    reason: str
    since: Millis


def halted(tx: Tx) -> Halt | None:
    """Whether the home stands still until someone releases it."""
    row = _HALTED.first(tx)
    return None if row is None else Halt(row[0], Millis(row[1]))


def halt(tx: Tx, reason: str) -> Halt:
    """Begin none of the work that may be halted, in any process and after any restart, until `release`."""
    known = halted(tx)
    if known is not None:
        return known
    tx.conn.execute(sa.insert(halts), {"name": _HOME, "since": tx.now, "reason": reason[:400]})
    tx.wake(SIGNAL)
    return Halt(reason[:400], tx.now)


def release(tx: Tx) -> Halt | None:
    """Let work begin again; what was halted, if anything was."""
    known = halted(tx)
    tx.conn.execute(sa.delete(halts))
    tx.wake(SIGNAL)
    return known


_HOME: Final = "home"
_HALTED = Statement(sa.select(halts.c.reason, halts.c.since))
_NAMES = tuple(f.name for f in fields(Item))


def _values(item: Item) -> dict[str, Any]:
    values = {name: getattr(item, name) for name in _NAMES}
    values["status"] = item.status.value
    if item.error is not None:
        values["error"] = clean_text(item.error)[:4000]
    return values


def _read(row: Row) -> Item:
    values = dict(zip(_COLUMN_NAMES, row, strict=True))
    values["status"] = Status(values["status"])
    return Item(**values)


_COLUMN_NAMES = tuple(table.c.keys())
_ALL = sa.select(table)
_ID = table.c.id == sa.bindparam("id")
_MOST: sa.BindParameter[int] = sa.bindparam("most")
_NOW_DUE = (
    table.c.status == _QUEUED,
    table.c.due_at <= sa.bindparam("now"),
    among(table.c.kind, "kinds"),
)
_other = table.alias("other")
_HEAD_ROWS = (
    _ALL.where(
        *_NOW_DUE,
        table.c.losses < sa.bindparam("losses_below"),
        ~sa.exists().where(_other.c.lane == table.c.lane, _other.c.status == _RUNNING),
        ~sa.exists().where(
            _other.c.lane == table.c.lane,
            _other.c.status == _QUEUED,
            sa.tuple_(_other.c.due_at, _other.c.id) < sa.tuple_(table.c.due_at, table.c.id),
        ),
    )
    .order_by(table.c.due_at, table.c.id)
    .limit(_MOST)
)
_HEADS = Statement(_HEAD_ROWS)
_HEADS_POSTGRES = Statement(_HEAD_ROWS.with_for_update(skip_locked=True, of=table))
_INSERT = Statement(sa.insert(table).returning(table.c.id))
_INSERT_POSTGRES = Statement(
    postgresql.insert(table)
    .on_conflict_do_nothing(
        index_elements=["key"], index_where=sa.text("key IS NOT NULL AND status IN ('queued', 'running')")
    )
    .returning(table.c.id)
)
_BY_ID = Statement(_ALL.where(_ID))
_BY_ID_LOCKED = Statement(_ALL.where(_ID).with_for_update())
_THESE = _ALL.where(among(table.c.id, "ids")).order_by(table.c.id)
_BY_IDS = Statement(_THESE)
_BY_IDS_LOCKED = Statement(_THESE.with_for_update())
_HELD_ROWS = _ALL.where(table.c.status == _RUNNING).order_by(table.c.lease_until).limit(_MOST)
_HELD = Statement(_HELD_ROWS)
_HELD_LOCKED = Statement(_HELD_ROWS.with_for_update(skip_locked=True))
_OWNED = _ALL.where(table.c.status == _RUNNING, table.c.owner == sa.bindparam("owner"))
_HELD_BY = Statement(_OWNED)
_TO_STOP = Statement(_OWNED.where(table.c.cancel_requested.is_(sa.true())))
_LIVE_KEY = Statement(_ALL.where(table.c.key == sa.bindparam("key"), table.c.status.in_([_QUEUED, _RUNNING])))
_NEXT_DUE = Statement(
    sa.select(sa.func.min(table.c.due_at)).where(
        table.c.status == _QUEUED,
        table.c.due_at > sa.bindparam("after"),
        among(table.c.kind, "kinds"),
    )
)
_WAITING = Statement(
    sa.select(sa.literal_column("1"))
    .where(table.c.lane == sa.bindparam("lane"), table.c.status == _QUEUED)
    .offset(sa.bindparam("before"))
    .limit(1)
)
_BRING_FORWARD = Statement(
    sa.update(table)
    .where(
        table.c.status == _QUEUED,
        table.c.due_at > sa.bindparam("now"),
        sa.or_(among(table.c.kind, "kinds"), table.c.attempts > 0, table.c.due_at <= table.c.updated_at),
        sa.or_(table.c.updated_at > sa.bindparam("now"), table.c.updated_at < sa.bindparam("before")),
    )
    .values(
        due_at=table.c.due_at - sa.bindparam("ms", type_=sa.BigInteger),
        revision=table.c.revision + 1,
        updated_at=sa.bindparam("now"),
    )
)
_LIVE = table.c.status.in_([_QUEUED, _RUNNING])
_LAST_WRITTEN = Statement(sa.select(sa.func.max(table.c.updated_at)).where(_LIVE))
_UPDATED_NOW = Statement(
    sa.update(table)
    .where(_LIVE, table.c.updated_at > sa.bindparam("now"))
    .values(updated_at=sa.bindparam("now"))
)
_LEASES_SHORTENED = Statement(
    sa.update(table)
    .where(table.c.status == _RUNNING, table.c.lease_until > sa.bindparam("after", type_=sa.BigInteger))
    .values(lease_until=table.c.lease_until - sa.bindparam("ms", type_=sa.BigInteger))
)
_UPDATE = Statement(
    sa.update(table)
    .where(table.c.id == sa.bindparam("id_"), table.c.revision == sa.bindparam("expected"))
    .values({name: sa.bindparam(name) for name in _NAMES if name not in ("id", "created_at")})
)


@cache
def _listing(statuses: tuple[Status, ...], *, kinds: bool, lane: bool) -> Statement:
    """Each status by itself and with its lane, so that the partial index of that status can be used."""
    own = (table.c.lane == sa.bindparam("lane"),) if lane else ()
    parts = [sa.and_(table.c.status == sa.literal_column(f"'{status}'"), *own) for status in statuses]
    query = _ALL.where(sa.or_(sa.false(), *parts))
    query = query.where(among(table.c.kind, "kinds")) if kinds else query
    return Statement(query.order_by(table.c.due_at, table.c.id).limit(_MOST))
