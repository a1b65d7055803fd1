from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from context_builders import Echo, Stage, texts, users

import holdfast
from holdfast.context import (
    AssembleParams,
    AssembleResult,
    AssistantMessage,
    BaseEngine,
    CompactOutcome,
    CompactParams,
    CompactResult,
    ContextEngine,
    EngineContext,
    EngineFailed,
    EngineInfo,
    SpawnParams,
    SubagentEndedParams,
    SystemMessage,
    UserMessage,
    engines,
)
from holdfast.errors import Conflict, NotFound
from holdfast.log import OWNER, Store, Threads, sessions


class Probe(BaseEngine):
    """An engine that keeps the last two messages and remembers what it was asked."""

    def __init__(self, context: EngineContext, *, owns: bool = True) -> None:
        self.context = context
        self.seen: list[Any] = []
        self._info = EngineInfo(id="probe", name="Probe", owns_compaction=owns)

    @property
    def info(self) -> EngineInfo:
        return self._info

    async def assemble(self, params: AssembleParams) -> AssembleResult:
        self.seen.append(params)
        if params.prompt == "fail":
            raise RuntimeError("broken inside")
        return AssembleResult(
            messages=params.messages[-2:], estimated_tokens=1, system_prompt_addition="Recall first."
        )

    async def compact(self, params: CompactParams) -> CompactResult:
        return CompactResult(outcome=CompactOutcome.COMPACTED, tokens_after=7)


@pytest.fixture
def probe() -> Iterator[None]:
    engines.register("probe", Probe, replace=True)
    yield
    engines.unregister("probe")


def _stage(store: Store, threads: Threads, home: Path, engine: str, **more: Any) -> Stage:
    return Stage(store, threads, home, config={"plugins": {"slots": {"contextEngine": engine}}}, **more)


def test_the_names_are_public() -> None:
    assert holdfast.ContextEngine is ContextEngine
    assert holdfast.AssembleResult is AssembleResult
    assert holdfast.CompactResult is CompactResult
    assert callable(holdfast.register_context_engine)


def test_an_unknown_engine_is_an_error_and_nothing_stands_in_for_it(
    store: Store, threads: Threads, tmp_path: Path
) -> None:
    stage = _stage(store, threads, tmp_path, "gone")
    with pytest.raises(NotFound) as caught:
        asyncio.run(stage.build())
    assert caught.value.code == "unknown_engine"
    assert "legacy" in caught.value.hint


def test_an_engine_that_cannot_start_or_breaks_is_named(
    store: Store, threads: Threads, tmp_path: Path, probe: None
) -> None:
    def broken(context: EngineContext) -> ContextEngine:
        raise ValueError("no licence")

    engines.register("broken", broken, replace=True)
    with pytest.raises(EngineFailed, match=r"broken.*no licence"):
        asyncio.run(_stage(store, threads, tmp_path, "broken").build())
    engines.unregister("broken")
    stage = _stage(store, threads, tmp_path, "probe")
    with pytest.raises(EngineFailed, match=r"probe.*broken inside"):
        asyncio.run(stage.build(stage.accept("fail")))
    assert asyncio.run(stage.build(stage.accept("work"))).manifest.engine == "probe"


def test_an_id_is_taken_once(probe: None) -> None:
    with pytest.raises(Conflict):
        engines.register("probe", Probe)


def test_an_engine_chooses_messages_and_heads_the_system_prompt(
    store: Store, threads: Threads, tmp_path: Path, probe: None
) -> None:
    stage = _stage(store, threads, tmp_path, "probe")
    stage.past((f"q{n}", ()) for n in range(5))
    built = asyncio.run(stage.build(stage.accept("now")))
    assert isinstance(built.messages[0], SystemMessage)
    assert built.messages[0].text.startswith("Recall first.")
    assert users(built) == ["q4", "now"]
    assert built.manifest.sections[1].source == "engine/probe"
    assert stage.room.replay(stage.session).identical


def test_an_engine_that_owns_compaction_is_left_to_it(
    store: Store, threads: Threads, tmp_path: Path, probe: None
) -> None:
    stage = _stage(store, threads, tmp_path, "probe", window=8_000)
    built = asyncio.run(stage.build())
    verdict = asyncio.run(stage.room.after_turn(stage.session, built, reported_input_tokens=7_900))
    assert not verdict.compaction_due
    result = asyncio.run(stage.room.compact(stage.session, window=8_000))
    assert result.tokens_after == 7
    legacy = Stage(store, threads, tmp_path, window=8_000)
    built = asyncio.run(legacy.build())
    assert asyncio.run(
        legacy.room.after_turn(legacy.session, built, reported_input_tokens=7_900)
    ).compaction_due


def test_the_slot_is_read_anew_for_each_run(
    store: Store, threads: Threads, tmp_path: Path, probe: None
) -> None:
    stage = Stage(store, threads, tmp_path)
    assert asyncio.run(stage.build()).manifest.engine == "legacy"
    stage.config = _stage(store, threads, tmp_path, "probe").config
    assert asyncio.run(stage.build()).manifest.engine == "probe"


def test_assembling_again_from_its_own_output_changes_nothing(
    store: Store, threads: Threads, tmp_path: Path
) -> None:
    stage = Stage(store, threads, tmp_path, summariser=Echo(), window=20_000)
    stage.past((f"question {n} " + "word " * 80, ()) for n in range(60))
    assert asyncio.run(stage.room.compact(stage.session, window=20_000)).compacted
    first = asyncio.run(stage.room.assemble(stage.session, token_budget=12_000))
    again = asyncio.run(stage.room.assemble(stage.session, token_budget=12_000, transcript=first.messages))
    assert list(again.messages) == list(first.messages)
    grown = [*first.messages, UserMessage(text="new words")]
    live = asyncio.run(stage.room.assemble(stage.session, token_budget=12_000, transcript=grown))
    assert texts(live.messages) == [*texts(first.messages), "new words"]


def test_a_turn_is_committed_once(store: Store, threads: Threads, tmp_path: Path) -> None:
    stage = Stage(store, threads, tmp_path)
    turn = [UserMessage(text="hi"), AssistantMessage(text="hello")]
    assert asyncio.run(stage.room.commit_turn(stage.session, "k1", turn)).status == "committed"
    assert asyncio.run(stage.room.commit_turn(stage.session, "k1", turn)).status == "duplicate"
    one = UserMessage(text="more")
    assert asyncio.run(stage.room.ingest(stage.session, one, key="m1")).ingested == 1
    assert asyncio.run(stage.room.ingest(stage.session, one, key="m1")).duplicate
    found = asyncio.run(stage.room.assemble(stage.session, token_budget=10_000))
    assert texts(found.messages) == ["hi", "hello", "more"]


def _spawn(stage: Stage, mode: Any) -> tuple[Stage, SpawnParams]:
    key = "agent:main:subagent:0198"
    child = Stage(stage.store, stage.room._threads, stage.workspace.parent, key=key)
    params = SpawnParams(
        parent_session_id=stage.session.id,
        parent_session_key=stage.session.key,
        child_session_id=child.session.id,
        child_session_key=key,
        context_mode=mode,
    )
    return child, params


def test_a_fork_sees_its_parent_up_to_the_spawn_and_an_isolated_child_nothing(
    store: Store, threads: Threads, tmp_path: Path
) -> None:
    stage = Stage(store, threads, tmp_path)
    stage.past([("before the spawn", ())])
    child, params = _spawn(stage, "isolated")
    asyncio.run(stage.room.prepare_subagent_spawn(params))
    assert users(asyncio.run(child.build(child.accept("task")))) == ["task"]
    with store.write(OWNER) as tx:
        child.session = sessions.reset(tx, child.fresh(), cause="test")
    _, params = _spawn(stage, "fork")
    asyncio.run(stage.room.prepare_subagent_spawn(params))
    stage.past([("after the spawn", ())])
    turn = child.accept("forked task")
    assert users(asyncio.run(child.build(turn))) == ["before the spawn", "forked task"]


def test_a_spawn_that_fails_is_taken_back(store: Store, threads: Threads, tmp_path: Path) -> None:
    stage = Stage(store, threads, tmp_path)
    stage.past([("before", ())])
    child, params = _spawn(stage, "fork")
    rollback = asyncio.run(stage.room.prepare_subagent_spawn(params))
    asyncio.run(rollback())
    assert users(asyncio.run(child.build(child.accept("task")))) == ["task"]
    asyncio.run(stage.room.prepare_subagent_spawn(_spawn(stage, "isolated")[1]))
    ended = SubagentEndedParams(
        child_session_id=child.session.id, child_session_key=child.session.key, reason="deleted"
    )
    asyncio.run(stage.room.on_subagent_ended(ended))
    asyncio.run(stage.room.dispose())
