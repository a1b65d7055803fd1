"""What the database does for a query: which plan it chose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from holdfast.log import Store, Tx


def plan_of(store: Store, query: Callable[[Tx], Any]) -> str:
    """The plans of every statement that `query` runs; PostgreSQL plans as if it were full."""
    seen: list[tuple[str, Any]] = []
    with store.read() as tx:

        def note(_c: Any, _cursor: Any, sql: str, params: Any, *_rest: Any) -> None:
            seen.append((sql, params))

        sa.event.listen(tx.conn, "before_cursor_execute", note)
        query(tx)
        sa.event.remove(tx.conn, "before_cursor_execute", note)
        if store.postgres:
            for switch in ("enable_seqscan", "enable_bitmapscan", "enable_sort"):
                tx.conn.exec_driver_sql(f"SET LOCAL {switch} = off")
        word = "EXPLAIN" if store.postgres else "EXPLAIN QUERY PLAN"
        plans = [tx.conn.exec_driver_sql(f"{word} {sql}", params) for sql, params in seen]
        return "\n".join(str(row[-1]) for plan in plans for row in plan)


def assert_no_scan(plan: str, table: str) -> None:
    """Rows of the table are found by an index, in its order."""
    assert f"Seq Scan on {table}" not in plan, plan
    for line in plan.splitlines():
        assert not line.startswith(f"SCAN {table}") or "USING" in line, plan
