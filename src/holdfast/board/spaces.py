"""Spaces: the places of the board, one for each slug, and which of them sees which.

A space sees itself and those that its connectivity says it does. `default_visible` only seeds: when a space
is added, every missing edge from and to it is written down once, after its target's wish.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import sqlalchemy as sa

from holdfast.board import tags
from holdfast.board.reads import Query
from holdfast.board.tables import space_edges, spaces
from holdfast.board.tags import DEFAULT_NAME, DEFAULT_SPACE, Label
from holdfast.clock import Millis
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.log import Tx, changes
from holdfast.text import clean_text

MAX_SPACES: Final = 1000
MAX_NAME: Final = 120
_COLOR: Final = re.compile(r"#[0-9A-Fa-f]{6}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """`shared` says that somebody else than the owner holds it: see `sharing`."""

    id: str
    name: str
    color: str | None = None
    default_visible: bool = True
    shared: bool = False
    connectivity: Mapping[str, bool] = field(default_factory=dict)
    created_at: Millis
    updated_at: Millis


@dataclass(frozen=True, slots=True)
class Upserted:
    space: Space
    created: bool


_DEFAULT: Final = Space(id=DEFAULT_SPACE, name=DEFAULT_NAME, created_at=Millis(0), updated_at=Millis(0))


def id_of(name: str, given: str | None = None) -> str:
    """The id of a space: made from its name, so that a tag of that name means the same space."""
    text = name if given is None else given.removeprefix("space-")
    label = tags.space_of_label(text)
    if label is None:
        raise InvalidInput(
            f"nothing of {text[:40]!r} can name a space", code="bad_space", hint="Use letters or digits."
        )
    return label.space_id


def upsert(
    tx: Tx,
    name: str,
    *,
    id_: str | None = None,
    color: str | None = None,
    default_visible: bool | None = None,
) -> Upserted:
    """The space of this slug, made if there is none; what is given is taken over."""
    name = clean_name(name)
    space_id = id_of(name, id_)
    wanted = {"name": name, "color": check_color(color), "default_visible": default_visible}
    values = {key: value for key, value in wanted.items() if value is not None}
    created = _insert(tx, Label(space_id, name), values)
    if not created:
        _update(tx, get(tx, space_id), values)
    return Upserted(get(tx, space_id), created)


def ensure(tx: Tx, labels: Iterable[Label]) -> None:
    """Make the spaces that are missing; for writes only, a read never does."""
    for label in labels:
        _insert(tx, label, {})


def require(tx: Tx, space_id: str) -> str:
    """The id, when there is such a space. The default space is always there."""
    if space_id != DEFAULT_SPACE and not known(tx, [space_id]):
        raise unknown(space_id)
    return space_id


def known(tx: Tx, ids: Iterable[str]) -> frozenset[str]:
    """Which of these are spaces."""
    wanted = set(ids)
    found = {id_ for (id_,) in _KNOWN.rows(tx, ids=sorted(wanted))} if wanted else set()
    return frozenset(found | ({DEFAULT_SPACE} & wanted))


def unknown(space_id: str) -> NotFound:
    return NotFound(
        f"no space {space_id[:80]!r}", code="unknown_space", hint="GET /api/spaces lists those there are."
    )


def get(tx: Tx, space_id: str) -> Space:
    row = tx.conn.execute(sa.select(spaces).where(spaces.c.id == space_id)).mappings().first()
    if row is None and space_id != DEFAULT_SPACE:
        raise unknown(space_id)
    space = _DEFAULT if row is None else Space(**row)
    return _with_edges(tx, [space])[0]


def get_many(tx: Tx, ids: Iterable[str]) -> list[Space]:
    query = sa.select(spaces).where(spaces.c.id.in_(sorted(set(ids)))).order_by(spaces.c.id)
    return _with_edges(tx, [Space(**row) for row in tx.conn.execute(query).mappings()])


def listing(
    tx: Tx, *, ids: frozenset[str] | None = None, after: str = "", limit: int = MAX_SPACES
) -> list[Space]:
    """Spaces by id; the default space is among them whether or not anyone has written to it."""
    query = sa.select(spaces).where(spaces.c.id > after).order_by(spaces.c.id)
    if ids is not None:
        query = query.where(spaces.c.id.in_(sorted(ids)))
    found = [Space(**row) for row in tx.conn.execute(query.limit(limit)).mappings()]
    wanted = after < DEFAULT_SPACE and (ids is None or DEFAULT_SPACE in ids)
    if wanted and all(space.id != DEFAULT_SPACE for space in found):
        found = sorted([*found, _DEFAULT], key=lambda space: space.id)[:limit]
    return _with_edges(tx, found)


def baseline(tx: Tx, source_id: str) -> frozenset[str]:
    """What a space sees: itself, and each space to which an edge says true."""
    return frozenset(
        (source_id, *(target for (target,) in _SEEN.rows(tx, source=source_id, most=MAX_SPACES)))
    )


def connect(
    tx: Tx, space_id: str, edges: Mapping[str, bool], *, default_visible: bool | None = None
) -> Space:
    """Say what a space sees. `default_visible` changes nothing between the spaces that there are."""
    space = get(tx, space_id)
    missing = edges.keys() - known(tx, edges)
    if missing:
        raise unknown(min(missing))
    ensure(tx, [Label(DEFAULT_SPACE, DEFAULT_NAME)] if DEFAULT_SPACE in (space_id, *edges) else [])
    for target, visible in edges.items():
        if target != space_id:
            _write_edge(tx, space_id, target, visible)
    changed = {} if default_visible is None else {"default_visible": default_visible}
    _update(tx, space, changed, touch=bool(edges))
    return get(tx, space_id)


def clean_name(text: str) -> str:
    name = " ".join(clean_text(text).split())
    if not name or len(name) > MAX_NAME:
        raise InvalidInput(f"a name has 1 to {MAX_NAME} characters", code="bad_name")
    return name


def check_color(color: str | None) -> str | None:
    if color and not _COLOR.fullmatch(color):
        raise InvalidInput(f"not a colour: {color[:20]!r}", code="bad_color", hint="Use #RRGGBB.")
    return color or None


def _insert(tx: Tx, label: Label, values: Mapping[str, Any]) -> bool:
    """Make a space and its edges, unless it is there; the default space always comes first."""
    if _KNOWN.rows(tx, ids=[label.space_id]):
        return False
    if label.space_id != DEFAULT_SPACE:
        _insert(tx, Label(DEFAULT_SPACE, DEFAULT_NAME), {})
    count = tx.conn.execute(sa.select(sa.func.count()).select_from(spaces)).scalar() or 0
    if count >= MAX_SPACES:
        raise Conflict(
            f"there are {MAX_SPACES} spaces already",
            code="too_many_spaces",
            hint="Use a tag of a space that there is, or one with a prefix, which names no space.",
        )
    row: dict[str, Any] = {
        "id": label.space_id,
        "name": label.name[:MAX_NAME],
        "default_visible": True,
    } | dict(values)
    tx.conn.execute(sa.insert(spaces), row | {"created_at": tx.now, "updated_at": tx.now})
    _seed_edges(tx, label.space_id, visible=row["default_visible"])
    changes.emit(tx, "space.upserted", label.space_id)
    return True


def _seed_edges(tx: Tx, new: str, *, visible: bool) -> None:
    others = sa.select(spaces).where(spaces.c.id != new)
    towards = others.with_only_columns(spaces.c.id, sa.literal(new), sa.literal(visible, sa.Boolean))
    away = others.with_only_columns(sa.literal(new), spaces.c.id, spaces.c.default_visible)
    for edges in (towards, away):
        columns = ["source_id", "target_id", "visible"]
        tx.conn.execute(sa.insert(space_edges).from_select(columns, edges))


def _write_edge(tx: Tx, source: str, target: str, visible: bool) -> None:
    here = sa.and_(space_edges.c.source_id == source, space_edges.c.target_id == target)
    if tx.conn.execute(sa.update(space_edges).where(here).values(visible=visible)).rowcount == 0:
        row = {"source_id": source, "target_id": target, "visible": visible}
        tx.conn.execute(sa.insert(space_edges), row)


def _update(tx: Tx, space: Space, values: Mapping[str, Any], *, touch: bool = False) -> None:
    changed = {key: value for key, value in values.items() if getattr(space, key) != value}
    if changed or touch:
        statement = sa.update(spaces).where(spaces.c.id == space.id)
        tx.conn.execute(statement.values(**changed, updated_at=tx.now))
        changes.emit(tx, "space.upserted", space.id)


def _with_edges(tx: Tx, found: list[Space]) -> list[Space]:
    query = sa.select(space_edges).where(space_edges.c.source_id.in_([space.id for space in found]))
    edges: dict[str, dict[str, bool]] = {}
    for row in tx.conn.execute(query.order_by(space_edges.c.source_id, space_edges.c.target_id)):
        edges.setdefault(row.source_id, {})[row.target_id] = bool(row.visible)
    return [replace(space, connectivity=edges.get(space.id, {})) for space in found]


_KNOWN: Final = Query("SELECT id FROM spaces WHERE id IN :ids")
_SEEN: Final = Query(
    "SELECT target_id FROM space_edges WHERE source_id = :source AND visible IS TRUE LIMIT :most"
)
