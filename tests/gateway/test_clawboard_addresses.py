"""What Clawboard's own clients call, by the names that they know."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from agent_stage import agents_serving
from serving import Running, assert_problem, make_token

from holdfast.testing import Say


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("clawboard") / "home"
    with agents_serving(home, sqlite_template, lambda asked: Say("The pond is fine.")) as (found, _):
        yield found


@pytest.fixture(scope="module")
def api(gateway: Running) -> Iterator[httpx.Client]:
    with gateway.client(gateway.admin) as client:
        yield client


def test_a_topic_is_made_once_however_often_it_is_ensured(api: httpx.Client) -> None:
    first = api.post("/api/topics/ensure", json={"name": "Pond"})
    again = api.post("/api/topics/ensure", json={"name": "Pond"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]


def test_what_was_said_under_each_topic_and_task_is_counted_as_far_as_one_may_read(
    gateway: Running, api: httpx.Client
) -> None:
    topic = api.post("/api/topics", json={"name": "Counted"}).json()["id"]
    task = api.post("/api/tasks", json={"title": "Count", "topicId": topic}).json()["id"]
    for number in range(3):
        where = {"topicId": topic, **({"taskId": task} if number else {})}
        api.post("/api/log", json={"content": f"word {number}", "agentId": "user", **where})
    api.post("/api/log", json={"content": "done", "type": "action", "topicId": topic})
    counts = api.get("/api/log/chat-counts").json()
    assert counts["topicChatCounts"][topic] == 3
    assert counts["taskChatCounts"][task] == 2
    limited = make_token(gateway.hold.store, "shed", spaces=["space-shed"])
    with gateway.client(limited) as client:
        assert client.get("/api/log/chat-counts").json() == {"topicChatCounts": {}, "taskChatCounts": {}}


def test_the_map_and_the_index_answer_by_their_other_names(api: httpx.Client) -> None:
    api.post("/api/log", json={"content": "Ann met Bert at the Lighthouse", "agentId": "user"})
    mine, theirs = (api.get(path).json() for path in ("/api/graph", "/api/clawgraph"))
    assert mine["nodes"] == theirs["nodes"]
    assert api.post("/api/reindex", json={"kind": "topic", "id": "x", "text": "y"}).json() == {"ok": True}
    found = api.get("/api/search", params={"q": "Lighthouse"}).json()
    assert found["logs"]


def test_a_chat_is_asked_and_stopped_from_the_board(api: httpx.Client) -> None:
    body = {"sessionKey": "agent:main:main", "message": "How is the pond?", "requestId": "occhat-1"}
    asked = api.post("/api/openclaw/chat", json=body)
    assert asked.status_code == 202
    run = asked.json()["requestId"]
    assert api.post("/api/openclaw/chat", json=body).json()["requestId"] == run
    ended = api.get(f"/api/agent/{run}/wait", params={"timeoutMs": 30_000}).json()
    assert ended["reply"] == "The pond is fine."
    stopped = api.request("DELETE", "/api/openclaw/chat", json={"sessionKey": "agent:main:main"})
    assert stopped.json() == {"aborted": False, "runId": None}
    unknown = api.request("DELETE", "/api/openclaw/chat", json={"sessionKey": "agent:main:none"})
    assert_problem(unknown, 404, "unknown_session")
