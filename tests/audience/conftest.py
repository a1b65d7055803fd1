"""One home in which everybody's words are marked, served by a real gateway, for all tests of this folder."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

for beside in ("gateway", "channels"):
    sys.path.append(str(Path(__file__).parents[1] / beside))

from marked_world import World, marked_world  # noqa: E402 - found beside the tests of others


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[World]:
    """Everything that can hold words, with the words of every audience in it. Tests only look, or try to."""
    home = tmp_path_factory.mktemp("marked") / "home"
    home.mkdir()
    shutil.copy(sqlite_template, home / "holdfast.db")
    with marked_world(home) as made:
        yield made


@pytest.fixture
def home(tmp_path: Path, sqlite_template: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    shutil.copy(sqlite_template, made / "holdfast.db")
    return made
