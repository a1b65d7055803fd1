"""What continuation knows of a session: what it was last told of pressure, and how idle it has been."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

import sqlalchemy as sa

from holdfast.config import Compaction
from holdfast.context import Pressure, how_full
from holdfast.continuation.tables import session_states as table
from holdfast.log import Session, Tx
from holdfast.log.statements import Statement, Update

COMPACTIONS_TTL_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """`band` is the last pressure band that the session was told of; None: none yet, which is not band 0.

    `used` of `window` is what the last turn's prompt took; 0 where that is not known or no longer true.
    """

    session_id: str
    session_key: str
    band: int | None = None
    used: int = 0
    window: int = 0
    idle_turns: int = 0
    idle_at: int | None = None
    compactions: tuple[int, ...] = ()

    def pressure(self, settings: Compaction) -> Pressure | None:
        known = self.used > 0 and self.window > 0
        return how_full(settings, self.window, counted=self.used) if known else None

    def compacted(self, now: int) -> SessionState:
        """One more compaction that the agent asked for; those of the last day are counted."""
        kept = tuple(at for at in self.compactions if now - at < COMPACTIONS_TTL_MS)
        return replace(self, compactions=(*kept, now)[-100:])


_NAMES = tuple(f.name for f in fields(SessionState))


def load(tx: Tx, session: Session) -> SessionState:
    """As it stands; of a session that nothing is known of, nothing."""
    row = _BY_SESSION.first(tx, session=session.id)
    if row is None:
        return SessionState(session_id=session.id, session_key=session.key)
    values = dict(zip(_NAMES, row, strict=True))
    return SessionState(**{**values, "compactions": tuple(values["compactions"] or ())})


def save(tx: Tx, state: SessionState) -> SessionState:
    values = {name: getattr(state, name) for name in _NAMES}
    values |= {"compactions": list(state.compactions), "updated_at": tx.now}
    if _UPDATE.run(tx, values, session=state.session_id) == 0:
        _INSERT.run(tx, **values)
    return state


_INSERT = Statement(sa.insert(table))
_UPDATE = Update(table, table.c.session_id == sa.bindparam("session"))
_BY_SESSION = Statement(
    sa.select(*(table.c[name] for name in _NAMES)).where(table.c.session_id == sa.bindparam("session"))
)
