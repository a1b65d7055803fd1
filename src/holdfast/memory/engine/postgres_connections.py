"""Connections of the PostgreSQL index: each serves one transaction and is then kept for the next."""

from __future__ import annotations

import re
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy.engine.url import URL, make_url

from holdfast.errors import InvalidInput, Unavailable
from holdfast.memory.engine import postgres_schema as tables

_MOST_IDLE = 8
_SNAPSHOT = "begin isolation level repeatable read read only"
# For one transaction each: a pooler may give the next one another server, and this one somebody else. Plans
# are made for the filter at hand, and queries are too short to be compiled.
_SETTINGS = (
    "; set local search_path to {0}; set local plan_cache_mode to force_custom_plan; set local jit to off"
)
_LOCK = "select pg_advisory_xact_lock(hashtextextended('holdfast ' || %s, 0))"


class Connections:
    """Safe to share between threads; never blocks a reader behind a writer."""

    def __init__(self, url: str | URL, schema: str) -> None:
        address = make_url(url)
        if address.get_backend_name() != "postgresql":
            raise InvalidInput(
                "the PostgreSQL index needs a store in PostgreSQL",
                hint="Set store.url to postgresql+psycopg://…, or memory.search.engine to embedded.",
            )
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,50}", schema):
            raise InvalidInput(f"no name for a schema: {schema!r}", hint="Use small letters and _.")
        self._schema = schema
        self._conninfo = address.set(drivername="postgresql").render_as_string(hide_password=False)
        self._idle: deque[Any] = deque()
        self._made: weakref.WeakSet[Any] = weakref.WeakSet()
        self._closed = False
        self._path = f"{schema}, public"
        self._prepare()

    def _prepare(self) -> None:
        with self.writing() as connection:
            self._path = f"{self._schema}, {tables.extension_schema(connection)}, public"
            connection.execute(f"set local search_path to {self._path}")
            tables.prepare(connection, self._schema)

    @contextmanager
    def writing(self) -> Iterator[Any]:
        """One transaction; one writer at a time over all processes, readers go on."""
        with told():
            connection = self._begin("begin")
            try:
                connection.execute(_LOCK, (self._schema,))
                yield connection
                connection.execute("commit")
            finally:
                self.give_back(connection)

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """One moment of the index."""
        with told():
            connection = self._begin(_SNAPSHOT)
            try:
                yield connection
            finally:
                self.give_back(connection)

    def snapshot(self) -> Any:
        """A connection that sees one moment until it is given back."""
        with told():
            return self._begin(_SNAPSHOT)

    def give_back(self, connection: Any) -> None:
        """End the transaction and keep the connection; may run in any thread, so it takes no lock."""
        from psycopg import Error
        from psycopg.pq import TransactionStatus

        try:
            if not connection.closed and connection.info.transaction_status != TransactionStatus.IDLE:
                connection.execute("rollback")
        except Error:
            connection.close()
        if connection.closed or self._closed or len(self._idle) >= _MOST_IDLE:
            connection.close()
        else:
            self._idle.append(connection)

    def close(self) -> None:
        """Close all, those of views that still live among them, so that nothing holds the tables."""
        self._closed = True
        self._idle.clear()
        for connection in list(self._made):
            connection.close()

    def _begin(self, how: str) -> Any:
        """A transaction on a kept connection that still answers, else on a new one."""
        from psycopg import Error

        how += _SETTINGS.format(self._path)
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            try:
                connection.execute(how)
                return connection
            except Error:
                connection.close()
        if self._closed:
            raise Unavailable("the search index is closed", code="index_unavailable", hint="Open it again.")
        connection = self._connect()
        connection.execute(how)
        return connection

    def _connect(self) -> Any:
        """Nothing is prepared behind a pooler, which is known by the process that it names: another one."""
        import psycopg

        connection = psycopg.connect(self._conninfo, autocommit=True)
        self._made.add(connection)
        works = connection.execute("select pg_backend_pid()").fetchone()
        if works is None or works[0] != connection.info.backend_pid:
            connection.prepare_threshold = None
        return connection


@contextmanager
def told() -> Iterator[None]:
    """Say in our own words what PostgreSQL cannot do."""
    from psycopg import Error

    try:
        yield
    except Error as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise Unavailable(
            f"the search index in PostgreSQL cannot be used: {why}",
            code="index_unavailable",
            hint="See that the database of the store answers; the index is derived and may be dropped.",
        ) from error
