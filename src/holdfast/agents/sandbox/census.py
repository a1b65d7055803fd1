"""How many processes a job has and how much memory they hold, counted from outside.

The kernel's own limit on processes does not bind root, and its limit on memory binds each process alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_PAGE: Final = 4096


@dataclass(frozen=True, slots=True)
class Census:
    processes: int = 0
    memory_bytes: int = 0


def census(pid: int, most: int) -> Census:
    """Count a process and all below it; stops once there are more than `most`."""
    waiting = [pid]
    count = memory = 0
    while waiting and count <= most:
        each = waiting.pop()
        count += 1
        memory += _resident(each)
        waiting += _children(each)
    return Census(count, memory)


def _children(pid: int) -> list[int]:
    try:
        tasks = list((_PROC / str(pid) / "task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (OSError, ValueError):
        return []


def _resident(pid: int) -> int:
    """Private pages only: what is shared would be counted once for each process."""
    try:
        _, resident, shared, *_ = (_PROC / str(pid) / "statm").read_text().split()
        return max(0, int(resident) - int(shared)) * _PAGE
    except (OSError, ValueError):
        return 0
