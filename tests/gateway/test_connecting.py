"""Keys, logins and channels added over HTTP: tried, kept as the command line keeps them, never shown."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from serving import Running, assert_problem, make_token, running

from holdfast.gateway.tokens import Scope
from holdfast.runtime import Holdfast
from oauth_server import OAuthServer

KEY = "sk-test-0123456789"


@pytest.fixture
def server() -> Iterator[OAuthServer]:
    with OAuthServer() as found:
        yield found


@pytest.fixture
def stage(hold_with: Callable[..., Holdfast], server: OAuthServer) -> Iterator[tuple[Running, httpx.Client]]:
    by_page = {"baseUrl": "http://127.0.0.1:9/v1", "models": [{"id": "m"}], "oauth": server.config}
    device = {**server.config, "deviceUrl": f"{server.url}/device"}
    hold = hold_with(models={"providers": {"web": by_page, "box": {**by_page, "oauth": device}}})
    with running(hold) as gateway, gateway.client(gateway.admin) as api:
        yield gateway, api


def provider(api: httpx.Client, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in api.get("/api/providers").json() if one["name"] == name)
    return found


def acts(api: httpx.Client) -> list[tuple[str, str]]:
    return [(one["act"], one["target"]) for one in api.get("/api/audit/trail").json()]


def test_a_key_is_kept_for_its_owner_alone_and_shown_to_nobody(stage: tuple[Running, httpx.Client]) -> None:
    gateway, api = stage
    assert provider(api, "anthropic")["configured"] is False
    assert api.put("/api/providers/anthropic/key", json={"key": KEY}).json() == {"ok": True}
    assert provider(api, "anthropic")["keys"] == ["anthropic:page"]
    assert ("provider.key", "anthropic:page") in acts(api)
    (path,) = gateway.hold.home.path.rglob("auth-profiles.json")
    assert path.stat().st_mode & 0o077 == 0
    assert json.loads(path.read_text())["profiles"]["anthropic:page"]["key"] == KEY
    for answer in (api.get("/api/providers"), api.get("/api/audit/trail"), api.get("/api/models")):
        assert KEY not in answer.text
    assert api.delete("/api/providers/anthropic/keys/page").status_code == 200
    assert_problem(api.delete("/api/providers/anthropic/keys/page"), 404, "unknown_key")
    assert KEY not in path.read_text()
    assert_problem(api.put("/api/providers/nobody/key", json={"key": KEY}), 404, "unknown_provider")
    with gateway.client(make_token(gateway.hold.store, "writer", Scope.WRITE)) as lesser:
        assert_problem(lesser.put("/api/providers/anthropic/key", json={"key": KEY}), 403, "forbidden")


def test_one_logs_in_by_the_address_that_the_page_ended_at_and_once(
    stage: tuple[Running, httpx.Client], server: OAuthServer
) -> None:
    _, api = stage
    begun = api.post("/api/providers/web/login", json={}).json()
    assert begun["kind"] == "page"
    there = {"loginId": begun["loginId"], "answer": server.agree(begun["url"])}
    assert_problem(api.post("/api/providers/box/login/end", json=there), 404, "login_over")
    done = api.post("/api/providers/web/login/end", json=there)
    assert done.json()["state"] == "done"
    assert not any(token in done.text for token in server.granted)
    assert [one["id"] for one in provider(api, "web")["logins"]] == ["web:login"]
    assert ("provider.login", "web:login") in acts(api)
    assert_problem(api.post("/api/providers/web/login/end", json=there), 404, "login_over")
    assert_problem(api.post("/api/providers/anthropic/login", json={}), 422, "no_login")


def test_one_logs_in_by_a_code_that_is_typed_elsewhere(
    stage: tuple[Running, httpx.Client], server: OAuthServer
) -> None:
    _, api = stage
    server.pending = 3
    begun = api.post("/api/providers/box/login", json={"profile": "work"}).json()
    assert (begun["kind"], begun["userCode"]) == ("device", "WDJB-MJHT")
    done = api.post("/api/providers/box/login/end", json={"loginId": begun["loginId"]}).json()
    assert done["state"] == "done"
    assert done["login"]["id"] == "box:work"


def test_a_channel_is_kept_once_and_only_with_what_it_needs(stage: tuple[Running, httpx.Client]) -> None:
    gateway, api = stage
    email = next(one for one in api.get("/api/channels/services").json() if one["id"] == "email")
    assert [one["name"] for one in email["options"] if one["secret"]] == ["password"]
    wanted = {"service": "email", "name": "post", "owners": ["me@example.org"], "check": False}
    assert_problem(api.post("/api/channels", json=wanted), 422, "option_missing")
    options = {"address": "a@example.org", "imapHost": "127.0.0.1", "smtpHost": "127.0.0.1", "password": KEY}
    made = api.post("/api/channels", json={**wanted, "options": options})
    assert made.status_code == 201
    assert made.json() == {"name": "post", "service": "email", "connectedAs": None}
    kept = json.loads((gateway.hold.home.path / "holdfast.json").read_text())["channels"]["post"]
    assert kept == {"adapter": "email", "options": options, "owners": ["me@example.org"]}
    assert KEY not in api.get("/api/config/text").text
    assert ("channel.added", "post") in acts(api)
    assert_problem(api.post("/api/channels", json={**wanted, "options": options}), 409, "channel_exists")
    assert_problem(api.post("/api/channels", json={"service": "pigeon"}), 404, "unknown_service")
    refused = {**wanted, "name": "other", "options": {**options, "imapPort": "9"}, "check": True}
    assert_problem(api.post("/api/channels", json=refused), 503, "channel_refused")
    assert "other" not in gateway.hold.settings.channels


def test_one_channel_is_tried_at_a_time_so_that_silent_services_hold_no_threads(
    stage: tuple[Running, httpx.Client],
) -> None:
    _, api = stage
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as beside:
        host, port = silent.getsockname()
        options = {"address": "a@example.org", "imapHost": host, "imapPort": str(port), "smtpHost": host}
        wanted = {"service": "email", "name": "post", "owners": ["me@example.org"], "check": True}
        wanted["options"] = {**options, "password": KEY}
        first = beside.submit(api.post, "/api/channels", json=wanted)
        tried, _ = silent.accept()
        assert_problem(api.post("/api/channels", json=wanted), 429, "busy")
        tried.close()
        assert_problem(first.result(), 503, "channel_refused")
