"""The backend in a real home: it answers searches, and the built-in index does when it cannot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.runtime import Holdfast, open_home

PLUGIN = Path(__file__).parents[1]


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Holdfast]:
    home = tmp_path / "home"
    (home / "workspace" / "memory").mkdir(parents=True)
    (home / "workspace" / "MEMORY.md").write_text(
        "# Boats\n\nThe ferry leaves at nine.\n\nThe canoe leaks.\n"
    )
    (home / "workspace" / "memory" / "2026-03-02.md").write_text("We painted the ferry.\n")
    (home / "holdfast.json").write_text(json.dumps({"plugins": {"load": {"paths": [str(PLUGIN)]}}}))
    with open_home(home) as opened:
        yield opened


def test_it_answers_with_path_and_lines_once_it_has_read_the_notes(hold: Holdfast) -> None:
    before = hold.memory.find("when does the ferry leave")
    assert before.provider != "fts-memory"
    assert before.fallback is not None
    hold.memory.update("main")
    found = hold.memory.find("when does the ferry leave")
    assert found.provider == "fts-memory"
    best = found.hits[0]
    assert (best.path, best.start, best.end, best.snippet) == ("MEMORY.md", 3, 3, "The ferry leaves at nine.")
    assert {hit.path for hit in found.hits} == {"MEMORY.md", "memory/2026-03-02.md"}
    assert hold.memory.status("main")["backend"] == "fts-memory"


def test_odd_questions_find_nothing_and_break_nothing(hold: Holdfast) -> None:
    hold.memory.update("main")
    for odd in ('"', "a OR", "NEAR(", "*", "col:x", "'; DROP TABLE notes; --"):
        assert hold.memory.find(odd).provider == "fts-memory"


def test_where_its_index_is_broken_the_built_in_one_answers_and_says_why(hold: Holdfast) -> None:
    hold.memory.update("main")
    folder = hold.plugins.data_dir(hold.plugins.get("fts-memory"))
    (folder / "main.db").write_bytes(b"no database" * 100)
    found = hold.memory.find("ferry")
    assert found.hits
    assert "fts-memory" in (found.fallback or "")
