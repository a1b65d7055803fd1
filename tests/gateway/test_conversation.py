"""What the pages ask for: a conversation with its steps, chats, turns, agents, models, commands, usage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from agent_stage import agents_serving
from serving import Running, assert_problem, make_token

from holdfast.gateway.tokens import Scope
from holdfast.testing import Call, Fail, Say, Used

KEY = "agent:main:web:dm:steps"


def script(asked: Any) -> Any:
    last = asked.messages[-1]
    if last["role"] == "tool":
        return Say("There is one file.", thinking="One.", used=Used(input=700, output=9, cache_read=500))
    if "FAIL" in str(last["content"]):
        return Fail(400, "the model refused")
    if "files" in str(last["content"]):
        return Call(
            "exec", {"command": "ls"}, text="I look.", thinking="Which?", used=Used(input=600, output=8)
        )
    return Say("Hello.")


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Any
) -> Iterator[tuple[Running, httpx.Client]]:
    home = tmp_path_factory.mktemp("conversation") / "home"
    tools = {"exec": {"security": "full"}}
    with (
        agents_serving(home, sqlite_template, script, tools=tools) as (gateway, _),
        gateway.client(gateway.admin) as api,
    ):
        for key, text in ((KEY, "Which files are there?"), (KEY, "FAIL"), ("agent:other:main", "Hello")):
            run = api.post("/api/agent", json={"message": text, "sessionKey": key}).json()
            api.get(f"/api/agent/{run['runId']}/wait")
        yield gateway, api


def test_a_conversation_has_thoughts_calls_results_and_how_its_turns_ended(
    stage: tuple[Running, httpx.Client],
) -> None:
    _, api = stage
    found = api.get("/api/conversation", params={"sessionKey": KEY}).json()
    said = [entry for entry in reversed(found["entries"]) if entry["role"] is not None]
    asked, called, result, answer = said[:4]
    assert (asked["role"], asked["content"]) == ("user", "Which files are there?")
    assert (called["thinking"], called["content"], called["model"]) == (
        "Which?",
        "I look.",
        "scripted/scripted",
    )
    (call,) = called["calls"]
    assert (call["name"], call["arguments"]) == ("exec", {"command": "ls"})
    assert (result["result"]["callId"], result["result"]["isError"]) == (call["callId"], False)
    assert (answer["content"], answer["thinking"]) == ("There is one file.", "One.")
    assert (answer["usage"]["input"], answer["usage"]["cacheRead"]) == (700, 500)
    second, first = found["turns"]
    assert (first["status"], first["turnId"]) == ("committed", asked["turnId"])
    assert second["status"] == "failed"
    assert "the model refused" in second["error"]
    assert found["next"] is None


def test_a_conversation_comes_in_pages_until_a_time_and_by_its_words(
    stage: tuple[Running, httpx.Client],
) -> None:
    _, api = stage
    whole = api.get("/api/conversation", params={"sessionKey": KEY}).json()["entries"]
    read: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        query = {"sessionKey": KEY, "limit": "2"} | ({"cursor": cursor} if cursor else {})
        page = api.get("/api/conversation", params=query).json()
        read += [entry["id"] for entry in page["entries"]]
        cursor = page["next"]
    assert read == [entry["id"] for entry in whole]
    found = api.get("/api/conversation", params={"sessionKey": KEY, "q": "ONE FILE"}).json()["entries"]
    assert [entry["content"] for entry in found] == ["There is one file."]
    before = {"sessionKey": KEY, "before": "2001-01-01T00:00:00Z"}
    assert api.get("/api/conversation", params=before).json()["entries"] == []
    for bad in ({}, {"sessionKey": KEY, "topicId": "topic-1"}):
        assert_problem(api.get("/api/conversation", params=bad), 422, "invalid_input")
    empty = api.get("/api/conversation", params={"sessionKey": "agent:main:web:dm:nobody"}).json()
    assert empty == {"entries": [], "turns": [], "next": None}


def test_chats_have_a_title_and_last_words_and_turns_are_found_by_how_they_stand(
    stage: tuple[Running, httpx.Client],
) -> None:
    _, api = stage
    chats = {chat["sessionKey"]: chat for chat in api.get("/api/chats").json()}
    assert (chats[KEY]["title"], chats[KEY]["running"]) == ("Which files are there?", False)
    assert chats["agent:other:main"]["preview"] == "Hello."
    assert [chat["agentId"] for chat in api.get("/api/chats", params={"agentId": "other"}).json()] == [
        "other"
    ]
    (failed,) = api.get("/api/turns", params={"status": "failed"}).json()
    assert (failed["sessionKey"], failed["number"]) == (KEY, 2)
    assert len(api.get("/api/turns").json()) == 3


def test_a_trace_has_model_and_tool_calls_in_their_order_with_what_each_used(
    stage: tuple[Running, httpx.Client],
) -> None:
    _, api = stage
    trace = api.get(f"/api/sessions/{KEY}/turns/1/trace").json()
    assert [(span["kind"], span["name"]) for span in trace["spans"]] == [
        ("model", "scripted/scripted"),
        ("tool", "exec"),
        ("model", "scripted/scripted"),
    ]
    first, tool, second = trace["spans"]
    assert (first["inputTokens"], second["inputTokens"], second["cacheReadTokens"]) == (600, 700, 500)
    assert (first["call"], second["call"], tool["failed"]) == (0, 1, False)
    failed = api.get(f"/api/sessions/{KEY}/turns/2/trace").json()
    assert [span["failed"] for span in failed["spans"]] == [True]


def test_agents_models_commands_and_usage_are_told_to_those_who_may_know(
    stage: tuple[Running, httpx.Client],
) -> None:
    gateway, api = stage
    main, other = api.get("/api/agents").json()
    assert (main["id"], main["default"], main["models"]) == ("main", True, ["scripted/scripted"])
    models = api.get("/api/models").json()
    assert (models["default"], models["connected"]) == ("scripted/scripted", True)
    assert "scripted/scripted" in [model["id"] for model in models["models"]]
    commands = {command["name"]: command for command in api.get("/api/commands").json()}
    assert commands["model"]["ownerOnly"]
    rows = api.get("/api/usage").json()["rows"]
    by_agent = {row["agentId"]: row for row in rows}
    assert by_agent["main"]["inputTokens"] >= 1300
    assert by_agent["main"]["cacheReadTokens"] >= 500
    assert sum(row["failed"] for row in rows) <= 1
    with gateway.client(make_token(gateway.hold.store, "o", Scope.READ, agents=["other"])) as limited:
        assert [agent["id"] for agent in limited.get("/api/agents").json()] == [other["id"]]
        assert [chat["agentId"] for chat in limited.get("/api/chats").json()] == ["other"]
        assert {turn["agentId"] for turn in limited.get("/api/turns").json()} == {"other"}
        assert limited.get("/api/conversation", params={"sessionKey": KEY}).json()["entries"] == []
        for path in ("/api/models", "/api/usage", f"/api/sessions/{KEY}/turns/1/trace"):
            assert_problem(limited.get(path), 403, "forbidden")
        assert "model" not in [command["name"] for command in limited.get("/api/commands").json()]


def test_an_agent_goes_by_the_name_of_its_identity_file_among_the_owners_own(
    stage: tuple[Running, httpx.Client],
) -> None:
    gateway, api = stage
    (gateway.hold.context.workspace("main").path / "IDENTITY.md").write_text(
        "---\nname: Marlin\nemoji: 🐟\n---\n", encoding="utf-8"
    )
    main = api.get("/api/agents").json()[0]
    assert (main["name"], main["emoji"]) == ("Marlin", "🐟")
    with gateway.client(make_token(gateway.hold.store, "m", Scope.READ, agents=["main"])) as limited:
        (seen,) = limited.get("/api/agents").json()
        assert (seen["name"], seen["emoji"]) == ("main", None)
