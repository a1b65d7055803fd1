"""Who a process is and whether it still lives, and leases: the right to do one named thing for a while.

They run out by themselves; no lock files.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from holdfast.log.store import Tx
from holdfast.log.tables import leases as table


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


@dataclass(frozen=True, slots=True)
class Lease:
    name: str
    owner: str
    until: int
    revision: int


def acquire(tx: Tx, name: str, *, owner: str, for_ms: int) -> Lease | None:
    """Take or renew a lease; None while another owner holds it and may still live."""
    held = current(tx, name)
    taken = held is not None and held.owner != owner and held.until > tx.now
    if held is not None and taken and not is_dead(held.owner):
        return None
    revision = 1 if held is None else held.revision + 1
    values = {"name": name, "owner": owner, "until": tx.now + for_ms, "revision": revision}
    insert = postgresql.insert(table) if tx.postgres else sqlite.insert(table)
    statement = insert.values(values).on_conflict_do_update(
        index_elements=["name"],
        set_={k: values[k] for k in ("owner", "until", "revision")},
        where=table.c.revision == revision - 1,
    )
    if tx.conn.execute(statement.returning(table.c.name)).scalar() is None:
        return None
    return Lease(name, owner, tx.now + for_ms, revision)


def release(tx: Tx, lease: Lease) -> bool:
    """Give a lease back; False if it was taken over meanwhile."""
    statement = sa.delete(table).where(
        table.c.name == lease.name, table.c.owner == lease.owner, table.c.revision == lease.revision
    )
    return tx.conn.execute(statement).rowcount == 1


def current(tx: Tx, name: str) -> Lease | None:
    row = tx.conn.execute(sa.select(table).where(table.c.name == name)).first()
    return None if row is None else Lease(row.name, row.owner, row.until, row.revision)
