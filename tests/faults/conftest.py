from __future__ import annotations

from collections.abc import Iterator

import pytest
from worker_play import Nest


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
