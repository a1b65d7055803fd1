"""Spaces, topics, tasks and drafts over HTTP, on both engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Running, assert_problem, make_token, streaming

from holdfast.clock import ManualClock, iso
from holdfast.runtime import Holdfast, open_home

TOPIC_FIELDS = {
    "id", "name", "sortIndex", "spaceId", "spaceIds", "audience", "createdBy", "color", "description",
    "priority", "status", "snoozedUntil", "dueDate", "pinned", "tags", "digest", "digestUpdatedAt",
    "createdAt", "updatedAt",
}  # fmt: skip
TASK_FIELDS = TOPIC_FIELDS - {"name", "sortIndex"} | {"title", "topicId"}


@pytest.fixture
def hold(store_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[Holdfast]:
    with open_home(tmp_path / "home", store_url=store_url, clock=clock) as opened:
        yield opened


def post(api: httpx.Client, path: str, status: int = 201, **body: Any) -> dict[str, Any]:
    answer = api.post(path, json=body)
    assert answer.status_code == status, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_a_space_by_name_and_by_tag_is_one(api: httpx.Client) -> None:
    made = post(api, "/api/spaces", name="Beta", color="#4EA1FF")
    topic = post(api, "/api/topics", name="x", tags=["space:Beta"])
    assert made["id"] == topic["spaceId"] == "space-beta"
    assert post(api, "/api/spaces", 200, name="beta")["color"] == "#4EA1FF"
    assert [s["id"] for s in api.get("/api/spaces").json()] == ["space-beta", "space-default"]
    first = api.get("/api/spaces", params={"limit": 1})
    rest = api.get("/api/spaces", params={"cursor": first.headers["X-Next-Cursor"]})
    assert [s["id"] for s in first.json() + rest.json()] == ["space-beta", "space-default"]
    assert_problem(api.post("/api/spaces", json={"name": "--"}), 422, "bad_space")


def test_connectivity_says_what_is_allowed(api: httpx.Client) -> None:
    for name in ("Alpha", "Beta"):
        post(api, "/api/spaces", name=name, defaultVisible=False)
    told = api.patch("/api/spaces/space-alpha/connectivity", json={"connectivity": {"space-beta": True}})
    assert told.json()["connectivity"] == {"space-beta": True, "space-default": True}
    allowed = api.get("/api/spaces/allowed", params={"spaceId": "space-alpha"}).json()
    assert allowed == {
        "spaceId": "space-alpha",
        "allowedSpaceIds": ["space-alpha", "space-beta", "space-default"],
    }
    hidden = api.get("/api/spaces/allowed", params={"spaceId": "space-beta"}).json()
    assert "space-alpha" not in hidden["allowedSpaceIds"]
    wrong = api.patch("/api/spaces/space-alpha/connectivity", json={"connectivity": {"space-x": True}})
    assert_problem(wrong, 404, "unknown_space")
    assert_problem(api.get("/api/spaces/allowed"), 422, "no_space")


SPACED = ("/api/topics", "/api/tasks", "/api/log", "/api/changes", "/api/stream")


def test_a_space_that_is_not_there_is_unknown_everywhere(api: httpx.Client) -> None:
    for path in SPACED:
        assert_problem(api.get(path, params={"spaceId": "space-nowhere"}), 404, "unknown_space")


def test_a_topic_from_its_making_to_its_end(api: httpx.Client) -> None:
    made = post(api, "/api/topics", name="Deploy", dueDate="2026-02-05", tags=["Ops"], priority="high")
    assert made.keys() == TOPIC_FIELDS
    assert (made["dueDate"], made["status"]) == ("2026-02-05T00:00:00.000Z", "active")
    path = f"/api/topics/{made['id']}"
    assert api.get(path).json() == made
    changed = api.patch(path, json={"status": "doing", "dueDate": None, "description": "d"}).json()
    assert (changed["status"], changed["dueDate"], changed["tags"]) == ("doing", None, ["Ops"])
    again = post(api, "/api/topics", 200, name=" deploy ", tags=["ops", "more"])
    assert (again["id"], again["tags"]) == (made["id"], ["Ops", "more"])
    assert api.delete(path).json() == {"ok": True, "deleted": True, "id": made["id"]}
    assert_problem(api.get(path), 404, "unknown_topic")
    assert_problem(api.delete(path), 404, "unknown_topic")


def test_distinct_names_make_distinct_topics(api: httpx.Client) -> None:
    for n in range(120):
        post(api, "/api/topics", name=f"Release planning {n}")
    found = api.get("/api/topics", params={"limit": 500}).json()
    assert len({topic["id"] for topic in found}) == 120
    page = api.get("/api/topics", params={"limit": 100})
    rest = api.get("/api/topics", params={"cursor": page.headers["X-Next-Cursor"]})
    assert page.json() + rest.json() == found


def test_a_digest_from_outside_moves_nothing(api: httpx.Client, clock: ManualClock) -> None:
    made = post(api, "/api/topics", name="x")
    clock.advance(hours=1)
    at = "2026-01-01T01:00:00.000Z"
    told = api.patch(f"/api/topics/{made['id']}", json={"digest": "d", "digestUpdatedAt": at}).json()
    assert (told["digest"], told["digestUpdatedAt"], told["updatedAt"]) == ("d", at, made["updatedAt"])
    told = api.patch(f"/api/topics/{made['id']}", json={"digest": "e"}).json()
    assert (told["digest"], told["digestUpdatedAt"]) == ("e", iso(clock.now()))
    assert told["updatedAt"] == made["updatedAt"]


def test_topics_are_put_in_order(api: httpx.Client) -> None:
    ids = [post(api, "/api/topics", name=name)["id"] for name in "abc"]
    assert api.post("/api/topics/reorder", json={"orderedIds": ids}).status_code == 200
    assert [topic["id"] for topic in api.get("/api/topics").json()] == ids
    assert_problem(api.post("/api/topics/reorder", json={"orderedIds": ["x"]}), 404, "unknown_topic")
    assert_problem(api.post("/api/topics/reorder", json={"orderedIds": []}), 422, "invalid_input")


def test_a_thread_is_what_was_logged_under_the_topic(api: httpx.Client) -> None:
    topic = post(api, "/api/topics", name="x")["id"]
    made = [post(api, "/api/log", content=str(n), topicId=topic)["id"] for n in range(3)]
    post(api, "/api/log", content="elsewhere")
    page = api.get(f"/api/topics/{topic}/thread", params={"limit": 2})
    rest = api.get(f"/api/topics/{topic}/thread", params={"cursor": page.headers["X-Next-Cursor"]})
    assert [entry["id"] for entry in page.json() + rest.json()] == made[::-1]
    assert_problem(api.get("/api/topics/topic-none/thread"), 404, "unknown_topic")


NO_TOPICS: tuple[dict[str, Any], ...] = (
    {}, {"name": ""}, {"name": "x", "status": "odd"}, {"name": "x", "tags": [str(n) for n in range(33)]},
    {"name": "x", "dueDate": "soon"}, {"name": "x", "color": "red"}, {"name": "x" * 201},
)  # fmt: skip


def test_what_cannot_be_a_topic_is_refused(api: httpx.Client) -> None:
    for body in NO_TOPICS:
        assert api.post("/api/topics", json=body).status_code == 422, body
    assert api.get("/api/topics").json() == []


def test_a_task_from_its_making_to_its_end(api: httpx.Client) -> None:
    topic = post(api, "/api/topics", name="x", tags=["Beta"])["id"]
    made = post(api, "/api/tasks", title="do", topicId=topic, pinned=True)
    assert made.keys() == TASK_FIELDS
    assert (made["spaceId"], made["status"], made["pinned"]) == ("space-beta", "todo", True)
    path = f"/api/tasks/{made['id']}"
    assert api.patch(path, json={"status": "blocked"}).json()["status"] == "blocked"
    assert [t["id"] for t in api.get("/api/tasks", params={"topicId": topic, "status": "blocked"}).json()]
    assert api.get("/api/tasks", params={"status": "done"}).json() == []
    assert_problem(api.post("/api/tasks", json={"title": "x"}), 422, "no_topic")
    assert_problem(api.post("/api/tasks", json={"title": "x", "topicId": "none"}), 404, "unknown_topic")
    figures = api.get("/api/metrics/board").json()
    assert (figures["topics"]["active"], figures["tasks"]["blocked"], figures["spaces"]) == (1, 1, 2)
    assert api.delete(path).json()["deleted"]
    assert_problem(api.get(path), 404, "unknown_task")


def test_drafts_are_kept_until_they_are_emptied(gateway: Running, api: httpx.Client) -> None:
    assert post(api, "/api/drafts", key="k", value="one")["value"] == "one"
    assert post(api, "/api/drafts", 200, key="k", value="two")["value"] == "two"
    assert [d["value"] for d in api.get("/api/drafts").json()] == ["two"]
    told = [c["data"] for c in api.get("/api/changes").json() if c["type"] == "draft.upserted"]
    assert [data["value"] for data in told] == ["two", "two"]
    post(api, "/api/drafts", 200, key="k", value="")
    with gateway.client(make_token(gateway.hold.store, "p", spaces=["space-default"])) as placed:
        assert [c for c in placed.get("/api/changes").json() if c["type"].startswith("draft.")] == []
    assert api.get("/api/drafts").json() == []
    with gateway.client(make_token(gateway.hold.store, "narrow", spaces=["space-a"])) as limited:
        assert_problem(limited.get("/api/drafts"), 403, "forbidden")


def test_live_events_carry_the_thing_itself(api: httpx.Client) -> None:
    with streaming(api) as events:
        topic = post(api, "/api/topics", name="x")
        task = post(api, "/api/tasks", title="t", topicId=topic["id"])
        api.delete(f"/api/topics/{topic['id']}")
        seen = [next(events) for _ in range(5)]
    assert [event["type"] for event in seen] == [
        "space.upserted", "topic.upserted", "task.upserted", "task.deleted", "topic.deleted",
    ]  # fmt: skip
    assert (seen[0]["data"]["id"], seen[4]["data"]["id"]) == ("space-default", topic["id"])
    assert seen[3]["data"]["id"] == task["id"]
