"""Queries on the hot path: written once for both engines, and run past SQLAlchemy's per-call machinery."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from holdfast.log import Tx

_LIST: Final = re.compile(r"\bIN :(\w+)")
_NAME: Final = re.compile(r":(\w+)")
_read: Final = json.JSONDecoder().raw_decode


class Query:
    """A query with parameters `:name`; `IN :name` takes a list of texts.

    Its text never depends on what is asked for, so that a driver prepares it once. Rows are as the driver
    gives them: see `plain` for JSON, and mind that SQLite knows no booleans.
    """

    __slots__ = ("_postgres", "_sqlite")

    def __init__(self, sql: str) -> None:
        flat = " ".join(sql.split())
        self._sqlite = _LIST.sub(r"IN (SELECT value FROM json_each(:\1))", flat)
        self._postgres = _NAME.sub(r"%(\1)s", _LIST.sub(r"= ANY(:\1)", flat.replace("%", "%%")))

    def rows(self, tx: Tx, **given: Any) -> list[tuple[Any, ...]]:
        if tx.postgres:
            sql = self._postgres
        else:
            sql = self._sqlite
            given = {k: json.dumps(v) if isinstance(v, list) else v for k, v in given.items()}
        with tx.driver(sql) as connection:
            found: list[tuple[Any, ...]] = connection.execute(sql, given).fetchall()
        return found

    def first(self, tx: Tx, **given: Any) -> tuple[Any, ...] | None:
        """The first row; for queries that have at most one, or say LIMIT 1."""
        return next(iter(self.rows(tx, **given)), None)


class ReadableRows:
    """A query on a table that has audiences, held to the reader of its transaction.

    `{reach}` stands where its conditions go; for one who may read all there are none. `agent` is the column
    by which a reader of some agents is held to theirs; None: such a reader is shown nothing.
    """

    __slots__ = ("_agent", "_forms", "_sql")

    def __init__(self, sql: str, *, agent: str | None = "agent_id") -> None:
        self._sql = sql
        self._agent = agent
        self._forms: dict[tuple[bool, bool], Query] = {}

    def rows(self, tx: Tx, **given: Any) -> list[tuple[Any, ...]]:
        reader = tx.reader
        shape = (reader.audiences is not None, reader.agents is not None)
        form = self._forms.get(shape)
        if form is None:
            form = self._forms[shape] = Query(self._sql.replace("{reach}", self._conditions(*shape)))
        if reader.audiences is not None:
            given["audiences"] = sorted(reader.audiences)
        if reader.agents is not None and self._agent is not None:
            given["agents"] = sorted(reader.agents)
        return form.rows(tx, **given)

    def _conditions(self, by_audience: bool, by_agent: bool) -> str:
        of_agents = "FALSE" if self._agent is None else f"{self._agent} IN :agents"
        return ("AND audience IN :audiences " if by_audience else "") + (
            f"AND {of_agents}" if by_agent else ""
        )


def plain(value: Any) -> Any:
    """The value of a JSON column, which PostgreSQL gives as it is and SQLite as text."""
    return _read(value)[0] if isinstance(value, str) else value
