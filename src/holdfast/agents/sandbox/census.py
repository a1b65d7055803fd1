"""How many processes a job has and how much memory they hold, counted from outside.

The kernel's own limit on processes does not bind root, and its limit on memory binds each process alone and
what it shares with others not at all.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

_HELD: Final = frozenset((b"RssAnon:", b"RssShmem:"))
_SHARE: Final = frozenset((b"Pss_Anon:", b"Pss_Shmem:"))
_MOST: Final = 65_536
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Census:
    """`memory_bytes` is at most too high: shared pages count for each process, and mapped files too."""

    pids: tuple[int, ...] = ()
    memory_bytes: int = 0

    @property
    def processes(self) -> int:
        return len(self.pids)

    def shared_once(self) -> int:
        """What they really hold, each page once where the kernel tells; slower."""
        return sum(_sum(pid, "smaps_rollup", _SHARE) or _sum(pid, "status", _HELD) for pid in self.pids)


def census(pid: int, most: int) -> Census:
    """Count a process and all below it; stops once there are more than `most`."""
    waiting = [pid]
    found: list[int] = []
    memory = 0
    while waiting and len(found) <= most:
        each = waiting.pop()
        found.append(each)
        memory += _resident(each)
        waiting += _children(each)
    return Census(tuple(found), memory)


def _children(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    told = [_read(f"/proc/{pid}/task/{task}/children") for task in tasks]
    return [int(child) for line in told for child in line.split()]


def _resident(pid: int) -> int:
    figures = _read(f"/proc/{pid}/statm").split()
    return int(figures[1]) * _PAGE if len(figures) > 1 else 0


def _sum(pid: int, file: str, names: frozenset[bytes]) -> int:
    """Files that were read into memory are left out: the kernel takes that back when it needs to."""
    lines = (line.split() for line in _read(f"/proc/{pid}/{file}").splitlines())
    return sum(int(line[1]) * 1024 for line in lines if line and line[0] in names)


def _read(path: str) -> bytes:
    """Without the ceremony of a file object: this is done for every process, many times a second."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(file, _MOST)
    except OSError:
        return b""
    finally:
        os.close(file)
