"""The history of the schema: one chain of Alembic revisions for every room, on both engines.

A new store does not live through it: it is made from what the chain leads to, by `make schema`.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from holdfast.errors import Conflict, Unavailable

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from holdfast.log.store import Store

log = logging.getLogger(__name__)

HEAD = "0021"
COPIES: Final = "upgrades"
NEWER: Final = "use the newer version of Holdfast that wrote it"
_SPARE_BYTES: Final = 64 * 1024**2


def current(conn: Connection) -> str | None:
    """The revision that the database stands at; None for an empty one."""
    if not sa.inspect(conn).has_table("alembic_version"):
        return None
    return conn.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()


def is_known(revision: str) -> bool:
    """Whether this program has heard of a revision; one of a newer program it has not."""
    return any((Path(__file__).parent / "versions").glob(f"{revision}_*.py"))


def way_to_head(revision: str | None) -> str:
    """What somebody has to do whose store is not at `HEAD`."""
    if revision is not None and not is_known(revision):
        return NEWER
    return "run `holdfast store migrate`"


def migrate(store: Store, *, copy: bool = True) -> bool:
    """Bring the database to `HEAD`; True if there was anything to do.

    It is told before it is done. Of a SQLite store in which there is something a copy is kept as it was:
    there is no way back by itself, since an older program cannot read what a newer one writes.
    """
    with store.schema() as conn:
        if current(conn) == HEAD:
            return False
    with store.migrating() as conn:
        found = current(conn)
        if found == HEAD:
            return False
        if found is None:
            _create(conn)
            return True
        _require_known(found)
        _prepare_upgrade(store, found, copy=copy)
        walk(conn)
    return True


def _require_known(revision: str) -> None:
    if not is_known(revision):
        raise Conflict(
            f"the store is at revision {revision}, and this version of Holdfast knows up to {HEAD}: "
            "it was written by a newer one",
            code="store_newer",
            hint=f"{NEWER[0].upper()}{NEWER[1:]}; to go back, restore a backup from before the upgrade.",
        )


def _prepare_upgrade(store: Store, found: str, *, copy: bool) -> None:
    if store.postgres:
        said = "it has no copy of it unless you made one with `holdfast backup` or pg_dump"
    elif not copy:
        said = "no copy of it is kept"
    else:
        said = f"as it is now it is kept in {_keep_copy(store, found)}"
    log.warning("the store is upgraded from revision %s to %s; %s", found, HEAD, said)


def _keep_copy(store: Store, found: str) -> Path:
    """The store's file as it is, in place of the copy of an earlier upgrade. Its lock is held already."""
    file = Path(str(store.url.database))
    folder = file.parent / COPIES
    needed = sum(path.stat().st_size for path in file.parent.glob(f"{file.name}*") if path.is_file())
    if shutil.disk_usage(file.parent).free < needed + _SPARE_BYTES:
        raise Unavailable(
            f"the store is to be upgraded from revision {found}, and there is no room for a copy of it",
            code="no_room_for_copy",
            hint=f"Free {needed // 1024**2 + 64} MiB, or copy it elsewhere with `holdfast backup` and "
            "run `holdfast store migrate --no-copy`.",
        )
    folder.mkdir(mode=0o700, exist_ok=True)
    target = folder / f"{file.name}.{found}"
    draft = folder / f".{file.name}.{os.getpid()}"
    draft.touch(mode=0o600)
    store.copy_file(draft)
    draft.replace(target)
    for older in folder.glob(f"{file.name}.*"):
        if older != target:
            older.unlink()
    return target


def script(engine: str) -> Path:
    """The statements of the whole schema at `HEAD`, of one engine."""
    return Path(__file__).parent / f"{engine}.sql"


def _create(conn: Connection) -> None:
    """All at once; only a store of an earlier version has to go its way step by step."""
    for statement in script(conn.dialect.name).read_text().split(";\n"):
        conn.exec_driver_sql(statement)
    conn.exec_driver_sql(f"INSERT INTO alembic_version (version_num) VALUES ('{HEAD}')")


def walk(conn: Connection, to: str = HEAD) -> None:
    """Every revision from where the store stands, one after another."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = conn
    command.upgrade(config, to)
