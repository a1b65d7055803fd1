"""Gateway fixtures: an open home, a gateway over it that listens, and a client that may do everything."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from serving import Running, running

from holdfast.clock import ManualClock
from holdfast.log import sqlite_url
from holdfast.memory import cycles
from holdfast.runtime import Holdfast, open_home


@pytest.fixture(autouse=True)
def _progress_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress of memory is told by the clock on the wall: on a busy machine it would come between the
    changes that a test counts."""
    monkeypatch.setattr(cycles, "_TELL_SECONDS", float("inf"))


@pytest.fixture
def hold(tmp_path: Path, sqlite_template: Path, clock: ManualClock) -> Iterator[Holdfast]:
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    with open_home(home, store_url=sqlite_url(shutil.copy(sqlite_template, home)), clock=clock) as opened:
        yield opened


@pytest.fixture
def gateway(hold: Holdfast) -> Iterator[Running]:
    with running(hold) as found:
        yield found


@pytest.fixture
def api(gateway: Running) -> Iterator[httpx.Client]:
    """A client that may do everything."""
    with gateway.client(gateway.admin) as client:
        yield client
