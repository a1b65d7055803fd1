from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from context_builders import Stage, used_tool
from hypothesis import given
from hypothesis import strategies as st

from holdfast.clock import ManualClock
from holdfast.config import ContextPruning
from holdfast.context import AssistantMessage, Message, ToolResult, UserMessage, pruning
from holdfast.context.messages import Mark
from holdfast.context.pruning import apply
from holdfast.context.tokens import message_tokens
from holdfast.log import Store, Threads

SETTINGS = ContextPruning()
PLACEHOLDER = "[Old tool result content cleared]"


def _marked(message: Message, number: int) -> Message:
    mark = Mark(f"e{number}", 0, "", number, "", message_tokens(message))
    object.__setattr__(message, "mark", mark)
    return message


def _conversation(sizes: list[int]) -> list[Message]:
    messages: list[Message] = [UserMessage(text="go")]
    for number, size in enumerate(sizes):
        messages += used_tool(number, "x" * size)
    return [_marked(m, n) for n, m in enumerate(messages)]


def _plan(messages: list[Message], used: int, window: int = 100_000, **changes: object) -> dict[str, str]:
    return dict(pruning.plan(messages, SETTINGS.model_copy(update=changes), used=used, window=window))


def test_a_long_old_result_keeps_its_first_and_last_1500_characters() -> None:
    text = "a" * 1500 + "b" * 5000 + "c" * 1500
    shown = apply("trim:1500:1500", text)
    assert shown.startswith("a" * 1500)
    assert shown.endswith("c" * 1500)
    assert "5000 characters left out" in shown
    messages = _conversation([5000] * 6)
    assert set(_plan(messages, used=40_000).values()) == {"trim:1500:1500"}
    assert _plan(_conversation([4000] * 6), used=40_000) == {}


def test_a_result_is_trimmed_from_the_length_on_that_the_config_says() -> None:
    wider = SETTINGS.soft_trim.model_copy(update={"max_chars": 6000})
    assert _plan(_conversation([5000] * 6), used=40_000, soft_trim=wider) == {}
    assert _plan(_conversation([5000] * 6), used=40_000)


def test_nothing_is_pruned_while_there_is_room() -> None:
    assert _plan(_conversation([9000] * 6), used=29_000) == {}


def test_the_last_three_assistant_messages_and_what_follows_them_are_left_alone() -> None:
    messages = _conversation([9000] * 6)
    pruned = _plan(messages, used=40_000)
    spoken = [i for i, m in enumerate(messages) if isinstance(m, AssistantMessage)]
    for index, message in enumerate(messages):
        assert message.mark is not None
        if message.mark.entry_id in pruned:
            assert index < spoken[-3]
    assert pruned


def test_nothing_before_the_first_user_message_is_pruned() -> None:
    messages = _conversation([9000] * 6)
    moved = [*messages[1:], messages[0]]
    assert _plan(moved, used=60_000) == {}


def test_the_oldest_are_cleared_when_trimming_is_not_enough_and_there_is_enough_to_clear() -> None:
    messages = _conversation([3500] * 30)
    pruned = _plan(messages, used=60_000)
    cleared = [id_ for id_, form in pruned.items() if form == f"clear:{PLACEHOLDER}"]
    assert cleared
    results = [m.mark.entry_id for m in messages if isinstance(m, ToolResult) and m.mark]
    assert cleared == results[: len(cleared)]
    assert _plan(_conversation([3500] * 8), used=60_000) == {}


def test_tools_can_be_exempt() -> None:
    messages = _conversation([9000] * 6)
    tools = SETTINGS.tools.model_copy(update={"deny": ("exec",)})
    assert _plan(messages, used=40_000, tools=tools) == {}
    tools = SETTINGS.tools.model_copy(update={"allow": ("read_*",)})
    assert _plan(messages, used=40_000, tools=tools) == {}


@given(st.lists(st.integers(0, 20_000), max_size=25), st.integers(0, 300_000), st.integers(1000, 300_000))
def test_only_old_tool_results_are_ever_pruned(sizes: list[int], used: int, window: int) -> None:
    messages = _conversation(sizes)
    by_id = {m.mark.entry_id: m for m in messages if m.mark}
    for id_, form in _plan(messages, used=used, window=window).items():
        message = by_id[id_]
        assert isinstance(message, ToolResult)
        assert len(apply(form, message.text)) < len(message.text)


@pytest.fixture
def stage(store: Store, threads: Threads, tmp_path: Path) -> Stage:
    stage = Stage(store, threads, tmp_path / "home", window=30_000)
    stage.past((f"step {number}", used_tool(number, f"{number}" * 9000)) for number in range(8))
    return stage


def test_pruning_waits_until_the_cache_is_cold_and_is_then_kept(stage: Stage, clock: ManualClock) -> None:
    turn = stage.accept()
    warm = asyncio.run(stage.build(turn))
    assert _lengths(warm.messages) == {9000}
    clock.advance(minutes=4)
    assert _lengths(asyncio.run(stage.build(turn, call=1)).messages) == {9000}
    clock.advance(minutes=5)
    cold = asyncio.run(stage.build(turn, call=2))
    assert min(_lengths(cold.messages)) < 4000
    again = asyncio.run(stage.build(turn, call=3))
    assert again.messages[:-2] == cold.messages[:-2]
    assert again.manifest.revision == cold.manifest.revision > warm.manifest.revision
    replayed = stage.room.replay(stage.session, turn.number, 2)
    assert replayed.identical
    assert replayed.messages == list(cold.messages)


def test_a_changed_setting_does_not_change_what_was_pruned(stage: Stage, clock: ManualClock) -> None:
    turn = stage.accept()
    asyncio.run(stage.build(turn))
    clock.advance(minutes=6)
    cold = asyncio.run(stage.build(turn, call=1))
    trim = SETTINGS.soft_trim.model_copy(update={"head_chars": 10, "tail_chars": 10})
    other = SETTINGS.model_copy(update={"soft_trim": trim})
    settings = stage.config.agents.defaults.model_copy(update={"context_pruning": other})
    later = asyncio.run(stage.build(turn, call=2, settings=settings))
    assert later.messages[:-2] == cold.messages[:-2]


def _lengths(messages: tuple[Message, ...]) -> set[int]:
    return {len(m.text) for m in messages if isinstance(m, ToolResult)}
