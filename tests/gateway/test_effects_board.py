"""What the board's settings change in what a caller is given: each is far from its default here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest
from serving import assert_problem, running

from holdfast.board import ingest, tasks, topics
from holdfast.log import OWNER, Classification, EntryDraft, Store, entries, sessions
from holdfast.runtime import Holdfast

KEY = "agent:main:main"
LIMITS = {
    "contextMaxChars": 500,
    "contextTopicLimit": 1,
    "contextTaskLimit": 1,
    "contextLogLimit": 1,
    "workingSetLimit": 1,
    "timelineLimit": 1,
    "ignoreSessionPrefixes": ["agent:main:scratch"],
    "search": {"limitTopics": 1, "limitTasks": 2, "limitLogs": 10},
    "graph": {"maxEntities": 2, "maxNodes": 4, "limitLogs": 30},
}


def fill(store: Store) -> None:
    """Four topics with a task each, all about sensors, and fifty entries that name what is in them."""
    with store.write(OWNER) as tx:
        session = sessions.ensure(tx, KEY)
        for n in range(4):
            topic = topics.upsert(tx, f"Sensors of hall {n}").topic
            tasks.upsert(tx, f"Mend the sensors of hall {n}", topic_id=topic.id)
            for m in range(12):
                draft = EntryDraft(
                    content=f"The sensors of hall {n} lost Node-{m} and Zigbee hub Hub-{n} at {m} o'clock.",
                    role="user",
                    session_key=KEY,
                    session_id=session.id,
                    topic_id=topic.id,
                    status=Classification.CLASSIFIED,
                    agent_id="user",
                )
                entries.append(tx, draft)


def asking(hold: Holdfast) -> Iterator[httpx.Client]:
    fill(hold.store)
    with running(hold) as gateway, gateway.client(gateway.admin) as api:
        yield api


@pytest.fixture
def limited(hold_with: Callable[..., Holdfast]) -> Iterator[httpx.Client]:
    yield from asking(hold_with(board=LIMITS, gateway={"readers": 0}))


def test_no_more_is_given_than_the_config_says(limited: httpx.Client) -> None:
    question = {"q": "which sensors lost their hub?", "sessionKey": KEY}
    block = limited.get("/api/context", params=question | {"mode": "full"}).json()
    assert len(block["block"]) <= 500
    assert len(block["data"]["timeline"]) == 1
    working = block["data"]["workingSet"]
    assert len(working["topics"]) + len(working["tasks"]) <= 2
    recalled = block["data"]["semantic"]
    assert [len(recalled[kind]) for kind in ("topics", "tasks", "logs")] == [1, 1, 1]
    found = limited.get("/api/search", params=question).json()
    assert [len(found[kind]) for kind in ("topics", "tasks", "logs")] == [1, 2, 10]
    drawn = limited.get("/api/graph").json()
    kinds = [node["type"] for node in drawn["nodes"]]
    assert kinds.count("entity") <= 2
    assert len(kinds) == 4
    assert drawn["stats"]["entries"] <= 30


def test_the_map_leaves_out_weak_links(hold_with: Callable[..., Holdfast]) -> None:
    drawn = []
    for least in (0.0, 0.9):
        for api in asking(hold_with(board={"graph": {"minEdgeWeight": least}}, gateway={"readers": 0})):
            drawn.append(api.get("/api/graph").json()["edges"])
    assert len(drawn[1]) < len(drawn[0])
    assert all(edge["weight"] >= 0.9 for edge in drawn[1])


def test_recall_and_what_waits_are_added_as_the_config_says(hold_with: Callable[..., Holdfast]) -> None:
    options = {"contextMode": "cheap", "includePending": False}
    for api in asking(hold_with(board={**options, "classifier": {"enabled": False}}, gateway={"readers": 0})):
        body = {"content": "The pump by the pier waits.", "source": {"sessionKey": KEY}, "agentId": "user"}
        assert api.post("/api/log", json=body).status_code == 201
        block = api.get("/api/context", params={"q": "which sensors lost a hub?", "sessionKey": KEY}).json()
        assert block["data"]["semantic"] is None
        assert "pump by the pier" not in str(block["data"]["timeline"])


def test_sessions_with_an_ignored_prefix_are_not_sorted(hold_with: Callable[..., Holdfast]) -> None:
    hold = hold_with(board={"ignoreSessionPrefixes": ["agent:main:scratch"]})
    draft = EntryDraft(
        content="A scratch note on the harbour.", role="user", session_key="agent:main:scratch"
    )
    with hold.store.write(OWNER) as tx:
        kept = entries.append(tx, ingest.prepare(tx, draft, hold.settings.board)).entry
        usual = entries.append(
            tx,
            ingest.prepare(
                tx,
                EntryDraft(content="A note on the harbour.", role="user", session_key=KEY),
                hold.settings.board,
            ),
        ).entry
    assert usual.status is Classification.PENDING
    assert kept.status is not Classification.PENDING


def test_a_batch_holds_as_many_entries_as_the_config_says(hold_with: Callable[..., Holdfast]) -> None:
    hold = hold_with(gateway={"limits": {"ingestBatch": 2}})
    with running(hold) as gateway, gateway.client(gateway.admin) as api:
        entry = {"content": "hello", "agentId": "user"}
        assert api.post("/api/ingest", json=[entry] * 2).status_code < 300
        assert_problem(api.post("/api/ingest", json=[entry] * 3), 413, "too_large")


def test_pages_stay_logged_in_for_so_long_and_by_the_token_of_the_config(
    hold_with: Callable[..., Holdfast],
) -> None:
    auth = {"token": "a-token-of-my-own-choice", "cookieDays": 3}
    hold = hold_with(gateway={"auth": auth, "publicUrl": "https://example.org/holdfast"})
    with running(hold) as gateway, gateway.client() as api:
        answer = api.post("/api/login", json={"token": "a-token-of-my-own-choice"})
        assert answer.status_code == 200
        cookie = answer.headers["set-cookie"]
        assert f"Max-Age={3 * 86_400};" in cookie
        assert "Secure" in cookie
