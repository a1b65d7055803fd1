"""A call that waits for a person is told as data, over SSE and over `/ws`, so that a surface can ask them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agent_stage import agents_serving
from serving import events
from websockets.sync.client import connect

from builders import PATIENCE
from holdfast.testing import Call, Say


def test_a_waiting_call_is_told_with_its_id_tool_command_and_expiry_and_decided_by_what_was_told(
    tmp_path: Path, sqlite_template: Path
) -> None:
    script = [Call("exec", {"command": "touch made"}, id="c1"), Say("Made.")] * 2
    with (
        agents_serving(tmp_path / "home", sqlite_template, script) as (gateway, _),
        gateway.client(gateway.admin) as api,
    ):
        run = api.post("/api/agent", json={"message": "make it"}).json()["runId"]
        told: list[dict[str, Any]] = []
        with api.stream("GET", f"/api/agent/{run}/events") as response:
            for event in events(response):
                if "approval" in event["data"]:
                    told.append(event["data"])
                    if event["data"]["approval"]["status"] == "pending":
                        _approve(api, event["data"]["approval"])
                last = event["data"]
        assert last["text"] == "Made."
        first, second = (data["approval"] for data in told)
        assert (first["tool"], first["command"], first["status"]) == ("exec", "touch made", "pending")
        assert (second["id"], second["status"]) == (first["id"], "approved")
        assert told[0]["callId"] == "c1"
        assert told[0]["text"].startswith(f"waiting for approval {first['id']}")
        listed = api.get("/api/approvals?status=all").json()
        assert listed[0]["expiresAt"] == second["expiresAt"]

        address = gateway.url.replace("http", "ws", 1) + "/ws"
        headers = {"Authorization": f"Bearer {gateway.admin}"}
        with connect(address, additional_headers=headers, proxy=None) as ws:
            ask = {"message": "again", "sessionKey": "agent:main:web:dm:ws"}
            ws.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "agent", "params": ask}))
            while True:
                data = json.loads(ws.recv(PATIENCE)).get("params", {}).get("data", {})
                if data.get("approval", {}).get("status") == "pending":
                    assert data["approval"]["command"] == "touch made"
                    _approve(api, data["approval"])
                if data.get("phase") == "end" and "callId" not in data:
                    break
        assert data["text"] == "Made."


def _approve(api: Any, approval: dict[str, Any]) -> None:
    response = api.post(f"/api/approvals/{approval['id']}", json={"decision": "approve"})
    assert response.status_code == 200, response.text
