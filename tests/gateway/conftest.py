"""Gateway fixtures: an open home, a gateway over it that listens, and a client that may do everything."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from browsing import chromium
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


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def hold(tmp_path: Path, sqlite_template: Path, clock: ManualClock) -> Iterator[Holdfast]:
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    with open_home(home, store_url=sqlite_url(shutil.copy(sqlite_template, home)), clock=clock) as opened:
        yield opened


@pytest.fixture
def hold_with(tmp_path: Path, sqlite_template: Path, clock: ManualClock) -> Iterator[Callable[..., Holdfast]]:
    """Opens homes of their own, each with the settings that it is given."""
    with ExitStack() as opened:

        def open_with(**config: Any) -> Holdfast:
            home = tmp_path / f"home{len(list(tmp_path.glob('home*')))}"
            home.mkdir()
            (home / "holdfast.json").write_text(json.dumps(config))
            url = sqlite_url(shutil.copy(sqlite_template, home))
            return opened.enter_context(open_home(home, store_url=url, clock=clock))

        yield open_with


@pytest.fixture
def gateway(hold: Holdfast) -> Iterator[Running]:
    with running(hold) as found:
        yield found


@pytest.fixture
def api(gateway: Running) -> Iterator[httpx.Client]:
    """A client that may do everything."""
    with gateway.client(gateway.admin) as client:
        yield client
