"""The short way to a route leads where the long way does."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRouter, iter_route_contexts
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.responses import PlainTextResponse
from starlette.routing import Match
from starlette.testclient import TestClient

from holdfast.clock import ManualClock
from holdfast.gateway import routing
from holdfast.gateway.app import create_app
from holdfast.log import sqlite_url
from holdfast.runtime import open_home

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
ENDINGS = ("", "/", "\n", "/wait", "//", "x")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[FastAPI]:
    home = tmp_path_factory.mktemp("routed")
    url = sqlite_url(shutil.copy(sqlite_template, home))
    with open_home(home, store_url=url, clock=ManualClock()) as hold:
        yield create_app(hold)


def test_every_route_and_method_is_found_as_before(app: FastAPI) -> None:
    switch = routing.Switchboard(app.router)
    paths = [context.path for context in iter_route_contexts(app.routes) if context.path]
    assert len(paths) > 50
    for path in paths:
        for ending in ENDINGS:
            for method in METHODS:
                _same(app, switch, _scope(re.sub(r"\{[^}]*\}", "one", path) + ending, method))
        _same(app, switch, {**_scope(path, "GET"), "type": "websocket"})
    assert len(switch.router_for(_scope("/api/agent", "POST")).routes) < 10 < len(app.routes)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_path_leads_where_it_did(app: FastAPI, data: st.DataObject) -> None:
    words = sorted({word for c in iter_route_contexts(app.routes) for word in (c.path or "").split("/")})
    segment = st.sampled_from(words) | st.text(alphabet="a{}%/\n .é", max_size=4)
    path = "/" + "/".join(data.draw(st.lists(segment, max_size=5)))
    _same(app, routing.Switchboard(app.router), _scope(path, data.draw(st.sampled_from(METHODS))))


def test_a_route_that_is_added_later_is_found_and_refusals_stay_as_they_are() -> None:
    app = FastAPI(redirect_slashes=False)
    routing.install(app)
    part = APIRouter()
    part.get("/api/one")(lambda: PlainTextResponse("one"))
    app.include_router(part)
    with TestClient(app) as client:
        assert client.get("/api/one").text == "one"
        refused = client.post("/api/one")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET")
        assert client.get("/api/two").status_code == 404
        app.get("/{anything}/two")(lambda anything: PlainTextResponse(anything))
        assert client.get("/api/two").text == "api"
        assert client.get("/api/one/").status_code == 404


def _same(app: FastAPI, switch: routing.Switchboard, scope: dict[str, Any]) -> None:
    narrow = switch.router_for(dict(scope))
    assert _chosen(narrow, scope) == _chosen(app.router, scope), scope["path"]


def _chosen(router: APIRouter, scope: dict[str, Any]) -> tuple[object, object, object]:
    """As the router itself chooses: the first that matches, else the first that would by another method."""
    partial: tuple[object, object, object] | None = None
    for route in router.routes:
        match, found = route.matches(dict(scope))
        told = (match, found.get("endpoint"), found.get("path_params"))
        if match is Match.FULL:
            return told
        if match is Match.PARTIAL and partial is None:
            partial = told
    return partial or (Match.NONE, None, None)


def _scope(path: str, method: str) -> dict[str, Any]:
    return {"type": "http", "path": path, "method": method, "headers": [], "root_path": ""}
