"""The real clients against scripted servers: every way an answer can come, and every way it can fail."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from model_stage import READ, asked, client, heard, reply

from holdfast.agents.models import (
    INVALID_ARGUMENTS,
    CallDelta,
    Credential,
    ModelFailure,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from holdfast.context import AssistantMessage, Image, SystemMessage, ToolCall, ToolResult, UserMessage
from holdfast.testing import (
    Call,
    Calls,
    Fail,
    Malformed,
    Say,
    ScriptedAnthropic,
    ScriptedGoogle,
    ScriptedOpenAI,
    ScriptedResponses,
    ScriptedServer,
    Stall,
    Turn,
    Used,
    broken,
    cut_off,
    no_credit,
    overloaded,
    rate_limited,
    too_long,
    unauthorised,
)

Server = Callable[..., ScriptedServer]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(params=[ScriptedOpenAI, ScriptedAnthropic], ids=["openai", "anthropic"])
def server(request: pytest.FixtureRequest) -> Server:
    """Both protocols."""
    kind: Server = request.param
    return kind


def test_an_answer_comes_in_deltas_and_then_whole_with_its_usage_and_cost(server: Server) -> None:
    used = Used(input=1000, output=100, cache_read=400)
    with server([Say("Hello there.", thinking="A greeting.", used=used)]) as served:
        cost = {"input": 10, "output": 20, "cacheRead": 1}
        *deltas, whole = heard(served, asked(), cost=cost)[0]
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == "Hello there."
    assert "".join(d.text for d in deltas if isinstance(d, ThinkingDelta)) == "A greeting."
    assert sum(isinstance(d, TextDelta) for d in deltas) == 3
    assert (whole.text, whole.thinking, whole.finish, str(whole.model)) == (
        "Hello there.",
        "A greeting.",
        "stop",
        "a/m",
    )
    expected = (600 * 10 + 400 * 1 + 100 * 20) / 1e6
    assert whole.usage == Usage(1000, 100, 400, 0, pytest.approx(expected))


def test_parallel_calls_come_with_their_arguments_and_a_broken_one_is_handed_on(server: Server) -> None:
    calls = Calls(
        Call("file_read", {"path": "a"}, id="one"),
        Call("no_such_tool", {}, id="two"),
        Call("file_read", '{"path": ', id="three"),
        Call("file_read", "[1]", id="four"),
        text="Reading.",
    )
    with server([calls]) as served:
        *deltas, whole = heard(served, asked(tools=[READ]))[0]
    assert [d for d in deltas if isinstance(d, CallDelta)] == [
        CallDelta("one", "file_read"),
        CallDelta("two", "no_such_tool"),
        CallDelta("three", "file_read"),
        CallDelta("four", "file_read"),
    ]
    assert whole.finish == "tool_calls"
    assert [(c.id, c.arguments) for c in whole.calls] == [
        ("one", {"path": "a"}),
        ("two", {}),
        ("three", {INVALID_ARGUMENTS: '{"path": '}),
        ("four", {INVALID_ARGUMENTS: "[1]"}),
    ]


FAULTS: tuple[tuple[Turn, tuple[str, int | None, str]], ...] = (
    (rate_limited(retry_after=2), ("rate_limit", 2000, "")),
    (rate_limited(), ("rate_limit", None, "")),
    (overloaded(), ("overloaded", None, "")),
    (broken(), ("overloaded", None, "")),
    (Fail(502, body="<html>bad gateway</html>"), ("overloaded", None, "")),
    (unauthorised(), ("auth", None, "")),
    (Fail(403, "not for you"), ("auth", None, "")),
    (no_credit(), ("billing", None, "")),
    (Fail(400, "Your credit balance is too low to access the API."), ("billing", None, "")),
    (Fail(404, "no such model"), ("not_found", None, "")),
    (Fail(400, "temperature must be at most 2"), ("bad_request", None, "")),
    (too_long(), ("context_overflow", None, "")),
    (Fail(400, "the request exceeds the available context size"), ("context_overflow", None, "")),
    (Fail(400, "The input token count (9) exceeds the maximum (8)."), ("context_overflow", None, "")),
    (Fail(400, "input length and `max_tokens` exceed context limit"), ("context_overflow", None, "")),
    (Fail(413, "request_too_large"), ("context_overflow", None, "")),
    (Malformed(), ("bad_response", None, "")),
    (Malformed("so far so"), ("bad_response", None, "so far so")),
    (cut_off("half an ans"), ("cut_off", None, "half an ans")),
    (cut_off("half an ans", clean=True), ("cut_off", None, "half an ans")),
    (cut_off(), ("network", None, "")),
    (Say("", finish="content_filter"), ("refused", None, "")),
)


def test_a_failure_is_told_by_its_reason_and_the_client_itself_never_tries_again(server: Server) -> None:
    with server([turn for turn, _ in FAULTS]) as served:

        async def go() -> None:
            model, pool = client(served)
            for number, (turn, expected) in enumerate(FAULTS, 1):
                with pytest.raises(ModelFailure) as failed:
                    [event async for event in model.stream(asked())]
                error = failed.value
                assert (error.reason, error.retry_after_ms, error.partial) == expected, turn
                assert (str(error.ref), error.code) == ("a/m", f"model_{error.reason}")
                assert len(served.requests) == number
            await pool.aclose()

        asyncio.run(go())


@pytest.mark.parametrize("kind", [ScriptedGoogle, ScriptedResponses])
def test_the_other_protocols_answer_and_fail_in_the_same_words(kind: Server) -> None:
    calls = Calls(Call("file_read", {"path": "a"}, id="c1"), text="Reading.")
    faults: dict[str, list[Turn]] = {
        "rate_limit": [rate_limited(2)],
        "overloaded": [overloaded(), broken()],
        "auth": [unauthorised()],
        "billing": [no_credit()],
        "context_overflow": [too_long()],
        "not_found": [Fail(404, trouble="not_found")],
        "bad_response": [Malformed("x")],
        "cut_off": [cut_off("half"), cut_off("half", clean=True)],
        "network": [cut_off()],
        "timeout": [Stall("half")],
    }
    said = Say("Hello.", used=Used(input=100, output=9, cache_read=40))
    with kind([said, calls, *(turn for turns in faults.values() for turn in turns)]) as served:

        async def go() -> list[str]:
            model, pool = client(served, silence=0.4)
            first, second = [[e async for e in model.stream(asked(tools=[READ]))][-1] for _ in range(2)]
            assert (first.text, first.finish, first.usage) == ("Hello.", "stop", Usage(100, 9, 40))
            assert second.calls == (ToolCall("c1", "file_read", {"path": "a"}),)
            reasons = []
            while served.left:
                with pytest.raises(ModelFailure) as failed:
                    [event async for event in model.stream(asked())]
                reasons.append(failed.value.reason)
            await pool.aclose()
            return reasons

        assert asyncio.run(go()) == [reason for reason, turns in faults.items() for _ in turns]


def test_without_googles_client_the_failure_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.genai", None)
    with ScriptedGoogle([]) as served, pytest.raises(ModelFailure) as failed:
        reply(served)
    assert failed.value.reason == "not_configured"
    assert "holdfast[google]" in failed.value.hint


def test_silence_is_a_timeout_but_a_slow_drip_is_not(server: Server) -> None:
    slow = Say("one letter at a time", chunks=10, pause=0.06)
    with server([slow, Stall("and then")]) as served:
        assert reply(served, silence=0.4).text == "one letter at a time"
        with pytest.raises(ModelFailure) as failed:
            reply(served, silence=0.4)
    assert (failed.value.reason, failed.value.partial) == ("timeout", "and then")


@pytest.mark.parametrize("said", ["", "and then"])
def test_signs_of_life_are_no_answer_and_a_timeout_all_the_same(server: Server, said: str) -> None:
    with server([Stall(said, ping=0.05)]) as served, pytest.raises(ModelFailure) as failed:
        reply(served, silence=0.4)
    assert (failed.value.reason, failed.value.partial) == ("timeout", said)


def test_an_address_where_nobody_listens_is_a_network_failure(server: Server) -> None:
    served = server([])
    served.start()
    served.close()
    with pytest.raises(ModelFailure) as failed:
        reply(served)
    assert failed.value.reason == "network"


def test_a_conversation_reaches_the_server_in_its_own_form(server: Server) -> None:
    messages = (
        SystemMessage(text="Be brief."),
        UserMessage(text="What is in the file?"),
        AssistantMessage(text="I look.", calls=(ToolCall("c1", "file_read", {"path": "a"}),)),
        ToolResult(text="no such file", call_id="c1", name="file_read", is_error=True),
        AssistantMessage(text=""),
        UserMessage(text="And this?", images=(Image("image/png", PIXEL),)),
    )
    with server([Say("A dot.")]) as served:
        reply(served, asked(*messages, tools=[READ], max_tokens=77), input=["text", "image"])
    sent = served.requests[0]
    assert sent.tools == ["file_read"]
    assert sent.key == "sk-test-1234567890"
    text = str(sent.body)
    for word in ("Be brief.", "What is in the file?", "I look.", "no such file", "And this?", PIXEL, "c1"):
        assert word in text
    assert sent.body["max_tokens"] == 77
    if served.api == "anthropic-messages":
        result = next(b for m in sent.messages for b in m["content"] if b["type"] == "tool_result")
        assert result["is_error"] is True
    else:
        assert "no such file" in [m.get("content") for m in sent.messages]


@pytest.mark.parametrize("kind", [ScriptedOpenAI, ScriptedResponses, ScriptedAnthropic, ScriptedGoogle])
@pytest.mark.parametrize("text", ["no such file", '{"status": "rejected", "cap": "chain"}'])
def test_what_went_wrong_reaches_every_provider_as_plain_text_once(kind: Server, text: str) -> None:
    """With the protocol's own mark of an error, where it has one."""
    messages = (
        UserMessage(text="Go on."),
        AssistantMessage(calls=(ToolCall("c1", "file_read", {"path": "a"}),)),
        ToolResult(text=text, call_id="c1", name="file_read", is_error=True),
    )
    with kind([Say("I see.")]) as served:
        reply(served, asked(*messages, tools=[READ]))
    assert _result_of(served.api, served.requests[0].body) == text


def _result_of(api: str, body: Any) -> Any:
    """The one result in a request, from where its protocol has it."""
    if api == "openai-completions":
        return body["messages"][-1]["content"]
    if api == "openai-responses":
        return body["input"][-1]["output"]
    if api == "google-generative-ai":
        (only,) = body["contents"][-1]["parts"]
        assert only["functionResponse"]["response"].keys() == {"error"}
        return only["functionResponse"]["response"]["error"]
    (result,) = [block for block in body["messages"][-1]["content"] if block["type"] == "tool_result"]
    assert result["is_error"] is True
    content = result["content"]
    return content if isinstance(content, str) else content[0]["text"]


def test_pictures_are_named_but_not_sent_to_a_model_that_cannot_see(server: Server) -> None:
    with server([Say("I cannot see.")]) as served:
        reply(served, asked(UserMessage(text="Look", images=(Image("image/png", PIXEL),))))
    text = str(served.requests[0].body)
    assert PIXEL not in text
    assert "image/png" in text


def test_caches_end_at_the_system_prompt_the_stable_boundary_and_the_running_tool_loop() -> None:
    messages = (
        SystemMessage(text="system words"),
        UserMessage(text="old question"),
        AssistantMessage(text="old answer"),
        UserMessage(text="new question"),
        AssistantMessage(calls=(ToolCall("c1", "file_read", {}),)),
        ToolResult(text="a result", call_id="c1", name="file_read"),
    )
    with ScriptedAnthropic([Say("ok"), Say("ok")]) as served:
        heard(served, asked(*messages, stable=3, tools=[READ]), asked(*messages[:4], stable=3))
    loop, fresh = served.requests
    assert _marked(loop.body) == ["system words", "old answer", "a result"]
    assert _marked(fresh.body) == ["system words", "old answer"]


def test_the_next_request_repeats_the_last_one_byte_by_byte(server: Server) -> None:
    first = (SystemMessage(text="system words"), UserMessage(text="a"))
    said = AssistantMessage(calls=(ToolCall("c1", "file_read", {"b": 1, "a": [2]}),))
    result = ToolResult(text="r", call_id="c1", name="file_read")
    with server([Say("ok"), Say("ok"), Say("ok")]) as served:
        heard(
            served,
            asked(*first, tools=[READ]),
            asked(*first, said, result, tools=[READ]),
            asked(*first, said, result, AssistantMessage(text="so"), UserMessage(text="b"), tools=[READ]),
        )
    bodies = [_without_markers(request.body) for request in served.requests]
    for before, after in pairwise(bodies):
        count = len(before["messages"])
        assert json.dumps(after["messages"][:count]) == json.dumps(before["messages"])
        assert json.dumps([after.get("system"), after["tools"]]) == json.dumps(
            [before.get("system"), before["tools"]]
        )


def test_thoughts_go_back_to_the_model_while_its_tools_run() -> None:
    calls = Call("file_read", {"path": "a"}, id="c1", thinking="I need the file.")
    with ScriptedAnthropic([calls, Say("done")]) as served:
        first = asked(UserMessage(text="Read it"), tools=[READ], thinking="low")

        async def go() -> None:
            model, pool = client(served, reasoning=True)
            whole = [event async for event in model.stream(first)][-1]
            said = AssistantMessage(text=whole.text, calls=whole.calls)
            result = ToolResult(text="hello", call_id="c1", name="file_read")
            again = asked(*first.messages, said, result, tools=[READ], thinking="low")
            assert [event async for event in model.stream(again)][-1].text == "done"
            await pool.aclose()

        asyncio.run(go())
    blocks = served.requests[1].messages[1]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "tool_use"]
    assert blocks[0]["signature"] == "scripted"
    assert served.requests[0].body["thinking"]["type"] in ("enabled", "adaptive")


def test_a_schema_is_enforced_by_the_server_where_it_can_be() -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    with ScriptedOpenAI([Say('{"ok": true}')]) as served:
        assert reply(served, asked(output_schema=schema)).text == '{"ok": true}'
    wanted = served.requests[0].body["response_format"]
    assert wanted["type"] == "json_schema"
    assert wanted["json_schema"]["schema"]["properties"] == {"ok": {"type": "boolean"}}


def test_a_token_from_a_login_is_sent_as_a_bearer_and_told_of() -> None:
    token = Credential("a:login", "a", "tok-1234567890", "oauth")
    with ScriptedAnthropic([Say("ok")]) as served:
        reply(served, credential=token)
    headers = served.requests[0].headers
    assert headers["authorization"] == "Bearer tok-1234567890"
    assert "x-api-key" not in headers
    assert "oauth" in headers["anthropic-beta"]


def test_connections_are_kept_between_calls(server: Server) -> None:
    with server([Say("one"), Say("two"), Say("three")]) as served:
        heard(served, asked(), asked(), asked())
        assert served.connections == 1


def test_a_proxy_in_the_environment_is_not_used_for_loopback(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with server([Say("direct")]) as served:
        assert reply(served).text == "direct"


def test_a_provider_is_asked_no_more_than_it_allows_at_once() -> None:
    with ScriptedOpenAI(lambda _: Say("done", chunks=4, pause=0.005)) as served:

        async def go() -> None:
            model, pool = client(served, at_once=2)

            async def one() -> str:
                return [event async for event in model.stream(asked())][-1].text

            assert set(await asyncio.gather(*(one() for _ in range(8)))) == {"done"}
            assert served.connections <= 2
            await pool.aclose()

        asyncio.run(go())


def _without_markers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_markers(one) for name, one in value.items() if name != "cache_control"}
    return [_without_markers(one) for one in value] if isinstance(value, list) else value


def _marked(body: object) -> list[str]:
    """The texts of the blocks that end a cache, in the order of the prompt."""
    assert isinstance(body, dict)
    blocks = [*body.get("system", ()), *(b for m in body["messages"] for b in m["content"])]
    found = []
    for block in blocks:
        if "cache_control" in block:
            content = block.get("text") or block.get("content")
            found.append(content if isinstance(content, str) else content[0]["text"])
    return found
