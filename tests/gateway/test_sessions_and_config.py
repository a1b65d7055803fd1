"""Sessions, turns, agenda and config over HTTP."""

from __future__ import annotations

import json

import httpx
from serving import Running, assert_problem, streaming, wait_for

from builders import accept, enqueue, session
from holdfast.clock import ManualClock
from holdfast.config import parse_config
from holdfast.log import SYSTEM, agenda


def test_sessions_are_listed_in_pages_newest_first(
    gateway: Running, api: httpx.Client, clock: ManualClock
) -> None:
    keys = [f"agent:a{n}:main" for n in range(5)]
    for key in keys:
        clock.advance(seconds=1)
        session(gateway.hold.store, key)
    first = api.get("/api/sessions", params={"limit": 3})
    rest = api.get("/api/sessions", params={"limit": 3, "cursor": first.headers["X-Next-Cursor"]})
    assert [s["sessionKey"] for s in first.json() + rest.json()] == keys[::-1]
    assert "X-Next-Cursor" not in rest.headers
    assert "X-Next-Cursor" not in api.get("/api/sessions", params={"limit": 5}).headers
    found = api.get(f"/api/sessions/{keys[0]}").json()
    assert found == api.get(f"/api/sessions/{found['sessionId']}").json()
    assert (found["agentId"], found["status"]) == ("a0", "active")


def test_turns_and_transcript_are_read_in_pages(gateway: Running, api: httpx.Client) -> None:
    for n in range(4):
        accept(gateway.hold.store, f"message {n}", key=f"k{n}")
    path = "/api/sessions/agent:main:main"
    turns = api.get(f"{path}/turns", params={"limit": 3})
    more = api.get(f"{path}/turns", params={"cursor": turns.headers["X-Next-Cursor"]})
    assert [t["number"] for t in turns.json() + more.json()] == [4, 3, 2, 1]
    lines = api.get(f"{path}/transcript", params={"limit": 3})
    last = api.get(f"{path}/transcript", params={"limit": 3, "cursor": lines.headers["X-Next-Cursor"]})
    assert [e["content"] for e in lines.json() + last.json()] == [f"message {n}" for n in range(4)]
    assert {e["role"] for e in lines.json()} == {"user"}
    assert "X-Next-Cursor" not in last.headers


def test_a_reset_leaves_a_successor_and_an_archive_none(gateway: Running, api: httpx.Client) -> None:
    first = session(gateway.hold.store)
    path = "/api/sessions/agent:main:main"
    second = api.post(f"{path}/reset").json()
    assert second["sessionId"] != first.id
    assert api.get(f"/api/sessions/{first.id}").json()["successorId"] == second["sessionId"]
    assert api.post(f"{path}/archive").json()["status"] == "archived"
    assert_problem(api.post(f"{path}/archive"), 409, "session_archived")
    assert api.get("/api/sessions").json() == []
    assert len(api.get("/api/sessions", params={"status": "all"}).json()) == 2


def test_the_agenda_is_listed(gateway: Running, api: httpx.Client) -> None:
    item = enqueue(gateway.hold.store, "later", due_at=2**42)
    assert item.id in {row["id"] for row in api.get("/api/agenda").json()}


def test_the_agenda_tells_of_what_it_has_to_do_only_the_ids(gateway: Running, api: httpx.Client) -> None:
    with gateway.hold.store.write(SYSTEM) as tx:
        payload = {"sessionKey": "agent:main:main", "turnId": "t1", "prompt": "what was asked"}
        agenda.enqueue(tx, "later", payload, due_at=2**42)
        agenda.enqueue(tx, "sooner", {"agentId": "main", "taskId": "s1"}, due_at=2**41)
    answer = api.get("/api/agenda", params={"limit": 500})
    sooner, later = (row for row in answer.json() if row["kind"] in ("sooner", "later"))
    assert (sooner["agentId"], sooner["taskId"], sooner["sessionKey"]) == ("main", "s1", None)
    assert (later["sessionKey"], later["turnId"]) == ("agent:main:main", "t1")
    assert "what was asked" not in answer.text


def test_one_agents_heartbeat_is_changed_by_its_id_and_all_else_stays(
    gateway: Running, api: httpx.Client
) -> None:
    file = gateway.hold.home.config
    scout_before = {"id": "scout", "heartbeat": {"target": "none"}}
    listed = [{"id": "main", "identity": {"name": "Marlow"}}, scout_before]
    api.patch("/api/config", json={"agents": {"list": listed}})
    hours = {"start": "08:00", "end": "20:00"}
    beat = {"every": "2h", "prompt": "Look at the tides.", "activeHours": hours}
    changed = api.patch("/api/config", json={"agents": {"list": {"scout": {"heartbeat": beat}}}})
    assert changed.status_code == 200, changed.text
    after = json.loads(file.read_text())["agents"]["list"]
    assert after == [listed[0], {"id": "scout", "heartbeat": {"target": "none", **beat}}]
    main, scout = api.get("/api/heartbeat").json()
    assert (scout["every"], scout["target"], scout["prompt"]) == ("2h", "none", "Look at the tides.")
    assert scout["activeHours"] == {**hours, "timezone": "user"}
    assert (main["prompt"], main["activeHours"]) == (None, None)
    wrong = {"agents": {"list": {"scout": {"heartbeat": {"every": "often"}}}}}
    assert_problem(api.patch("/api/config", json=wrong), 422, "invalid_config")
    assert json.loads(file.read_text())["agents"]["list"] == after
    api.patch("/api/config", json={"agents": {"list": {"scout": None}}})
    assert json.loads(file.read_text())["agents"]["list"] == [listed[0]]


def test_what_a_heartbeat_is_told_is_for_who_may_administer(gateway: Running, api: httpx.Client) -> None:
    patch = {"agents": {"list": {"main": {"heartbeat": {"prompt": "Look at the tides."}}}}}
    api.patch("/api/config", json=patch)
    made = api.post("/api/tokens", json={"name": "reader", "scope": "read"}).json()
    with gateway.client(made["token"]) as client:
        assert [one["prompt"] for one in client.get("/api/heartbeat").json()] == [None]
        assert_problem(client.patch("/api/config", json=patch), 403, "forbidden")
    assert [one["prompt"] for one in api.get("/api/heartbeat").json()] == ["Look at the tides."]


SECRET = "very-private-4711"


def test_config_is_shown_with_its_secrets_masked(api: httpx.Client) -> None:
    patched = api.patch("/api/config", json={"gateway": {"auth": {"token": SECRET}}})
    shown = api.get("/api/config")
    assert patched.status_code == 200
    assert shown.json()["config"]["gateway"]["auth"]["token"] == "***"
    assert SECRET not in patched.text + shown.text


def test_a_configured_token_holds_as_soon_as_it_is_configured(gateway: Running, api: httpx.Client) -> None:
    with gateway.client(SECRET) as client:
        assert_problem(client.get("/api/whoami"), 401, "bad_token")
        api.patch("/api/config", json={"gateway": {"auth": {"token": SECRET}}})
        assert client.get("/api/whoami").json()["scope"] == "admin"
        api.patch("/api/config", json={"gateway": {"auth": {"token": None}}})
        assert_problem(client.get("/api/whoami"), 401, "bad_token")


def test_an_invalid_patch_changes_nothing(gateway: Running, api: httpx.Client) -> None:
    before = api.get("/api/config").json()
    mixed = {"agenda": {"maxConcurrent": 3}, "gateway": {"port": 99999, "prot": 1}}
    problem = assert_problem(api.patch("/api/config", json=mixed), 422, "invalid_config")
    assert {e["path"] for e in problem["errors"]} == {"gateway.port", "gateway.prot"}
    assert api.get("/api/config").json() == before
    assert not gateway.hold.home.config.exists()
    masked = api.patch("/api/config", json={"gateway": {"auth": {"token": "***"}}})
    assert_problem(masked, 422, "invalid_input")


def test_an_edited_file_is_taken_over_and_told(gateway: Running, api: httpx.Client) -> None:
    file = gateway.hold.home.config
    with gateway.client(gateway.admin) as reader, streaming(reader) as seen:
        file.write_text("{ agenda: { maxConcurrent: 5 } } // by hand")
        event = next(seen)
        assert (event["type"], event["data"]) == ("config.updated", {})
    shown = api.get("/api/config").json()
    assert (shown["config"]["agenda"]["maxConcurrent"], shown["error"]) == (5, None)


def test_a_spoilt_file_keeps_the_old_config_and_says_what_is_wrong(
    gateway: Running, api: httpx.Client
) -> None:
    file = gateway.hold.home.config
    api.patch("/api/config", json={"agenda": {"maxConcurrent": 5}})
    good = file.read_text()
    file.write_text(json.dumps({"agenda": {"maxConcurrent": "lots"}}))
    wait_for(lambda: api.get("/api/config").json()["error"] is not None)
    shown = api.get("/api/config").json()
    assert shown["config"]["agenda"]["maxConcurrent"] == 5
    assert "agenda.maxConcurrent" in shown["error"]
    file.write_text(good)
    wait_for(lambda: api.get("/api/config").json()["error"] is None)
    assert parse_config(good).agenda.max_concurrent == 5
