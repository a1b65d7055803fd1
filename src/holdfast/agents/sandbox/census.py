"""How many processes a job has and how much memory they hold, counted from outside.

The kernel's own limit on processes does not bind root, and its limit on memory binds each process alone and
what it shares with others not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_HELD: Final = frozenset(("RssAnon:", "RssShmem:"))
_SHARE: Final = frozenset(("Pss_Anon:", "Pss_Shmem:"))


@dataclass(frozen=True, slots=True)
class Census:
    """`memory_bytes` is at most too high: what several share is in it once for each of them."""

    pids: tuple[int, ...] = ()
    memory_bytes: int = 0

    @property
    def processes(self) -> int:
        return len(self.pids)

    def shared_once(self) -> int:
        """The same with shared memory counted once, where the kernel tells; slower."""
        return sum(_sum(pid, "smaps_rollup", _SHARE) or _sum(pid, "status", _HELD) for pid in self.pids)


def census(pid: int, most: int) -> Census:
    """Count a process and all below it; stops once there are more than `most`."""
    waiting = [pid]
    found: list[int] = []
    memory = 0
    while waiting and len(found) <= most:
        each = waiting.pop()
        found.append(each)
        memory += _sum(each, "status", _HELD)
        waiting += _children(each)
    return Census(tuple(found), memory)


def _children(pid: int) -> list[int]:
    try:
        tasks = list((_PROC / str(pid) / "task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (OSError, ValueError):
        return []


def _sum(pid: int, file: str, names: frozenset[str]) -> int:
    """Files that were read into memory are left out: the kernel takes that back when it needs to."""
    return sum(kib * 1024 for name, kib in _figures(pid, file) if name in names)


def _figures(pid: int, file: str) -> Iterator[tuple[str, int]]:
    try:
        lines = (_PROC / str(pid) / file).read_text().splitlines()
    except OSError:
        return
    for line in lines:
        name, *rest = line.split()
        if len(rest) == 2 and rest[1] == "kB" and rest[0].isdecimal():
            yield name, int(rest[0])
