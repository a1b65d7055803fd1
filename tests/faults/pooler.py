"""A PgBouncer between a gateway and its PostgreSQL."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fault_stage import wait_until

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")


@contextmanager
def pgbouncer(server: Any, folder: Path, mode: str, *, size: int = 4) -> Iterator[int]:
    """The port of a pooler in this mode; skips where there is none."""
    if PGBOUNCER is None:
        pytest.skip("needs pgbouncer")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    folder.mkdir()
    (folder / "pgbouncer.ini").write_text(
        f"""[databases]
* = host={server.pgdata} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 200
logfile = {folder}/log
"""
    )
    command = [PGBOUNCER, str(folder / "pgbouncer.ini")]
    if os.geteuid() == 0:  # it will not run as root, and the server does not either
        owner = pwd.getpwuid(os.stat(server.pgdata).st_uid).pw_name
        folder.chmod(0o777)
        for parent in folder.parents:
            parent.chmod(parent.stat().st_mode | 0o011)
        command = [*command[:1], "-u", owner, *command[1:]]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _listens(port), "the pooler listens")
        yield port
    finally:
        process.terminate()
        process.wait(10)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
