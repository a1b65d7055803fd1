"""Commits on SQLite that a power cut does not take back, and that do nothing but commit.

A commit goes into the write-ahead log and returns; whoever acknowledges it waits here until that file is on
the disk. Those who wait at the same time share one flush, and nobody who writes waits for it. From there a
checkpoint brings it into the database: beside the writers, not in the commit of one of them.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from holdfast.errors import Unavailable
from holdfast.log.pulse import Pulse

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
