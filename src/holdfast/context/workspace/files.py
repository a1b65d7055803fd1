"""Reading workspace files: cached by inode, times and size, never from outside the workspace, bounded."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Problem = Literal["missing", "binary", "outside", "unreadable", "not_a_file"]

MOST_BYTES: Final = 1_000_000
_SNIFF: Final = 8192
_MOST_CACHED: Final = 512

_Stamp = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class FileText:
    """The text of a file, or why there is none. `left_out` bytes lie between head and tail."""

    name: str
    text: str = ""
    problem: Problem | None = None
    left_out: int = 0


class FileReader:
    """Sees every edit at the next read: a file is read again when any of its stamps differs."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[_Stamp, FileText]] = {}

    def read(self, workspace: Path, name: str) -> FileText:
        path = workspace / name
        try:
            real = path
            if os.sep in name or path.is_symlink():  # a plain file of the folder itself lies within it
                real = path.resolve()
                if not real.is_relative_to(workspace.resolve()):
                    return FileText(name, problem="outside")
            found = real.stat()
        except FileNotFoundError:
            return FileText(name, problem="missing")
        except (OSError, RuntimeError):
            return FileText(name, problem="unreadable")
        if not stat.S_ISREG(found.st_mode):
            return FileText(name, problem="not_a_file")
        stamp = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
        known = self._known.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        text = _load(real, name)
        if len(self._known) >= _MOST_CACHED:
            self._known.clear()
        self._known[path] = (stamp, text)
        return text


def _load(path: Path, name: str) -> FileText:
    """The whole file, or of a huge one the head and the tail."""
    try:
        # No waiting for a pipe that was put in place of the file, and no following of a late symlink.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            size = os.fstat(handle).st_size
            data = file.read(MOST_BYTES)
            left_out = 0
            if size > 2 * MOST_BYTES:
                left_out = size - 2 * MOST_BYTES
                file.seek(size - MOST_BYTES)
            data += b"\n" * bool(left_out) + file.read(MOST_BYTES)
    except OSError:
        return FileText(name, problem="unreadable")
    if b"\0" in data[:_SNIFF]:
        return FileText(name, problem="binary")
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\0", "\ufffd")
    return FileText(name, text, left_out=left_out)
