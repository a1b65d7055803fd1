"""One database, SQLite or PostgreSQL, opened as it must be: the only place that knows which it is.

Writes go through `Store.write()`, one transaction each. On SQLite that is `BEGIN IMMEDIATE` on the one
writing connection; on PostgreSQL a write that appends to the log first takes a transaction lock, so that
positions and change numbers become visible in the order in which they were given.

A write is acknowledged when it is durable: with `durability` "power" when a power cut does not take it back,
with "process" when the end of this process does not.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.engine.url import URL, make_url
from sqlalchemy.exc import DBAPIError

from holdfast.clock import Clock, Millis, StoreClock
from holdfast.errors import InvalidInput, Transient, Unavailable
from holdfast.log import faults
from holdfast.log.audience import SYSTEM, Origin, Reader
from holdfast.log.connections import (
    MOST_FRAMES,
    PREPARING,
    Checkpointer,
    CommitFailed,
    Connections,
    Driver,
    GroupFlush,
    begin,
)
from holdfast.log.threads import Signals

if TYPE_CHECKING:
    from holdfast.log.statements import Preparing

T = TypeVar("T")
Durability = Literal["process", "power"]

_LOG_LOCK = 0x486F6C64
_MIGRATE_LOCK = 0x486F6C65
_RAW = 2
_AGAIN_SECONDS = 5.0
_FIRST_PAUSE_SECONDS = 0.02
# Below this a write may work and the next one not: the disk counts as full.
_FULL_BYTES = 256 * 1024
# So that a server that vanished without a word is noticed; an address that says otherwise is heeded.
_PROBING = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


class Tx:
    """One transaction: its connection, who reads in it, the moment it stands for, and what to wake once it is
    committed."""

    __slots__ = ("callbacks", "conn", "gathered", "now", "origin", "postgres", "reader", "wakes")

    def __init__(self, conn: Connection, reader: Reader, now: Millis, *, postgres: bool) -> None:
        self.conn = conn
        self.reader = reader
        self.now = now
        self.postgres = postgres
        self.origin: Origin | None = None
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
    def savepoint(self) -> Iterator[None]:
        """What fails in here leaves nothing behind in the transaction around it."""
        self._run("SAVEPOINT nested")
        try:
            yield
        except BaseException:
            self._run("ROLLBACK TO SAVEPOINT nested")
            raise
        finally:
            self._run("RELEASE SAVEPOINT nested")

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
        lock_ms: int = 15_000,
        durability: Durability = "power",
        listen_url: str | None = None,
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
        self.listen_url = None if listen_url is None else make_url(listen_url)
        self.durability: Durability = durability
        self.write_error: Unavailable | None = None
        self._flush = None if self.postgres else GroupFlush(Path(str(self.url.database)))
        self._write_lock = threading.Lock()
        self._preparing = _preparing() if self.postgres else None
        self._writer, self._reader = _engines(self.url, readers, busy_ms, self._preparing)
        self._reading = Connections(self._reader, readers, ask=self.postgres)
        self._writing = Connections(self._writer, readers if self.postgres else 1, ask=self.postgres)
        self.sender = secrets.token_hex(8)
        limits = f"; SET LOCAL lock_timeout = {lock_ms}"
        settled = "" if durability == "power" else "; SET LOCAL synchronous_commit = off"
        self._begin_read = _SNAPSHOT + limits if self.postgres else "BEGIN"
        self._begin_write = _LATEST + limits if self.postgres else "BEGIN IMMEDIATE"
        self._begin_ordered = _locked(_LOG_LOCK, limits + settled) if self.postgres else self._begin_write

    @property
    def pooled(self) -> bool:
        """Whether a pooler was found between us and PostgreSQL."""
        return self._preparing is not None and not self._preparing.allowed

    @contextmanager
    def read(self, reader: Reader) -> Iterator[Tx]:
        """A read-only look at one consistent state, as far as `reader` may see it."""
        with self._told(), self._reading.begun(self._begin_read) as conn:
            yield Tx(conn, reader, self._now(conn), postgres=self.postgres)

    @contextmanager
    def write(self, reader: Reader, *, ordered: bool = True, durable: bool = True) -> Iterator[Tx]:
        """One transaction, committed at the end of the block or not at all; what it reads, `reader` may see.

        `ordered=False` is for writes that add nothing to the log or the change feed (claims, renewals): on
        PostgreSQL they then do not queue behind those that do.

        `durable=False` is for what may be forgotten together with this process, as its claims may, or can be
        made anew: on SQLite nobody then waits for the disk. The next durable write takes it along.
        """
        opening = self._begin_ordered if ordered else self._begin_write
        with self._exclusive():
            with self._told(writing=True), self._writing.begun(opening) as conn:
                tx = Tx(conn, reader, self._now(conn), postgres=self.postgres)
                yield tx
                tx.write_gathered()
                if self.postgres and tx.wakes:
                    with Driver(conn, _NOTIFY) as connection:
                        connection.execute(_NOTIFY, (f"{self.sender}|{','.join(sorted(tx.wakes))}",))
            number = 0 if self._flush is None else self._flush.committed()
        if self._flush is not None and durable and self.durability == "power":
            self._flush.wait(number)
        if self.write_error is not None and self.write_error.code != "store_full":
            self.write_error = None
        for callback in tx.callbacks:
            callback()
        for name in tx.wakes:
            self.signals.notify(name)

    def run(
        self, reader: Reader, work: Callable[[Tx], T], *, ordered: bool = True, durable: bool = True
    ) -> T:
        """`work` in a transaction, repeated for a few seconds when the database broke it off.

        A commit whose answer was lost is not repeated: `Transient` says that it is in doubt.
        """
        until = time.monotonic() + _AGAIN_SECONDS
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                with self.write(reader, ordered=ordered, durable=durable) as tx:
                    return work(tx)
            except Transient as error:
                if error.in_doubt or time.monotonic() + pause > until:
                    raise
            time.sleep(pause * (0.5 + secrets.randbelow(1000) / 1000))
            pause *= 2

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
        with self._exclusive(), self._told(), self._writing.one() as conn:
            begin(conn, _locked(_MIGRATE_LOCK) if self.postgres else self._begin_write)
            with conn.begin():
                yield conn

    @contextmanager
    def raw(self) -> Iterator[Any]:
        """A driver connection outside any transaction, not given back to the pool."""
        with self._told():
            pooled = self._reader.raw_connection()
        connection: Any = pooled.driver_connection
        pooled.detach()
        try:
            yield connection
        finally:
            connection.close()

    def copy_file(self, target: Path) -> None:
        """SQLite alone: all of one moment, page by page, into another file; writers do not wait for it."""
        with self.raw() as connection:
            copy = sqlite_module().connect(str(target), isolation_level=None)
            try:
                connection.backup(copy)
            finally:
                copy.close()

    def checkpointer(self) -> Checkpointer | None:
        """SQLite alone: what keeps checkpoints out of commits, for whoever runs it. Without, a commit does
        one when the write-ahead log has grown very long."""
        flush = self._flush
        if flush is None:
            return None

        def connect() -> Any:
            connection = sqlite_module().connect(
                str(self.url.database), isolation_level=None, check_same_thread=False
            )
            for pragma in ("busy_timeout=20", "synchronous=NORMAL", "wal_autocheckpoint=0"):
                connection.execute(f"PRAGMA {pragma}")
            return connection

        return Checkpointer(connect, self._exclusive, lambda: flush.commits)

    def probe(self) -> None:
        """Raise unless the database answers, and takes writes again if it was last seen to take none."""
        with self.read(SYSTEM) as tx:
            tx.conn.exec_driver_sql("SELECT 1")
        if self._flush is not None and self._flush.failed is not None:
            raise self._flush.failed
        self._require_space()
        if self.write_error is not None:
            with self.write(SYSTEM, ordered=False) as tx:
                for statement in _NOTHING:
                    tx.conn.exec_driver_sql(statement.format(self.sender))
            self.write_error = None

    def _require_space(self) -> None:
        if self.postgres:
            return
        disk = os.statvfs(Path(str(self.url.database)).parent)
        if disk.f_bavail * disk.f_frsize < _FULL_BYTES:
            raise Unavailable(
                "the disk is full", code="store_full", hint="Free some space; Holdfast goes on by itself."
            )

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

    @contextmanager
    def _told(self, *, writing: bool = False) -> Iterator[None]:
        """Turn what a database says into our own errors, each with a way out."""
        try:
            yield
        except CommitFailed as failed:
            raised = self._meaning(failed.error, writing)
            if writing and isinstance(raised, Transient) and raised.code == Transient.code:
                raised = Transient(
                    "the connection to the database was lost at a commit: it may be there or not",
                    hint="Send it again with the same idempotency key.",
                    in_doubt=True,
                )
            raise raised from None if raised is failed.error else failed.error
        except DBAPIError as error:
            raised = self._meaning(error, writing)
            if raised is error:
                raise
            raise raised from error
        except sa.exc.TimeoutError as error:
            raise Transient("all connections to the database are in use", code="store_busy") from error

    def _meaning(self, error: DBAPIError, writing: bool) -> Exception:
        if self._preparing is not None and faults.names_a_pooler(error):
            self._preparing.allowed = False
        meant = faults.meaning(error, postgres=self.postgres)
        if meant is not None and writing:
            self.write_error = meant
        return error if meant is None else meant


def _database_time(conn: Connection) -> int:
    with Driver(conn, _TIME) as connection:
        return int(connection.execute(_TIME).fetchone()[0])


def sqlite_url(path: Path | str) -> str:
    return f"sqlite:///{path}"


_TIME = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_NOTIFY = "SELECT pg_notify('holdfast', %s)"
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_LATEST = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"


# A write that leaves nothing behind, to see whether one is possible.
_NOTHING = (
    "INSERT INTO leases (name, owner, until, revision) VALUES ('probe {0}', '{0}', 0, 0)",
    "DELETE FROM leases WHERE name = 'probe {0}'",
)


def _locked(number: int, settled: str = "") -> str:
    return f"{_LATEST}{settled}; SELECT pg_advisory_xact_lock({number})"


def _preparing() -> Preparing:
    from holdfast.log.statements import Preparing

    return Preparing()


def _engines(url: URL, readers: int, busy_ms: int, preparing: Preparing | None) -> tuple[Engine, Engine]:
    if preparing is not None:
        probing = {name: value for name, value in _PROBING.items() if name not in url.query}
        engine = sa.create_engine(
            url.set(drivername="postgresql+psycopg"),
            pool_size=readers,
            max_overflow=readers + _RAW,
            pool_pre_ping=True,
            json_serializer=_dumps,
            # We prepare statements ourselves. psycopg would drop ours along with its own after a rollback.
            connect_args={"prepare_threshold": None, **probing},
        )

        @sa.event.listens_for(engine, "connect")
        def _look(dbapi: Any, record: Any) -> None:
            preparing.look(dbapi)
            record.info[PREPARING] = preparing

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
            f"wal_autocheckpoint={MOST_FRAMES}",
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
