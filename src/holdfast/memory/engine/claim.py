"""One process per index folder, held by the operating system and so gone with the process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

from holdfast.errors import Conflict
from holdfast.home import private_opener


class Claim:
    """An advisory lock on the folder; a crash releases it, so nothing stale can block a start."""

    def __init__(self, folder: Path) -> None:
        self._file = os.fdopen(
            private_opener(str(folder / "claim"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC), "w"
        )
        try:
            _lock(self._file)
        except OSError as error:
            self._file.close()
            raise Conflict(
                f"another process has the search index at {folder} open",
                code="index_in_use",
                hint="Ask the running gateway, or stop it first.",
            ) from error

    def close(self) -> None:
        self._file.close()


def _lock(file: IO[str]) -> None:
    """Where the system has no such locks, one process is taken on trust."""
    if os.name == "posix":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
