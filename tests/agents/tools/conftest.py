"""The world of tools as a fixture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tool_world import World, world


@pytest.fixture
def here(tmp_path: Path, sqlite_template: Path) -> Iterator[World]:
    with world(tmp_path, sqlite_template) as made:
        yield made
