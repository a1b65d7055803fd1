"""What the database does for a query: which plan it chose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import sqlalchemy as sa

from holdfast.log import OWNER, Store, Tx

Statements = list[tuple[str, Any]]


@contextmanager
def recorded(store: Store) -> Iterator[Statements]:
    """Every statement that this store is read by, with its parameters, whichever way it goes to the driver;
    what gateways of other stores do in this process meanwhile is theirs."""
    seen: Statements = []
    driver = Tx.driver

    def note(_c: Any, _cursor: Any, sql: str, params: Any, *_rest: Any) -> None:
        seen.append((sql, params))

    @contextmanager
    def listening(tx: Tx, statement: str) -> Iterator[Any]:
        with driver(tx, statement) as connection:
            own = tx.conn.engine in (store._reader, store._writer)
            yield _Listening(connection, seen) if own else connection

    sa.event.listen(store._reader, "before_cursor_execute", note)
    try:
        with patch.object(Tx, "driver", listening):
            yield seen
    finally:
        sa.event.remove(store._reader, "before_cursor_execute", note)


class _Listening:
    def __init__(self, connection: Any, seen: Statements) -> None:
        self._connection = connection
        self._seen = seen

    def execute(self, sql: str, params: Any = ()) -> Any:
        self._seen.append((sql, params))
        return self._connection.execute(sql, params)


def plan_of(store: Store, query: Callable[[Tx], Any]) -> str:
    """The plans of every statement that `query` runs; PostgreSQL plans as if it were full."""
    with recorded(store) as seen, store.read(OWNER) as tx:
        query(tx)
    with store.read(OWNER) as tx:
        if store.postgres:
            _as_if_full(tx)
        return "\n".join(plans(tx, seen))


def plans(tx: Tx, seen: Statements) -> list[str]:
    """The plan of each statement that reads anything."""
    word = "EXPLAIN" if tx.postgres else "EXPLAIN QUERY PLAN"
    found = []
    for sql, params in seen:
        if _reads(sql):
            rows = tx.conn.exec_driver_sql(f"{word} {sql}", params)
            found.append("\n".join(str(row[-1]) for row in rows))
    return found


def effort(tx: Tx, sql: str, params: Any) -> int:
    """What a statement costs: steps of SQLite's machine, or rows that PostgreSQL looked at."""
    if not _reads(sql):
        return 0
    if not tx.postgres:
        return _steps(tx.conn.connection.driver_connection, sql, params)
    _as_if_full(tx)
    (told,) = tx.conn.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", params).one()
    return _rows(told[0]["Plan"])


def _as_if_full(tx: Tx) -> None:
    """Let PostgreSQL plan as it would for tables that no one would read or sort as a whole."""
    for switch in ("enable_seqscan", "enable_bitmapscan", "enable_sort"):
        tx.conn.exec_driver_sql(f"SET LOCAL {switch} = off")


def _steps(connection: Any, sql: str, params: Any) -> int:
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.set_progress_handler(count, 1)
    try:
        connection.execute(sql, params).fetchall()
    finally:
        connection.set_progress_handler(None, 0)
    return steps


def _rows(node: dict[str, Any]) -> int:
    here = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
    return int(here) + sum(map(_rows, node.get("Plans", ())))


def _reads(sql: str) -> bool:
    return sql.lstrip("( ").upper().startswith(("SELECT", "WITH"))


def assert_no_scan(plan: str, table: str) -> None:
    """Rows of the table are found by an index, in its order."""
    assert f"Seq Scan on {table}" not in plan, plan
    for line in plan.splitlines():
        assert not line.startswith(f"SCAN {table}") or "USING" in line, plan
