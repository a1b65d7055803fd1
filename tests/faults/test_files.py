"""A database file that is not what it was is told of, and never taken for a new one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from builders import append, rows
from holdfast.cli.root import cli
from holdfast.errors import Conflict
from holdfast.runtime import open_home


def used_home(place: Path) -> Path:
    """A home whose gateway has written its log and made its index."""
    with open_home(place) as hold:
        append(hold.store, "precious")
        (hold.home.logs / "gateway.jsonl").write_text("{}\n")
    return place


@pytest.mark.parametrize("looked_at_before", [False, True])
def test_an_empty_database_in_a_used_home_is_refused(tmp_path: Path, looked_at_before: bool) -> None:
    home = used_home(tmp_path / "home")
    database = home / "holdfast.db"
    database.write_bytes(b"")
    if looked_at_before:
        said = CliRunner().invoke(cli, ["--home", str(home), "doctor"])
        assert "its log is gone" in said.output
    with pytest.raises(Conflict, match="its log is gone") as caught:
        open_home(home)
    assert caught.value.code == "store_emptied"
    database.unlink()
    with open_home(home) as hold:
        assert rows(hold.store, "SELECT count(*) FROM entries") == [(0,)]


@pytest.mark.parametrize("how", ["process", "power"])
def test_the_doctor_says_what_an_acknowledgement_survives(tmp_path: Path, how: str) -> None:
    (tmp_path / "holdfast.json").write_text(f"{{store: {{durability: '{how}'}}}}")
    open_home(tmp_path).close()
    said = CliRunner().invoke(cli, ["--home", str(tmp_path), "doctor"]).output
    assert ("may not survive a power cut" in said) == (how == "process")


def test_an_empty_database_in_a_fresh_home_is_a_new_store(tmp_path: Path) -> None:
    (tmp_path / "holdfast.db").write_bytes(b"")
    with open_home(tmp_path) as hold:
        append(hold.store, "first")


def test_the_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "holdfast.db") as other:
        other.execute("CREATE TABLE bookmarks (url TEXT)")
    with pytest.raises(Conflict) as caught:
        open_home(tmp_path)
    assert caught.value.code == "store_foreign"
    said = CliRunner().invoke(cli, ["--home", str(tmp_path), "doctor"])
    assert "another program" in said.output
    with sqlite3.connect(tmp_path / "holdfast.db") as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("bookmarks",)]
