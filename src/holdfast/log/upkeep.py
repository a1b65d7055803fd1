"""Looking after a store: what is wrong in it, what is in it, and a copy of it in another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from holdfast import migrations
from holdfast.errors import Conflict, Unavailable
from holdfast.log import entries
from holdfast.log.audience import SYSTEM
from holdfast.log.store import Store, Tx
from holdfast.log.tables import agenda, sessions, turns

_RULES: dict[str, str] = {
    "a committed turn has no end": ("SELECT id FROM turns WHERE status = 'committed' AND ended_at IS NULL"),
    "a turn was committed but its agenda item is not done": (
        "SELECT t.id FROM turns t JOIN agenda a ON a.id = t.agenda_id "
        "WHERE t.status = 'committed' AND a.status <> 'done'"
    ),
    "an agenda item is done but its turn was never committed": (
        "SELECT a.id FROM agenda a JOIN turns t ON t.agenda_id = a.id "
        "WHERE a.status = 'done' AND t.status IN ('accepted', 'running')"
    ),
    "an accepted turn has nothing on the agenda": (
        "SELECT t.id FROM turns t LEFT JOIN agenda a ON a.id = t.agenda_id "
        "WHERE t.status = 'accepted' AND a.id IS NULL"
    ),
    "a running agenda item has no owner": (
        "SELECT id FROM agenda WHERE status = 'running' AND (owner IS NULL OR lease_until IS NULL)"
    ),
    "an agenda item that is over has no end": (
        "SELECT id FROM agenda WHERE status IN ('done', 'failed', 'cancelled') AND ended_at IS NULL"
    ),
    "an entry names a turn that is not there": (
        "SELECT e.id FROM entries e LEFT JOIN turns t ON t.id = e.turn_id "
        "WHERE e.turn_id IS NOT NULL AND t.id IS NULL"
    ),
    "an entry names a session that is not there": (
        "SELECT e.id FROM entries e LEFT JOIN sessions s ON s.id = e.session_id "
        "WHERE e.session_id IS NOT NULL AND s.id IS NULL"
    ),
    "a session has two active rows": (
        "SELECT key FROM sessions WHERE status = 'active' GROUP BY key HAVING count(*) > 1"
    ),
    "a session names a successor that is not there": (
        "SELECT s.id FROM sessions s LEFT JOIN sessions n ON n.id = s.successor_id "
        "WHERE s.successor_id IS NOT NULL AND n.id IS NULL"
    ),
    "a pending delivery has nothing on the agenda": (
        "SELECT o.id FROM outbox o LEFT JOIN agenda a ON a.id = o.agenda_id "
        "WHERE o.status = 'pending' AND (a.id IS NULL OR a.status NOT IN ('queued', 'running'))"
    ),
}


def check(store: Store, *, examples: int = 3) -> list[str]:
    """Every rule that does not hold, with a few of the rows that break it."""
    try:
        return _problems(store, examples)
    except Unavailable as error:
        if error.code != "store_damaged":
            raise
        return [f"SQLite: {error.message}; restore a copy"]


def _problems(store: Store, examples: int) -> list[str]:
    with store.read(SYSTEM) as tx:
        version = migrations.current(tx.conn)
        if version != migrations.HEAD:
            mend = migrations.way_to_head(version)
            return [f"the schema is at {version}, not at {migrations.HEAD}: {mend}"]
        return _damage(tx) or [*_strays(tx), *_rules(tx, examples)]


def _damage(tx: Tx) -> list[str]:
    """What SQLite says of the file itself; where it is broken, nothing else can be trusted."""
    if tx.postgres:
        return []
    found = [str(row[0]) for row in tx.conn.exec_driver_sql("PRAGMA integrity_check(10)")]
    return [f"SQLite: {text}" for text in found if text != "ok"]


def _strays(tx: Tx) -> list[str]:
    if tx.postgres:
        return []
    found = tx.conn.exec_driver_sql("PRAGMA foreign_key_check").fetchmany(10)
    return [f"a row of {row[0]} points at a row of {row[2]} that is not there" for row in found]


def _rules(tx: Tx, examples: int) -> list[str]:
    problems = []
    for rule, query in _RULES.items():
        rows = [str(row[0]) for row in tx.conn.execute(sa.text(f"{query} LIMIT {examples}"))]
        if rows:
            problems.append(f"{rule}: {', '.join(rows)}")
    return problems


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


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts by status, the newest position of the log, and the size of the database in bytes."""

    head: int
    sessions: dict[str, int]
    agenda: dict[str, int]
    turns: dict[str, int]
    size: int


def stats(tx: Tx) -> Stats:
    return Stats(
        head=entries.head(tx),
        sessions=_by_status(tx, sessions),
        agenda=_by_status(tx, agenda),
        turns=_by_status(tx, turns),
        size=int(tx.conn.exec_driver_sql(_SIZE_POSTGRES if tx.postgres else _SIZE_SQLITE).scalar() or 0),
    )


def _by_status(tx: Tx, table: sa.Table) -> dict[str, int]:
    query = sa.select(table.c.status, sa.func.count()).group_by(table.c.status).order_by(table.c.status)
    return {str(row[0]): int(row[1]) for row in tx.conn.execute(query)}


_SIZE_POSTGRES = "SELECT pg_database_size(current_database())"
_SIZE_SQLITE = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
