"""PostgreSQL on the hot path: statements prepared once and run through libpq.

psycopg still opens the connection, knows how values are written and read, and names the errors. What is left
out is what it makes anew for every statement: a cursor, a generator, a poll; half of what a small one costs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import psycopg
from psycopg import errors, pq
from psycopg.adapt import PyFormat, Transformer

_PLACE: Final = re.compile(r"%(?:\((\w+)\)s|s|%)")
# So many rows are sent one by one; more go as psycopg sends many, without waiting for each answer.
_FEW: Final = 8


class Preparing:
    """Whether statements may be prepared at all: not where a pooler may give each transaction another server.

    Shared by the connections of a store, since what one of them meets is true for all.
    """

    __slots__ = ("allowed",)

    def __init__(self) -> None:
        self.allowed = True

    def look(self, connection: psycopg.Connection[Any]) -> None:
        """A pooler is known by the process that it names: not the one that does the work."""
        if self.allowed:
            told = connection.execute("SELECT pg_backend_pid()").fetchone()
            connection.rollback()
            self.allowed = told is not None and told[0] == connection.pgconn.backend_pid


class Prepared:
    """A connection's prepared statements. For one thread at a time, as the connection is.

    Values are sent as text and take the type that the statement gives their place: a statement is prepared
    once, whatever it is called with. Its name comes from its text: under no name is there ever another one.
    """

    __slots__ = ("_connection", "_pg", "_plans", "_preparing", "_writer")

    def __init__(self, connection: psycopg.Connection[Any], preparing: Preparing | None = None) -> None:
        self._connection = connection
        self._pg = connection.pgconn
        self._preparing = preparing or Preparing()
        self._plans: dict[str, _Plan] = {}
        self._writer = Transformer(connection)

    def execute(self, sql: str, given: Mapping[str, Any] | Sequence[Any] | None = None) -> Answer:
        """Run a statement with places `%(name)s` or `%s`, or several without any."""
        if given is None:
            return Answer(self._good(self._pg.exec_(sql.encode())), _Reader(self._connection))
        plan = self._plans.get(sql)
        if plan is None:
            plan = self._plans[sql] = self._prepare(sql)
        values = [given[name] for name in plan.names] if isinstance(given, Mapping) else given
        sent: Any = self._writer.dump_sequence(values, plan.formats)
        if self._preparing.allowed:
            return Answer(self._good(self._pg.exec_prepared(plan.name, sent)), plan.reader)
        return Answer(self._good(self._pg.exec_params(plan.text, sent)), plan.reader)

    def executemany(self, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement for each of the rows, in order."""
        if len(rows) > _FEW:
            self._connection.cursor().executemany(sql, rows)
            return
        for row in rows:
            self.execute(sql, row)

    def _prepare(self, sql: str) -> _Plan:
        names: list[str] = []
        text = _PLACE.sub(lambda place: _numbered(place, names), sql)
        plan = _Plan(text.encode(), names, _Reader(self._connection))
        if self._preparing.allowed:
            self._good(self._pg.prepare(plan.name, plan.text))
        return plan

    def _good(self, result: pq.abc.PGresult) -> pq.abc.PGresult:
        if result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            return result
        if self._pg.status != pq.ConnStatus.OK:
            raise psycopg.OperationalError(f"the connection is lost: {self._pg.get_error_message()}")
        raise errors.error_from_result(result, self._connection.info.encoding)


class Answer:
    """What a statement gave: its rows, and how many it touched."""

    __slots__ = ("_reader", "_result")

    def __init__(self, result: pq.abc.PGresult, reader: _Reader) -> None:
        self._result = result
        self._reader = reader

    @property
    def rowcount(self) -> int:
        return self._result.command_tuples or 0

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._reader.rows(self._result, self._result.ntuples)

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(iter(self._reader.rows(self._result, min(1, self._result.ntuples))), None)


class _Reader:
    """Reads the rows of one statement; how its columns are read is looked up once."""

    __slots__ = ("_transformer", "_unknown")

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._transformer = Transformer(connection)
        self._unknown = True

    def rows(self, result: pq.abc.PGresult, most: int) -> list[tuple[Any, ...]]:
        self._transformer.set_pgresult(result, set_loaders=self._unknown)
        self._unknown = False
        found = self._transformer.load_rows(0, most, tuple)
        self._transformer.set_pgresult(None, set_loaders=False)
        return found


class _Plan:
    """A statement: its text and its name at the server, the names of its places, the reader of its rows."""

    __slots__ = ("formats", "name", "names", "reader", "text")

    def __init__(self, text: bytes, names: list[str], reader: _Reader) -> None:
        self.text = text
        self.name = b"holdfast_" + sha256(text).hexdigest()[:40].encode()
        self.names = tuple(names)
        self.formats = [PyFormat.TEXT] * len(names)
        self.reader = reader


def _numbered(place: re.Match[str], names: list[str]) -> str:
    if place[0] == "%%":
        return "%"
    name = place[1]
    if name is None or name not in names:
        names.append(name or f"{len(names)}")
        return f"${len(names)}"
    return f"${names.index(name) + 1}"
