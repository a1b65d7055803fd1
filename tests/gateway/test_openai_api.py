"""OpenAI's own clients against the gateway: agents as models, sessions, streams, errors."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from agent_stage import (
    JSON_VALUES,
    agents_serving,
    assert_openai_error,
    client,
    gateway,
    model,
    run_event,
    stage,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionChunk
from serving import Running, make_token, wait_for

from builders import PATIENCE, rows
from holdfast.clock import Millis
from holdfast.gateway.openai import runs as openai_routes
from holdfast.gateway.openai.chat import Chunks, Head
from holdfast.gateway.tokens import Scope
from holdfast.testing import Asked, Call, Fail, Say, ScriptedOpenAI, Stall, Turn, Used, cut_off

__all__ = ["client", "gateway", "model", "stage"]
PNG = "data:image/png;base64,iVBORw0KGgo="


def answer(asked: Asked) -> Turn:
    if asked.messages[-1]["role"] == "tool":
        return Say("And there it is.")
    said = asked.last_text
    if "wait for ever" in said:
        return Stall("so far")
    if "use a tool" in said:
        return Call("sessions_list", {}, text="One moment.")
    if "fail" in said:
        return Fail(400, "I will not", trouble="bad_request")
    if "be silent" in said:
        return Say("NO_REPLY")
    if "break off" in said:
        return cut_off("The heron stands")
    if "be brief" in said:
        return Say("Cut", finish="length")
    return Say("The heron stands still.", used=Used(input=900, output=12, cache_read=800))


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def content(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def test_agents_are_listed_as_models(client: OpenAI) -> None:
    listed = [m.id for m in client.models.list()]
    assert listed == ["holdfast", "holdfast/main", "holdfast/other", "holdfast-embedding"]
    assert client.models.retrieve("holdfast/other").owned_by == "holdfast"
    with pytest.raises(openai.NotFoundError) as refused:
        client.models.retrieve("gpt-5")
    assert refused.value.code == "model_not_found"


@pytest.mark.parametrize("name", ["holdfast", "holdfast/main", "agent:main", "main"])
def test_a_model_names_an_agent(client: OpenAI, gateway: Running, name: str) -> None:
    done = client.chat.completions.with_raw_response.create(model=name, messages=[user("hello")])
    found = done.parse()
    assert found.model == name
    assert found.choices[0].message.content == "The heron stands still."
    assert found.choices[0].finish_reason == "stop"
    assert found.usage is not None
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens) == (
        900,
        12,
        912,
    )
    assert found.usage.prompt_tokens_details is not None
    assert found.usage.prompt_tokens_details.cached_tokens == 800
    run = done.headers["x-run-id"]
    assert found.id == f"chatcmpl-{run}"
    with gateway.client(gateway.admin) as api:
        assert api.get(f"/api/agent/{run}").json()["sessionKey"].startswith("agent:main:openai:dm:once-")


def test_a_stream_has_the_role_the_words_the_end_and_the_usage(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model="holdfast",
        messages=[user("hello")],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({c.id for c in chunks}) == 1
    assert content(chunks) == "The heron stands still."
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert not chunks[-1].choices
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 912


def test_what_is_said_between_tool_calls_is_streamed_too(client: OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(model="holdfast", messages=[user("use a tool")], stream=True)
    )
    assert content(chunks) == "One moment.\n\nAnd there it is."
    whole = client.chat.completions.create(model="holdfast", messages=[user("use a tool")])
    assert whole.choices[0].message.content == "And there it is."


def test_the_asynchronous_client_is_served_as_well(gateway: Running) -> None:
    async def ask() -> tuple[str, str | None]:
        async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.admin) as client:
            whole = await client.chat.completions.create(model="holdfast/other", messages=[user("hello")])
            stream = await client.chat.completions.create(
                model="holdfast/other", messages=[user("hello")], stream=True
            )
            return content([chunk async for chunk in stream]), whole.choices[0].message.content

    assert asyncio.run(ask()) == ("The heron stands still.", "The heron stands still.")


def test_a_user_has_a_session_of_our_own_and_what_the_client_remembers_is_left_out(
    client: OpenAI, gateway: Running, model: ScriptedOpenAI
) -> None:
    for text in ("I am Ann.", "And who am I?"):
        client.chat.completions.create(
            model="holdfast",
            user="ann@example.org",
            messages=[user("unsaid words"), {"role": "assistant", "content": "unsaid answer"}, user(text)],
        )
    seen = str(model.requests[-1].messages)
    assert "I am Ann." in seen
    assert "The heron stands still." in seen
    assert "unsaid" not in seen
    with gateway.client(gateway.admin) as api:
        found = api.get("/api/sessions/agent:main:openai:dm:ann@example.org").json()
    assert (found["turnCount"], found["status"]) == (2, "active")


def test_a_session_is_named_by_a_header_and_takes_commands(client: OpenAI) -> None:
    named = {"X-Session-Key": "agent:main:web:dm:header"}
    done = client.chat.completions.create(model="holdfast", messages=[user("/whoami")], extra_headers=named)
    assert "agent:main:web:dm:header" in str(done.choices[0].message.content)
    streamed = client.chat.completions.create(
        model="holdfast", messages=[user("/whoami")], extra_headers=named, stream=True
    )
    assert content(list(streamed)) == done.choices[0].message.content
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="holdfast/other", messages=[user("x")], extra_headers=named)


def test_without_a_session_the_model_sees_what_the_client_remembers_and_nothing_is_left_behind(
    client: OpenAI, gateway: Running, model: ScriptedOpenAI
) -> None:
    arguments = json.dumps({"place": "the pond"})
    call = {"id": "call_9", "type": "function", "function": {"name": "look", "arguments": arguments}}
    messages: list[Any] = [
        {"role": "system", "content": "Speak of birds only."},
        user("What is at the pond?"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_9", "content": "a grey shape"},
        {"role": "assistant", "content": "Something grey."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Is it this one?"},
                {"type": "image_url", "image_url": {"url": PNG}},
            ],
        },
    ]
    client.chat.completions.create(model="holdfast", messages=messages)
    seen = model.requests[-1].messages
    roles = [m["role"] for m in seen if m["role"] != "system"]
    assert roles[-4:] == ["tool", "assistant", "user", "user"], "the carrier stands before the words"
    text = str(seen)
    for part in ("Speak of birds only.", "What is at the pond?", "call_9", "a grey shape", "Something grey."):
        assert part in text
    assert PNG in str(seen[-1])
    instructions = next(m for m in seen if "Speak of birds only." in str(m["content"]))
    assert instructions["role"] == "user"
    with gateway.client(gateway.admin) as api:
        active = [s["sessionKey"] for s in api.get("/api/sessions").json()]
    assert not any("once-" in key for key in active)
    pending = "SELECT content FROM entries WHERE status = 'pending'"
    assert "What is at the pond?" not in str(rows(gateway.hold.store, pending))


def test_results_of_calls_that_the_client_ran_continue_a_conversation(
    client: OpenAI, model: ScriptedOpenAI
) -> None:
    call = {"id": "call_7", "type": "function", "function": {"name": "weigh", "arguments": "{}"}}
    done = client.chat.completions.create(
        model="holdfast",
        messages=[
            user("How heavy is it?"),
            {"role": "assistant", "content": None, "tool_calls": [call]},  # type: ignore[list-item]
            {"role": "tool", "tool_call_id": "call_7", "content": "two kilograms"},
        ],
    )
    assert done.choices[0].message.content == "The heron stands still."
    seen = model.requests[-1].messages
    result = next(m for m in seen if m["role"] == "tool")
    assert (result["tool_call_id"], result["content"]) == ("call_7", "two kilograms")


def test_a_repeat_with_the_same_key_gets_the_same_answer_of_one_run(
    client: OpenAI, model: ScriptedOpenAI
) -> None:
    def ask() -> str:
        sent = client.chat.completions.create(
            model="holdfast",
            messages=[user("a"), {"role": "assistant", "content": "b"}, user("c")],
            extra_headers={"Idempotency-Key": "same"},
        )
        return sent.id

    first, before = ask(), len(model.requests)
    assert ask() == first
    assert len(model.requests) == before


def test_an_agent_that_says_nothing_and_one_that_was_cut_off(client: OpenAI) -> None:
    silent = client.chat.completions.create(model="holdfast", messages=[user("be silent")])
    assert silent.choices[0].message.content == ""
    streamed = client.chat.completions.create(model="holdfast", messages=[user("be silent")], stream=True)
    assert content(list(streamed)) == ""
    cut = client.chat.completions.create(model="holdfast", messages=[user("be brief")])
    assert cut.choices[0].finish_reason == "length"


def test_a_run_that_fails_is_an_error_and_is_not_asked_again_unasked(
    client: OpenAI, model: ScriptedOpenAI
) -> None:
    before = len(model.requests)
    with pytest.raises(openai.InternalServerError) as failed:
        client.chat.completions.create(model="holdfast", messages=[user("fail")])
    assert (failed.value.status_code, failed.value.code, failed.value.type) == (
        502,
        "run_failed",
        "server_error",
    )
    assert len(model.requests) == before + 1
    with pytest.raises(openai.APIError, match="I will not"):
        list(client.chat.completions.create(model="holdfast", messages=[user("fail")], stream=True))


def test_words_are_never_told_twice_an_answer_that_breaks_off_ends_with_an_error(
    client: OpenAI, gateway: Running
) -> None:
    heard: list[ChatCompletionChunk] = []
    stream = client.chat.completions.create(model="holdfast", messages=[user("break off")], stream=True)
    with pytest.raises(openai.APIError, match="broke off") as failed:
        heard.extend(iter(stream))
    assert content(heard) == "The heron stands"
    assert failed.value.code == "answer_broke_off"
    run = heard[0].id.removeprefix("chatcmpl-")
    with gateway.client(gateway.admin) as api:
        wait_for(lambda: api.get(f"/api/agent/{run}").json()["status"] in ("cancelled", "failed"))


def test_who_hangs_up_stops_the_run(client: OpenAI, gateway: Running) -> None:
    with client.chat.completions.with_streaming_response.create(
        model="holdfast", messages=[user("wait for ever")], stream=True
    ) as stream:
        run = stream.headers["x-run-id"]
        next(line for line in stream.iter_lines() if _words(line))
    with gateway.client(gateway.admin) as api:
        wait_for(lambda: api.get(f"/api/agent/{run}").json()["status"] == "cancelled")


def test_a_gateway_that_stops_says_so_and_nobody_asks_again_while_the_run_is_there(
    tmp_path: Path, sqlite_template: Path
) -> None:
    with (
        agents_serving(tmp_path / "home", sqlite_template, answer) as (gateway, model),
        OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.admin) as client,
        ThreadPoolExecutor(2) as pool,
    ):

        def plain() -> Any:
            return client.chat.completions.create(model="holdfast", messages=[user("wait for ever")])

        def stream() -> Any:
            asked: Any = {"model": "holdfast", "messages": [user("wait for ever")], "stream": True}
            return list(client.chat.completions.create(**asked))

        waiting = [pool.submit(plain), pool.submit(stream)]
        wait_for(lambda: len(model.requests) == 2)
        gateway.on_loop(gateway.services.begin_stop)
        failures = [one.exception(PATIENCE) for one in waiting]
        assert [getattr(failed, "code", None) for failed in failures] == ["stopping", "stopping"]
        assert isinstance(failures[0], openai.InternalServerError)
        assert (failures[0].status_code, failures[0].response.headers["x-should-retry"]) == (502, "false")
        assert "/wait gives its end" in str(failures[1])
        assert len(model.requests) == 2
        assert rows(gateway.hold.store, "SELECT status FROM turns") == [("running",), ("running",)]


def test_who_hangs_up_before_a_plain_answer_stops_the_run_too(
    gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_routes, "_LOOK_SECONDS", 0.01)
    body = {"model": "holdfast", "user": "impatient", "messages": [user("wait for ever")]}
    with gateway.client(gateway.admin) as api:
        with pytest.raises(httpx.ReadTimeout):
            api.post("/v1/chat/completions", json=body, timeout=httpx.Timeout(PATIENCE, read=1))
        path = "/api/sessions/agent:main:openai:dm:impatient/turns"
        wait_for(lambda: [turn["status"] for turn in api.get(path).json()] == ["cancelled"])


def _words(line: str) -> str:
    data = line.removeprefix("data: ")
    return str(json.loads(data)["choices"][0]["delta"].get("content") or "") if data.startswith("{") else ""


def test_tokens_hold_here_as_everywhere(gateway: Running) -> None:
    def asking(token: str) -> OpenAI:
        return OpenAI(base_url=f"{gateway.url}/v1", api_key=token, max_retries=0)

    with asking("wrong") as client, pytest.raises(openai.AuthenticationError) as unknown:
        client.models.list()
    assert (unknown.value.code, unknown.value.type) == ("bad_token", "authentication_error")
    reader = make_token(gateway.hold.store, "openai-reader", Scope.READ)
    with asking(reader) as client, pytest.raises(openai.PermissionDeniedError):
        client.chat.completions.create(model="holdfast", messages=[user("x")])
    limited = make_token(gateway.hold.store, "openai-other", agents=["other"])
    with asking(limited) as client:
        assert [m.id for m in client.models.list()] == ["holdfast/other", "holdfast-embedding"]
        assert client.chat.completions.create(model="other", messages=[user("x")]).choices
        for name in ("main", "holdfast"):
            with pytest.raises(openai.NotFoundError):
                client.chat.completions.create(model=name, messages=[user("x")])
        foreign = {"X-Session-Key": "agent:main:main"}
        with pytest.raises(openai.PermissionDeniedError) as refused:
            client.chat.completions.create(model="other", messages=[user("x")], extra_headers=foreign)
        assert refused.value.code == "session_forbidden"
    spaced = make_token(gateway.hold.store, "openai-spaced", spaces=["space-1"])
    with asking(spaced) as client:
        assert list(client.models.list()) == []


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "user", "content": "  "}]}, None),
        ({"messages": [{"role": "assistant", "content": "me again"}]}, None),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": "x"}], "n": 2}, None),
        (
            {"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "xml"}},
            "response_format.type",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, None),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": "http://10.0.0.1/"}}],
                    }
                ]
            },
            None,
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": "x"},
                    {"role": "tool", "tool_call_id": "lost", "content": "y"},
                    {"role": "user", "content": "z"},
                ]
            },
            None,
        ),
        ({"messages": [{"role": "user", "content": "x"}], "user": "a:thread:"}, None),
    ],
)
def test_what_cannot_be_used_is_an_error_of_openais_form(
    gateway: Running, body: dict[str, Any], param: str | None
) -> None:
    with gateway.client(gateway.admin) as api:
        response = api.post("/v1/chat/completions", json={"model": "holdfast", **body})
    assert_openai_error(response, 400)
    assert response.json()["error"]["param"] == param


def test_no_other_refusal_has_another_form(gateway: Running) -> None:
    with gateway.client(gateway.admin) as api:
        assert_openai_error(api.post("/v1/chat/completions", content="{", headers=JSON), 400)
        assert_openai_error(
            api.post("/v1/chat/completions", content="x", headers={"Content-Type": "a/b"}), 400
        )
        assert_openai_error(api.get("/v1/chat/completions"), 405)
        assert_openai_error(api.get("/v1/nothing"), 404)
    with gateway.client() as nobody:
        assert_openai_error(nobody.post("/v1/chat/completions", json={}), 401)


JSON = {"Content-Type": "application/json"}
_FIELDS = st.sampled_from(["messages", "stream", "stream_options", "user", "n", "tools", "reasoning_effort"])


@settings(max_examples=25, derandomize=True, suppress_health_check=list(HealthCheck), deadline=None)
@given(sent=st.dictionaries(_FIELDS, JSON_VALUES, max_size=3))
def test_nothing_that_is_sent_is_a_fault_of_ours(gateway: Running, sent: dict[str, Any]) -> None:
    with gateway.client(gateway.admin) as api:
        assert_openai_error(api.post("/v1/chat/completions", json={"model": "holdfast", **sent}), 400)


@given(
    text=st.text(min_size=1, max_size=30),
    cuts=st.lists(st.integers(1, 29), max_size=4),
    lost=st.integers(0, 5),
)
def test_a_reader_who_lost_deltas_still_gets_every_word_once(text: str, cuts: list[int], lost: int) -> None:
    text = f"x{text}"
    places = [0, *sorted({c for c in cuts if c < len(text)}), len(text)]
    deltas = [text[a:b] for a, b in pairwise(places)]
    chunks = Chunks(Head("run", "holdfast", Millis(0)), with_usage=False)
    seen = [run_event(n, "assistant", kind="text", delta=d) for n, d in enumerate(deltas)]
    if lost < len(seen):
        seen[lost] = run_event(lost, "lifecycle", phase="lagged", lost=1)
    seen.append(run_event(99, "assistant", kind="message", text=text))
    told = [c for event in seen for c in chunks.of(event)]
    told += list(chunks.end({"status": "committed", "text": text}))
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in told) == text


@pytest.mark.parametrize(("kind", "broken"), [("text", True), ("thinking", False)])
def test_only_words_that_were_told_cannot_be_taken_back(kind: str, broken: bool) -> None:
    chunks = Chunks(Head("r", "m", Millis(0)), with_usage=False)
    told = [*chunks.of(run_event(1, "assistant", kind=kind, delta="The heron"))]
    told += chunks.of(run_event(2, "lifecycle", phase="restarted"))
    assert chunks.broken is broken
    assert len(told) == broken
