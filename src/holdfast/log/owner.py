"""Who holds a lease: a process, named so that another on the same machine can tell whether it still lives."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path


@cache
def this_process() -> str:
    pid = os.getpid()
    return f"{socket.gethostname()}@{_machine()}/{pid}/{_started(pid) or 0}"


def is_dead(owner: str) -> bool:
    """True only when it is certain: a process of this machine that has ended, if only because the machine was
    started anew. Another may have the same name; what it holds is its own."""
    place, _, rest = owner.partition("/")
    host, _, machine = place.partition("@")
    pid, _, started = rest.partition("/")
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    if machine and machine != _machine():
        id_, _, _boot = machine.partition(".")
        return bool(id_) and id_ == _machine().partition(".")[0]
    now = _started(int(pid))
    if now is None:
        return not _exists(int(pid))
    return now == -1 or started not in ("", "0", str(now))


@cache
def _machine() -> str:
    """`MACHINE.BOOT`, each as far as the system tells it."""
    return f"{_short('/etc/machine-id')}.{_short('/proc/sys/kernel/random/boot_id')}"


def _short(file: str) -> str:
    try:
        return Path(file).read_text().strip()[:8]
    except OSError:
        return ""


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
