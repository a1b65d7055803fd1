"""`docs/coverage.md` names modules and tests; each must exist, so that the page cannot drift."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| ([A-Z]\d+) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
PLAN = {"L": 10, "G": 9, "W": 16, "M": 14, "B": 18, "A": 16, "C": 5, "K": 11, "P": 5, "S": 8}
LATER = {"K": range(12, 16), "N": 8, "Q": 6, "U": 14, "T": 6, "H": 5, "R": 6}


def rows() -> list[tuple[str, list[str], list[str]]]:
    text = (ROOT / "docs/coverage.md").read_text()
    return [(row, _names(modules), _names(tests)) for row, _, modules, tests in ROW.findall(text)]


def _names(cell: str) -> list[str]:
    return [] if cell.strip() == "open" else re.findall(r"`([^`]+)`", cell)


@cache
def functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    )


def test_every_row_of_the_plan_is_listed_once() -> None:
    listed = [row for row, _, _ in rows()]
    counted = [*PLAN.items(), *LATER.items()]
    numbers = [(letter, n if isinstance(n, range) else range(1, n + 1)) for letter, n in counted]
    assert listed == [f"{letter}{n}" for letter, found in numbers for n in found]


@pytest.mark.parametrize(("row", "modules", "tests"), rows(), ids=[row for row, _, _ in rows()])
def test_what_a_row_names_is_there(row: str, modules: list[str], tests: list[str]) -> None:
    assert bool(modules) == bool(tests), f"{row} names a module without a test, or a test without a module"
    for module in modules:
        assert (ROOT / module).exists(), f"{row} names {module}, which is not there"
    for test in tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists(), f"{row} names {path}, which is not there"
        assert not name or name.partition("[")[0] in functions(ROOT / path), f"{row} names {test}"
