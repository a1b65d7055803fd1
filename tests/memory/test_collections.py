from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from holdfast.errors import InvalidInput, NotFound
from holdfast.memory.collections import Collection, collection_name, default_collections, locate
from holdfast.memory.reading import read_within


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    (root / "memory/deep").mkdir(parents=True)
    (root / "MEMORY.md").write_text("curated")
    (root / "memory/2026-01-31.md").write_text("daily")
    (root / "memory/deep/plan.md").write_text("plan")
    (root / "memory/secret.txt").write_text("not markdown")
    (root / "AGENTS.md").write_text("not memory")
    (tmp_path / "outside.md").write_text("outside")
    return root


def paths(collection: Collection) -> list[str]:
    return [path for path, _ in collection.files()]


def test_the_three_default_collections_hold_the_memory_files_and_nothing_else(workspace: Path) -> None:
    found = {c.name: paths(c) for c in default_collections(workspace)}
    assert found == {
        "memory-root": ["MEMORY.md"],
        "memory-alt": [],
        "memory-dir": ["memory/2026-01-31.md", "memory/deep/plan.md"],
    }


def test_links_hidden_folders_and_other_files_are_passed_over(workspace: Path, tmp_path: Path) -> None:
    (workspace / "memory/link.md").symlink_to(tmp_path / "outside.md")
    (workspace / "memory/linked").symlink_to(tmp_path)
    (workspace / "memory/.git").mkdir()
    (workspace / "memory/.git/x.md").write_text("x")
    assert paths(default_collections(workspace)[2]) == ["memory/2026-01-31.md", "memory/deep/plan.md"]


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ("*.md", ["AGENTS.md", "MEMORY.md"]),
        ("memory/*.md", ["memory/2026-01-31.md"]),
        ("**/plan.md", ["memory/deep/plan.md"]),
    ],
)
def test_a_mask_chooses_files(workspace: Path, mask: str, expected: list[str]) -> None:
    assert paths(Collection("all", workspace, mask)) == expected


def test_results_name_own_files_plainly_and_others_by_collection(workspace: Path) -> None:
    own, _, _ = default_collections(workspace)
    assert own.address("MEMORY.md") == "MEMORY.md"
    assert Collection("wiki", workspace).address("a/b.md") == "qmd/wiki/a/b.md"


@pytest.mark.parametrize(("text", "name"), [("My Wiki!", "my-wiki"), ("a__b", "a-b"), ("Ünï", "n")])
def test_names_are_made_safe(text: str, name: str) -> None:
    assert collection_name(text) == name


def test_a_name_without_letters_is_refused() -> None:
    with pytest.raises(InvalidInput):
        collection_name("///")


REFUSED = [
    "../outside.md",
    "memory/../../outside.md",
    "/etc/passwd",
    "/etc/hosts.md",
    "~/x.md",
    "memory/secret.txt",
    "memory//x.md",
    "memory/./x.md",
    "memory\\x.md",
    "C:/x.md",
    "memory/x\0.md",
    "memory/x\n.md",
    "AGENTS.md",
    "qmd/other/x.md",
    "qmd/memory-dir",
    "",
    "x" * 2000 + ".md",
]


@pytest.mark.parametrize("path", REFUSED)
def test_paths_that_lead_elsewhere_are_refused(workspace: Path, path: str) -> None:
    with pytest.raises(InvalidInput):
        locate(default_collections(workspace), path)


def test_a_file_is_found_by_its_plain_path_and_by_its_address(workspace: Path) -> None:
    wiki = Collection("wiki", workspace / "memory", "**/*.md")
    known = [*default_collections(workspace), wiki]
    assert locate(known, "memory/2026-01-31.md")[1] == "memory/2026-01-31.md"
    assert locate(known, "qmd/wiki/deep/plan.md") == (wiki, "deep/plan.md")


def test_a_link_is_never_read_wherever_it_stands(workspace: Path, tmp_path: Path) -> None:
    (workspace / "memory/link.md").symlink_to(tmp_path / "outside.md")
    (workspace / "memory/folder").symlink_to(tmp_path)
    for path in ("memory/link.md", "memory/folder/outside.md"):
        with pytest.raises(InvalidInput):
            read_within(workspace, path)


def test_devices_pipes_and_folders_are_not_read(workspace: Path) -> None:
    os.mkfifo(workspace / "memory/pipe.md")
    (workspace / "memory/folder.md").mkdir()
    for path in ("memory/pipe.md", "memory/folder.md"):
        with pytest.raises(InvalidInput):
            read_within(workspace, path)


def test_a_file_that_is_not_there_is_said_so(workspace: Path) -> None:
    with pytest.raises(NotFound):
        read_within(workspace, "memory/none.md")


def test_a_file_that_is_swapped_for_a_link_while_it_is_read_gives_nothing_of_the_other(
    workspace: Path, tmp_path: Path
) -> None:
    """One thread swaps the file for a link and back as fast as it can; no read ever sees the outside."""
    target, stop = workspace / "memory/swap.md", threading.Event()
    spare = workspace / "memory/spare"

    def swap() -> None:
        while not stop.is_set():
            spare.write_text("inside")
            os.replace(spare, target)
            spare.symlink_to(tmp_path / "outside.md")
            os.replace(spare, target)

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        for _ in range(2000):
            try:
                seen.add(read_within(workspace, "memory/swap.md"))
            except (InvalidInput, NotFound):
                seen.add(b"refused")
    finally:
        stop.set()
        thread.join()
    assert b"outside" not in seen
    assert seen <= {b"inside", b"refused", b""}
