"""What several gateways share and people edit, version by version: the config, and each skill.

A version is only ever added, with who made it, when and through which surface; going back adds one too. What
was taken away has a version without content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from holdfast.clock import Millis
from holdfast.errors import NotFound
from holdfast.log import audit
from holdfast.log.store import Tx
from holdfast.log.tables import versions as table
from holdfast.text import clip

CONFIG: Final = "config"
SKILL: Final = "skill"
SIGNAL: Final = "versions"
MAX_LISTED: Final = 500
_MAX_WHAT: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    kind: str
    name: str
    number: int
    at: Millis
    actor: str
    surface: str
    what: str
    sha256: str | None
    size: int

    @property
    def removed(self) -> bool:
        return self.sha256 is None

    def told(self) -> dict[str, Any]:
        """As people are shown it, by HTTP and at the terminal."""
        return {
            "name": self.name,
            "version": self.number,
            "at": self.at,
            "by": self.actor,
            "surface": self.surface,
            "what": self.what,
            "sha256": self.sha256,
            "size": self.size,
            "removed": self.removed,
        }


_LISTED: Final = [column for column in table.c if column.name != "content"]


def add(
    tx: Tx, kind: str, name: str, content: bytes | None, *, what: str, act: str, by: str | None = None
) -> Version:
    """Append the next version, and tell the trail and every gateway of it. The transaction must be an ordered
    one: two who write at once then have one number each."""
    before = newest(tx, kind, name)
    made = Version(
        kind=kind,
        name=name,
        number=1 if before is None else before.number + 1,
        at=tx.now,
        actor=by or tx.reader.name,
        surface=(tx.origin or audit.LOCAL).surface,
        what=clip(what, _MAX_WHAT),
        sha256=None if content is None else digest(content),
        size=0 if content is None else len(content),
    )
    row = {column.name: getattr(made, column.name) for column in _LISTED}
    tx.conn.execute(sa.insert(table).values(**row, content=content))
    told = {"version": str(made.number), "what": made.what, "sha256": made.sha256 or ""}
    audit.note(tx, act, name or kind, by=by, **told)
    tx.wake(SIGNAL)
    return made


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def newest(tx: Tx, kind: str, name: str) -> Version | None:
    found = history(tx, kind, name, limit=1)
    return found[0] if found else None


def history(
    tx: Tx, kind: str, name: str, *, before: int | None = None, limit: int = MAX_LISTED
) -> list[Version]:
    """The newest first, without their content."""
    query = sa.select(*_LISTED).where(table.c.kind == kind, table.c.name == name)
    if before is not None:
        query = query.where(table.c.number < before)
    rows = tx.conn.execute(query.order_by(table.c.number.desc()).limit(min(limit, MAX_LISTED)))
    return [Version(**row) for row in rows.mappings()]


def current(tx: Tx, kind: str) -> list[Version]:
    """The newest version of every name, those that were taken away among them."""
    newest_of = (
        sa.select(table.c.name, sa.func.max(table.c.number).label("number"))
        .where(table.c.kind == kind)
        .group_by(table.c.name)
        .subquery()
    )
    joined = sa.and_(table.c.name == newest_of.c.name, table.c.number == newest_of.c.number)
    query = sa.select(*_LISTED).join(newest_of, joined).where(table.c.kind == kind).order_by(table.c.name)
    return [Version(**row) for row in tx.conn.execute(query).mappings()]


def numbers(tx: Tx) -> Mapping[tuple[str, str], int]:
    """The newest number of all there is: little enough to be looked at whenever something was written."""
    query = sa.select(table.c.kind, table.c.name, sa.func.max(table.c.number))
    return {(kind, name): number for kind, name, number in tx.conn.execute(query.group_by("kind", "name"))}


def get(tx: Tx, kind: str, name: str, number: int) -> tuple[Version, bytes | None]:
    """One version and its content; None where it says that the thing was taken away."""
    which = (table.c.kind == kind, table.c.name == name, table.c.number == number)
    row = tx.conn.execute(sa.select(table).where(*which)).mappings().one_or_none()
    if row is None:
        called = kind if not name else f"{kind} {name[:64]!r}"
        raise NotFound(
            f"no version {number} of {called}",
            code="unknown_version",
            hint="See its history for what there is.",
        )
    content = row["content"]
    version = Version(**{name: row[name] for name in row if name != "content"})
    return version, None if content is None else bytes(content)
