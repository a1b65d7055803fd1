"""The history of the schema: one chain of Alembic revisions for every room, on both engines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from holdfast.errors import Conflict

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from holdfast.log.store import Store

HEAD = "0015"


def current(conn: Connection) -> str | None:
    """The revision that the database stands at; None for an empty one."""
    if not sa.inspect(conn).has_table("alembic_version"):
        return None
    return conn.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()


def migrate(store: Store) -> bool:
    """Bring the database to `HEAD`; True if there was anything to do."""
    with store.schema() as conn:
        if current(conn) == HEAD:
            return False
    with store.migrating() as conn:
        found = current(conn)
        if found == HEAD:
            return False
        _require_known(found)
        _upgrade(conn)
    return True


def _require_known(revision: str | None) -> None:
    versions = Path(__file__).parent / "versions"
    if revision is not None and not any(versions.glob(f"{revision}_*.py")):
        raise Conflict(
            f"the store is at revision {revision}, which this version of Holdfast does not know",
            code="store_newer",
            hint="Use the newer version of Holdfast that wrote it.",
        )


def _upgrade(conn: Connection, to: str = HEAD) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = conn
    command.upgrade(config, to)
