"""Accounts of contexts are kept for their time; what is left can still be replayed to the byte."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from context_builders import Stage

from builders import rows
from holdfast.clock import ManualClock
from holdfast.context import AssistantMessage
from holdfast.context.blobs import prune
from holdfast.errors import NotFound
from holdfast.log import Store, Threads


def _turns(stage: Stage, count: int, rules: str) -> list[int]:
    (stage.workspace / "AGENTS.md").write_text(rules)
    numbers = []
    for _ in range(count):
        turn = stage.accept("how far are we?")
        built = asyncio.run(stage.build(turn))
        stage.commit(turn, AssistantMessage(text="a good way"))
        numbers.append(built.manifest.number)
    return numbers


def test_old_accounts_go_with_the_texts_that_only_they_had(
    store: Store, threads: Threads, tmp_path: Path, clock: ManualClock
) -> None:
    stage = Stage(store, threads, tmp_path / "home")
    old = _turns(stage, 3, "The rules of last year. " * 50)
    clock.advance(hours=24 * 60)
    kept = _turns(stage, 34, "The rules of today. " * 50)
    clock.advance(hours=24 * 40)
    assert prune(store, 90)["manifests"] == len(old)
    texts = "\n".join(text for (text,) in rows(store, "SELECT content FROM blobs"))
    assert "last year" not in texts
    assert all(stage.room.replay(stage.session, number).identical for number in kept)
    with pytest.raises(NotFound):
        stage.room.replay(stage.session, old[0])


def test_a_text_that_comes_back_after_it_went_is_written_again(
    store: Store, threads: Threads, tmp_path: Path, clock: ManualClock
) -> None:
    stage = Stage(store, threads, tmp_path / "home")
    _turns(stage, 1, "The old rules. " * 50)
    clock.advance(hours=24)
    _turns(stage, 1, "Other rules. " * 50)
    clock.advance(hours=24 * 91)
    assert prune(store, 90)["blobs"] > 0
    back = _turns(stage, 1, "The old rules. " * 50)
    assert stage.room.replay(stage.session, back[0]).identical


def test_with_nothing_old_nothing_is_removed(store: Store, threads: Threads, tmp_path: Path) -> None:
    _turns(Stage(store, threads, tmp_path / "home"), 2, "Rules.")
    assert prune(store, 90) == {"manifests": 0, "blobs": 0}
