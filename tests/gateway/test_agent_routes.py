"""`/api/agent`: runs over HTTP, with a scripted model behind."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from agent_stage import agents_serving
from serving import Running, assert_problem, events, make_token, streaming

from builders import session
from holdfast.gateway.tokens import Scope
from holdfast.testing import Asked, Call, Say, ScriptedOpenAI, Stall, Turn

PNG = "iVBORw0KGgo="


def answer(asked: Asked) -> Turn:
    said = str(asked.messages[-1]["content"])
    if "wait for ever" in said:
        return Stall("so far")
    if "look it up" in said:
        return Call("sessions_list", {}, text="Looking.")
    if asked.messages[-1]["role"] == "tool":
        return Say("Found it.")
    return Say("Hello from the model.")


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path
) -> Iterator[tuple[Running, ScriptedOpenAI]]:
    with agents_serving(tmp_path_factory.mktemp("agents") / "home", sqlite_template, answer) as found:
        yield found


@pytest.fixture
def gateway(stage: tuple[Running, ScriptedOpenAI]) -> Running:
    return stage[0]


@pytest.fixture
def api(gateway: Running) -> Iterator[httpx.Client]:
    with gateway.client(gateway.admin) as client:
        yield client


def ask(api: httpx.Client, message: str, **fields: Any) -> dict[str, Any]:
    response = api.post("/api/agent", json={"message": message, **fields})
    assert response.status_code == 202, response.text
    found: dict[str, Any] = response.json()
    return found


def ended(api: httpx.Client, run_id: str) -> dict[str, Any]:
    response = api.get(f"/api/agent/{run_id}/wait", params={"timeoutMs": 20_000})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    assert found["ended"]
    return found


def told(api: httpx.Client, run_id: str, **headers: str) -> list[dict[str, Any]]:
    with api.stream("GET", f"/api/agent/{run_id}/events", headers=headers) as response:
        assert response.status_code == 200, response.read()
        return list(events(response))


def test_a_message_is_accepted_at_once_and_answered(api: httpx.Client) -> None:
    run = ask(api, "hello", sessionKey="agent:main:web:dm:ann")
    assert run["runId"]
    assert run["acceptedAt"].endswith("Z")
    assert run["sessionKey"] == "agent:main:web:dm:ann"
    done = ended(api, run["runId"])
    assert (done["status"], done["reply"], done["model"]) == (
        "committed",
        "Hello from the model.",
        "scripted/scripted",
    )
    assert done["usage"]["inputTokens"] == 10
    assert api.get(f"/api/agent/{run['runId']}").json() == done
    said = api.get("/api/log", params={"sessionKey": run["sessionKey"]}).json()
    assert {entry["source"]["sessionKey"] for entry in said} == {run["sessionKey"]}


def test_a_repeat_gets_the_same_run_and_another_key_another(api: httpx.Client) -> None:
    first = ask(api, "once", idempotencyKey="k-1", sessionKey="agent:main:web:dm:key")
    again = api.post("/api/agent", json={"text": "once"}, headers={"X-Idempotency-Key": "k-1"}).json()
    assert again["runId"] == first["runId"]
    assert ask(api, "once", idempotencyKey="k-2")["runId"] != first["runId"]


def test_a_run_tells_of_itself_from_its_beginning_or_from_where_one_broke_off(api: httpx.Client) -> None:
    run = ask(api, "please look it up", sessionKey="agent:main:web:dm:bob")["runId"]
    seen = told(api, run)
    kinds = [(e["stream"], e["data"].get("phase") or e["data"].get("kind")) for e in seen]
    assert kinds[0] == ("lifecycle", "start")
    assert ("tool", "start") in kinds
    assert kinds[-1] == ("lifecycle", "end")
    assert seen[-1]["data"]["text"] == "Found it."
    assert [int(e["id"]) for e in seen] == [e["seq"] for e in seen]
    middle = seen[len(seen) // 2]
    rest = told(api, run, **{"Last-Event-ID": middle["id"]})
    assert all(e["seq"] > middle["seq"] for e in rest)
    assert rest[-1]["data"] == seen[-1]["data"]
    texts = [e["data"]["delta"] for e in told(api, run) if e["data"].get("kind") == "text"]
    assert texts == ["Looking.", "Found it."]


def test_joined_text_is_marked_for_one_who_had_a_part_of_it(api: httpx.Client) -> None:
    run = ask(api, "hello", sessionKey="agent:main:web:dm:joined")["runId"]
    ended(api, run)
    whole = next(e for e in told(api, run) if e["data"].get("kind") == "text")
    assert "joined" not in whole
    again = told(api, run, **{"Last-Event-ID": str(whole["seq"] - 1)})
    assert (again[0]["joined"], again[0]["data"]["delta"]) == (True, "Hello from the model.")


def test_a_run_that_takes_long_is_answered_as_it_stands_and_can_be_stopped(api: httpx.Client) -> None:
    run = ask(api, "wait for ever", sessionKey="agent:main:web:dm:slow")["runId"]
    with api.stream("GET", f"/api/agent/{run}/events") as response:
        live = events(response)
        assert any(e["data"].get("delta") for e in live)
        now = api.get(f"/api/agent/{run}/wait", params={"timeoutMs": 0}).json()
        assert (now["status"], now["ended"]) == ("running", False)
        api.post(f"/api/agent/{run}/cancel")
        assert list(live)[-1]["data"]["status"] == "cancelled"
    assert ended(api, run)["status"] == "cancelled"
    assert_problem(api.post(f"/api/agent/{run}/resume"), 409, "turn_not_resumable")


def test_a_command_is_answered_in_the_answer(api: httpx.Client) -> None:
    run = ask(api, "/whoami", sessionKey="agent:main:web:dm:cmd")
    assert "token:home, owner" in run["reply"]
    assert ended(api, run["runId"])["reply"] == run["reply"]


def test_a_picture_reaches_the_model(stage: tuple[Running, ScriptedOpenAI], api: httpx.Client) -> None:
    run = ask(api, "what is this?", agentId="other", images=[{"mimeType": "image/png", "data": PNG}])
    assert ended(api, run["runId"])["status"] == "committed"
    sent = [str(r.messages[-1]) for r in stage[1].requests if "what is this?" in str(r.messages[-1])]
    assert f"data:image/png;base64,{PNG}" in sent[0]


def test_the_turn_is_told_on_the_live_stream_to_those_who_may_see_it(
    gateway: Running, api: httpx.Client
) -> None:
    other = make_token(gateway.hold.store, "stream-other", Scope.READ, agents=["other"])
    with gateway.client(other) as limited, streaming(limited) as theirs, streaming(api) as ours:
        run = ask(api, "hello", sessionKey="agent:main:web:dm:live")["runId"]
        seen = []
        for event in ours:
            if event["type"].startswith("turn.") and event["entityId"] == run:
                seen.append((event["type"], event["data"]["status"]))
                assert event["data"]["agentId"] == "main"
                assert event["data"]["sessionKey"] == "agent:main:web:dm:live"
            if ("turn.committed", "committed") in seen:
                break
        assert "turn.accepted" in [kind for kind, _ in seen]
        mine = ask(api, "hello", agentId="other")["runId"]
        turn = next(e for e in theirs if e["type"].startswith("turn."))
        assert turn["entityId"] == mine


def test_a_token_limited_to_agents_runs_and_sees_only_those(gateway: Running, api: httpx.Client) -> None:
    theirs = ask(api, "hello", sessionKey="agent:main:web:dm:theirs", idempotencyKey="theirs")["runId"]
    session(gateway.hold.store, "plain-conversation", agent_id="main")
    token = make_token(gateway.hold.store, "only-other", agents=["other"])
    with gateway.client(token) as limited:
        mine = ask(limited, "hello", agentId="other")
        assert mine["sessionKey"] == "agent:other:main"
        assert ended(limited, mine["runId"])["status"] == "committed"
        for body in ({"message": "x"}, {"message": "x", "agentId": "main"}):
            assert_problem(limited.post("/api/agent", json=body), 403, "agent_forbidden")
        for key in ("agent:main:main", "agent:main:none", "plain-conversation", "clawboard:topic:t1"):
            for body in (
                {"message": "x", "sessionKey": key, "agentId": "other"},
                {"text": "x", "sessionKey": key},
            ):
                assert_problem(limited.post("/api/agent", json=body), 403, "session_forbidden")
        delivered = {"message": "x", "agentId": "other", "deliver": {"kind": "mail", "target": "a@b.c"}}
        assert_problem(limited.post("/api/agent", json=delivered), 403, "forbidden")
        repeat = {"message": "x", "agentId": "other", "idempotencyKey": "theirs"}
        assert_problem(limited.post("/api/agent", json=repeat), 409, "key_in_use")
        for path in ("", "/wait", "/events"):
            assert_problem(limited.get(f"/api/agent/{theirs}{path}"), 404, "unknown_run")
        for path in ("/cancel", "/resume"):
            assert_problem(limited.post(f"/api/agent/{theirs}{path}"), 404, "unknown_run")


def test_neither_a_reader_nor_one_limited_to_spaces_starts_a_run(gateway: Running) -> None:
    reader = make_token(gateway.hold.store, "a-reader", Scope.READ)
    with gateway.client(reader) as api:
        assert_problem(api.post("/api/agent", json={"message": "x"}), 403, "forbidden")
    spaced = make_token(gateway.hold.store, "spaced", spaces=["space-1"])
    with gateway.client(spaced) as api:
        assert_problem(api.post("/api/agent", json={"message": "x"}), 403, "space_forbidden")


def test_a_token_that_is_not_the_homes_own_is_not_the_owner(gateway: Running) -> None:
    writer = make_token(gateway.hold.store, "writer")
    with gateway.client(writer) as api:
        assert ", owner" not in ask(api, "/whoami", sessionKey="agent:main:web:dm:w")["reply"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, "invalid_input"),
        ({"message": "  "}, 422, "invalid_input"),
        ({"message": "x", "sessionKey": "agent:main"}, 422, "invalid_input"),
        ({"message": "x", "sessionKey": "agent:main:main", "agentId": "other"}, 422, "invalid_input"),
        ({"message": "x", "agentId": "nobody"}, 404, "not_found"),
        ({"message": "x", "model": "no-slash"}, 422, "invalid_input"),
        ({"message": "x", "mode": "sometimes"}, 422, "invalid_input"),
        ({"message": "x", "images": [{"mimeType": "image/png", "data": "abcde"}]}, 422, "invalid_input"),
        ({"message": "x", "images": [{"mimeType": "text/html", "data": PNG}]}, 422, "invalid_input"),
        ({"message": "x", "timeoutSeconds": 0}, 422, "invalid_input"),
    ],
)
def test_what_cannot_be_used_is_a_problem(
    api: httpx.Client, body: dict[str, Any], status: int, code: str
) -> None:
    assert_problem(api.post("/api/agent", json=body), status, code)


def test_files_go_along_with_a_message_once_each_with_a_copy_of_its_own_and_under_safe_names(
    gateway: Running, api: httpx.Client
) -> None:
    key = "agent:main:web:dm:enclosed"
    inbox = gateway.hold.home.path / "workspace/inbox"

    def send(idempotency: str, name: str, data: bytes) -> None:
        file = {"name": name, "data": base64.b64encode(data).decode()}
        body = {"message": "see this", "sessionKey": key, "files": [file]}
        sent = api.post("/api/agent", json=body, headers={"X-Idempotency-Key": idempotency})
        assert sent.status_code == 202, sent.text
        ended(api, sent.json()["runId"])

    send("monday-0000000000000000000000001", "plan.pdf", b"%PDF-1.7 of Monday")
    send("tuesday-0000000000000000000000001", "plan.pdf", b"%PDF-1.7 of Tuesday")
    send("tuesday-0000000000000000000000001", "plan.pdf", b"%PDF-1.7 of Tuesday")
    send("wednesday", "../../\u202enalp\n.pdf", b"\0")
    copies = {path.read_bytes(): path.name for path in inbox.iterdir()}
    assert set(copies) == {b"%PDF-1.7 of Monday", b"%PDF-1.7 of Tuesday", b"\0"}
    assert copies[b"\0"].isprintable()
    said = api.get("/api/conversation", params={"sessionKey": key}).json()["entries"]
    assert [len(one["files"]) for one in said if one["role"] == "user"] == [1, 1, 1]


def test_a_problem_says_what_is_wrong_in_plain_words(api: httpx.Client) -> None:
    def told(**body: Any) -> str:
        return str(api.post("/api/agent", json=body).json()["detail"])

    assert told() == "body: there is nothing to say: send `message`, a picture or a file"
    assert told(message="x", sessionKey="k" * 513) == "body.sessionKey: has more than 512 characters"
    assert told(message="x", sessionKey="") == "body.sessionKey: has fewer than 1 characters"


def test_unknown_runs_and_bad_places_are_problems(api: httpx.Client) -> None:
    assert_problem(api.get("/api/agent/nothing"), 404, "unknown_run")
    run = ask(api, "hello")["runId"]
    assert_problem(api.get(f"/api/agent/{run}/wait?timeoutMs=300001"), 422, "invalid_input")
    assert_problem(api.get(f"/api/agent/{run}/events", headers={"Last-Event-ID": "x"}), 422, "bad_event_id")


def test_who_waits_is_answered_when_the_gateway_stops(tmp_path: Path, sqlite_template: Path) -> None:
    with (
        agents_serving(tmp_path / "home", sqlite_template, [Stall("so far")]) as (gateway, _),
        gateway.client(gateway.admin) as api,
        gateway.client(gateway.admin) as second,
    ):
        run = ask(api, "hello")["runId"]
        answers: list[dict[str, Any]] = []
        waiter = threading.Thread(
            target=lambda: answers.append(api.get(f"/api/agent/{run}/wait?timeoutMs=300000").json())
        )
        with second.stream("GET", f"/api/agent/{run}/events") as response:
            live = events(response)
            assert any(e["data"].get("delta") for e in live)
            waiter.start()
            gateway.on_loop(gateway.services.begin_stop)
            assert list(live)[-1]["type"] == "stream.shutdown"
            waiter.join()
        assert (answers[0]["status"], answers[0]["ended"]) == ("running", False)
