"""What the approvals and tool pages read: modes, allowlist, audit trail, tool calls and kept outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from agent_stage import agents_serving
from serving import Running, assert_problem, make_token, streaming

from holdfast.agents.approvals import ApprovalRequest, requests
from holdfast.gateway.tokens import Scope
from holdfast.log import OWNER
from holdfast.runtime import Holdfast
from holdfast.testing import Call, Say

AGENTS = {"list": [{"id": "main", "default": True}, {"id": "other", "tools": {"exec": {"security": "full"}}}]}


def ask(hold: Holdfast, command: str, agent: str = "main") -> str:
    request = ApprovalRequest(
        agent_id=agent, tool="exec", command=command, arguments={"command": command}, reason="why"
    )
    with hold.store.write(OWNER) as tx:
        return requests.request(tx, request, lasts_ms=60_000).id


def test_modes_are_told_agent_by_agent_and_only_of_those_that_are_seen(
    gateway: Running, api: httpx.Client
) -> None:
    api.patch("/api/config", json={"agents": AGENTS, "tools": {"exec": {"ask": "always"}}})
    told = api.get("/api/approvals/modes").json()
    assert [(m["agentId"], m["security"], m["ask"]) for m in told] == [
        ("main", "allowlist", "always"),
        ("other", "full", "always"),
    ]
    with gateway.client(make_token(gateway.hold.store, "o", Scope.READ, agents=["other"])) as other:
        assert [m["agentId"] for m in other.get("/api/approvals/modes").json()] == ["other"]
    with gateway.client(make_token(gateway.hold.store, "s", Scope.READ, spaces=["a"])) as placed:
        assert placed.get("/api/approvals/modes").json() == []


def test_a_pattern_is_added_used_told_of_and_taken_back(gateway: Running, api: httpx.Client) -> None:
    api.patch("/api/config", json={"tools": {"exec": {"allowlist": ["make *"]}}})
    with streaming(api) as told:
        made = api.post("/api/allowlist", json={"agentId": "main", "pattern": "git  diff *"})
        assert made.status_code == 201
        assert (made.json()["pattern"], made.json()["createdBy"]) == ("git diff *", "token:home")
        rows = api.get("/api/allowlist").json()
        assert [(r["pattern"], r["source"], r["lastUsedAt"]) for r in rows] == [
            ("make *", "config", None),
            ("git diff *", "person", None),
        ]
        taken = api.delete("/api/allowlist", params={"agentId": "main", "pattern": "git diff *"})
        assert taken.json() == {"ok": True}
        heard = [next(told), next(told)]
        assert [event["type"] for event in heard] == ["approval.allowed", "approval.disallowed"]
        assert heard[1]["data"] == {"agentId": "main", "pattern": "git diff *"}
    assert [r["pattern"] for r in api.get("/api/allowlist").json()] == ["make *"]
    for pattern in ("make *", "git diff *"):
        gone = api.delete("/api/allowlist", params={"agentId": "main", "pattern": pattern})
        assert_problem(gone, 404, "not_found")
    bad = api.post("/api/allowlist", json={"agentId": "main", "pattern": "* --force"})
    assert_problem(bad, 422, "invalid_input")
    assert [r["event"] for r in api.get("/api/audit").json()] == ["unpattern", "pattern"]


def test_only_an_administrator_of_everything_changes_an_allowlist(gateway: Running) -> None:
    body = {"agentId": "main", "pattern": "git diff *"}
    store = gateway.hold.store
    with gateway.client(make_token(store, "w", Scope.WRITE)) as writer:
        assert writer.post("/api/allowlist", json=body).status_code == 403
        assert writer.delete("/api/allowlist", params=body).status_code == 403
        assert writer.get("/api/allowlist").status_code == 200
    for agent in ("elsewhere", "main"):
        with gateway.client(make_token(store, agent, Scope.ADMIN, agents=[agent])) as limited:
            assert_problem(limited.post("/api/allowlist", json=body), 403, "forbidden")
            assert_problem(limited.delete("/api/allowlist", params=body), 403, "forbidden")
            assert limited.get("/api/allowlist").json() == []


def test_the_audit_trail_comes_in_pages_and_only_of_agents_that_are_seen(
    gateway: Running, api: httpx.Client
) -> None:
    for n in range(3):
        ask(gateway.hold, f"make {n}")
    other = ask(gateway.hold, "make other", "other")
    api.post(f"/api/approvals/{other}", json={"decision": "deny"})
    pages: list[list[dict[str, Any]]] = []
    cursor: str | None = ""
    while cursor is not None:
        answer = api.get("/api/audit", params={"limit": 2} | ({"cursor": cursor} if cursor else {}))
        pages.append(answer.json())
        cursor = answer.headers.get("X-Next-Cursor")
    assert [len(rows) for rows in pages] == [2, 2, 1]
    assert [(r["event"], r["command"]) for rows in pages for r in rows] == [
        ("denied", "make other"),
        ("requested", "make other"),
        *[("requested", f"make {n}") for n in (2, 1, 0)],
    ]
    assert pages[0][0]["actor"] == "token:home"
    with gateway.client(make_token(gateway.hold.store, "o", Scope.READ, agents=["other"])) as limited:
        assert {r["agentId"] for r in limited.get("/api/audit").json()} == {"other"}
        assert limited.get("/api/audit", params={"agentId": "main"}).json() == []
    assert_problem(api.get("/api/audit", params={"cursor": "x"}), 422, "bad_cursor")


def test_a_sessions_calls_are_listed_and_a_long_output_is_read_page_by_page(
    tmp_path: Path, sqlite_template: Path
) -> None:
    script = [
        Call("exec", {"command": "seq 1 4000"}, id="long"),
        Call("file_read", {"path": "nowhere.txt"}, id="lost"),
        Say("Done."),
    ]
    tools = {"resultMaxChars": 1000, "exec": {"security": "full"}}
    with (
        agents_serving(tmp_path / "home", sqlite_template, script, tools=tools) as (gateway, _),
        gateway.client(gateway.admin) as api,
    ):
        accepted = api.post("/api/agent", json={"message": "count"}).json()
        api.get(f"/api/agent/{accepted['runId']}/wait")
        session = accepted["sessionId"]
        lost, long = api.get(f"/api/sessions/{session}/tools").json()
        assert (lost["name"], lost["result"]["isError"], lost["result"]["outputs"]) == ("file_read", True, [])
        assert (long["callId"], long["arguments"]) == ("long", {"command": "seq 1 4000"})
        assert long["turnId"] == accepted["runId"]
        (name,) = long["result"]["outputs"]

        def read(**query: Any) -> dict[str, Any]:
            answer = api.get(f"/api/sessions/{session}/outputs/{name}", params={"chars": 5000} | query)
            assert answer.status_code == 200, answer.text
            found: dict[str, Any] = answer.json()
            return found

        page, text = read(), ""
        while True:
            text += page["text"]
            if page["nextFrom"] is None:
                break
            page = read(**{"from": page["nextFrom"], "offset": page["nextOffset"]})
        assert text.split() == [str(n) for n in range(1, 4001)]
        assert page["lines"] == 4000

        beyond = api.get(f"/api/sessions/{session}/outputs/{name}", params={"from": 9000})
        assert_problem(beyond, 422, "past_the_end")
        for bad in ("output:none", "..%5c..%5ctoken", name[:-1] + "z"):
            assert_problem(api.get(f"/api/sessions/{session}/outputs/{bad}"), 404, "unknown_output")
        elsewhere = api.post("/api/agent", json={"message": "x", "sessionKey": "agent:main:web:dm:b"}).json()
        assert_problem(
            api.get(f"/api/sessions/{elsewhere['sessionId']}/outputs/{name}"), 404, "unknown_output"
        )
        cut = api.get(f"/api/sessions/{session}/tools", params={"limit": 3})
        assert [c["callId"] for c in cut.json()] == ["lost"]
        rest = api.get(
            f"/api/sessions/{session}/tools", params={"limit": 9, "cursor": cut.headers["X-Next-Cursor"]}
        )
        assert [c["callId"] for c in rest.json()] == ["long"]
        with gateway.client(make_token(gateway.hold.store, "o", agents=["other"])) as other:
            assert_problem(other.get(f"/api/sessions/{session}/tools"), 404, "unknown_session")
            assert_problem(other.get(f"/api/sessions/{session}/outputs/{name}"), 404, "unknown_session")
