"""Who holds a lease: a process, named so that another on the same machine can tell whether it still lives."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path


@cache
def this_process() -> str:
    pid = os.getpid()
    return f"{socket.gethostname()}/{pid}/{_started(pid) or 0}"


def is_dead(owner: str) -> bool:
    """True only when it is certain: a process of this machine that has ended."""
    host, _, rest = owner.partition("/")
    pid, _, started = rest.partition("/")
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    now = _started(int(pid))
    if now is None:
        return not _exists(int(pid))
    return now == -1 or started not in ("", "0", str(now))


def _started(pid: int) -> int | None:
    """The start time of a process in clock ticks since boot, where the system tells it; -1 for a corpse."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return -1 if fields[0] in "ZX" else int(fields[19])


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
