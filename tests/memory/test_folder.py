"""Memory alone: any folder in five lines, and folders of many files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.memory import indexing, open_folder

SNIPPET = """
from holdfast.memory import open_folder

with open_folder(FOLDER) as memory:
    for hit in memory.find("what did we decide about the VPN?").hits:
        print(hit.score, hit.path, hit.snippet)
"""


def test_the_five_lines_of_the_docs_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/decisions.md").write_text("We decided that the VPN goes.\n")
    (tmp_path / "lunch.md").write_text("Soup.\n")
    exec(SNIPPET.replace("FOLDER", repr(str(tmp_path))))
    first = capsys.readouterr().out.splitlines()[0]
    assert first.split(" ", 2)[1:] == ["qmd/folder/deep/decisions.md", "We decided that the VPN goes."]


def test_an_index_that_is_kept_is_not_made_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes, index = tmp_path / "notes", tmp_path / "index"
    notes.mkdir()
    (notes / "a.md").write_text("The walrus has tusks.")
    open_folder(notes, index=index).close()
    monkeypatch.setattr(indexing, "chunk", _never)
    with open_folder(notes, index=index) as memory:
        assert memory.find("walrus").hits


def test_a_thousand_files_are_written_in_batches_and_then_only_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand work the same way. Here what matters is what is not done."""
    for number in range(1_000):
        place = tmp_path / f"{number % 20:02d}"
        place.mkdir(exist_ok=True)
        (place / f"note-{number}.md").write_text(f"# Note {number}\n\nSubject {number} is settled.\n")
    with open_folder(tmp_path) as memory:
        assert memory.index.count == 1_000
        assert memory.find("is subject 777 settled?").hits[0].path == "qmd/folder/17/note-777.md"
        monkeypatch.setattr(indexing, "read_within", _never)
        done = memory.update("main")
        assert (done.seen, done.indexed) == (1_000, 0)


def test_a_crash_between_the_files_loses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as known only when their text is in the index."""
    for number in range(600):
        (tmp_path / f"{number:03d}.md").write_text(f"Subject {number}.")
    whole = indexing.read_within
    monkeypatch.setattr(indexing, "read_within", _until(400, whole))
    index = tmp_path / "index"
    with pytest.raises(KeyboardInterrupt):
        open_folder(tmp_path, index=index)
    monkeypatch.setattr(indexing, "read_within", whole)
    with open_folder(tmp_path, index=index) as memory:
        assert memory.index.count == 600


def _never(*args: object, **options: object) -> None:
    raise AssertionError("this should not have been called")


def _until(most: int, work: Callable[..., bytes]) -> Callable[..., bytes]:
    left = iter(range(most))

    def limited(*args: object, **options: object) -> bytes:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return work(*args, **options)

    return limited
