"""SQLite's connections: kept open and ready, with commits that a power cut does not take back.

A commit goes into the write-ahead log and returns; whoever acknowledges it waits here until that file is on
the disk. Those who wait at the same time share one flush, and nobody who writes waits for it. From there a
checkpoint brings it into the database: beside the writers, not in the commit of one of them.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError

from holdfast.errors import Transient, Unavailable
from holdfast.log.threads import Pulse

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
        from holdfast.log.statements import Prepared

        held = Prepared(held, conn.info.get(PREPARING))
    conn.info[_HELD] = held
    return held


CHECKPOINT_FRAMES: Final = 2_000
"""So many pages in the write-ahead log that are not in the database yet are worth a checkpoint."""
RESTART_FRAMES: Final = 8_000
"""At this length the log is begun anew, for which writers wait a moment: only what came last is left then."""
MOST_FRAMES: Final = 16_000
"""At this length a commit does the checkpoint itself: nobody else does it."""
LOOK_SECONDS: Final = 0.25
_REST_LOOKS: Final = 8


class GroupFlush:
    """Flushes the write-ahead log of one database. Safe to share between threads.

    After a flush that failed nothing more is acknowledged: what the system says of that file from then on
    cannot be relied on, until the database was closed and opened again.
    """

    def __init__(self, database: Path) -> None:
        self._wal = Path(f"{database}-wal")
        self._lock = threading.Lock()
        self._committed = 0
        self._flushed = 0
        self._known: int | None = None
        self.failed: Unavailable | None = None

    @property
    def commits(self) -> int:
        """How many commits there were."""
        return self._committed

    def committed(self) -> int:
        """The number of a commit that was just made; for one thread at a time, as SQLite's writers are."""
        self._committed += 1
        return self._committed

    def wait(self, number: int) -> None:
        """Return when the commit of this number, and with it all before, is on the disk."""
        if self._flushed >= number and self.failed is None:
            return
        with self._lock:
            if self.failed is not None:
                raise self.failed
            if self._flushed < number:
                covered = self._committed
                self._flush()
                self._flushed = covered

    def _flush(self) -> None:
        try:
            file = os.open(self._wal, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # whoever closed the database last has moved it all into the main file, and flushed that
        except OSError as error:
            raise self._failure(error) from error
        try:
            flush(file)
            self._flush_name(file)
        except OSError as error:
            self.failed = self._failure(error)
            raise self.failed from error
        finally:
            os.close(file)

    def _flush_name(self, file: int) -> None:
        """A file that is new is found after a power cut only if its folder was flushed too."""
        made = os.fstat(file).st_ino
        if made == self._known:
            return
        folder = os.open(self._wal.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self._known = made

    def _failure(self, error: OSError) -> Unavailable:
        return Unavailable(
            f"what was written could not be brought to the disk: {error.strerror}",
            code="store_unflushed",
            hint="See what the system's log says of the disk, then start Holdfast again.",
        )


class Checkpointer:
    """Brings what was committed from the write-ahead log into the database, on a thread of its own.

    A passive checkpoint hinders neither readers nor writers, but as long as somebody writes it never ends
    with nothing left, which is when SQLite begins its log anew. So where the log has grown long, `exclusive`
    keeps the writers out for the little that the passive one has left.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        exclusive: Callable[[], AbstractContextManager[None]],
        commits: Callable[[], int],
    ) -> None:
        self.pulse = Pulse("checkpoints")
        self._connect = connect
        self._exclusive = exclusive
        self._commits = commits
        self._seen = -1
        self._rest = 0
        self._connection: Any = None

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        loop = asyncio.get_running_loop()
        executor = ThreadPoolExecutor(1, thread_name_prefix="holdfast-checkpoints")
        try:
            while True:
                self.pulse.begin()
                try:
                    await loop.run_in_executor(executor, self.look)
                    self.pulse.passed()
                except Exception as error:  # noqa: BLE001 - told, and tried again: the log grows meanwhile
                    self.pulse.failed(error)
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            executor.submit(self.close)
            executor.shutdown(wait=False)

    def look(self) -> None:
        """One look; nothing is done where nothing was written since the last one."""
        commits = self._commits()
        if commits == self._seen:
            return
        length, done = self._checkpoint("NOOP")
        if length - done >= CHECKPOINT_FRAMES:
            length, done = self._checkpoint("PASSIVE")
        if length >= RESTART_FRAMES:
            length = self._begin_anew(length, done)
        if length < RESTART_FRAMES and length - done < CHECKPOINT_FRAMES:
            self._seen = commits

    def _begin_anew(self, length: int, done: int) -> int:
        """How long the log is after the attempt; one that a reader has thwarted is not made again at once."""
        if self._rest > 0:
            self._rest -= 1
            return length
        if length > done:
            self._checkpoint("PASSIVE")
        with self._exclusive():
            length, done = self._checkpoint("RESTART")
        if length > done:
            self._rest = _REST_LOOKS
            return length
        return 0

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _checkpoint(self, mode: str) -> tuple[int, int]:
        """How many frames the log has, and how many of them are in the database. What a reader still looks at
        stays for the next time."""
        if self._connection is None:
            self._connection = self._connect()
        try:
            row = self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except Exception:
            self.close()
            raise
        return int(row[1]), int(row[2])


def flush(file: int) -> None:
    """Have the disk itself hold what was written, not its cache or the system's."""
    try:
        from fcntl import F_FULLFSYNC, fcntl  # type: ignore[attr-defined,unused-ignore]  # macOS alone
    except ImportError:
        getattr(os, "fdatasync", os.fsync)(file)
        return
    fcntl(file, F_FULLFSYNC)
