"""`store check`: says what is wrong with a store, in words; an empty list means all is well."""

from __future__ import annotations

import sqlalchemy as sa

from holdfast import migrations
from holdfast.errors import Unavailable
from holdfast.log.audience import SYSTEM
from holdfast.log.store import Store, Tx

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
