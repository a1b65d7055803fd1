"""Notes for a session: what its next turn should know of besides what it is asked.

A child's return, a wake that the agent elected, a word of the runtime. They wait until a turn of the session
is committed that was shown them; with that commit they are taken, once. Who wants a turn for them asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.ids import note_id
from holdfast.log.audience import Audience
from holdfast.log.statements import Statement
from holdfast.log.store import Tx
from holdfast.log.tables import notes as table
from holdfast.text import clean_text

MAX_CHARS: Final = 64_000
MAX_SHOWN: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteDraft:
    """`key` makes a repeat harmless. `trust` is the label of a `Trust`; `source` says where it came from.

    `audience` is who may read the text: of a session that others hear too, the note waits in vain.
    """

    key: str
    session_key: str
    audience: Audience
    kind: str
    text: str
    trust: str
    source: str
    expires_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    id: str
    key: str
    session_key: str
    audience: Audience
    kind: str
    text: str
    trust: str
    source: str
    created_at: Millis
    expires_at: Millis | None = None
    turn_id: str | None = None
    taken_at: Millis | None = None


_NAMES = tuple(f.name for f in fields(Note))


def post(tx: Tx, draft: NoteDraft) -> Note:
    """Leave a note; the same key again finds the one that is there, taken or not."""
    key = clean_text(draft.key)
    known = tx.conn.execute(sa.select(table).where(table.c.key == key)).mappings().first()
    if known is not None:
        return _note(known)
    note = Note(
        id=note_id(),
        key=key,
        session_key=clean_text(draft.session_key),
        audience=draft.audience,
        kind=draft.kind,
        text=clean_text(draft.text)[:MAX_CHARS],
        trust=draft.trust,
        source=clean_text(draft.source)[:400],
        created_at=tx.now,
        expires_at=None if draft.expires_at is None else Millis(draft.expires_at),
    )
    tx.conn.execute(sa.insert(table), {name: getattr(note, name) for name in _NAMES})
    return note


def waiting(tx: Tx, session_key: str, *, limit: int = MAX_SHOWN) -> list[Note]:
    """The notes that no committed turn was shown, oldest first; those whose time is over are left out."""
    rows = _WAITING.rows(tx, key=session_key, now=tx.now, most=min(limit, MAX_SHOWN))
    return [Note(**dict(zip(_NAMES, row, strict=True))) for row in rows]


def take(tx: Tx, ids: Sequence[str], turn_id: str) -> int:
    """Mark notes as shown by a turn, in the transaction that commits it; those taken before do not count."""
    if not ids:
        return 0
    fresh = sa.update(table).where(table.c.id.in_(list(ids)), table.c.taken_at.is_(None))
    return tx.conn.execute(fresh.values(turn_id=turn_id, taken_at=tx.now)).rowcount


def drop(tx: Tx, session_key: str, kinds: Sequence[str]) -> int:
    """Forget waiting notes of these kinds: what was elected before a reset is not for what comes after."""
    fresh = table.c.session_key == session_key, table.c.taken_at.is_(None), table.c.kind.in_(list(kinds))
    return tx.conn.execute(sa.delete(table).where(*fresh)).rowcount


def prune(tx: Tx, before: int, *, limit: int = 2_000) -> int:
    """Remove what was taken, or has expired, before a moment."""
    over = sa.or_(table.c.taken_at < before, table.c.expires_at < before)
    ids = sa.select(table.c.id).where(over).limit(limit)
    return tx.conn.execute(sa.delete(table).where(table.c.id.in_(ids))).rowcount


def _note(row: Mapping[Any, Any]) -> Note:
    return Note(**dict(row))


_WAITING = Statement(
    sa.select(*(table.c[name] for name in _NAMES))
    .where(
        table.c.session_key == sa.bindparam("key"),
        table.c.taken_at.is_(None),
        sa.or_(table.c.expires_at.is_(None), table.c.expires_at > sa.bindparam("now")),
    )
    .order_by(table.c.created_at, table.c.id)
    .limit(sa.bindparam("most"))
)
