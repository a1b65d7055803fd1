"""What a PostgreSQL does to those who use it: each fault is got over, told meanwhile, and loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from fault_stage import Gateway, echoing, gateway, wait_until

from builders import new_database
from holdfast.log import open_store


@pytest.fixture(scope="module")
def stage(postgres_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, str]]:
    url = new_database(postgres_server, "faults")
    open_store(url).close()
    with echoing() as model, gateway(tmp_path_factory.mktemp("faults"), model, url) as started:
        yield started, url.replace("+psycopg", "")


def admin(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url, autocommit=True)


@contextmanager
def locked(url: str, table: str) -> Iterator[None]:
    with psycopg.connect(url) as holder:
        holder.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield


BLOCKED = """SELECT pid FROM pg_stat_activity WHERE datname = current_database()
 AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()"""


def blocked(admin_: psycopg.Connection[Any]) -> list[int]:
    return [pid for (pid,) in admin_.execute(BLOCKED).fetchall()]


@pytest.mark.parametrize("how", ["pg_cancel_backend", "pg_terminate_backend"])
def test_statements_that_are_broken_off_end_neither_the_runner_nor_a_turn(
    stage: tuple[Gateway, str], how: str
) -> None:
    here, url = stage
    with admin(url) as boss, locked(url, "agenda"):
        boss.execute("SELECT pg_notify('holdfast', 'x|agenda,changes')")
        wait_until(lambda: bool(blocked(boss)), "a statement waits for the lock")
        for _ in range(8):
            for pid in blocked(boss):
                boss.execute(f"SELECT {how}(%s)", (pid,))
    run = here.ask(f"after {how}")
    wait_until(lambda: here.end_of(run) == "committed", "the turn is committed")
    wait_until(lambda: here.ready() is None, "ready again")
