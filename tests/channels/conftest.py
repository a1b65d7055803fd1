"""A home with an empty, migrated store in it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path, sqlite_template: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    shutil.copy(sqlite_template, made / "holdfast.db")
    return made
