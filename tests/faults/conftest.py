"""What the tests of faults share: patience with a bound."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from builders import PATIENCE


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Wait until something holds; a test that waits in vain fails instead of hanging."""

    def wait(holds: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.02)

    return wait
