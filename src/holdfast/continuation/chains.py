"""How a session's chain stands, its steps and its cost, and what it was last told of pressure."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

import sqlalchemy as sa

from holdfast.config import Compaction
from holdfast.context import Pressure, how_full
from holdfast.continuation.tables import chains as table
from holdfast.ids import uuid7
from holdfast.log import Session, Tx
from holdfast.log.statements import Row, Statement, Update

COMPACTIONS_TTL_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """`band` is the last pressure band that the session was told of; None: none yet, which is not band 0.

    `used` of `window` is what the last turn's prompt took; 0 where that is not known or no longer true.
    """

    session_id: str
    session_key: str
    chain_id: str
    count: int = 0
    tokens: int = 0
    started_at: int | None = None
    traceparent: str | None = None
    band: int | None = None
    used: int = 0
    window: int = 0
    idle_turns: int = 0
    idle_at: int | None = None
    compactions: tuple[int, ...] = ()

    def restarted(self) -> Chain:
        """A new chain: someone from outside came in."""
        return replace(
            self,
            chain_id=uuid7(),
            count=0,
            tokens=0,
            started_at=None,
            traceparent=None,
            idle_turns=0,
            idle_at=None,
        )

    def pressure(self, settings: Compaction) -> Pressure | None:
        known = self.used > 0 and self.window > 0
        return how_full(settings, self.window, counted=self.used) if known else None

    def stepped(self, now: int) -> Chain:
        """One more accepted step."""
        return replace(self, count=self.count + 1, started_at=self.started_at or now)

    def compacted(self, now: int) -> Chain:
        """One more compaction that the agent asked for; those of the last day are counted."""
        kept = tuple(at for at in self.compactions if now - at < COMPACTIONS_TTL_MS)
        return replace(self, compactions=(*kept, now)[-100:])


_NAMES = tuple(f.name for f in fields(Chain))


def load(tx: Tx, session: Session) -> Chain:
    """The chain of a session; on PostgreSQL nobody else changes it before this transaction ends."""
    row = (_LOCKED if tx.postgres else _BY_SESSION).first(tx, session=session.id)
    if row is None:
        return Chain(session_id=session.id, session_key=session.key, chain_id=uuid7())
    return _chain(row)


def peek(tx: Tx, session: Session) -> Chain | None:
    """The same without a lock, where nothing follows from it."""
    row = _BY_SESSION.first(tx, session=session.id)
    return None if row is None else _chain(row)


def save(tx: Tx, chain: Chain) -> Chain:
    values = {name: getattr(chain, name) for name in _NAMES}
    values |= {"compactions": list(chain.compactions), "updated_at": tx.now}
    if _UPDATE.run(tx, values, session=chain.session_id) == 0:
        _INSERT.run(tx, **values)
    return chain


def _chain(row: Row) -> Chain:
    values = dict(zip(_NAMES, row, strict=True))
    return Chain(**{**values, "compactions": tuple(values["compactions"] or ())})


_INSERT = Statement(sa.insert(table))
_UPDATE = Update(table, table.c.session_id == sa.bindparam("session"))
_OF_SESSION = sa.select(*(table.c[name] for name in _NAMES)).where(
    table.c.session_id == sa.bindparam("session")
)
_BY_SESSION = Statement(_OF_SESSION)
_LOCKED = Statement(_OF_SESSION.with_for_update())
