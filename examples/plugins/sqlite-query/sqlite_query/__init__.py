"""A tool: SQL over one SQLite database. It is opened for reading alone, so that no statement changes it."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from holdfast.errors import InvalidInput
from holdfast.plugins import Caller, Effect, PluginApi, Tool, ToolOutput

LONGEST = 500


class Query(BaseModel):
    """Ask the database, in SQL. `SELECT name, sql FROM sqlite_master` shows its tables. Nothing changes."""

    sql: str = Field(max_length=10_000, description="One SELECT statement.")


class Database:
    def __init__(self, path: Path, rows: int, seconds: float) -> None:
        self._path = path
        self._rows = rows
        self._seconds = seconds

    def query(self, caller: Caller, given: Query, call_id: str) -> ToolOutput:
        """Plain function: the runtime gives it a thread of its own."""
        try:
            with self._opened() as connection:
                cursor = connection.execute(given.sql)
                names = [column[0] for column in cursor.description or ()]
                rows = cursor.fetchmany(self._rows + 1)
        except sqlite3.Error as error:
            raise InvalidInput(f"the database says: {error}", hint="Mend the SQL and ask again.") from error
        return ToolOutput(text=self._told(names, rows), details={"rows": min(len(rows), self._rows)})

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Read only twice over: by how the file is opened, and by what statements may do."""
        connection = sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True)
        until = time.monotonic() + self._seconds
        try:
            connection.set_progress_handler(lambda: time.monotonic() > until, 10_000)
            connection.set_authorizer(only_reading)
            yield connection
        finally:
            connection.close()

    def _told(self, names: list[str], rows: list[tuple[Any, ...]]) -> str:
        if not rows:
            return "No rows."
        lines = [json.dumps(dict(zip(names, map(shown, row), strict=True))) for row in rows[: self._rows]]
        more = [f"[there are more than {self._rows} rows: ask for fewer]"] * (len(rows) > self._rows)
        return "\n".join([*lines, *more])


def only_reading(action: int, *_: object) -> int:
    reads = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
    return sqlite3.SQLITE_OK if action in reads else sqlite3.SQLITE_DENY


def shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"[{len(value)} bytes]"
    return value if not isinstance(value, str) or len(value) <= LONGEST else value[:LONGEST] + "…"


def register(api: PluginApi) -> None:
    path = Path(api.config["database"]).expanduser()
    database = Database(path, api.config["rows"], api.config["seconds"])
    tool = Tool(name="sqlite_query", input=Query, run=database.query, effect=Effect.NONE, repeatable=True)
    api.register_tool(tool)
