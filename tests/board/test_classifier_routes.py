"""`/api/classifier` over HTTP."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from builders import PATIENCE
from holdfast.board import ingest, topics
from holdfast.clock import ManualClock
from holdfast.gateway import tokens
from holdfast.gateway.app import create_app
from holdfast.gateway.routes import classifier
from holdfast.gateway.tokens import Scope
from holdfast.log import OWNER, EntryDraft, agenda, entries, sqlite_url
from holdfast.runtime import Holdfast, open_home

KEY = "agent:main:main"


@pytest.fixture
def hold(tmp_path: Path, sqlite_template: Path, clock: ManualClock) -> Iterator[Holdfast]:
    home = tmp_path / "home"
    home.mkdir()
    with open_home(home, store_url=sqlite_url(shutil.copy(sqlite_template, home)), clock=clock) as opened:
        yield opened


@pytest.fixture
def api(hold: Holdfast) -> Iterator[TestClient]:
    app = create_app(hold)
    if not any(getattr(route, "path", "") == "/api/classifier/pending" for route in app.routes):
        app.include_router(classifier.router)
    with TestClient(app, headers={"Authorization": f"Bearer {hold.home.admin_token()}"}) as client:
        yield client


def log(hold: Holdfast, text: str) -> str:
    with hold.store.write(OWNER) as tx:
        draft = EntryDraft(content=text, role="user", session_key=KEY)
        return entries.append(tx, ingest.prepare(tx, draft)).entry.id


def test_what_waits_is_listed(hold: Holdfast, api: TestClient) -> None:
    waits, beat = log(hold, "mend the fence"), log(hold, "HEARTBEAT_OK")
    found = api.get("/api/classifier/pending").json()
    assert [entry["id"] for entry in found] == [waits]
    why = api.get(f"/api/classifier/decisions/{beat}").json()
    assert (why["method"], why["reasons"]["code"]) == ("rule", "filtered_control_plane")
    assert api.get("/api/classifier/decisions/nothing").status_code == 404


def test_a_session_is_told_what_it_is_about(hold: Holdfast, api: TestClient) -> None:
    with hold.store.write(OWNER) as tx:
        fence = topics.upsert(tx, "Fence").topic.id
    body = {"sessionKey": KEY, "topicId": fence, "anchor": "the post"}
    assert api.post("/api/classifier/session-routing", json=body).status_code == 200
    found = api.get("/api/classifier/session-routing", params={"sessionKey": KEY}).json()
    assert [(one["topicId"], one["topicName"], one["anchor"]) for one in found["items"]] == [
        (fence, "Fence", "the post")
    ]
    assert api.post("/api/classifier/session-routing", json=body | {"topicId": "gone"}).status_code == 404
    with hold.store.write(OWNER) as tx:
        _, limited = tokens.add(tx, "limited", scope=Scope.READ, agents=["other"])
    asked = api.get(
        "/api/classifier/session-routing",
        params={"sessionKey": KEY},
        headers={"Authorization": f"Bearer {limited}"},
    )
    assert asked.json()["items"] == [], "neither the session nor the topic is its agent's"


def test_a_replay_needs_an_entry_and_counts(hold: Holdfast, api: TestClient) -> None:
    waits = log(hold, "mend the fence")
    assert api.post("/api/classifier/replay", json={"anchorLogId": waits}).json() == {"ok": True, "count": 0}
    assert api.post("/api/classifier/replay", json={"anchorLogId": "gone"}).status_code == 404


def test_what_was_logged_while_sorting_was_off_is_sorted_once_it_is_on(
    hold: Holdfast, api: TestClient, clock: ManualClock
) -> None:
    api.patch("/api/config", json={"board": {"classifier": {"enabled": False}}})
    sent = {"content": "The oak fence post is rotten", "agentId": "user", "source": {"sessionKey": KEY}}
    made = api.post("/api/log", json=sent).json()
    with hold.store.read(OWNER) as tx:
        assert agenda.listing(tx, kinds=["board.classify"]) == []
    api.patch("/api/config", json={"board": {"classifier": {"enabled": True}}})

    end = time.monotonic() + PATIENCE
    while api.get(f"/api/log/{made['id']}").json()["classificationStatus"] != "classified":
        assert time.monotonic() < end, "it is never sorted"
        clock.advance(seconds=1)
