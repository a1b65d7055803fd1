"""Tools that an OpenAI client runs itself: offered beside the agent's own, handed over, answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from agent_stage import agents_serving
from openai import OpenAI
from serving import Running

from builders import rows
from holdfast.testing import Asked, Call, Calls, Say, ScriptedOpenAI, Turn

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather at a place.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}


def answer(asked: Asked) -> Turn:
    results = [str(m["content"]) for m in asked.messages if m["role"] == "tool"]
    if any("13 degrees" in text for text in results):
        return Say("It is 13 degrees in Oslo.")
    if "both" in str(asked.messages):
        return Calls(Call("sessions_list", {}, id="own"), Call("get_weather", {"place": "Oslo"}, id="w"))
    return Call("get_weather", {"place": "Oslo"}, id="call_w", text="Let me see.")


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path
) -> Iterator[tuple[Running, ScriptedOpenAI]]:
    with agents_serving(tmp_path_factory.mktemp("tools") / "home", sqlite_template, answer) as found:
        yield found


@pytest.fixture
def client(stage: tuple[Running, ScriptedOpenAI]) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{stage[0].url}/v1", api_key=stage[0].admin) as found:
        yield found


@pytest.mark.parametrize("named", [{}, {"user": "ann"}], ids=["once", "session"])
def test_a_call_is_handed_to_the_client_and_its_result_continues_the_answer(
    client: OpenAI, stage: tuple[Running, ScriptedOpenAI], named: dict[str, str]
) -> None:
    messages: list[Any] = [{"role": "user", "content": "How is the weather in Oslo?"}]
    first = client.chat.completions.create(model="holdfast", messages=messages, tools=[WEATHER], **named)
    choice = first.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see."
    calls: Any = choice.message.tool_calls
    assert [(c.id, c.function.name, json.loads(c.function.arguments)) for c in calls] == [
        ("call_w", "get_weather", {"place": "Oslo"})
    ]
    assert {"get_weather", "sessions_list"} <= set(stage[1].requests[-1].tools)
    messages += [
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": "call_w", "content": "13 degrees"},
    ]
    second = client.chat.completions.create(model="holdfast", messages=messages, tools=[WEATHER], **named)
    assert second.choices[0].message.content == "It is 13 degrees in Oslo."
    assert second.choices[0].finish_reason == "stop"
    seen = stage[1].requests[-1].messages
    place = next(i for i, m in enumerate(seen) if m.get("tool_calls"))
    assert (seen[place + 1]["role"], seen[place + 1]["content"]) == ("tool", "13 degrees")


def test_a_round_that_brings_results_alone_is_nobodys_words(
    client: OpenAI, stage: tuple[Running, ScriptedOpenAI]
) -> None:
    """Who runs a tool says nothing: the log has the results and no sentence that a person never wrote."""
    call = {"id": "call_w", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    asked = {"role": "user", "content": "How cold is it at the glacier?"}
    for named in ({}, {"user": "glacier"}):
        messages: list[Any] = [asked]
        if named:
            client.chat.completions.create(model="holdfast", messages=messages, tools=[WEATHER], **named)
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_w", "content": "13 degrees"},
        ]
        done = client.chat.completions.create(model="holdfast", messages=messages, tools=[WEATHER], **named)
        assert done.choices[0].message.content == "It is 13 degrees in Oslo."
        seen = stage[1].requests[-1].messages
        assert "results" in str(seen[-1]["content"]), "the model is told why it is asked again"
    said = rows(stage[0].hold.store, "SELECT content FROM entries WHERE role = 'user'")
    assert {text for (text,) in said} <= {
        "How cold is it at the glacier?",
        "How is the weather in Oslo?",
        "both",
    }


def test_what_comes_to_mind_when_results_come_in_is_what_was_asked(
    tmp_path: Path, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The board is asked with the person's words, not with a sentence that nobody said."""
    board = {"contextAugment": True, "classifier": {"enabled": False}}
    with agents_serving(tmp_path / "home", sqlite_template, answer, board=board) as (gateway, _):
        build, asked = gateway.hold.board.continuity.build, []

        def noting(ask: Any) -> Any:
            asked.append(ask.q)
            return build(ask)

        monkeypatch.setattr(gateway.hold.board.continuity, "build", noting)
        with OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.admin) as client:
            messages: list[Any] = [{"role": "user", "content": "How is the weather in Oslo?"}]
            first = client.chat.completions.create(model="holdfast", messages=messages, tools=[WEATHER])
            messages += [
                first.choices[0].message.model_dump(exclude_none=True),
                {"role": "tool", "tool_call_id": "call_w", "content": "13 degrees"},
            ]
            client.chat.completions.create(model="holdfast", messages=messages, tools=[WEATHER])
    assert asked == ["How is the weather in Oslo?"] * 2


def test_a_streamed_call_comes_whole_and_the_agents_own_calls_are_run_here(
    client: OpenAI, stage: tuple[Running, ScriptedOpenAI]
) -> None:
    stream = client.chat.completions.create(
        model="holdfast", messages=[{"role": "user", "content": "both"}], tools=[WEATHER], stream=True
    )
    chunks = [chunk.choices[0] for chunk in stream]
    calls = [call for choice in chunks for call in choice.delta.tool_calls or ()]
    assert [(c.index, c.id, c.function and c.function.name) for c in calls] == [(0, "w", "get_weather")]
    assert calls[0].function is not None
    assert json.loads(calls[0].function.arguments or "") == {"place": "Oslo"}
    assert chunks[-1].finish_reason == "tool_calls"


def test_what_cannot_be_offered_is_refused(client: OpenAI) -> None:
    def ask(**more: Any) -> None:
        client.chat.completions.create(model="holdfast", messages=[{"role": "user", "content": "x"}], **more)

    with pytest.raises(openai.BadRequestError):
        ask(tool_choice="required")
    with pytest.raises(openai.BadRequestError):
        ask(tools=[{"type": "function", "function": {"name": "no spaces"}}])
    with pytest.raises(openai.BadRequestError):
        ask(tools=[{"type": "custom", "custom": {"name": "x"}}])
