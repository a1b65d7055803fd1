"""OpenAI's own client on `/v1/responses`: words, tools, streams, and what goes on from an earlier one."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from agent_stage import JSON_VALUES, assert_openai_error, client, gateway, model, run_event, stage
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai import OpenAI
from pydantic import BaseModel
from serving import Running, make_token

from builders import rows
from holdfast.clock import ManualClock
from holdfast.gateway.openai.responses import ResponseEvents, ResponseHead
from holdfast.gateway.tokens import Scope
from holdfast.testing import Asked, Call, Calls, Fail, Say, ScriptedOpenAI, Turn, Used, cut_off

__all__ = ["client", "gateway", "model", "stage"]
PNG = "data:image/png;base64,iVBORw0KGgo="
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather at a place.",
    "strict": False,
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}


def answer(asked: Asked) -> Turn:
    last = asked.messages[-1]
    results = [str(m["content"]) for m in asked.messages if m["role"] == "tool"]
    text = asked.last_text
    if "13 degrees" in str(results[-1:]) and "results" in str(last["content"]):
        return Say("It is 13 degrees in Oslo.")
    if last["role"] == "tool":
        return Say("And there it is.")
    match text.rpartition("\n")[2]:
        case "weather":
            return Call("get_weather", {"place": "Oslo"}, id="call_w", text="Let me see.")
        case "two places":
            return Calls(
                Call("get_weather", {"place": "Oslo"}, id="a"),
                Call("get_weather", {"place": "Bergen"}, id="b"),
            )
        case "own tool":
            return Call("sessions_list", {}, text="One moment.")
        case "fail":
            return Fail(400, "I will not", trouble="bad_request")
        case "brief":
            return Say("Cut", finish="length")
        case "break off":
            return cut_off("The heron stands")
        case "silent":
            return Say("NO_REPLY")
        case "form":
            return Say('{"city": "Oslo", "degrees": 13}')
    return Say("The heron stands still.", used=Used(input=900, output=12, cache_read=800))


def test_a_response_has_the_words_the_usage_and_what_was_asked(client: OpenAI, model: ScriptedOpenAI) -> None:
    made = client.responses.create(
        model="holdfast",
        input="hello",
        instructions="Speak of birds.",
        metadata={"trip": "7"},
        max_output_tokens=99,
    )
    assert made.output_text == "The heron stands still."
    assert (made.status, made.object, made.model, made.error) == ("completed", "response", "holdfast", None)
    assert (made.instructions, made.metadata, made.max_output_tokens) == (
        "Speak of birds.",
        {"trip": "7"},
        99,
    )
    assert made.usage is not None
    assert (made.usage.input_tokens, made.usage.output_tokens, made.usage.total_tokens) == (900, 12, 912)
    assert made.usage.input_tokens_details.cached_tokens == 800
    sent = model.requests[-1]
    assert sent.body.get("max_tokens", sent.body.get("max_completion_tokens")) == 99
    assert "Speak of birds." in str(sent.messages)
    again = client.responses.retrieve(made.id)
    assert (again.output_text, again.metadata, again.usage) == (made.output_text, made.metadata, made.usage)


def test_a_stream_has_the_events_of_a_response_in_their_order(client: OpenAI) -> None:
    events = list(client.responses.create(model="holdfast", input="hello", stream=True))
    kinds = [event.type for event in events]
    deltas = kinds.count("response.output_text.delta")
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * deltas,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    told = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    last = events[-1]
    assert last.type == "response.completed"
    assert told == last.response.output_text == "The heron stands still."
    assert last.response.usage is not None
    with client.responses.stream(model="holdfast", input="hello") as stream:
        assert stream.get_final_response().output_text == told


def test_words_between_the_agents_own_calls_are_items_of_their_own(client: OpenAI) -> None:
    events = list(client.responses.create(model="holdfast", input="own tool", stream=True))
    last = events[-1]
    assert last.type == "response.completed"
    assert [item.content[0].text for item in last.response.output if item.type == "message"] == [  # type: ignore[union-attr]
        "One moment.",
        "And there it is.",
    ]
    assert len({item.id for item in last.response.output}) == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("way", ["previous", "items"])
def test_a_call_is_handed_over_and_its_output_goes_on(
    client: OpenAI, gateway: Running, stream: bool, way: str
) -> None:
    first: Any = client.responses.create(model="holdfast", input="weather", tools=[WEATHER], stream=stream)
    if stream:
        events = list(first)
        kinds = [event.type for event in events]
        assert "response.function_call_arguments.delta" in kinds
        done = next(e for e in events if e.type == "response.function_call_arguments.done")
        assert json.loads(done.arguments) == {"place": "Oslo"}
        first = events[-1].response
    said, call = first.output
    assert said.content[0].text == "Let me see."
    assert (call.type, call.call_id, call.name, json.loads(call.arguments)) == (
        "function_call",
        "call_w",
        "get_weather",
        {"place": "Oslo"},
    )
    result = {"type": "function_call_output", "call_id": "call_w", "output": "13 degrees"}
    more: Any = (
        {"previous_response_id": first.id, "input": [result]}
        if way == "previous"
        else {"input": [{"role": "user", "content": "weather"}, *first.output, result]}
    )
    second: Any = client.responses.create(model="holdfast", tools=[WEATHER], stream=stream, **more)
    second = list(second)[-1].response if stream else second
    assert second.output_text == "It is 13 degrees in Oslo."
    words = rows(
        gateway.hold.store, "SELECT content FROM entries WHERE role = 'user' AND content LIKE '%results%'"
    )
    assert words == [], "nobody said that"


def test_items_are_referred_to_by_their_ids(client: OpenAI) -> None:
    first = client.responses.create(model="holdfast", input="two places", tools=[WEATHER])
    calls = [item for item in first.output if item.type == "function_call"]
    assert [call.call_id for call in calls] == ["a", "b"]
    sent: list[Any] = [{"role": "user", "content": "two places"}]
    sent += [{"type": "item_reference", "id": call.id} for call in calls]
    sent += [{"type": "function_call_output", "call_id": c.call_id, "output": "13 degrees"} for c in calls]
    assert client.responses.create(model="holdfast", input=sent, tools=[WEATHER]).output_text.startswith(
        "It is 13"
    )


def test_a_response_is_gone_on_with_in_its_own_session_however_late(
    client: OpenAI, gateway: Running, model: ScriptedOpenAI
) -> None:
    first = client.responses.with_raw_response.create(model="holdfast", input="I am Ann.")
    clock = gateway.hold.clock
    assert isinstance(clock, ManualClock)
    clock.advance(hours=50)
    second = client.responses.with_raw_response.create(
        model="holdfast", input="And who am I?", previous_response_id=first.parse().id
    )
    seen = str(model.requests[-1].messages)
    assert "I am Ann." in seen
    assert "The heron stands still." in seen
    assert second.parse().previous_response_id == first.parse().id
    sessions = [run_session(gateway, one.headers["x-run-id"]) for one in (first, second)]
    assert sessions[0] == sessions[1]
    with gateway.client(gateway.admin) as api:
        assert not any("once-" in s["sessionKey"] for s in api.get("/api/sessions").json()), "in nobody's way"


def run_session(gateway: Running, run: str) -> str:
    with gateway.client(gateway.admin) as api:
        return str(api.get(f"/api/agent/{run}").json()["sessionId"])


def test_two_answers_that_go_on_from_one_do_not_know_of_each_other(
    client: OpenAI, model: ScriptedOpenAI
) -> None:
    first = client.responses.create(model="holdfast", input="I am Bea.")
    client.responses.create(model="holdfast", input="one way", previous_response_id=first.id)
    client.responses.create(model="holdfast", input="another way", previous_response_id=first.id)
    seen = str(model.requests[-1].messages)
    assert "I am Bea." in seen
    assert "another way" in seen
    assert "one way" not in seen


def test_what_goes_on_from_a_response_names_no_other_session(client: OpenAI, model: ScriptedOpenAI) -> None:
    first = client.responses.create(model="holdfast", input="I am Dee.", user="dee")
    client.responses.create(model="holdfast", input="one", user="dee")
    client.responses.create(model="holdfast", input="two", user="dee", previous_response_id=first.id)
    assert str(model.requests[-1].messages).count("I am Dee.") == 1
    with pytest.raises(openai.BadRequestError, match="X-Session-Key"):
        client.responses.create(
            model="holdfast",
            input="three",
            previous_response_id=first.id,
            extra_headers={"X-Session-Key": "agent:main:main"},
        )


def test_a_session_can_be_named_as_with_chat_completions(client: OpenAI, gateway: Running) -> None:
    client.responses.create(model="holdfast", input="hello", user="cy")
    with gateway.client(gateway.admin) as api:
        found = api.get("/api/sessions/agent:main:openai:dm:cy").json()
    assert (found["turnCount"], found["status"]) == (1, "active")


def test_instructions_are_for_their_request_and_pictures_are_seen(
    client: OpenAI, model: ScriptedOpenAI
) -> None:
    first = client.responses.create(
        model="holdfast",
        instructions="Whisper.",
        input=[
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Is it this one?"},
                    {"type": "input_image", "image_url": PNG, "detail": "auto"},
                ],
            }
        ],
    )
    assert PNG in str(model.requests[-1].messages[-1])
    assert "Whisper." in str(model.requests[-1].messages)
    client.responses.create(model="holdfast", input="And now?", previous_response_id=first.id)
    assert "Whisper." not in str(model.requests[-1].messages)


class Weather(BaseModel):
    city: str
    degrees: int


def test_an_answer_of_a_given_form(client: OpenAI) -> None:
    made = client.responses.parse(model="holdfast", input="form", text_format=Weather)
    assert made.output_parsed == Weather(city="Oslo", degrees=13)
    streamed = client.responses.create(
        model="holdfast", input="form", stream=True, text={"format": {"type": "json_object"}}
    )
    assert [e.delta for e in streamed if e.type == "response.output_text.delta"] == [
        '{"city": "Oslo", "degrees": 13}'
    ]


def test_ends_that_are_none(client: OpenAI) -> None:
    cut = client.responses.create(model="holdfast", input="brief")
    assert cut.status == "incomplete"
    assert cut.incomplete_details is not None
    assert cut.incomplete_details.reason == "max_output_tokens"
    assert (
        list(client.responses.create(model="holdfast", input="brief", stream=True))[-1].type
        == "response.incomplete"
    )
    assert client.responses.create(model="holdfast", input="silent").output == []
    with pytest.raises(openai.InternalServerError, match="I will not"):
        client.responses.create(model="holdfast", input="fail")
    last = list(client.responses.create(model="holdfast", input="fail", stream=True))[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert "I will not" in last.response.error.message


def test_words_are_never_told_twice_an_answer_that_breaks_off_is_a_failed_response(client: OpenAI) -> None:
    events = list(client.responses.create(model="holdfast", input="break off", stream=True))
    told = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert told == "The heron stands"
    last = events[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.output[0].content[0].text == told  # type: ignore[union-attr]


def test_a_deleted_response_is_gone_with_its_words(client: OpenAI, gateway: Running) -> None:
    made = client.responses.create(model="holdfast", input="a plover to forget")
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError) as gone:
        client.responses.retrieve(made.id)
    assert gone.value.code == "response_not_found"
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="holdfast", input="and?", previous_response_id=made.id)
    with gateway.client(gateway.admin) as api:
        assert "plover" not in api.get("/api/log", params={"limit": 500}).text


def test_what_a_client_brought_for_a_response_goes_with_it(client: OpenAI, gateway: Running) -> None:
    first = client.responses.create(model="holdfast", input="weather", tools=[WEATHER])
    result: Any = {
        "type": "function_call_output",
        "call_id": "call_w",
        "output": "13 degrees, says the whimbrel",
    }
    second = client.responses.create(
        model="holdfast", input=[result], tools=[WEATHER], previous_response_id=first.id
    )
    words = "SELECT content FROM entries WHERE content LIKE '%whimbrel%' AND deleted_at IS NULL"
    assert len(rows(gateway.hold.store, words)) == 1
    client.responses.delete(second.id)
    assert rows(gateway.hold.store, words) == []
    assert client.responses.retrieve(first.id).output


def test_what_is_not_there_and_what_is_not_the_askers_are_alike(client: OpenAI, gateway: Running) -> None:
    made = client.responses.create(model="holdfast/main", input="hello")
    other = make_token(gateway.hold.store, "responses-other", agents=["other"])
    spaced = make_token(gateway.hold.store, "responses-spaced", spaces=["space-1"])
    reader = make_token(gateway.hold.store, "responses-reader", Scope.READ)
    told = set()
    for token, id_ in (
        (other, made.id),
        (spaced, made.id),
        (gateway.admin, made.id[:-2] + "00"),
        (gateway.admin, "x"),
    ):
        with OpenAI(base_url=f"{gateway.url}/v1", api_key=token, max_retries=0) as asking:
            with pytest.raises(openai.NotFoundError) as refused:
                asking.responses.retrieve(id_)
            told.add(str(refused.value))
            if token == other:
                with pytest.raises(openai.NotFoundError) as unknown:
                    asking.responses.create(model="other", input="go on", previous_response_id=id_)
                told.add(str(unknown.value))
                with pytest.raises(openai.NotFoundError):
                    asking.responses.delete(id_)
    assert len(told) == 1
    with OpenAI(base_url=f"{gateway.url}/v1", api_key=reader, max_retries=0) as reading:
        assert reading.responses.retrieve(made.id).output_text
        with pytest.raises(openai.PermissionDeniedError):
            reading.responses.delete(made.id)
    with (
        OpenAI(base_url=f"{gateway.url}/v1", api_key=spaced, max_retries=0) as asking,
        pytest.raises(openai.NotFoundError),
    ):
        asking.responses.create(model="holdfast", input="x")


@pytest.mark.parametrize(
    "body",
    [
        {"input": []},
        {"input": "  "},
        {"input": [{"role": "assistant", "content": "me again"}]},
        {"input": [{"role": "wizard", "content": "x"}]},
        {"input": [{"type": "computer_call", "id": "x"}]},
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
        {"input": [{"type": "function_call_output", "call_id": "lost", "output": "y"}]},
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://10.0.0.1/"}]}]},
        {"input": "x", "tools": [{"type": "web_search"}]},
        {"input": "x", "tools": [{"type": "function", "name": "no spaces"}]},
        {"input": "x", "tool_choice": "required"},
        {"input": "x", "tool_choice": {"type": "function", "name": "absent"}},
        {"input": "x", "tool_choice": {"type": "file_search"}},
        {"input": "x", "text": {"format": {"type": "xml"}}},
        {"input": "x", "text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "no"}}}},
        {"input": "x", "background": True},
        {"input": "x", "previous_response_id": "resp_turn-none"},
        {"input": "x", "conversation": "conv_1"},
        {"input": "x", "max_output_tokens": 0},
    ],
)
def test_what_cannot_be_used_is_an_error_of_openais_form(gateway: Running, body: dict[str, Any]) -> None:
    with gateway.client(gateway.admin) as api:
        response = api.post("/v1/responses", json={"model": "holdfast", **body})
    assert_openai_error(response, 400, 404)


_FIELDS = st.sampled_from(["stream", "instructions", "tools", "text", "reasoning", "metadata", "tool_choice"])


@settings(max_examples=25, derandomize=True, suppress_health_check=list(HealthCheck), deadline=None)
@given(sent=st.dictionaries(_FIELDS, JSON_VALUES, max_size=3), items=JSON_VALUES)
def test_nothing_that_is_sent_is_a_fault_of_ours(gateway: Running, sent: dict[str, Any], items: Any) -> None:
    with gateway.client(gateway.admin) as api:
        answered = api.post("/v1/responses", json={"model": "holdfast", **sent, "input": items})
    assert answered.status_code < 500, answered.text


def test_a_bare_prompt_is_refused_with_the_way_to_go(client: OpenAI, gateway: Running) -> None:
    with pytest.raises(openai.NotFoundError, match="/v1/chat/completions") as refused:
        client.completions.create(model="holdfast", prompt="Once upon")
    assert refused.value.code == "unsupported_endpoint"
    with gateway.client() as nobody:
        assert nobody.post("/v1/completions", json={}).status_code == 401


def test_texts_are_embedded_by_the_homes_own_embedder(client: OpenAI, gateway: Running) -> None:
    texts = ["a grey heron", "a heron, grey", "the tax return"]
    floats = client.embeddings.create(model="holdfast-embedding", input=texts, encoding_format="float")
    packed = client.embeddings.create(model="holdfast-embedding", input=texts)
    assert [row.index for row in floats.data] == [0, 1, 2]
    near, far = (dot(floats.data[0].embedding, floats.data[n].embedding) for n in (1, 2))
    assert near > 0.9 > far
    for one, other in zip(floats.data, packed.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-6)
    chain = gateway.hold.memory.chain
    dims = [*chain.preferred, chain.base][0].id.dims
    assert {len(row.embedding) for row in floats.data} == {dims}
    assert (
        client.embeddings.create(model=floats.model, input="one", dimensions=dims).data[0].object
        == "embedding"
    )


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def test_what_cannot_be_embedded_is_refused_plainly(client: OpenAI, gateway: Running) -> None:
    for bad in (
        {"input": [[1, 2, 3]]},
        {"input": [1, 2]},
        {"input": []},
        {"input": ""},
        {"input": "x", "dimensions": 7},
    ):
        with pytest.raises(openai.BadRequestError):
            client.embeddings.create(**{"model": "holdfast-embedding", **bad})  # type: ignore[arg-type]
    with pytest.raises(openai.NotFoundError, match="holdfast-embedding"):
        client.embeddings.create(model="text-embedding-ada-002", input="x")
    with pytest.raises(openai.BadRequestError, match="/v1/embeddings"):
        client.responses.create(model="holdfast-embedding", input="x")
    spaced = make_token(gateway.hold.store, "embed-spaced", spaces=["space-1"])
    with (
        OpenAI(base_url=f"{gateway.url}/v1", api_key=spaced, max_retries=0) as limited,
        pytest.raises(openai.PermissionDeniedError),
    ):
        limited.embeddings.create(model="holdfast-embedding", input="x")


@given(
    texts=st.lists(st.text(min_size=1, max_size=12).map(lambda text: f"x{text}"), min_size=1, max_size=3),
    cut=st.integers(0, 12),
    lost=st.booleans(),
    calls=st.integers(0, 2),
)
def test_whatever_is_lost_the_events_add_up_to_what_the_last_one_has(
    texts: list[str], cut: int, lost: bool, calls: int
) -> None:
    """Every message comes whole and once, every item is begun before it ends, and nothing comes after."""
    events = ResponseEvents(ResponseHead("turn-1", 0, {"model": "m"}))
    frames = list(events.begin())
    for number, text in enumerate(texts):
        frames += events.of(run_event(number, "assistant", kind="text", delta=text[:cut]))
        if lost:
            frames += events.of(run_event(number, "lifecycle", phase="lagged", lost=1))
        frames += events.of(run_event(number, "assistant", kind="message", text=text))
    handed = [{"id": f"c{n}", "name": "look", "arguments": {"n": n}} for n in range(calls)]
    frames += events.end({"status": "committed", "text": texts[-1], "handed": handed})
    told = [json.loads(frame.partition("data: ")[2]) for frame in frames]
    items: dict[int, str] = {}
    for one in told:
        if one["type"] == "response.output_text.delta":
            items[one["output_index"]] = items.get(one["output_index"], "") + one["delta"]
    output = told[-1]["response"]["output"]
    assert [item["content"][0]["text"] for item in output if item["type"] == "message"] == texts
    assert list(items.values()) == texts
    begun = [one["item"]["id"] for one in told if one["type"] == "response.output_item.added"]
    ended = [one["item"]["id"] for one in told if one["type"] == "response.output_item.done"]
    assert begun == ended == [item["id"] for item in output]
    assert len(set(begun)) == len(texts) + calls
    assert told[-1]["type"] == "response.completed"
