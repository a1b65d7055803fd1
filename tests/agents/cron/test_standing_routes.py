"""Heartbeats, standing tasks and webhooks over HTTP and from the command line."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

sys.path.append(str(Path(__file__).parents[2] / "gateway"))

from serving import assert_problem, make_token

from holdfast.agents.cron import sign
from holdfast.cli.root import cli
from holdfast.clock import ManualClock
from holdfast.gateway.app import create_app
from holdfast.log import sqlite_url
from holdfast.runtime import Holdfast, open_home

SECRET = "a long shared secret"
CONFIG: dict[str, Any] = {
    "agents": {
        "list": [{"id": "main", "default": True}, {"id": "other"}],
        "defaults": {"userTimezone": "UTC"},
    },
    "gateway": {"shutdownGraceSeconds": 1},
    "hooks": {"enabled": True, "webhooks": {"ci": {"secret": SECRET}}},
}


@pytest.fixture
def hold(tmp_path: Path, sqlite_template: Path) -> Iterator[Holdfast]:
    home = tmp_path / "home"
    home.mkdir()
    (home / "holdfast.json").write_text(json.dumps(CONFIG))
    url = sqlite_url(shutil.copy(sqlite_template, home))
    with open_home(home, store_url=url, clock=ManualClock()) as opened:
        yield opened


@pytest.fixture
def client(hold: Holdfast) -> Iterator[TestClient]:
    app = create_app(hold)
    with TestClient(app) as found:
        yield found


def bearer(hold: Holdfast, token: str | None = None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token or hold.home.admin_token()}"}


def test_only_a_signature_that_holds_opens_a_webhook(client: TestClient, hold: Holdfast) -> None:
    body = b'{"build": "broken"}'
    good = {"X-Holdfast-Signature": sign(SECRET.encode(), body), "Content-Type": "application/json"}
    plain = {"Content-Type": "application/json"}
    url = "/api/hooks/ci"
    assert_problem(client.post(url, content=body, headers=plain), 401, "no_token")
    refused = [
        client.post(url, content=body + b" ", headers=good),
        client.post(url, content=body, headers=plain | {"X-Hub-Signature-256": "sha256=00"}),
        client.post(url, content=body, headers=plain | bearer(hold)),
        client.post("/api/hooks/unknown", content=body, headers=good),
    ]
    for answer in refused:
        assert_problem(answer, 401, "bad_signature")
    made, again = (client.post(url, content=body, headers=good) for _ in range(2))
    assert (made.status_code, again.status_code) == (202, 200)
    assert made.json() == {"ok": True, "runId": again.json()["runId"], "duplicate": False}
    run = client.get(f"/api/agent/{made.json()['runId']}", headers=bearer(hold)).json()
    assert run["sessionKey"] == "agent:main:hook:ci"


def test_webhooks_answer_at_their_path_and_ask_for_their_token(client: TestClient, hold: Holdfast) -> None:
    body = b'{"build": "fixed"}'
    signed = {"X-Holdfast-Signature": sign(SECRET.encode(), body), "Content-Type": "application/json"}
    assert client.post("/hooks/ci", content=body, headers=signed).status_code == 202
    hold.config.patch({"hooks": {"path": "/in/coming", "token": "shared"}})
    assert_problem(client.post("/hooks/ci", content=body, headers=signed), 401, "no_token")
    for place in ("/in/coming/ci", "/api/hooks/ci"):
        assert_problem(client.post(place, content=body, headers=signed), 401, "bad_signature")
        with_wrong = signed | {"Authorization": "Bearer other"}
        assert_problem(client.post(place, content=body, headers=with_wrong), 401, "bad_signature")
        assert client.post(
            place, content=body, headers=signed | {"Authorization": "Bearer shared"}
        ).is_success
    unsigned = {"Content-Type": "application/json", "Authorization": "Bearer shared"}
    assert client.post("/in/coming/ci", content=body, headers=unsigned).status_code == 401


def test_a_signature_header_opens_nothing_else(client: TestClient) -> None:
    forged = {"X-Holdfast-Signature": "sha256=00", "Content-Type": "application/json"}
    for method, path in (("GET", "/api/hooks/ci"), ("POST", "/api/hooks/ci/x"), ("POST", "/api/hooks/")):
        assert_problem(client.request(method, path, headers=forged, content=b"{}"), 401, "no_token")
    assert_problem(client.post("/api/agent", headers=forged, content=b"{}"), 401, "no_token")


def test_standing_tasks_are_made_changed_and_ended_over_http(client: TestClient, hold: Holdfast) -> None:
    head = bearer(hold)
    made = client.post("/api/cron", json={"prompt": "Look.", "cron": "0 9 * * 1-5"}, headers=head)
    assert made.status_code == 201
    task = made.json()
    assert task["schedule"] == {"kind": "cron", "expr": "0 9 * * 1-5", "tz": "UTC"}
    assert task["nextDue"] == "2026-01-01T09:00:00.000Z"
    assert client.get("/api/cron", headers=head).json() == [task]
    url = f"/api/cron/{task['id']}"
    moved = client.patch(url, json={"tz": "Asia/Tokyo"}, headers=head).json()
    assert (moved["schedule"]["expr"], moved["nextDue"]) == ("0 9 * * 1-5", "2026-01-02T00:00:00.000Z")
    changed = client.patch(url, json={"every": "2h", "revision": moved["revision"]}, headers=head).json()
    assert (changed["schedule"]["every"], changed["nextDue"]) == ("2h", "2026-01-01T02:00:00.000Z")
    stale = client.patch(url, json={"name": "x", "revision": task["revision"]}, headers=head)
    assert_problem(stale, 409, "stale_task")
    assert_problem(client.post("/api/cron", json={"prompt": "x"}, headers=head), 422, "bad_schedule")
    other = bearer(hold, make_token(hold.store, "other", agents=["other"]))
    assert client.get("/api/cron", headers=other).json() == []
    assert_problem(client.get(url, headers=other), 404, "unknown_task")
    for agent in ("main", "other"):
        new = {"prompt": "x", "every": "1h", "agentId": agent}
        assert_problem(client.post("/api/cron", json=new, headers=other), 403, "forbidden")
    for method, path in (("DELETE", url), ("PATCH", url), ("POST", f"{url}/run")):
        refused = client.request(method, path, json={"prompt": "x"}, headers=other)
        assert_problem(refused, 403, "forbidden")
    assert client.post(f"{url}/run", headers=head).status_code == 202
    assert client.delete(url, headers=head).json() == {"ok": True, "deleted": True, "id": task["id"]}
    assert_problem(client.get(url, headers=head), 404, "unknown_task")


def test_heartbeats_are_seen_and_asked_for_over_http(client: TestClient, hold: Holdfast) -> None:
    found = client.get("/api/heartbeat", headers=bearer(hold)).json()
    assert [(told["agentId"], told["every"], told["enabled"]) for told in found] == [
        *(("main", "30m", True), ("other", "30m", True)),
    ]
    asked = client.post("/api/heartbeat/main/now", headers=bearer(hold))
    assert (asked.status_code, asked.json()["agentId"]) == (202, "main")
    assert client.post("/api/heartbeat/nobody/now", headers=bearer(hold)).status_code == 404
    other = bearer(hold, make_token(hold.store, "other", agents=["other"]))
    assert [told["agentId"] for told in client.get("/api/heartbeat", headers=other).json()] == ["other"]
    for agent in ("main", "other"):
        assert_problem(client.post(f"/api/heartbeat/{agent}/now", headers=other), 403, "forbidden")


def test_the_command_line_does_the_same(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "holdfast.json").write_text(json.dumps(CONFIG))

    def run(*words: str) -> Any:
        done = CliRunner().invoke(cli, [*words, "--home", str(home), "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.output)

    made = run("cron", "add", "Look.", "--every", "2h", "--agent", "other")
    assert [task["id"] for task in run("cron", "list")] == [made["id"]]
    assert run("cron", "run", made["id"])["id"] == made["id"]
    assert run("cron", "remove", made["id"])["deleted"]
    assert run("heartbeat", "now", "--agent", "other")["agentId"] == "other"
    assert [told["agentId"] for told in run("heartbeat", "status")] == ["main", "other"]
    plain = CliRunner().invoke(cli, ["heartbeat", "status", "--home", str(home)])
    assert "tokens today" in plain.output
