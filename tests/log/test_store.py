from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

import forks
from builders import accept, append, claim, draft, enqueue, execute, outcome, rows, session
from holdfast import migrations
from holdfast.clock import ManualClock
from holdfast.errors import Conflict, InvalidInput, Unavailable
from holdfast.log import (
    OWNER,
    Store,
    agenda,
    check,
    connections,
    copy,
    entries,
    entry_model,
    open_store,
    outbox,
    sessions,
    sqlite_url,
    turns,
)
from holdfast.log import store as log_store
from holdfast.log.tables import metadata


def new_store(url: str) -> Store:
    return open_store(url, clock=ManualClock())


def test_the_migrations_lead_to_the_tables_that_the_code_uses(engine: str, empty_url: str) -> None:
    store = new_store(empty_url)

    def ours(found: Any, name: str | None, type_: str, reflected: bool, _: object) -> bool:
        return type_ not in ("index", "table") or (type_ == "table" and name in metadata.tables)

    with store.read(OWNER) as tx:
        options = {"include_object": ours, "compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(tx.conn, opts=options)
        assert compare_metadata(context, metadata) == []
    assert check(store) == []
    store.close()


def test_migrating_again_does_nothing(engine: str, empty_url: str) -> None:
    store = Store(empty_url)
    assert migrations.migrate(store)
    assert not migrations.migrate(store)
    append(store)
    assert not migrations.migrate(store)
    assert len(rows(store, "SELECT id FROM entries")) == 1
    store.close()


MIGRATE = """
import sys
from holdfast.log import OWNER, open_store, entries, EntryDraft
sys.stdin.readline()
store = open_store(sys.argv[1])
with store.write(OWNER) as tx:
    entries.append(tx, EntryDraft(content="hello"))
"""


def test_processes_that_migrate_at_once_do_not_disturb_each_other(engine: str, empty_url: str) -> None:
    command = [sys.executable, "-c", MIGRATE, empty_url]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [forks.Popen(command, **pipes) for _ in range(4)]
    said = [process.communicate("go\n")[1] for process in running]
    assert [process.returncode for process in running] == [0] * 4, said
    store = Store(empty_url)
    assert rows(store, "SELECT count(*) FROM entries") == [(4,)]
    assert check(store) == []
    store.close()


def test_a_store_from_a_newer_version_is_left_alone(store_url: str) -> None:
    store = Store(store_url)
    execute(store, ["UPDATE alembic_version SET version_num = '9999'"])
    try:
        with pytest.raises(Conflict) as caught:
            migrations.migrate(store)
        assert caught.value.code == "store_newer"
        assert "9999" in check(store)[0]
    finally:
        execute(store, [f"UPDATE alembic_version SET version_num = '{migrations.HEAD}'"])
        store.close()


def test_every_sqlite_connection_is_opened_as_it_must_be(sqlite_store: Store) -> None:
    expected = {"journal_mode": "wal", "foreign_keys": 1, "synchronous": 1, "busy_timeout": 5000}
    with (
        sqlite_store.read(OWNER) as one,
        sqlite_store.read(OWNER) as other,
        sqlite_store.write(OWNER) as writer,
    ):
        for tx, read_only in ((one, 1), (other, 1), (writer, 0)):
            for name, value in (expected | {"query_only": read_only}).items():
                assert tx.conn.exec_driver_sql(f"PRAGMA {name}").scalar() == value


def test_a_reader_cannot_write(store: Store) -> None:
    with pytest.raises((Unavailable, sa.exc.DBAPIError)), store.read(OWNER) as tx:
        tx.conn.exec_driver_sql("DELETE FROM entries")


def test_foreign_keys_are_enforced(store: Store) -> None:
    with pytest.raises(sa.exc.IntegrityError):
        execute(store, ["INSERT INTO entry_revisions VALUES ('none', 0, 'x', NULL, 1)"])


def test_a_reader_sees_one_state_from_beginning_to_end(store: Store) -> None:
    append(store)
    with store.read(OWNER) as tx:
        assert entries.head(tx) == 1
        append(store)
        assert entries.head(tx) == 1
    with store.read(OWNER) as tx:
        assert entries.head(tx) == 2


def test_an_address_that_is_no_store_is_refused() -> None:
    for url in ("mysql://x/y", "sqlite://", "sqlite:///:memory:"):
        with pytest.raises(InvalidInput):
            Store(url)


def test_callbacks_run_after_the_commit_and_never_without_it(store: Store) -> None:
    called: list[int] = []
    with store.write(OWNER) as tx:
        tx.on_commit(lambda: called.append(len(rows(store, "SELECT 1 FROM entries"))))
        entries.append(tx, entry_model.EntryDraft(content="x"))
        assert called == []
    assert called == [1]


def test_callbacks_of_a_transaction_that_failed_are_never_run(store: Store) -> None:
    called: list[int] = []

    def fail() -> None:
        with store.write(OWNER) as tx:
            tx.on_commit(lambda: called.append(-1))
            tx.conn.exec_driver_sql("SELECT nothing")

    with pytest.raises(sa.exc.DBAPIError):
        fail()
    assert called == []


def test_a_unique_value_that_reads_like_an_error_is_not_taken_for_one(store: Store) -> None:
    values = "('locked', 'locked', 1, 1)"
    with pytest.raises(sa.exc.IntegrityError):
        execute(store, [f"INSERT INTO leases (name, owner, until, revision) VALUES {values}"] * 2)


HOLD = """
import sys
import pysqlite3.dbapi2 as sqlite3
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
"""


@contextmanager
def held(path: str) -> Iterator[None]:
    """Another process that holds the write lock of the file."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = forks.Popen([sys.executable, "-c", HOLD, path], **pipes)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    try:
        yield
    finally:
        process.communicate("done\n")


def test_a_locked_database_is_named_as_such_and_works_again_after(sqlite_store: Store) -> None:
    impatient = Store(sqlite_store.url, busy_ms=20)
    with held(str(sqlite_store.url.database)):
        with pytest.raises(Unavailable) as caught:
            append(impatient)
        assert rows(impatient, "SELECT count(*) FROM entries") == [(0,)]
    assert caught.value.code == "store_locked"
    assert caught.value.hint
    append(impatient)
    assert rows(impatient, "SELECT count(*) FROM entries") == [(1,)]
    impatient.close()


def test_a_full_disk_loses_nothing_and_is_no_trouble_once_there_is_room(sqlite_store: Store) -> None:
    append(sqlite_store, "before")

    def limit(pages: int) -> None:
        with sqlite_store.write(OWNER) as tx:
            tx.conn.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    limit(1)
    with pytest.raises(Unavailable) as caught:
        append(sqlite_store, "x" * 1_000_000)
    assert caught.value.code == "store_full"
    assert rows(sqlite_store, "SELECT content FROM entries") == [("before",)]
    limit(1_000_000)
    append(sqlite_store, "after")
    assert rows(sqlite_store, "SELECT content FROM entries") == [("before",), ("after",)]
    assert check(sqlite_store) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with next to no room; only root may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_fills_up_for_real_keeps_every_acknowledged_entry(small_disk: Path) -> None:
    store = new_store(sqlite_url(small_disk / "holdfast.db"))
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"0" * 100_000)
    kept: list[str] = []

    def write_on() -> None:
        for n in range(1_000):
            kept.append(append(store, f"{n} " + "x" * 4_000).id)

    with pytest.raises(Unavailable) as caught:
        write_on()
    assert caught.value.code == "store_full"
    assert kept
    ballast.unlink()
    kept.append(append(store, "room again").id)
    assert [r[0] for r in rows(store, "SELECT id FROM entries ORDER BY position")] == kept
    assert check(store) == []
    store.close()


def test_a_file_that_is_no_database_is_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    path.write_bytes(b"this is not a database at all" * 500)
    with pytest.raises(Unavailable) as caught:
        open_store(sqlite_url(path))
    assert caught.value.code == "store_damaged"


def test_a_damaged_file_is_found_by_check(sqlite_store: Store) -> None:
    for n in range(200):
        append(sqlite_store, str(n))
    (root,) = rows(sqlite_store, "SELECT rootpage FROM sqlite_master WHERE name = 'entries_created'")[0]
    (size,) = rows(sqlite_store, "PRAGMA page_size")[0]
    sqlite_store.close()
    with Path(str(sqlite_store.url.database)).open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * 64)
    damaged = Store(sqlite_store.url)
    assert any(problem.startswith("SQLite:") for problem in check(damaged))
    damaged.close()


def test_a_home_that_cannot_be_written_is_named_as_such(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        open_store(sqlite_url(tmp_path / "missing" / "holdfast.db"))
    assert caught.value.code == "store_readonly"


def test_a_database_that_is_not_there_is_named_as_such() -> None:
    store = Store("postgresql+psycopg://nobody@127.0.0.1:1/none?connect_timeout=2")
    with pytest.raises(Unavailable) as caught:
        store.probe()
    assert caught.value.code == "store_unreachable"
    store.close()


def fill(store: Store) -> None:
    """Something in every table, odd values included."""
    gone = append(store, "half \ud800 🌊", source={"a": [None, 1.5]}, idempotency_key="i")
    turn = accept(store, "hello", key="k1")
    (job,) = claim(store)
    with store.write(OWNER) as tx:
        turns.start(tx, turn)
    with store.write(OWNER) as tx:
        parcel = outbox.Parcel(key="p", kind="c", target="t", payload={"x": None})
        turns.commit(tx, "k1", outcome(parcels=[parcel]), agenda.Job(job))
        entries.correct(tx, gone.id, "corrected")
        sessions.reset(tx, sessions.ensure(tx, turn.session_key), cause="daily")
        tx.conn.exec_driver_sql("DELETE FROM changes WHERE seq > 3")
    enqueue(store, payload={"flag": True}, key="later")
    execute(store, ["INSERT INTO leases (name, owner, until, revision) VALUES ('n', 'o', 5, 1)"])


def everything(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    content = {}
    with store.read(OWNER) as tx:
        for table in metadata.sorted_tables:
            query = sa.select(table).order_by(*table.primary_key.columns)
            nulls = [c.is_(None).label(f"null_{c.name}") for c in table.columns]
            content[table.name] = [tuple(row) for row in tx.conn.execute(query.add_columns(*nulls))]
    return content


def test_a_copy_there_and_back_again_holds_the_same_and_goes_on(
    sqlite_store: Store, postgres_server: Any, tmp_path: Path, empty_postgres: str
) -> None:
    fill(sqlite_store)
    there, back = Store(empty_postgres), Store(sqlite_url(tmp_path / "back.db"))
    told: list[str] = []
    counts = copy(sqlite_store, there, progress=lambda table, count: told.append(table))
    assert copy(there, back) == counts
    assert counts["entries"] == 3
    assert "entries" in told
    assert everything(sqlite_store) == everything(there) == everything(back)
    numbers = [append(store, "new").position for store in (sqlite_store, there, back)]
    assert numbers[0] == numbers[1] == numbers[2] == 4
    for store in (there, back):
        assert check(store) == []
        session(store)
    with pytest.raises(Conflict) as caught:
        copy(sqlite_store, back)
    assert caught.value.code == "store_not_empty"
    there.close()
    back.close()


@pytest.fixture
def empty_postgres(postgres_server: Any) -> Iterator[str]:
    from builders import new_database

    yield new_database(postgres_server, "target")
    postgres_server.psql("DROP DATABASE target WITH (FORCE)")


DAMAGE = {
    "a committed turn has no end": [
        "UPDATE turns SET status = 'committed'",
        "UPDATE agenda SET status = 'done', ended_at = 1",
    ],
    "a turn was committed but its agenda item is not done": [
        "UPDATE turns SET status = 'committed', ended_at = 1"
    ],
    "an agenda item is done but its turn was never committed": [
        "UPDATE agenda SET status = 'done', ended_at = 1"
    ],
    "an accepted turn has nothing on the agenda": ["DELETE FROM agenda"],
    "a running agenda item has no owner": ["UPDATE agenda SET status = 'running'"],
    "an agenda item that is over has no end": ["UPDATE agenda SET status = 'cancelled'"],
    "an entry names a turn that is not there": ["UPDATE entries SET turn_id = 'none'"],
    "an entry names a session that is not there": ["UPDATE entries SET session_id = 'none'"],
    "a session names a successor that is not there": ["UPDATE sessions SET successor_id = 'none'"],
    "a pending delivery has nothing on the agenda": [
        "INSERT INTO outbox (id, key, kind, target, status, payload, attempts, created_at, updated_at)"
        " VALUES ('o', 'k', 'c', 't', 'pending', '{}', 0, 1, 1)"
    ],
}


@pytest.mark.parametrize("rule", DAMAGE)
def test_check_finds_each_kind_of_damage(store: Store, rule: str) -> None:
    accept(store)
    assert check(store) == []
    execute(store, DAMAGE[rule])
    problems = check(store)
    assert any(problem.startswith(rule) for problem in problems), problems


def test_check_finds_two_active_sessions_of_one_key(engine: str, empty_url: str) -> None:
    store = new_store(empty_url)
    made = session(store)
    columns = "key, agent_id, status, created_at, updated_at, last_external_at"
    execute(
        store,
        [
            "DROP INDEX sessions_active",
            f"INSERT INTO sessions (id, {columns}) SELECT 'twin', {columns} FROM sessions",
        ],
    )
    assert check(store) == [f"a session has two active rows: {made.key}"]
    store.close()


def test_check_finds_a_row_that_points_nowhere(sqlite_store: Store) -> None:
    with sqlite_store.raw() as connection:
        connection.execute("PRAGMA query_only = OFF")
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("INSERT INTO entry_revisions VALUES ('none', 0, 'x', NULL, 1)")
    assert check(sqlite_store) == ["a row of entry_revisions points at a row of entries that is not there"]


def frames(store: Store) -> tuple[int, int]:
    """How long SQLite's write-ahead log is, and how much of it is in the database."""
    with store.raw() as connection:
        _, length, done = connection.execute("PRAGMA wal_checkpoint(NOOP)").fetchone()
    return length, done


def write_frames(store: Store, count: int) -> None:
    """Commits of about a hundred pages each, until the log has grown by so many."""
    until = frames(store)[0] + count
    while frames(store)[0] < until:
        with store.write(OWNER, durable=False) as tx:
            entries.append(tx, draft("x" * 400_000))


def test_no_commit_does_the_work_of_a_checkpoint_while_somebody_else_does_it(sqlite_store: Store) -> None:
    write_frames(sqlite_store, 5_000)
    assert frames(sqlite_store)[1] == 0
    checkpointer = sqlite_store.checkpointer()
    assert checkpointer is not None
    checkpointer.look()
    length, done = frames(sqlite_store)
    assert length == done >= 5_000
    append(sqlite_store, "after it")
    assert frames(sqlite_store)[0] < 100, "the log was begun anew"
    checkpointer.close()


def test_the_log_of_a_store_that_is_never_quiet_is_begun_anew(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CHECKPOINT_FRAMES", 200)
    monkeypatch.setattr(connections, "RESTART_FRAMES", 500)
    checkpointer = sqlite_store.checkpointer()
    assert checkpointer is not None
    for _ in range(10):
        write_frames(sqlite_store, 300)
        checkpointer.look()
        append(sqlite_store, "at once")
    assert frames(sqlite_store)[0] < 1_200
    checkpointer.close()


def test_a_reader_that_stays_keeps_nobody_from_writing_beside_a_checkpoint(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "RESTART_FRAMES", 500)
    checkpointer = sqlite_store.checkpointer()
    assert checkpointer is not None
    with sqlite_store.read(OWNER) as tx:
        assert tx.conn.exec_driver_sql("SELECT count(*) FROM entries").scalar() == 0
        write_frames(sqlite_store, 3_000)
        checkpointer.look()
        append(sqlite_store, "beside it")
        assert tx.conn.exec_driver_sql("SELECT count(*) FROM entries").scalar() == 0
    for _ in range(10):
        checkpointer.look()
    append(sqlite_store, "after it")
    assert frames(sqlite_store)[0] < 100
    checkpointer.close()


def test_where_nobody_does_checkpoints_a_commit_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_store, "MOST_FRAMES", 600)
    store = new_store(sqlite_url(tmp_path / "alone.db"))
    for number in range(30):
        append(store, f"{number}" + "x" * 400_000)
    assert frames(store)[0] < 1_200
    store.close()


def test_only_sqlite_needs_a_checkpointer(store: Store) -> None:
    assert (store.checkpointer() is None) == store.postgres
