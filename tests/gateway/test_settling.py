"""What start-up loaded stays out of later collections; the rest does not."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from holdfast.gateway.server import Settling


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    was_frozen = gc.get_freeze_count()
    yield
    gc.unfreeze()
    if was_frozen:
        gc.freeze()


def test_what_survives_a_full_collection_is_not_looked_through_again() -> None:
    gc.unfreeze()
    settling = Settling()
    settling.begin()
    try:
        gc.collect(1)
        assert gc.get_freeze_count() == 0
        gc.collect()
        assert gc.get_freeze_count() > 1000
    finally:
        settling.end()


def test_it_ends_after_a_few_collections_and_can_be_ended_before() -> None:
    before = list(gc.callbacks)
    settling = Settling(most=2)
    settling.begin()
    gc.collect()
    assert gc.callbacks != before
    gc.collect()
    assert gc.callbacks == before
    settling.end()
    assert gc.callbacks == before
