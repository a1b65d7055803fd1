"""The store in and out of a backup: SQLite by its online backup, PostgreSQL by `pg_dump` and `pg_restore`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from sqlalchemy.engine.url import URL

from holdfast import migrations
from holdfast.errors import Conflict, InvalidInput, Unavailable
from holdfast.log import Store, check, sqlite_url

DERIVED_SCHEMAS: Final = ("memory_index", "memory_cache")
_OURS: Final = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"


def revision_of(store: Store) -> str:
    """Where the schema stands; `""` for a store in which there is nothing yet."""
    with store.schema() as conn:
        return migrations.current(conn) or ""


def snapshot_sqlite(store: Store, target: Path) -> list[str]:
    """A copy of one moment, page by page, while others write; what is wrong with it other than damage.

    In WAL mode the copy holds up no writer. A damaged file is an error: no backup is made of it.
    """
    target.touch(mode=0o600)
    store.copy_file(target)
    copy = Store(sqlite_url(target))
    try:
        _require_whole(copy)
        return check(copy) if revision_of(copy) == migrations.HEAD else []
    finally:
        copy.close()


def _require_whole(copy: Store) -> None:
    try:
        with copy.schema() as conn:
            found = [str(row[0]) for row in conn.exec_driver_sql("PRAGMA integrity_check(3)")]
    except Unavailable as error:
        found = [error.message]
    if found != ["ok"]:
        raise Unavailable(
            f"the store is damaged, so that no backup was made: {found[0]}",
            code="store_damaged",
            hint="The earlier backups are as they were: `holdfast restore`.",
        )


def dump_postgres(store: Store, target: Path) -> None:
    """A dump of one moment into a new folder: a file for each table, not compressed, so that cuts fit."""
    arguments = ["--format=directory", "--compress=0", "--no-owner", "--no-privileges"]
    left_out = [f"--exclude-schema={schema}" for schema in DERIVED_SCHEMAS]
    _run("pg_dump", store.url, *arguments, *left_out, f"--file={target}")
    _run("pg_restore", None, "--list", str(target))


def require_empty(url: URL) -> None:
    """Refuse a database in which there is something."""
    store = Store(url)
    try:
        with store.schema() as conn:
            count = conn.exec_driver_sql(_OURS).scalar()
    finally:
        store.close()
    if count:
        raise Conflict(
            f"the database {url.database} is not empty",
            hint="Give an empty one with --store, or --force to replace what is there.",
        )


def restore_postgres(url: URL, folder: Path, *, replace: bool) -> None:
    """All of a dump or nothing of it."""
    arguments = ["--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction"]
    arguments += ["--clean", "--if-exists"] if replace else []
    _run("pg_restore", url, *arguments, str(folder))


def _run(program: str, url: URL | None, *arguments: str) -> None:
    """Run one of PostgreSQL's programs; the password goes by the environment, where nobody else sees it."""
    path = shutil.which(program)
    if path is None:
        raise Unavailable(
            f"the store is PostgreSQL, and {program} is not on the PATH",
            code="no_pg_dump",
            hint="Install PostgreSQL's client programs, at least as new as the server (Debian: "
            "postgresql-client), or leave the database to backups of its own: --no-database.",
        )
    known = {} if url is None else _connection(url)
    password = known.pop("password", None)
    env = os.environ if password is None else {**os.environ, "PGPASSWORD": str(password)}
    command = [path, *([] if url is None else [f"--dbname={_conninfo(known)}"]), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip() or "it did not say why").splitlines()
        raise Unavailable(f"{program} failed: {said[0]}", code="pg_dump_failed", hint=_mend(done.stderr))


def _connection(url: URL) -> dict[str, Any]:
    return {**url.translate_connect_args(username="user", database="dbname"), **url.query}


def _conninfo(known: dict[str, Any]) -> str:
    try:
        from psycopg.conninfo import make_conninfo
    except ModuleNotFoundError as error:
        raise InvalidInput(
            "psycopg is not installed", hint="pip install 'holdfast[postgres]' for PostgreSQL."
        ) from error
    return make_conninfo(**known)


def _mend(said: str) -> str:
    if "server version mismatch" in said:
        return "Install client programs at least as new as the server, and put them first on the PATH."
    return "Check the address of the store and what its user may do."
