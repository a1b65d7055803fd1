"""What a review of the engine's side found, each as a test."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from context_builders import TOOLS, Echo, Stage, texts, used_tool

from builders import KEY
from holdfast.board.sanitise import clean
from holdfast.clock import ManualClock
from holdfast.config import Config
from holdfast.context import (
    AssembleParams,
    AssembleResult,
    AssistantMessage,
    BaseEngine,
    CarrierMessage,
    CommitParams,
    CommitResult,
    CompactParams,
    CompactResult,
    EngineContext,
    EngineFailed,
    EngineInfo,
    SpawnParams,
    SystemMessage,
    ToolCall,
    ToolResult,
    ToolSpec,
    Trust,
    UserMessage,
    build_memory_system_prompt_addition,
    delegate_compaction_to_runtime,
    draft_of,
    engines,
    message_of,
)
from holdfast.context.debug import DebugOutputs
from holdfast.context.transcript import SAID_BEFORE
from holdfast.log import OWNER, Outcome, Store, Threads, sessions, turns


@pytest.mark.parametrize("engine", ["legacy", "lossless"])
def test_a_fork_does_not_see_its_own_spawn_as_a_call_that_failed(
    store: Store, threads: Threads, tmp_path: Path, engine: str
) -> None:
    plugins = {"plugins": {"slots": {"contextEngine": engine}}}
    stage = Stage(store, threads, tmp_path, config=plugins)
    stage.past([("before", ())])
    turn = stage.accept("delegate this")
    call = AssistantMessage(
        text="I ask a child.", calls=(ToolCall("c1", "sessions_spawn", {"task": "look"}),)
    )
    with store.write(OWNER) as tx:
        running = turns.start(tx, turns.get(tx, turn.id))
        draft = replace(draft_of(call), session_key=KEY, session_id=stage.session.id)
        turns.add(tx, running, [draft])
        child = sessions.ensure(tx, "agent:main:subagent:0198")
    params = SpawnParams(
        parent_session_id=stage.session.id,
        parent_session_key=KEY,
        child_session_id=child.id,
        child_session_key=child.key,
        context_mode="fork",
    )
    asyncio.run(stage.room.prepare_subagent_spawn(params))
    other = Stage(store, threads, tmp_path, key=child.key, config=plugins)
    built = asyncio.run(other.build(other.accept("look")))
    assert "delegate this" in texts(built.messages)
    assert not [m for m in built.messages if isinstance(m, ToolResult)]


def test_what_was_said_around_a_chat_stands_before_the_words_that_are_answered(
    store: Store, threads: Threads, tmp_path: Path
) -> None:
    stage = Stage(store, threads, tmp_path)
    turn = stage.accept("and what do you think?")
    with store.write(OWNER) as tx:
        running = turns.start(tx, turns.get(tx, turn.id))
        note = draft_of(UserMessage(text="Anna: it rains", trust=Trust.OUTSIDE))
        source = {**(note.source or {}), "note": SAID_BEFORE, "channel": "irc"}
        _, [entry] = turns.add(tx, running, [replace(note, source=source, session_id=stage.session.id)])
    said = message_of(entry)
    assert said is not None
    built = asyncio.run(stage.build(turn, pending=[said, AssistantMessage(text="I look.")]))
    last = [m.text for m in built.messages][-3:]
    assert "it rains" in last[0]
    assert last[1:] == ["and what do you think?", "I look."]
    assert [s.name for s in built.manifest.sections][-3:] == ["said before", "input", "this turn"]
    with store.write(OWNER) as tx:
        turns.commit(tx, turn.key, Outcome(entries=[draft_of(AssistantMessage(text="I like it."))]))
    later = texts(asyncio.run(stage.build(stage.accept("next"))).messages)
    assert (
        later.index("and what do you think?") == next(i for i, t in enumerate(later) if "it rains" in t) + 1
    )


def test_the_characters_of_the_sections_are_those_of_the_wire(
    store: Store, threads: Threads, tmp_path: Path
) -> None:
    stage = Stage(store, threads, tmp_path, summariser=Echo())
    stage.past([("hello", used_tool(1, "output"))])
    built = asyncio.run(
        stage.build(pending=[AssistantMessage(text="", calls=(ToolCall("x", "exec", {"a": 1}),))])
    )
    own = [s for s in built.manifest.sections if s.place != "tools"]
    sent = sum(len(m.text) for m in built.messages)
    calls = [c for m in built.messages if isinstance(m, AssistantMessage) for c in m.calls]
    sent += sum(len(c.name) + len(json.dumps(c.arguments, separators=(",", ":"))) for c in calls)
    assert sum(s.chars for s in own) == sent
    system = sum(s.chars for s in own if s.place == "system")
    assert system == next(len(m.text) for m in built.messages if isinstance(m, SystemMessage))
    carrier = sum(s.chars for s in own if s.place == "carrier")
    assert carrier == next(len(m.text) for m in built.messages if isinstance(m, CarrierMessage))
    assert built.manifest.used == sum(s.tokens for s in built.manifest.sections)


def test_the_cache_trace_sees_a_change_of_tools(
    store: Store, threads: Threads, tmp_path: Path, clock: ManualClock
) -> None:
    stage = Stage(store, threads, tmp_path)
    debug = DebugOutputs(tmp_path / "logs", clock, {"HOLDFAST_CACHE_TRACE": "1"}, io.StringIO())
    turn = stage.accept("hi")
    for tools in (TOOLS, TOOLS, (*TOOLS, ToolSpec("more", "More.", {"type": "object"}))):
        debug.request(asyncio.run(stage.build(turn, tools=tools)))
    lines = [json.loads(x) for x in (tmp_path / "logs" / "cache-trace.jsonl").read_text().splitlines()]
    assert [line["sharedTools"] for line in lines] == [False, True, False]
    assert lines[1]["sharedTokens"] > 0
    assert lines[2]["sharedTokens"] == 0
    assert lines[2]["tools"] == 2


def test_line_ends_of_a_message_are_kept() -> None:
    assert clean("one\r\ntwo — drei").text == "one\r\ntwo — drei"


def test_subagents_get_the_files_that_are_configured(store: Store, threads: Threads, tmp_path: Path) -> None:
    def named(**more: Any) -> list[str]:
        stage = Stage(store, threads, tmp_path, key="agent:main:subagent:0198")
        built = asyncio.run(stage.build(**more))
        return [s.name for s in built.manifest.sections if s.source.startswith("workspace/")]

    assert named() == ["AGENTS.md", "TOOLS.md"]
    given = Config.model_validate(
        {"agents": {"defaults": {"subagents": {"bootstrapFiles": ["SOUL.md", "AGENTS.md"]}}}}
    )
    files = given.agents.defaults.subagents.bootstrap_files
    assert named(subagent_files=files) == ["SOUL.md", "AGENTS.md"]


@pytest.mark.parametrize(("engine", "has"), [("legacy", False), ("lossless", True), ("gone", False)])
def test_only_an_engine_that_says_so_has_tools(
    store: Store, threads: Threads, tmp_path: Path, engine: str, has: bool
) -> None:
    stage = Stage(store, threads, tmp_path, config={"plugins": {"slots": {"contextEngine": engine}}})
    assert stage.room.has_recall_tools("main") is has


def test_what_an_engine_may_say_of_memory() -> None:
    assert build_memory_system_prompt_addition(available_tools=frozenset({"exec"})) is None
    told = build_memory_system_prompt_addition(available_tools=frozenset({"memory_search"})) or ""
    assert "memory_search" in told
    assert "path" in told
    silent = build_memory_system_prompt_addition(
        available_tools=frozenset({"memory_search"}), citations_mode="off"
    )
    assert "path" not in (silent or "")


class Deaf(BaseEngine):
    """Takes every turn in, and builds a context only where it is let."""

    info = EngineInfo(id="deaf", name="Deaf", version="1")
    builds = False

    def __init__(self, context: EngineContext) -> None:
        self.context = context

    async def commit_turn(self, params: CommitParams) -> CommitResult:
        return CommitResult("committed")

    async def assemble(self, params: AssembleParams) -> AssembleResult:
        if not self.builds:
            raise RuntimeError("no room")
        return AssembleResult(messages=params.messages, estimated_tokens=10)

    async def compact(self, params: CompactParams) -> CompactResult:
        return await delegate_compaction_to_runtime(self.context, params)


def test_an_engine_that_hears_of_turns_and_builds_none_of_them_counts_as_failing(
    store: Store, threads: Threads, tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `doctor` goes by: turns that it took in say nothing of those that it cannot build."""
    engines.register("deaf", Deaf, replace=True)
    monkeypatch.setattr(Deaf, "builds", False)
    stage = Stage(store, threads, tmp_path, config={"plugins": {"slots": {"contextEngine": "deaf"}}})

    def since_it_failed() -> bool:
        [one] = [one for one in stage.room.engine_health() if one["selected"]]
        assert one["lastError"] == "context engine 'deaf' failed in assemble: no room"
        return bool((one["lastOkAt"] or "") < one["lastErrorAt"])

    try:
        turn = stage.accept("hello")
        with pytest.raises(EngineFailed):
            asyncio.run(stage.build(turn))
        clock.advance(minutes=1)
        stage.commit(turn, AssistantMessage(text="Not said."))
        with store.write(OWNER) as tx:
            stage.room.turn_ended(tx, turns.get(tx, turn.id), prompt_tokens=10)
        asyncio.run(stage.room.tell_engine(stage.session))
        [told] = [one for one in stage.room.engine_health() if one["selected"]]
        assert (told["byCall"]["commit_turn"], told["queue"]["waiting"]) == (1, 0)
        assert since_it_failed()
        monkeypatch.setattr(Deaf, "builds", True)
        asyncio.run(stage.build(stage.accept("again")))
        assert not since_it_failed()
    finally:
        engines.unregister("deaf")
