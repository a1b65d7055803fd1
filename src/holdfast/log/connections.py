"""Connections that stay open and ready, each for one transaction at a time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError

from holdfast.errors import Transient

_WAIT_SECONDS: Final = 30.0
_FRESH_SECONDS: Final = 1.0
_HELD: Final = "holdfast"
PREPARING: Final = "holdfast preparing"


class Connections:
    """At most `most` at once. They stay checked out: to fetch one from the engine's pool, with its check
    and its settings, costs as much as several statements.

    One that failed is given up. One that lay unused for a second is asked first whether it still answers,
    where `ask` says so: a server that was started again meanwhile is met with a new one.
    """

    def __init__(
        self, engine: Engine, most: int, *, ask: bool, fresh_seconds: float = _FRESH_SECONDS
    ) -> None:
        self._engine = engine
        self._places = threading.BoundedSemaphore(most)
        self._idle: deque[tuple[Connection, float]] = deque()
        self._ask = ask
        self._fresh = fresh_seconds

    @contextmanager
    def one(self) -> Iterator[Connection]:
        with self._place():
            conn = self._ready()
            with self._kept(conn):
                yield conn

    @contextmanager
    def begun(self, statement: str) -> Iterator[Connection]:
        """One in a transaction that `statement` opens and the end of the block commits."""
        with self._place():
            conn = self._begun(statement)
            with self._kept(conn):
                yield conn
                commit(conn)

    def _begun(self, statement: str) -> Connection:
        """A connection that was lost while it lay idle is found out here, and costs nobody anything."""
        while True:
            was_kept = bool(self._idle)
            conn = self._ready()
            try:
                begin(conn, statement)
            except BaseException as error:
                lost = _is_lost(error)
                _give_up(conn, lost=lost)
                if not (self._ask and was_kept and lost):
                    raise
            else:
                return conn

    @contextmanager
    def _place(self) -> Iterator[None]:
        if not self._places.acquire(timeout=_WAIT_SECONDS):
            raise Transient("all connections to the database are in use", code="store_busy")
        try:
            yield
        finally:
            self._places.release()

    @contextmanager
    def _kept(self, conn: Connection) -> Iterator[None]:
        """For the next one, unless something failed: what was begun on it is given up with it."""
        try:
            yield
        except BaseException as error:
            _give_up(conn, lost=_is_lost(error))
            raise
        self._idle.append((conn, time.monotonic()))

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[0].close()

    def _ready(self) -> Connection:
        while True:
            try:
                conn, since = self._idle.pop()
            except IndexError:
                return self._engine.connect()
            if not self._ask or time.monotonic() - since < self._fresh or _answers(conn):
                return conn


def begin(conn: Connection, statement: str) -> None:
    """Open a transaction. SQLAlchemy opens none by itself on SQLite, and joins this one on PostgreSQL."""
    with Driver(conn, statement) as driver:
        driver.execute(statement)


class CommitFailed(Exception):
    """A commit was sent and not confirmed; the error is its cause."""

    def __init__(self, error: DBAPIError) -> None:
        super().__init__(str(error))
        self.error = error


def commit(conn: Connection) -> None:
    """Commit what `begin` opened, or raise `CommitFailed`."""
    try:
        if conn.in_transaction():
            conn.commit()
            return
        with Driver(conn, "COMMIT") as driver:
            driver.execute("COMMIT")
    except DBAPIError as error:
        raise CommitFailed(error) from error


def _is_lost(error: BaseException) -> bool:
    """Whether the server went away, by what it said last or by its silence; that of SQLite never does."""
    found = error.error if isinstance(error, CommitFailed) else error
    if not isinstance(found, DBAPIError) or not hasattr(found.orig, "sqlstate"):
        return False
    state: str | None = getattr(found.orig, "sqlstate", None)
    return state is None or state.startswith(("08", "57P"))


def _give_up(conn: Connection, *, lost: bool) -> None:
    """With what was begun on it; nothing more is said to a server that is not there."""
    if lost:
        conn.invalidate()
    conn.close()


def _answers(conn: Connection) -> bool:
    """Whether the connection lives; one that does not is closed."""
    try:
        with Driver(conn, "SELECT 1") as driver:
            driver.execute("SELECT 1")
    except DBAPIError:
        _give_up(conn, lost=True)
        return False
    return True


class Driver:
    """The driver's own connection for a block, its errors raised as SQLAlchemy's.

    It has `execute` and `executemany`, as SQLite's has; PostgreSQL's prepares what it executes.
    """

    __slots__ = ("_conn", "_statement")

    def __init__(self, conn: Connection, statement: str) -> None:
        self._conn = conn
        self._statement = statement

    def __enter__(self) -> Any:
        held = self._conn.info.get(_HELD)
        return held if held is not None else _hold(self._conn)

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None:
            return
        base = self._conn.dialect.loaded_dbapi.Error
        if isinstance(error, base):
            raise DBAPIError.instance(
                self._statement, None, error, base, hide_parameters=True, dialect=self._conn.dialect
            ) from error


def _hold(conn: Connection) -> Any:
    """The driver's connection, kept with the one that the pool knows and for as long."""
    held: Any = conn.connection.driver_connection
    if conn.dialect.name == "postgresql":
        from holdfast.log.libpq import Prepared

        held = Prepared(held, conn.info.get(PREPARING))
    conn.info[_HELD] = held
    return held
