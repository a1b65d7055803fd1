"""Damage to derived files: known by checksums, set aside for a look within a bound, and told."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from typing_extensions import TypedDict

from holdfast.records import record

log = logging.getLogger(__name__)

FOLDER: Final = "damaged"
MOST_FILES: Final = 16
MOST_BYTES: Final = 256 * 1024**2
_MOST_TOLD: Final = 20
_READ_ONLY: Final = "attempt to write a readonly database"
_NOT_THE_FILES_FAULT: Final = (
    *("database is locked", "database table is locked", "database schema is locked", "interrupted"),
    *("disk I/O error", "database or disk is full", "unable to open", "out of memory"),
)


@record
class DamageOut(TypedDict):
    part: str
    why: str
    at: int


@record
class IndexHealthOut(TypedDict):
    damaged: list[DamageOut]
    setAside: list[str]
    healing: bool
    unsearched: int


@dataclass(frozen=True, slots=True)
class Damage:
    """One part that was found damaged, and when."""

    part: str
    why: str
    at: int

    def json(self) -> DamageOut:
        return {"part": self.part, "why": self.why, "at": self.at}


@dataclass(frozen=True, slots=True)
class Health:
    """How an index stands: what was found damaged since it was opened, and what is not searched yet."""

    damaged: tuple[Damage, ...] = ()
    set_aside: tuple[str, ...] = ()
    healing: bool = False
    unsearched: int = 0

    def json(self) -> IndexHealthOut:
        return {
            "damaged": [one.json() for one in self.damaged],
            "setAside": list(self.set_aside),
            "healing": self.healing,
            "unsearched": self.unsearched,
        }

    @property
    def told(self) -> str | None:
        """What who searches should know; None when all is searched."""
        if not self.healing:
            return None
        left = f"; {self.unsearched} documents are not searched yet" if self.unsearched else ""
        return f"a part of the index was damaged and is made again{left}"


class Aside:
    """The folder where damaged files of an index are kept for a look; the oldest go first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._lock = threading.Lock()
        self._seen: list[Damage] = []

    @property
    def seen(self) -> tuple[Damage, ...]:
        return tuple(self._seen)

    def note(self, part: str, why: str) -> None:
        """Tell of damage once in the log, and to whoever asks for the health of the index."""
        log.warning("%s of the search index is damaged and is made again: %s", part, why)
        with self._lock:
            self._seen = [*self._seen[1 - _MOST_TOLD :], Damage(part, why, int(time.time() * 1000))]

    def take(self, paths: Iterable[Path], why: str) -> None:
        """Move files here, under their names and the time."""
        there = [path for path in paths if path.is_file()]
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for path in there:
            os.replace(path, self._free_name(path.name))
        self.note(", ".join(path.name for path in there) or "a missing file", why)
        self._keep_within_bounds()

    def keep_copy(self, path: Path, why: str) -> None:
        """Keep a copy of a file of which a part is still good and stays in use."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        if path.stat().st_size <= MOST_BYTES:
            shutil.copyfile(path, self._free_name(path.name))
        self.note(path.name, why)
        self._keep_within_bounds()

    def listing(self) -> tuple[str, ...]:
        return tuple(path.name for path in self._files())

    def _files(self) -> list[Path]:
        return sorted(self._folder.iterdir()) if self._folder.is_dir() else []

    def _free_name(self, name: str) -> Path:
        return self._folder / f"{time.strftime('%Y%m%dT%H%M%S')}-{time.monotonic_ns() % 10**9:09d}-{name}"

    def _keep_within_bounds(self) -> None:
        kept = self._files()
        sizes = {path: path.stat().st_size for path in kept}
        while kept and (len(kept) > MOST_FILES or sum(sizes[path] for path in kept) > MOST_BYTES):
            kept.pop(0).unlink(missing_ok=True)


def is_damage(said: str, path: Path) -> bool:
    """Whether it is the file's fault that SQLite could not do something: not the disk's, nor a lock's."""
    if said.startswith(_READ_ONLY):
        return path.is_file() and os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return not said.startswith(_NOT_THE_FILES_FAULT)


def row_sum(*values: Any) -> int:
    """The checksum of a stored row, over the values as they are read back."""
    return zlib.crc32(repr(values).encode())


def is_sound(kept: Any, *values: Any) -> bool:
    """Whether a row is as it was written; one from before there were checksums is taken on trust."""
    return kept is None or kept == row_sum(*values)
