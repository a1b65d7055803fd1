"""Commits on SQLite that a power cut does not take back.

A commit goes into the write-ahead log and returns; whoever acknowledges it waits here until that file is on
the disk. Those who wait at the same time share one flush, and nobody who writes waits for it.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from holdfast.errors import Unavailable


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


def flush(file: int) -> None:
    """Have the disk itself hold what was written, not its cache or the system's."""
    try:
        from fcntl import F_FULLFSYNC, fcntl  # type: ignore[attr-defined,unused-ignore]  # macOS alone
    except ImportError:
        getattr(os, "fdatasync", os.fsync)(file)
        return
    fcntl(file, F_FULLFSYNC)
