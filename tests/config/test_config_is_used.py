"""Every setting does something: one that no code reads would be a promise that nobody keeps.

By the types that mypy finds, not by names: `mode` of one section is not that of another. What is read is
written down by `tools/settings_read.py` as mypy goes over the code; `make test` has run it before this does.
What each setting changes is tried by `tools/settings_effects.py`, which takes it away and sees a test fail.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))

from tools.settings_effects import leaves, shown
from tools.settings_read import NOTES, digest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
CONFIG = SOURCES / "holdfast" / "config"
# Not read by their own name, each with the test that shows what it does.
SHOWN_OTHERWISE = {
    "MemorySearch.profile": "tests/config/test_config_rules.py::"
    "test_the_qmd_profile_brings_its_weights_unless_some_are_given",
    "SkillEntry.config": "tests/agents/test_skills.py::test_a_skill_may_ask_for_a_setting_of_its_own",
    "Binding.comment": "tests/cli/test_home_commands.py::test_bindings_are_listed_with_their_comments",
}


@pytest.fixture(scope="module")
def reads() -> dict[str, set[str]]:
    """The settings that are read outside their models, and where."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, set[str]] = defaultdict(set)
    for source in SOURCES.rglob("*.py"):
        name = source.relative_to(SOURCES).as_posix().replace("/", ".")
        for read, line in _notes(ROOT / ".mypy_cache" / NOTES / f"{name}.txt", source):
            if CONFIG not in source.parents or _is_public(source, line):
                found[read].add(f"{name}:{line}")
    return found


def _notes(notes: Path, source: Path) -> Iterator[tuple[str, int]]:
    """What mypy wrote down of the file as it is now."""
    known, *rows = notes.read_text("utf-8").splitlines() if notes.exists() else [""]
    for row in rows if known == digest(source) else ():
        read, _, line = row.partition(" ")
        yield read, int(line)


def _is_public(source: Path, line: int) -> bool:
    """Whether a line of a model is in what others ask it for: no check of the value, and no declaration."""
    return any(start <= line <= end for start, end in _public_functions(source))


@cache
def _public_functions(source: Path) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for node in ast.walk(ast.parse(source.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            found.append((node.lineno, node.end_lineno or node.lineno))
    return found


@pytest.mark.timeout(900)
def test_every_setting_is_read_where_its_type_is_known(reads: dict[str, set[str]]) -> None:
    assert len(leaves()) > 400
    unread = [
        name
        for name, (owner, key) in leaves().items()
        if not any(reads.get(f"{model.__name__}.{key}") for model in _family(owner))
    ]
    assert [name for name in unread if name not in SHOWN_OTHERWISE] == []


def _family(owner: type) -> Iterator[type]:
    yield owner
    for below in owner.__subclasses__():
        yield from _family(below)


def test_the_models_have_names_of_their_own() -> None:
    """Else a read of one would be taken for one of the other."""
    owners = {owner for owner, _ in leaves().values()}
    assert len({owner.__name__ for owner in owners}) == len(owners)


@pytest.mark.parametrize("listed", [SHOWN_OTHERWISE, shown()], ids=["otherwise", "list"])
def test_the_tests_that_show_settings_are_there(listed: dict[str, str]) -> None:
    assert set(listed) <= set(leaves())
    for test in set(listed.values()):
        file, *_, name = test.split("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text("utf-8"), test


def test_every_setting_has_a_test_that_fails_without_it() -> None:
    """A new setting comes with one: `make settings-find` finds it."""
    assert leaves().keys() - shown().keys() - SHOWN_OTHERWISE.keys() == set()
