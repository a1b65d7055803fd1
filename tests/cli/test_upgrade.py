"""Stores of another version than the program: told, never guessed at."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from cli_stage import Run

from builders import rows
from holdfast import migrations
from holdfast.log import Store, check, sqlite_url

OLDER = "0013"


def store_at(home: Path, revision: str) -> None:
    """A home whose store is at a revision, with something in it."""
    home.mkdir(mode=0o700)
    store = Store(sqlite_url(home / "holdfast.db"))
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    with store.migrating() as conn:
        config.attributes["connection"] = conn
        command.upgrade(config, revision)
        conn.exec_driver_sql(
            "INSERT INTO spaces (id, name, default_visible, created_at, updated_at) "
            "VALUES ('s', 'kept', 1, 1, 1)"
        )
    store.close()


def newer(home: Path) -> None:
    store_at(home, migrations.HEAD)
    store = Store(sqlite_url(home / "holdfast.db"))
    with store.migrating() as conn:
        conn.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    store.close()


@pytest.mark.parametrize("args", [("up", "--port", "0"), ("status",), ("store", "migrate")])
def test_a_store_that_a_newer_program_wrote_is_refused_with_the_way_out(
    run: Run, home: Path, args: tuple[str, ...]
) -> None:
    newer(home)
    before = (home / "holdfast.db").read_bytes()
    done = run(*args)
    assert done.exit_code == 2
    assert "9999" in done.stderr
    assert migrations.HEAD in done.stderr
    assert "newer version of Holdfast" in done.stderr
    assert done.stderr.count("\n") == 1
    assert (home / "holdfast.db").read_bytes() == before


def test_check_and_doctor_do_not_advise_to_migrate_what_is_newer(run: Run, home: Path) -> None:
    newer(home)
    for told in (run("store", "check").output, run("doctor").output):
        assert "9999" in told
        assert "newer version of Holdfast" in told
        assert "store migrate" not in told


def test_an_upgrade_is_told_and_the_store_as_it_was_is_kept(
    run: Run, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store_at(home, OLDER)
    with caplog.at_level(logging.WARNING):
        assert run("status").exit_code == 0
    copy = home / "upgrades" / f"holdfast.db.{OLDER}"
    assert f"from revision {OLDER} to {migrations.HEAD}" in caplog.text
    assert str(copy) in caplog.text
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    kept, now = Store(sqlite_url(copy)), Store(sqlite_url(home / "holdfast.db"))
    with kept.schema() as conn:
        assert migrations.current(conn) == OLDER
    assert rows(kept, "SELECT name FROM spaces WHERE id = 's'") == [("kept",)]
    assert check(now) == []
    kept.close()
    now.close()


def test_without_room_for_a_copy_nothing_is_upgraded_unless_asked(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_at(home, OLDER)
    monkeypatch.setattr(migrations, "_SPARE_BYTES", 1 << 60)
    done = run("status")
    assert done.exit_code == 1
    assert "--no-copy" in done.stderr
    assert run("store", "migrate", "--no-copy").exit_code == 0
    assert not (home / "upgrades").exists()
    assert run("status").exit_code == 0


def test_a_new_store_is_no_upgrade(run: Run, home: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert run("status").exit_code == 2
    run("init")
    assert run("store", "migrate").exit_code == 0
    assert "upgraded" not in caplog.text
    assert not (home / "upgrades").exists()
