"""Lists, reading by id, changes and the live stream show the same, and never what is hidden."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import Running, assert_problem, make_token, streaming

from board_world import SPACES, World, build, plans, retag
from builders import append
from holdfast.clock import ManualClock
from holdfast.log import FOR_ANYONE, FOR_OWNER, for_space
from holdfast.runtime import Holdfast, open_home


@pytest.fixture
def hold(store_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[Holdfast]:
    with open_home(tmp_path / "home", store_url=store_url, clock=clock) as opened:
        yield opened


def ids(api: httpx.Client, path: str, **params: Any) -> set[str]:
    answer = api.get(path, params={"limit": 500, **params})
    assert answer.status_code == 200, answer.text
    return {row["id"] for row in answer.json()}


def test_every_endpoint_agrees_with_the_model(gateway: Running, api: httpx.Client) -> None:
    """The examples share one gateway, so that the board grows from one to the next."""
    store, world, count = gateway.hold.store, World(), 0

    @given(plan=plans, data=st.data())
    @settings(max_examples=8)
    def grow(plan: dict[str, Any], data: st.DataObject) -> None:
        nonlocal count
        count += 1
        build(store, world, plan, f"board {count}")
        source = data.draw(st.none() | st.sampled_from(SPACES))
        wanted = data.draw(st.none() | st.frozensets(st.sampled_from(SPACES), min_size=1))
        own = data.draw(st.none() | st.frozensets(st.sampled_from(SPACES), min_size=1))
        ask = {} if source is None else {"spaceId": source}
        ask |= {} if wanted is None else {"allowedSpaceIds": ",".join(wanted)}
        with gateway.client(make_token(store, f"token {count}", spaces=own)) as caller:
            if own is not None and source is not None and source not in own:
                assert_problem(caller.get("/api/topics", params=ask), 404, "unknown_space")
                return
            held = None if own is None else {FOR_ANYONE, *map(for_space, own)}
            may_read = {id_ for id_, (heard, _) in world.owned.items() if held is None or heard in held}
            agree(caller, world, ask, world.allowed(source, wanted, own if ask else None), may_read)

    grow()


def agree(
    caller: httpx.Client,
    world: World,
    ask: dict[str, str],
    allowed: frozenset[str] | None,
    may_read: set[str],
) -> None:
    shown = {kind: world.seen(kind, allowed, "owner") & may_read for kind in ("topic", "task", "entry")}
    paths = {"topic": "/api/topics", "task": "/api/tasks", "entry": "/api/log"}
    known = {"topic": world.topics, "task": world.tasks, "entry": world.entries}
    for kind, path in paths.items():
        assert ids(caller, path, **ask) == shown[kind]
        got = {i: caller.get(f"{path}/{i}", params=ask).status_code for i in list(known[kind])[-12:]}
        assert got == {i: 200 if i in shown[kind] else 404 for i in got}
    told = _changes(caller, ask)
    assert {id_ for id_ in told if id_ in world.entries} == shown["entry"]
    assert {id_ for id_ in told if id_ in world.topics} == shown["topic"]
    assert {id_ for id_ in told if id_ in world.tasks} == shown["task"]


def _changes(caller: httpx.Client, ask: dict[str, str]) -> set[str]:
    """What the feed shows as being there; a thing that was deleted since may still be named."""
    found: set[str] = set()
    params: dict[str, Any] = {**ask, "limit": 1000}
    while True:
        page = caller.get("/api/changes", params=params)
        assert page.status_code == 200, page.text
        found |= {c["entityId"] for c in page.json() if not c["type"].endswith(".deleted")}
        if "X-Next-Cursor" not in page.headers:
            return found
        params["cursor"] = page.headers["X-Next-Cursor"]


def plan(heard: str) -> dict[str, Any]:
    """A small board of one audience."""
    return {
        "edges": [False] * 12,
        "topics": [
            (SPACES[1], [], heard, None),
            (SPACES[1], ["Beta"], heard, None),
            (None, ["GAMMA"], heard, None),
        ],
        "tasks": [(0, None, heard), (0, SPACES[2], heard), (1, None, heard)],
        "entries": [
            *((None, n, None, 0, heard, None) for n in range(3)),
            (SPACES[2], 0, None, 0, heard, None),
            (None, None, 1, 0, heard, None),
        ],
        "sorted": [],
        "shared": [],
        "routed": [],
        "retags": [],
        "deletes": [],
        "hides": [],
    }


def test_the_stream_shows_what_the_lists_show(gateway: Running, api: httpx.Client) -> None:
    store, world = gateway.hold.store, World()
    own, shared = [SPACES[2]], for_space(SPACES[2])
    path = f"/api/stream?allowedSpaceIds={SPACES[2]}"
    with gateway.client(make_token(store, "beta", spaces=own)) as caller, streaming(caller, path) as events:
        build(store, world, plan(shared), "x")
        build(store, World(), plan(FOR_OWNER), "y")
        append(store, "the end", space_id=SPACES[2], audience=shared)
        seen = until_the_end(events)
        shown = set().union(*(world.seen(kind, own, "owner") for kind in ("topic", "task", "entry")))
        moved = next(iter(world.topics))
        retag(store, world, moved, ["Beta"])
        append(store, "now seen", topic_id=moved, audience=shared)
        until_the_end(events, "now seen")
        retag(store, world, moved, ["GAMMA"])
        append(store, "hidden again", topic_id=moved, audience=shared)
        append(store, "the end", space_id=SPACES[2], audience=shared)
        later = [(e["data"] or {}).get("content") for e in until_the_end(events)]
    assert "hidden again" not in later
    about = {event["entityId"] for event in seen}
    assert about - set(SPACES) - {seen[-1]["entityId"]} == shown
    assert all(set(e["data"]["connectivity"]) <= set(own) for e in seen if e["type"] == "space.upserted")


def until_the_end(events: Iterator[dict[str, Any]], content: str = "the end") -> list[dict[str, Any]]:
    seen = []
    for event in events:
        seen.append(event)
        if (event["data"] or {}).get("content") == content:
            break
    return seen


def test_a_limited_token_writes_only_where_it_sees(gateway: Running, api: httpx.Client) -> None:
    api.post("/api/spaces", json={"name": "Mine"})
    token = make_token(gateway.hold.store, "narrow", spaces=["space-mine"])
    mine = api.post("/api/topics", json={"name": "mine", "spaceId": "space-mine"}).json()["id"]
    other = api.post("/api/topics", json={"name": "other", "tags": ["Other"]}).json()["id"]
    hidden = api.post("/api/log", json={"content": "h", "topicId": other}).json()["id"]
    with gateway.client(token) as limited:
        by_topic = limited.post("/api/log", json={"content": "x", "topicId": mine})
        assert by_topic.status_code == 201, by_topic.text
        assert limited.get(f"/api/log/{by_topic.json()['id']}").status_code == 200
        for body in (
            {"content": "x"},
            {"content": "x", "topicId": other},
            {"content": "x", "spaceId": "space-mine", "topicId": other},
            {"content": "x", "spaceId": "space-mine", "source": {"boardScopeSpaceId": "space-other"}},
        ):
            assert_problem(limited.post("/api/log", json=body), 403, "space_forbidden")
            assert_problem(limited.post("/api/ingest", json=body), 403, "space_forbidden")
        own = by_topic.json()["id"]
        assert_problem(limited.patch(f"/api/log/{own}", json={"topicId": other}), 403, "space_forbidden")
        assert_problem(limited.patch(f"/api/log/{hidden}", json={"summary": "s"}), 404, "unknown_entry")
        for body in (
            {"name": "n"},
            {"name": "n", "tags": ["Mine", "Other"]},
            {"name": "other", "tags": ["Other"]},
        ):
            assert_problem(limited.post("/api/topics", json=body), 403, "space_forbidden")
        assert_problem(limited.patch(f"/api/topics/{mine}", json={"tags": ["Other"]}), 403, "space_forbidden")
        assert_problem(limited.patch(f"/api/topics/{other}", json={"name": "n"}), 404, "unknown_topic")
        assert_problem(limited.post("/api/topics", json={"id": other, "name": "n"}), 404, "unknown_topic")
        assert_problem(
            limited.post("/api/topics/reorder", json={"orderedIds": [other]}), 404, "unknown_topic"
        )
        assert_problem(
            limited.post("/api/tasks", json={"title": "t", "topicId": other}), 404, "unknown_topic"
        )
        assert_problem(limited.post("/api/spaces", json={"name": "Third"}), 403, "space_forbidden")
        edges = {"connectivity": {"space-other": True}}
        refused = limited.patch("/api/spaces/space-mine/connectivity", json=edges)
        assert_problem(refused, 403, "space_forbidden")
        assert_problem(limited.patch("/api/spaces/space-other/connectivity", json={}), 404, "unknown_space")
        assert [space["id"] for space in limited.get("/api/spaces").json()] == ["space-mine"]
    assert api.get(f"/api/topics/{mine}").json()["spaceIds"] == ["space-mine"]


def test_a_session_tells_from_where_topics_and_tasks_are_seen(gateway: Running, api: httpx.Client) -> None:
    for name in ("Alpha", "Beta"):
        api.post("/api/spaces", json={"name": name, "defaultVisible": False})
    made = {n: api.post("/api/topics", json={"name": n, "tags": [n]}).json()["id"] for n in ("Alpha", "Beta")}
    task = api.post("/api/tasks", json={"title": "t", "topicId": made["Alpha"]}).json()["id"]
    board = f"clawboard:topic:{made['Alpha']}"
    assert ids(api, "/api/topics", sessionKey=board) == {made["Alpha"]}
    assert ids(api, "/api/tasks", sessionKey=board) == {task}
    assert ids(api, "/api/tasks", sessionKey=f"clawboard:topic:{made['Beta']}") == set()
    assert ids(api, "/api/topics", sessionKey="brand:new") == set(made.values())
    assert_problem(api.get(f"/api/topics/{made['Beta']}", params={"sessionKey": board}), 404, "unknown_topic")


def test_a_token_limited_to_writers_recalls_what_the_log_shows_it(gateway: Running) -> None:
    """Whose conversation it is does not matter: who wrote it does."""
    store = gateway.hold.store
    for n in range(12):
        for writer in ("main", "coder", "user"):
            fields = {"agent_id": writer, "role": "user" if writer == "user" else "assistant"}
            append(store, f"quokka {writer} {n}", session_key="agent:main:main", **fields)
        append(store, f"quokka alone {n}", session_key="agent:coder:main", agent_id="main")
        append(store, f"quokka alone {n}", agent_id="coder")
    for agents in (["coder"], ["user"], ["coder", "user"], ["nobody"], []):
        with gateway.client(make_token(store, f"only {agents}", agents=agents)) as caller:
            shown = ids(caller, "/api/log")
            found = caller.get("/api/search", params={"q": "quokka", "limitLogs": 100}).json()["logs"]
            assert {row["id"] for row in found} == shown
            few = caller.get("/api/search", params={"q": "quokka main", "limitLogs": 10}).json()["logs"]
            assert len(few) == min(10, len(shown))
            asked = {"q": "quokka main", "mode": "full", "sessionKey": "agent:main:main"}
            told = caller.get("/api/context", params=asked).json()["data"]
            said = {row["id"] for row in [*told["timeline"], *(told["semantic"] or {}).get("logs", [])]}
            assert said <= shown
            assert bool(said) == bool(shown)
