"""The projection of each session: from where on it shows the log, in which forms, behind which summary.

Everything below `floor` is covered by a summary; what lies between `floor` and `cut` waits for one and
is left out of the context meanwhile. `revision` counts every change of what is shown, and never falls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.context.blobs import insert_new
from holdfast.context.tables import prunings, states
from holdfast.errors import Conflict
from holdfast.log import Session, Tx
from holdfast.log.statements import Statement, Update


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    session_id: str
    agent_id: str | None
    engine: str
    revision: int = 0
    floor: int = 0
    cut: int = 0
    summary_id: str | None = None
    fork_session_id: str | None = None
    fork_until: int | None = None
    first_session: bool = False
    daily: Mapping[str, str] | None = None
    called_at: Millis | None = None
    updated_at: Millis

    @property
    def shown_from(self) -> int:
        return max(self.floor, self.cut)


_NAMES = tuple(f.name for f in fields(State))
_BY_SESSION = Statement(
    sa.select(*(states.c[name] for name in _NAMES)).where(states.c.session_id == sa.bindparam("session"))
)
_UPDATE = Update(
    states, states.c.session_id == sa.bindparam("session"), states.c.revision == sa.bindparam("expected")
)
_FORMS = Statement(
    sa.select(prunings.c.entry_id, prunings.c.form).where(
        prunings.c.session_id == sa.bindparam("session"), prunings.c.position >= sa.bindparam("since")
    )
)


def find(tx: Tx, session_id: str) -> State | None:
    row = _BY_SESSION.first(tx, session=session_id)
    return None if row is None else State(**dict(zip(_NAMES, row, strict=True)))


def of(tx: Tx, session: Session, engine: str) -> State:
    """The state of a session as it stands, or as it will begin; nothing is written."""
    known = find(tx, session.id)
    if known is not None:
        return known
    earlier = sa.select(states.c.session_id).where(states.c.agent_id == session.agent_id).limit(1)
    first = tx.conn.execute(earlier).first() is None
    return State(
        session_id=session.id,
        agent_id=session.agent_id,
        engine=engine,
        first_session=first,
        updated_at=tx.now,
    )


def save(tx: Tx, state: State, **values: Any) -> State:
    """Write changes of a state that was read, unless another writer was faster (`Conflict`)."""
    new = replace(state, **values, updated_at=tx.now)
    shown = ("floor", "cut", "summary_id", "engine", "fork_session_id", "fork_until")
    if any(getattr(new, name) != getattr(state, name) for name in shown):
        new = replace(new, revision=state.revision + 1)
    row = {name: getattr(new, name) for name in _NAMES}
    if _UPDATE.run(tx, row, session=state.session_id, expected=state.revision) == 1:
        return new
    if tx.conn.execute(insert_new(tx, states).returning(states.c.revision), row).first() is not None:
        return new
    raise Conflict("the context changed meanwhile", code="stale_context", hint="Build it again.")


def drop(tx: Tx, session_id: str) -> None:
    """Forget a projection; the log is untouched and the next turn begins a new one."""
    for table in (states, prunings):
        tx.conn.execute(sa.delete(table).where(table.c.session_id == session_id))


def forms_of(tx: Tx, session_id: str, *, since: int) -> dict[str, str]:
    """The recorded forms of a session's entries from a position on, by entry."""
    return dict(_FORMS.rows(tx, session=session_id, since=since))


def record_forms(tx: Tx, state: State, found: Mapping[str, tuple[int, str]]) -> State:
    """Record new forms (entry → position and form) as one revision of the projection."""
    if not found:
        return state
    for entry_id, (position, form) in found.items():
        where = (prunings.c.session_id == state.session_id, prunings.c.entry_id == entry_id)
        if not tx.conn.execute(sa.update(prunings).where(*where).values(form=form)).rowcount:
            row = {
                "session_id": state.session_id,
                "entry_id": entry_id,
                "position": position,
                "form": form,
                "created_at": tx.now,
            }
            tx.conn.execute(sa.insert(prunings), row)
    bump = sa.update(states).where(states.c.session_id == state.session_id)
    tx.conn.execute(bump.values(revision=state.revision + 1, updated_at=tx.now))
    return replace(state, revision=state.revision + 1, updated_at=tx.now)


def copy_forms(tx: Tx, source: State, target: State) -> None:
    """A fork shows its parent's entries in the forms in which the parent does."""
    chosen = sa.select(
        sa.literal(target.session_id),
        prunings.c.entry_id,
        prunings.c.position,
        prunings.c.form,
        sa.literal(int(tx.now)),
    ).where(prunings.c.session_id == source.session_id, prunings.c.position >= source.shown_from)
    names = ["session_id", "entry_id", "position", "form", "created_at"]
    tx.conn.execute(sa.insert(prunings).from_select(names, chosen))


def forget_forms(tx: Tx, session_id: str, *, before: int) -> None:
    """Forms of entries that are no longer shown; manifests name the forms that they used themselves."""
    where = (prunings.c.session_id == session_id, prunings.c.position < before)
    tx.conn.execute(sa.delete(prunings).where(*where))
