from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_stage import Run
from click.testing import CliRunner, Result

from holdfast.cli.root import cli


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOLDFAST_HOME", "HOLDFAST_STORE", "HOLDFAST_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


@pytest.fixture
def run(home: Path) -> Run:
    """Call the program on the home of this test."""

    def call(*args: object, **options: Any) -> Result:
        return CliRunner().invoke(cli, ["--home", str(home), *map(str, args)], **options)

    return call
