"""`store copy`: everything in one store, into an empty other one, of either engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa

from holdfast import migrations
from holdfast.errors import Conflict
from holdfast.log.audience import SYSTEM
from holdfast.log.store import Store, Tx

_BATCH = 1_000
_NOT_COPIED = {"alembic_version"}


def copy(
    source: Store, target: Store, *, progress: Callable[[str, int], None] | None = None
) -> dict[str, int]:
    """Copy all tables in one transaction of the target; counts by table. The target must be empty."""
    migrations.migrate(source)
    migrations.migrate(target)
    copied: dict[str, int] = {}
    with source.read(SYSTEM) as old, target.write(SYSTEM) as new:
        from_tables, to_tables = reflected(old.conn), {t.name: t for t in reflected(new.conn)}
        for table in from_tables:
            require_empty(new.conn, to_tables[table.name])
        for table in from_tables:
            copied[table.name] = 0
            for rows in batches(old.conn, table):
                new.conn.execute(sa.insert(to_tables[table.name]), rows)
                copied[table.name] += len(rows)
                if progress is not None:
                    progress(table.name, copied[table.name])
        for table in from_tables:
            carry_sequence(old, new, table)
    return copied


def reflected(conn: sa.Connection) -> list[sa.Table]:
    """All tables, in an order in which references point backwards."""
    metadata = sa.MetaData()
    metadata.reflect(conn)
    for table in metadata.tables.values():
        for column in table.columns:
            if isinstance(column.type, sa.JSON):
                column.type = type(column.type)(none_as_null=True)
    return [t for t in metadata.sorted_tables if t.name not in _NOT_COPIED]


def batches(conn: sa.Connection, table: sa.Table) -> Iterator[list[dict[str, Any]]]:
    query = sa.select(table).order_by(*table.primary_key.columns)
    result = conn.execution_options(yield_per=_BATCH).execute(query).mappings()
    for batch in result.partitions(_BATCH):
        yield [dict(row) for row in batch]


def require_empty(conn: sa.Connection, table: sa.Table) -> None:
    if conn.execute(sa.select(sa.literal(1)).select_from(table).limit(1)).first() is not None:
        raise Conflict(
            f"the target store is not empty (table {table.name})",
            code="store_not_empty",
            hint="Copy into a new database.",
        )


def carry_sequence(old: Tx, new: Tx, table: sa.Table) -> None:
    """On PostgreSQL numbers go on behind the highest that was given; SQLite counts from the rows."""
    key = list(table.primary_key.columns)
    if not new.postgres or len(key) != 1 or not isinstance(key[0].type, sa.Integer):
        return
    highest = old.conn.execute(sa.select(sa.func.max(key[0]))).scalar()
    if highest:
        names = {"table": table.name, "column": key[0].name}
        new.conn.execute(_SET_SEQUENCE, names | {"value": highest})


_SET_SEQUENCE = sa.text("SELECT setval(pg_get_serial_sequence(:table, :column), :value)")
