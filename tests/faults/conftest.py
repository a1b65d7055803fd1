"""What the tests of faults share: where gateways come from, and patience with a bound."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from worker_play import Nest

from builders import PATIENCE


@pytest.fixture(scope="session")
def shared_nest() -> Iterator[Nest]:
    made = Nest()
    yield made
    made.close()


@pytest.fixture
def nest(shared_nest: Nest) -> Iterator[Nest]:
    """Where gateways come from; those that a test leaves are killed."""
    yield shared_nest
    shared_nest.end_all()


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Wait until something holds; a test that waits in vain fails instead of hanging."""

    def wait(holds: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.02)

    return wait
