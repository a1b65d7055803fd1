"""After a restart: what was under way is joined with what is known of it, and nothing is left unwatched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from holdfast.agents.subagents import registry
from holdfast.continuation import delegating, lookout, notices, records
from holdfast.continuation.delays import STALE_RUNNING_MS
from holdfast.continuation.parts import Parts
from holdfast.continuation.record import Phase, Record
from holdfast.continuation.state import Deliver, Fail, Lost
from holdfast.errors import NotFound
from holdfast.log import TurnStatus, Tx, turns
from holdfast.log.tables import agenda

_LIVE: Final[list[sa.ColumnElement[str]]] = [sa.literal_column("'queued'"), sa.literal_column("'running'")]


@dataclass(frozen=True, slots=True)
class Recovered:
    """Sessions looked after again, records whose turn or spawn had ended unseen, notices that were owed."""

    armed: int = 0
    settled: int = 0
    noticed: int = 0


def recover(tx: Tx, parts: Parts) -> Recovered:
    """Idempotent. Agenda and records are one store, so that most of the time there is nothing to mend."""
    settled = sum(_settled(tx, parts, r) for r in records.running_since(tx, int(tx.now) - STALE_RUNNING_MS))
    owed = [notices.settle(tx, record) for record in records.owed(tx)]
    missing = unwatched(tx)
    for owner, at in missing:
        lookout.arm(tx, owner, at)
    return Recovered(len(missing), settled, len(owed))


def unwatched(tx: Tx) -> list[tuple[str, int]]:
    """Sessions with something due that no item on the agenda looks after."""
    watched = sa.select(agenda.c.key).where(agenda.c.kind == lookout.KIND, agenda.c.status.in_(_LIVE))
    keys = {row.key for row in tx.conn.execute(watched)}
    return [(owner, at) for owner, at in records.owners_due(tx) if lookout.key_of(owner) not in keys]


def _settled(tx: Tx, parts: Parts, record: Record) -> bool:
    """A turn or a delegate that ended unseen, or of which nobody knows; all else has its own clock."""
    if record.phase is Phase.HANDED_OFF:
        return _joined(tx, parts, record)
    if record.phase is not Phase.GRANTED or record.turn_id is None:
        return False
    try:
        turn = turns.get(tx, record.turn_id)
    except NotFound:
        records.apply(tx, record, Fail("its turn is gone"))
        return True
    if not turn.status.ended or turn.status is TurnStatus.INTERRUPTED:
        return False
    event = Deliver() if turn.status is TurnStatus.COMMITTED else Fail(turn.error or "its turn failed")
    notices.settle(tx, records.apply(tx, record, event))
    return True


def _joined(tx: Tx, parts: Parts, record: Record) -> bool:
    """A delegate whose run nobody knows is not spawned again; one that is over has returned."""
    run = registry.by_spawn(tx, record.spawn_key or "")
    if run is None:
        notices.settle(tx, records.apply(tx, record, Lost()))
    elif not run.live:
        delegating.run_ended(tx, parts, run)
    return run is None or not run.live
