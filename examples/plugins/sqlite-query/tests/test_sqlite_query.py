"""The tool over a real database: it answers, and nothing that is asked changes a byte."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1]))

from sqlite_query import Database, Query

from holdfast.errors import InvalidInput
from holdfast.plugins import PluginApi, read_manifest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "boats.db"
    with closing(sqlite3.connect(made)) as connection, connection:
        connection.execute("CREATE TABLE boats (name TEXT, length REAL, photo BLOB)")
        connection.executemany(
            "INSERT INTO boats VALUES (?, ?, ?)", [(f"boat {n}", n * 1.5, b"\0" * n) for n in range(100)]
        )
    return made


def asked(path: Path, sql: str, **limits: Any) -> str:
    database = Database(path, limits.get("rows", 50), limits.get("seconds", 5))
    caller: Any = None
    return database.query(caller, Query(sql=sql), "1").text


def test_rows_come_as_json_and_more_than_fit_are_told_of(path: Path) -> None:
    assert asked(path, "SELECT name, length, photo FROM boats LIMIT 1") == (
        '{"name": "boat 0", "length": 0.0, "photo": "[0 bytes]"}'
    )
    assert asked(path, "SELECT * FROM boats", rows=3).endswith("[there are more than 3 rows: ask for fewer]")
    assert asked(path, "SELECT * FROM boats WHERE 0") == "No rows."


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM boats",
        "UPDATE boats SET name = 'x'",
        "DROP TABLE boats",
        "CREATE TABLE more (x)",
        "ATTACH DATABASE '/tmp/other.db' AS other",
        "PRAGMA journal_mode = DELETE",
        "VACUUM INTO '/tmp/copy.db'",
        "SELECT load_extension('x')",
        "nonsense",
        "SELECT 1; DELETE FROM boats",
    ],
)
def test_nothing_but_a_question_is_taken(path: Path, sql: str) -> None:
    before = path.read_bytes()
    with pytest.raises(InvalidInput):
        asked(path, sql)
    assert path.read_bytes() == before


def test_a_question_without_end_is_ended(path: Path) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    with pytest.raises(InvalidInput, match="interrupted"):
        asked(path, endless, seconds=0.05)


def test_it_registers_one_tool_that_changes_nothing(path: Path, tmp_path: Path) -> None:
    from sqlite_query import register

    folder = Path(__file__).parents[1] / "sqlite_query"
    manifest = read_manifest(folder / "holdfast.plugin.json")
    api = PluginApi(manifest, manifest.settings({"database": str(path)}), folder, tmp_path)
    register(api)
    [tool] = api.registered.tools
    assert (tool.name, tool.effect.value, tool.repeatable) == ("sqlite_query", "none", True)
