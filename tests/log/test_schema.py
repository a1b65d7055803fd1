"""A new store is made in one go: it must be the one that every migration one after another leads to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from holdfast import migrations
from holdfast.log import OWNER, Store, open_store, sqlite_url

SQLITE = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
POSTGRES = {
    "columns": """
        SELECT c.relname, a.attname, a.attidentity, a.attgenerated, a.attnotnull,
               a.attcollation::regcollation,
               format_type(a.atttypid, a.atttypmod), pg_get_expr(d.adbin, d.adrelid),
               rank() OVER (PARTITION BY c.relname ORDER BY a.attnum)
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v', 'm', 'p')
          AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1, 9""",
    "relations": """
        SELECT relname, relkind, relpersistence, relreplident, relrowsecurity, reloptions, reltablespace
        FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY 1""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, contype, convalidated, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2""",
    "indexes": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1",
    "sequences": """
        SELECT s.seqrelid::regclass::text, format_type(s.seqtypid, NULL), s.seqstart, s.seqincrement,
               s.seqmax, s.seqmin, s.seqcache, s.seqcycle, d.refobjid::regclass::text, d.refobjsubid > 0
        FROM pg_sequence s LEFT JOIN pg_depend d ON d.objid = s.seqrelid AND d.deptype = 'a' ORDER BY 1""",
    "triggers": """
        SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(oid)
        FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1, 2""",
    "functions": """
        SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY 1, 2""",
    "types": """
        SELECT typname, typtype FROM pg_type WHERE typnamespace = 'public'::regnamespace ORDER BY 1""",
}


def schema(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """All that the engine knows of the schema, and the rows that a store has from the beginning."""
    store = Store(url)
    with store.read(OWNER) as tx:

        def found(sql: str) -> list[tuple[Any, ...]]:
            return [tuple(row) for row in tx.conn.exec_driver_sql(sql)]

        told = {name: found(sql) for name, sql in POSTGRES.items()} if store.postgres else {}
        if not store.postgres:
            told["all"] = [(*row[:3], "".join((row[3] or "").split())) for row in found(SQLITE)]
            told["columns"] = [
                (row[1], *column)
                for row in told["all"]
                if row[0] == "table"
                for column in found(f"PRAGMA table_xinfo({row[1]})")
            ]
        tables = sorted({row[0] for row in told["columns"]})
        told["rows"] = [(name, *row) for name in tables for row in found(f"SELECT * FROM {name}")]
    store.close()
    return told


def walked(url: str) -> None:
    store = Store(url)
    with store.migrating() as conn:
        migrations.walk(conn)
    store.close()


def test_a_new_store_is_the_one_that_all_migrations_lead_to(engine: str, two_empty_urls: list[str]) -> None:
    new, old = two_empty_urls
    open_store(new).close()
    walked(old)
    made, expected = schema(new), schema(old)
    hint = "run `make schema`: there is a migration that the script of the schema does not know of"
    assert made.keys() == expected.keys()
    for name, rows in expected.items():
        assert made[name] == rows, f"{name}: {hint}"
    assert len(expected["columns"]) > 400
    assert expected["rows"] == [("alembic_version", migrations.HEAD)]


NEW = """
import sys
from holdfast.log import open_store
open_store(sys.argv[1]).close()
open_store(sys.argv[1]).close()
sys.exit("alembic" in sys.modules)
"""


def test_neither_a_new_store_nor_one_that_is_up_to_date_loads_the_migrations(tmp_path: Path) -> None:
    made = subprocess.run([sys.executable, "-c", NEW, sqlite_url(tmp_path / "new.db")], check=False)
    assert made.returncode == 0


def test_half_a_schema_is_never_left_behind(
    engine: str, empty_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.sql"
    whole = migrations.script("sqlite" if engine == "sqlite" else "postgresql").read_text()
    broken.write_text(f"{whole.rstrip()}\n\nCREATE NONSENSE;\n")
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "script", lambda _: broken)
        store = Store(empty_url)
        with pytest.raises(sa.exc.DBAPIError, match="NONSENSE"):
            migrations.migrate(store)
        store.close()
    store = open_store(empty_url)
    with store.schema() as conn:
        assert migrations.current(conn) == migrations.HEAD
    store.close()
