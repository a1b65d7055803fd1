"""One database, SQLite or PostgreSQL, opened as it must be: the only place that knows which it is.

Writes go through `Store.write()`, one transaction each. On SQLite that is `BEGIN IMMEDIATE` on the one
writing connection; on PostgreSQL a write that appends to the log first takes a transaction lock, so that
positions and change numbers become visible in the order in which they were given.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.engine.url import URL, make_url
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError, ProgrammingError

from holdfast.clock import Clock, Millis, StoreClock
from holdfast.errors import Busy, InvalidInput, Unavailable
from holdfast.log.audience import SYSTEM, Reader
from holdfast.log.connections import Connections, Driver, begin, transaction
from holdfast.log.signals import Signals

T = TypeVar("T")

_LOG_LOCK = 0x486F6C64
_MIGRATE_LOCK = 0x486F6C65
_DEADLOCK_CODES = {"40001", "40P01"}
_WRITE_ATTEMPTS = 4
_RAW = 2


class Tx:
    """One transaction: its connection, who reads in it, the moment it stands for, and what to wake once it is
    committed."""

    __slots__ = ("callbacks", "conn", "gathered", "now", "postgres", "reader", "wakes")

    def __init__(self, conn: Connection, reader: Reader, now: Millis, *, postgres: bool) -> None:
        self.conn = conn
        self.reader = reader
        self.now = now
        self.postgres = postgres
        self.wakes: set[str] = set()
        self.callbacks: list[Callable[[], None]] = []
        self.gathered: dict[Callable[[Tx, list[Any]], None], list[Any]] = {}

    def on_commit(self, callback: Callable[[], None]) -> None:
        """Call back once the transaction is durable, and never if it is not."""
        self.callbacks.append(callback)

    def gather(self, write: Callable[[Tx, list[Any]], None], row: Any) -> None:
        """Have `write` called with this and all its other rows at once, right before the commit."""
        self.gathered.setdefault(write, []).append(row)

    def write_gathered(self) -> None:
        """Until nothing is left: what is written last may have something to tell of as well."""
        while self.gathered:
            gathered, self.gathered = self.gathered, {}
            for write, rows in gathered.items():
                write(self, rows)

    def driver(self, statement: str) -> Driver:
        """The driver's own connection, within this transaction: for the statements on the hot path."""
        return Driver(self.conn, statement)

    @contextmanager
    def reading_as(self, reader: Reader) -> Iterator[None]:
        """Read as somebody else for a while, as where the runtime looks up what its caller only names."""
        before, self.reader = self.reader, reader
        try:
            yield
        finally:
            self.reader = before

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What fails in here leaves nothing behind in the transaction around it."""
        self._run("SAVEPOINT apart")
        try:
            yield
        except BaseException:
            self._run("ROLLBACK TO SAVEPOINT apart")
            raise
        finally:
            self._run("RELEASE SAVEPOINT apart")

    def _run(self, statement: str) -> None:
        with self.driver(statement) as connection:
            connection.execute(statement)

    def wake(self, name: str) -> None:
        """Ask that everyone who waits for `name` is woken after the commit, in every process."""
        self.wakes.add(name)


class Store:
    """The database behind every room. Safe to share between threads."""

    def __init__(
        self,
        url: str | URL,
        *,
        clock: Clock | None = None,
        readers: int = 8,
        busy_ms: int = 5_000,
    ) -> None:
        self.url = make_url(url)
        self.clock: Clock = clock or StoreClock()
        self.signals = Signals()
        self.postgres = self.url.get_backend_name() == "postgresql"
        if not self.postgres and self.url.get_backend_name() != "sqlite":
            raise InvalidInput(
                f"no store engine for {self.url.get_backend_name()!r}",
                hint="Use a file path, sqlite:///PATH or postgresql+psycopg://…",
            )
        if not self.postgres and self.url.database in (None, "", ":memory:"):
            raise InvalidInput("a store needs a file", hint="Use sqlite:///PATH.")
        self._write_lock = threading.Lock()
        self._writer, self._reader = _engines(self.url, readers, busy_ms)
        self._reading = Connections(self._reader, readers, ask=self.postgres)
        self._writing = Connections(self._writer, readers if self.postgres else 1, ask=self.postgres)
        self.sender = secrets.token_hex(8)
        self._begin_read = _SNAPSHOT if self.postgres else "BEGIN"
        self._begin_write = _LATEST if self.postgres else "BEGIN IMMEDIATE"
        self._begin_ordered = _locked(_LOG_LOCK) if self.postgres else self._begin_write

    @contextmanager
    def read(self, reader: Reader) -> Iterator[Tx]:
        """A read-only look at one consistent state, as far as `reader` may see it."""
        with _translated(), self._reading.one() as conn, transaction(conn, self._begin_read):
            yield Tx(conn, reader, self._now(conn), postgres=self.postgres)

    @contextmanager
    def write(self, reader: Reader, *, ordered: bool = True) -> Iterator[Tx]:
        """One transaction, committed at the end of the block or not at all; what it reads, `reader` may see.

        `ordered=False` is for writes that add nothing to the log or the change feed (claims, renewals): on
        PostgreSQL they then do not queue behind those that do.
        """
        opening = self._begin_ordered if ordered else self._begin_write
        with self._exclusive(), _translated(), self._writing.one() as conn, transaction(conn, opening):
            tx = Tx(conn, reader, self._now(conn), postgres=self.postgres)
            yield tx
            tx.write_gathered()
            if self.postgres and tx.wakes:
                with Driver(conn, _NOTIFY) as connection:
                    connection.execute(_NOTIFY, (f"{self.sender}|{','.join(sorted(tx.wakes))}",))
        for callback in tx.callbacks:
            callback()
        for name in tx.wakes:
            self.signals.notify(name)

    def run(self, reader: Reader, work: Callable[[Tx], T], *, ordered: bool = True) -> T:
        """`work` in a transaction, repeated when the database broke it off to resolve a deadlock."""
        for attempt in range(_WRITE_ATTEMPTS):
            try:
                with self.write(reader, ordered=ordered) as tx:
                    return work(tx)
            except Deadlock:
                if attempt == _WRITE_ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    @property
    def skew_ms(self) -> int:
        """By how much this machine's clock is ahead of the one that counts; none where it is that."""
        return self.clock.skew_ms if self.postgres and isinstance(self.clock, StoreClock) else 0

    def _now(self, conn: Connection) -> Millis:
        """The time by the clock that all who use this store share: PostgreSQL's own, where that is it."""
        clock = self.clock
        if isinstance(clock, StoreClock) and clock.is_stale:
            if self.postgres:
                clock.set_by(lambda: _database_time(conn))
            else:
                clock.set_by_wall()
        return clock.now()

    @contextmanager
    def schema(self) -> Iterator[Connection]:
        """A reading connection, for a look at the schema alone."""
        with self.read(SYSTEM) as tx:
            yield tx.conn

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """The writing connection while a migration runs; one process at a time."""
        with self._exclusive(), _translated(), self._writing.one() as conn:
            begin(conn, _locked(_MIGRATE_LOCK) if self.postgres else self._begin_write)
            with conn.begin():
                yield conn

    @contextmanager
    def raw(self) -> Iterator[Any]:
        """A driver connection outside any transaction, not given back to the pool."""
        with _translated():
            pooled = self._reader.raw_connection()
        connection = pooled.driver_connection
        pooled.detach()
        try:
            yield connection
        finally:
            pooled.close()

    def copy_file(self, target: Path) -> None:
        """SQLite alone: all of one moment, page by page, into another file; writers do not wait for it."""
        with self.raw() as connection:
            copy = sqlite_module().connect(str(target), isolation_level=None)
            try:
                connection.backup(copy)
            finally:
                copy.close()

    def probe(self) -> None:
        """Raise `Unavailable` unless the database answers."""
        with self.read(SYSTEM) as tx:
            tx.conn.exec_driver_sql("SELECT 1")

    def close(self) -> None:
        self._reading.close()
        self._writing.close()
        self._writer.dispose()
        if self._reader is not self._writer:
            self._reader.dispose()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """On SQLite, wait for the writer here instead of in its busy loop."""
        if self.postgres:
            yield
            return
        with self._write_lock:
            yield


class Deadlock(Busy):
    code = "store_busy"


def _database_time(conn: Connection) -> int:
    with Driver(conn, _TIME) as connection:
        return int(connection.execute(_TIME).fetchone()[0])


def sqlite_url(path: Path | str) -> str:
    return f"sqlite:///{path}"


_TIME = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_NOTIFY = "SELECT pg_notify('holdfast', %s)"
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_LATEST = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"


def _locked(number: int) -> str:
    return f"{_LATEST}; SELECT pg_advisory_xact_lock({number})"


def _engines(url: URL, readers: int, busy_ms: int) -> tuple[Engine, Engine]:
    if url.get_backend_name() == "postgresql":
        engine = sa.create_engine(
            url.set(drivername="postgresql+psycopg"),
            pool_size=readers,
            max_overflow=readers + _RAW,
            pool_pre_ping=True,
            json_serializer=_dumps,
            # We prepare statements ourselves. psycopg would drop ours along with its own after a rollback.
            connect_args={"prepare_threshold": None},
        )
        return engine, engine
    return (
        _sqlite_engine(url, busy_ms, size=1, writer=True),
        _sqlite_engine(url, busy_ms, size=readers + _RAW, writer=False),
    )


def _sqlite_engine(url: URL, busy_ms: int, *, size: int, writer: bool) -> Engine:
    engine = sa.create_engine(
        url,
        module=sqlite_module(),
        poolclass=sa.pool.QueuePool,
        pool_size=size,
        max_overflow=0,
        json_serializer=_dumps,
        connect_args={"check_same_thread": False, "isolation_level": None},
    )

    @sa.event.listens_for(engine, "connect")
    def _prepare(dbapi: Any, _record: object) -> None:
        for pragma in (
            f"busy_timeout={busy_ms}",
            "journal_mode=WAL",
            "synchronous=NORMAL",
            "foreign_keys=ON",
            "cache_size=-32000",
            "temp_store=MEMORY",
            "wal_autocheckpoint=4000",
            "journal_size_limit=67108864",
            f"query_only={'OFF' if writer else 'ON'}",
        ):
            dbapi.execute(f"PRAGMA {pragma}")

    return engine


def sqlite_module() -> Any:
    """`pysqlite3` carries a current SQLite; the interpreter's own can be years old and is the fallback."""
    try:
        import pysqlite3.dbapi2 as module
    except ImportError:
        import sqlite3 as module
    return module


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@contextmanager
def _translated() -> Iterator[None]:
    """Turn what a database says into our own errors, each with a way out."""
    try:
        yield
    except DBAPIError as error:
        raised = _meaning(error)
        if raised is None:
            raise
        raise raised from error
    except sa.exc.TimeoutError as error:
        raise Busy("all connections to the database are in use", code="store_busy") from error


def _meaning(error: DBAPIError) -> Exception | None:
    text = str(error.orig).lower()
    if getattr(error.orig, "sqlstate", None) in _DEADLOCK_CODES:
        return Deadlock("the database broke off a transaction to resolve a deadlock")
    if isinstance(error, (IntegrityError, DataError, ProgrammingError)):
        return None
    if "locked" in text or "busy" in text:
        return Unavailable(
            "the database is locked by another process",
            code="store_locked",
            hint="Stop the other process that writes to it, or use PostgreSQL for several writers.",
        )
    if "disk is full" in text or "no space" in text or "disk i/o" in text:
        return Unavailable(
            "the disk is full or failing; nothing was written",
            code="store_full",
            hint="Free some space; Holdfast goes on by itself.",
        )
    if "readonly" in text or "read-only" in text or "unable to open" in text:
        return Unavailable(
            "the database cannot be opened for writing",
            code="store_readonly",
            hint="Check the owner and the permissions of the home folder.",
        )
    if "malformed" in text or "not a database" in text:
        return Unavailable(
            "the database file is damaged",
            code="store_damaged",
            hint="Run `holdfast store check`, and restore a copy if it says so.",
        )
    if isinstance(error, OperationalError) and error.connection_invalidated | ("connect" in text):
        return Unavailable(
            "the database cannot be reached",
            code="store_unreachable",
            hint="Check that PostgreSQL is running and that the store's URL is right.",
        )
    return None
