"""The suite that an engine's author runs: it passes what keeps its promises and names what does not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import broken_engines as broken
import pytest

import forks
from holdfast.context import EngineFactory
from holdfast.context.legacy import LegacyEngine
from holdfast.context.lossless import LosslessEngine
from holdfast.testing.engine import CHECKS, check_engine, findings, main

sys.path.insert(0, str(Path(__file__).with_name("outside")))

from margin_engine import MarginEngine


@pytest.mark.parametrize("factory", [LegacyEngine, LosslessEngine, broken.Plain, MarginEngine])
def test_engines_that_keep_their_promises_pass(factory: EngineFactory) -> None:
    found = check_engine(factory)
    assert [(one.promise, one.fault) for one in found if not one.ok] == []
    assert len(found) == len(CHECKS)


FAULTS: list[tuple[EngineFactory, str]] = [
    (broken.GivesNone, "returned None, not an AssembleResult"),
    (broken.NotAsync, "write `async def`"),
    (broken.OverBudget, "where `token_budget` is"),
    (broken.Fickle, "two calls of `assemble` with the same parameters differ, in `system_prompt_addition`"),
    (broken.Orphans, "a result without its call"),
    (broken.Gossip, "words of one session stand in the context of another"),
    (broken.Lazy, "`compact` does nothing and `owns_compaction` is False"),
    (broken.Boaster, "`compact` says that it compacted"),
    (broken.Repeats, "three times under one key is shown 3 times"),
    (broken.Clings, "failed in dispose: it took longer than 2 seconds"),
    (broken.SystemTalk, "messages[0] is a SystemMessage"),
    (broken.OtherName, "`info` is a dict, not an EngineInfo"),
    (broken.Miscounts, "`estimated_tokens` is 1"),
    (broken.NeverMade, "the factory raised KeyError: 'messages'"),
]


@pytest.mark.parametrize(("factory", "fault"), FAULTS)
def test_an_engine_that_breaks_a_promise_is_told_which(factory: EngineFactory, fault: str) -> None:
    assert any(fault in (one.fault or "") for one in findings(factory))


def test_it_runs_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-m", "holdfast.testing.engine", "broken_engines:GivesNone"]
    done = forks.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "FAIL" in done.stdout
    assert "not an AssembleResult" in done.stdout
    assert main(["no_such_package:factory"]) == 2
    assert "cannot check no_such_package:factory" in capsys.readouterr().err
