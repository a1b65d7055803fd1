"""Answers of a given form and forced calls, as OpenAI's client asks for them; enforced or mended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from agent_stage import agents_serving
from hypothesis import given
from hypothesis import strategies as st
from openai import OpenAI
from serving import Running

from holdfast.agents.loop.asks import Form
from holdfast.agents.loop.calling import fit
from holdfast.testing import Call, Fail, Say, ScriptedAnthropic, ScriptedOpenAI
from holdfast.testing.server import ScriptedServer

SCHEMA: Any = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}
STRICT: Any = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA, "strict": True}}
GOOD = '{"city": "Oslo", "degrees": 13}'
SAID: list[Any] = [{"role": "user", "content": "How is it in Oslo?"}]


def tool(name: str) -> Any:
    return {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": {}}},
    }


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path
) -> Iterator[tuple[Running, ScriptedOpenAI, ScriptedAnthropic]]:
    """`main` on an OpenAI-compatible server, `claude` and `old` on Anthropic's protocol."""
    with ScriptedAnthropic([]) as anthropic:
        models = [{"id": "claude-sonnet-5"}, {"id": "old"}]
        theirs = {"baseUrl": anthropic.url, "apiKey": "key", "api": "anthropic-messages", "models": models}
        with ScriptedOpenAI([]) as ours:
            mine = {"baseUrl": ours.url, "apiKey": "key", "api": "openai-completions"}
            config: dict[str, Any] = {
                "models": {"providers": {"theirs": theirs, "mine": mine | {"models": [{"id": "scripted"}]}}},
                "agents": {
                    "defaults": {"model": "mine/scripted", "userTimezone": "UTC"},
                    "list": [
                        {"id": "main", "default": True},
                        {"id": "claude", "model": "theirs/claude-sonnet-5"},
                        {"id": "old", "model": "theirs/old"},
                    ],
                },
            }
            home = tmp_path_factory.mktemp("forms") / "home"
            with agents_serving(home, sqlite_template, [], **config) as (gateway, _):
                yield gateway, ours, anthropic


@pytest.fixture
def client(stage: tuple[Running, ScriptedOpenAI, ScriptedAnthropic]) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{stage[0].url}/v1", api_key=stage[0].admin, max_retries=0) as found:
        yield found


@pytest.fixture(params=["main", "claude", "old"])
def agent(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def server(stage: Any, agent: str) -> ScriptedServer:
    found: ScriptedServer = stage[1] if agent == "main" else stage[2]
    found.requests.clear()
    return found


def streamed(client: OpenAI, **fields: Any) -> tuple[str, list[Any], str | None]:
    text, calls, finish = "", [], None
    for chunk in client.chat.completions.create(messages=SAID, stream=True, **fields):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            calls += choice.delta.tool_calls or []
            finish = choice.finish_reason or finish
    return text, calls, finish


def test_a_schema_is_handed_to_a_provider_that_enforces_it_and_told_to_every_other(
    client: OpenAI, stage: Any, agent: str
) -> None:
    there = server(stage, agent)
    there.add(Say(GOOD))
    made = client.chat.completions.create(model=agent, messages=SAID, response_format=STRICT)
    assert made.choices[0].message.content == GOOD
    asked = there.requests[-1].body
    assert '"degrees"' in str(asked["messages"]).replace('\\"', '"')
    match agent:
        case "main":
            sent = asked["response_format"]["json_schema"]
            assert (sent["name"], sent["strict"], sent["schema"]) == ("weather", True, SCHEMA)
        case "claude":
            assert "degrees" in json.dumps(asked.get("output_config") or asked.get("output_format"))
        case _:
            assert not asked.get("output_config")
            assert not asked.get("output_format")


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_has_not_the_form_is_mended_once_and_only_the_json_is_told(
    client: OpenAI, stage: Any, agent: str, stream: bool
) -> None:
    there = server(stage, agent)
    there.add(Say('{"city": "Oslo", "degrees": "warm"}'), Say(f"Here it is:\n```json\n{GOOD}\n```"))
    if stream:
        assert streamed(client, model=agent, response_format=STRICT) == (GOOD, [], "stop")
    else:
        made = client.chat.completions.create(model=agent, messages=SAID, response_format=STRICT)
        assert made.choices[0].message.content == GOOD
    mending = str(there.requests[-1].body["messages"])
    assert "degrees: " in mending
    assert "is not of type" in mending
    assert len(there.requests) == 2


def test_a_model_that_cannot_do_it_fails_the_request_rather_than_answer_otherwise(
    client: OpenAI, stage: Any
) -> None:
    there = server(stage, "old")
    there.add(Say("It is warm."), Say("Really warm."))
    with pytest.raises(openai.InternalServerError, match="it is not JSON"):
        client.chat.completions.create(model="old", messages=SAID, response_format={"type": "json_object"})
    assert len(there.requests) == 2


def test_any_object_will_do_for_json_object_and_a_provider_that_rejects_it_is_asked_in_words(
    client: OpenAI, stage: Any, agent: str
) -> None:
    there = server(stage, agent)
    there.add(Say('{"a": [1]}'), Fail(400, trouble="bad_request"), Say('{"a": 2}'))
    any_object: Any = {"type": "json_object"}
    first = client.chat.completions.create(model=agent, messages=SAID, response_format=any_object)
    assert first.choices[0].message.content == '{"a": [1]}'
    assert (there.requests[-1].body.get("response_format") == any_object) is (agent == "main")
    second = client.chat.completions.create(model=agent, messages=SAID, response_format=any_object)
    assert second.choices[0].message.content == '{"a": 2}'
    assert "response_format" not in there.requests[-1].body


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "look_up"}}])
def test_a_forced_call_is_made_by_the_provider_or_after_a_word_and_handed_over(
    client: OpenAI, stage: Any, agent: str, choice: Any, stream: bool
) -> None:
    there = server(stage, agent)
    there.add(Say("I would rather talk."), Call("look_up", {"place": "Oslo"}, id="c1"))
    fields: dict[str, Any] = {"tools": [tool("look_up"), tool("other")], "tool_choice": choice}
    if stream:
        _, calls, finish = streamed(client, model=agent, **fields)
    else:
        made = client.chat.completions.create(model=agent, messages=SAID, **fields).choices[0]
        calls, finish = list(made.message.tool_calls or ()), made.finish_reason
    assert finish == "tool_calls"
    assert [(c.function.name, json.loads(c.function.arguments)) for c in calls] == [
        ("look_up", {"place": "Oslo"})
    ]
    forced = there.requests[0].body["tool_choice"]
    if choice != "required":
        named = {"type": "tool", "name": "look_up"}
        openais = {"type": "function", "function": {"name": "look_up"}}
        assert forced == (openais if agent == "main" else named)
    else:
        assert {"look_up", "other"} <= set(there.requests[0].tools)
        assert forced != "auto"
        assert forced != {"type": "auto"}
    assert "You must call look_up" in str(there.requests[1].body["messages"])


def test_what_cannot_be_meant_is_refused_before_anything_is_asked(client: OpenAI, stage: Any) -> None:
    there = server(stage, "main")
    bad: list[dict[str, Any]] = [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "no"}}}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"$ref": "http://127.0.0.1:9/s"}},
            }
        },
        {"response_format": {"type": "xml"}},
        {"tool_choice": "required"},
        {"tools": [tool("a")], "tool_choice": {"type": "function", "function": {"name": "b"}}},
    ]
    for fields in bad:
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="main", messages=SAID, **fields)
    assert there.requests == []


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    ),
    st.sampled_from(["{}", "```json\n{}\n```", "  {}\n"]),
)
def test_json_is_found_in_its_frame_and_comes_back_as_the_same_value(value: Any, frame: str) -> None:
    written = json.dumps(value)
    found = fit(frame.replace("{}", written), Form(schema={}))
    assert json.loads(found.text) == value
    assert bool(fit(written, Form()).text) is isinstance(value, dict)
