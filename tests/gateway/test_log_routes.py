"""`/api/log` and `/api/ingest`, on both engines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Running, assert_problem, make_token, wait_for

from builders import append, in_threads
from holdfast.clock import ManualClock
from holdfast.runtime import Holdfast, open_home

ENTRY_FIELDS = {
    "id", "type", "content", "summary", "topicId", "taskId", "spaceId", "relatedLogId",
    "classificationStatus", "classificationCode", "agentId", "agentLabel", "source", "createdAt",
    "updatedAt", "idempotencyKey", "audience",
}  # fmt: skip


@pytest.fixture
def hold(store_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[Holdfast]:
    with open_home(tmp_path / "home", store_url=store_url, clock=clock) as opened:
        yield opened


def post(api: httpx.Client, content: str = "hello", **body: Any) -> dict[str, Any]:
    answer = api.post("/api/log", json={"content": content, **body})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_a_new_entry_comes_back_whole_with_201(api: httpx.Client) -> None:
    made = post(api, type="note", agentId="user", summary="s", raw="the raw")
    assert made.keys() == ENTRY_FIELDS | {"raw"}
    assert made["id"].startswith("log-")
    assert (made["type"], made["agentId"], made["raw"]) == ("note", "user", "the raw")
    assert made["classificationStatus"] == "pending"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", made["createdAt"])
    assert api.get(f"/api/log/{made['id']}").json().keys() == ENTRY_FIELDS


@pytest.mark.parametrize("in_header", [True, False])
def test_a_repeat_gets_the_same_entry_with_200(api: httpx.Client, in_header: bool) -> None:
    headers = {"X-Idempotency-Key": "k1"} if in_header else {}
    body = {} if in_header else {"idempotencyKey": "k1"}
    first = api.post("/api/log", json={"content": "one", **body}, headers=headers)
    again = api.post("/api/log", json={"content": "two", **body}, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert first.json()["idempotencyKey"] == "k1"


def test_the_key_in_the_header_wins_over_the_one_in_the_body(api: httpx.Client) -> None:
    made = api.post(
        "/api/log", json={"content": "x", "idempotencyKey": "body"}, headers={"X-Idempotency-Key": "header"}
    )
    assert made.json()["idempotencyKey"] == "header"


def test_concurrent_repeats_of_one_key_make_one_row(gateway: Running, api: httpx.Client) -> None:
    def send(_: int) -> tuple[int, str]:
        with gateway.client(gateway.admin) as client:
            answer = client.post("/api/log", json={"content": "x"}, headers={"X-Idempotency-Key": "same"})
            return answer.status_code, answer.json()["id"]

    answers = in_threads(12, send)
    assert sorted(status for status, _ in answers) == [200] * 11 + [201]
    assert len({id_ for _, id_ in answers}) == 1
    assert len(api.get("/api/log").json()) == 1


def test_a_sent_time_is_kept(api: httpx.Client) -> None:
    assert post(api, createdAt="2001-02-03T04:05:06.789Z")["createdAt"] == "2001-02-03T04:05:06.789Z"
    assert post(api, createdAt="2001-02-03T06:05:06+02:00")["createdAt"] == "2001-02-03T04:05:06.000Z"


def test_the_source_is_kept_as_sent_and_unknown_fields_are_tolerated(api: httpx.Client) -> None:
    source = {
        "channel": "discord", "sessionKey": "agent:main:main", "messageId": "m1", "requestId": "r1",
        "deep": {"list": [1, 2.5, None, "é"]},
    }  # fmt: skip
    made = post(api, source=source, eventId="unknown to us", attachments=[])
    assert made["source"] == source
    assert api.get(f"/api/log/{made['id']}").json()["source"] == source
    assert [e["id"] for e in api.get("/api/log", params={"sessionKey": "agent:main:main"}).json()] == [
        made["id"]
    ]


def test_a_list_is_a_plain_array_and_pages_by_cursor(api: httpx.Client) -> None:
    made = [post(api, f"entry {n}")["id"] for n in range(5)]
    seen: list[str] = []
    params: dict[str, Any] = {"limit": 2}
    for _ in range(3):
        page = api.get("/api/log", params=params)
        seen += [e["id"] for e in page.json()]
        params["cursor"] = page.headers.get("X-Next-Cursor")
    assert params["cursor"] is None
    assert seen == made[::-1]
    assert [e["id"] for e in api.get("/api/log", params={"limit": 2, "offset": 3}).json()] == made[1::-1]


def test_raw_comes_only_when_asked_for(api: httpx.Client) -> None:
    id_ = post(api, raw="heavy")["id"]
    assert "raw" not in api.get("/api/log").json()[0]
    assert api.get("/api/log", params={"includeRaw": "1"}).json()[0]["raw"] == "heavy"
    assert api.get(f"/api/log/{id_}", params={"includeRaw": "true"}).json()["raw"] == "heavy"


FILTERS: list[tuple[dict[str, str], list[str]]] = [
    ({"topicId": "t1"}, ["a"]),
    ({"taskId": "k1"}, ["a"]),
    ({"type": "action"}, ["b"]),
    ({"classificationStatus": "failed"}, ["c"]),
    ({"spaceId": "space-one"}, ["a"]),
    ({"allowedSpaceIds": "space-one,s2"}, ["b", "a"]),
    ({"spaceId": "space-one", "allowedSpaceIds": "s2"}, []),
    ({"relatedLogId": "r1,r2"}, ["c"]),
    ({"sessionKey": "nowhere"}, []),
]


def place(api: httpx.Client) -> None:
    """A topic and a task in it, in a space: entries can only be placed where there is something."""
    assert api.post("/api/spaces", json={"name": "One"}).json()["id"] == "space-one"
    topic = {"id": "t1", "name": "Topic", "spaceId": "space-one"}
    assert api.post("/api/topics", json=topic).status_code == 201
    assert api.post("/api/tasks", json={"id": "k1", "topicId": "t1", "title": "Task"}).status_code == 201


def test_each_filter_narrows_the_list(api: httpx.Client) -> None:
    place(api)
    post(api, "a", topicId="t1", taskId="k1")
    post(api, "b", type="action", spaceId="s2", source={"sessionKey": "channel:1"})
    post(api, "c", classificationStatus="failed", relatedLogId="r1")
    for params, found in FILTERS:
        assert [e["content"] for e in api.get("/api/log", params=params).json()] == found, params


def test_a_patch_changes_only_what_was_sent_and_null_detaches(api: httpx.Client) -> None:
    place(api)
    made = post(api, topicId="t1", taskId="k1", summary="old")
    changed = api.patch(f"/api/log/{made['id']}", json={"topicId": None, "summary": "new", "content": "text"})
    assert changed.status_code == 200
    now = changed.json()
    assert (now["topicId"], now["taskId"], now["summary"], now["content"]) == (None, "k1", "new", "text")


def test_a_deleted_entry_is_gone_from_every_view(api: httpx.Client) -> None:
    made = api.post("/api/log", json={"content": "secret words"}, headers={"X-Idempotency-Key": "k"}).json()
    assert api.delete(f"/api/log/{made['id']}").json() == {"ok": True, "deleted": True, "id": made["id"]}
    assert api.get("/api/log").json() == []
    assert_problem(api.get(f"/api/log/{made['id']}"), 404, "unknown_entry")
    assert_problem(api.patch(f"/api/log/{made['id']}", json={"summary": "x"}), 404, "unknown_entry")
    assert_problem(api.delete(f"/api/log/{made['id']}"), 404, "unknown_entry")
    changes = api.get("/api/changes")
    assert [c["type"] for c in changes.json()] == ["log.appended", "log.deleted"]
    assert changes.json()[0]["data"] is None
    repeat = api.post("/api/log", json={"content": "again"}, headers={"X-Idempotency-Key": "k"})
    assert_problem(repeat, 409, "entry_deleted")
    assert "secret words" not in changes.text + repeat.text


def test_changes_come_in_pages_that_say_when_there_is_more(api: httpx.Client) -> None:
    ids = [post(api)["id"] for _ in range(4)]
    first = api.get("/api/changes", params={"limit": 2})
    after = first.headers["X-Next-Cursor"]
    second = api.get("/api/changes", params={"limit": 2, "cursor": after})
    assert [c["entityId"] for c in first.json() + second.json()] == ids
    assert second.json() == api.get("/api/changes", params={"limit": 2, "sinceSeq": after}).json()
    assert "X-Next-Cursor" not in second.headers
    assert first.json()[0].keys() == {"seq", "type", "entityId", "data", "eventTs"}


def test_what_was_accepted_is_written_in_order_and_once(api: httpx.Client) -> None:
    batch = [{"content": f"item {n}", "idempotencyKey": f"k{n}"} for n in range(3)]
    for _ in range(2):
        answer = api.post("/api/ingest", json=batch)
        assert answer.status_code == 202
        assert answer.json()["count"] == 3
    single = api.post("/api/ingest", json={"content": "last"})
    assert single.json().keys() == {"ok", "queued", "id", "count"}
    wait_for(lambda: len(api.get("/api/log").json()) == 4)
    assert [e["content"] for e in api.get("/api/log").json()] == ["last", "item 2", "item 1", "item 0"]


def test_an_empty_batch_is_accepted_and_one_that_is_too_long_is_not(
    gateway: Running, api: httpx.Client
) -> None:
    assert api.post("/api/ingest", json=[]).json() == {"ok": True, "queued": True, "id": None, "count": 0}
    assert_problem(api.post("/api/ingest", json=[{"content": "x"}] * 1001), 413, "too_large")
    assert_problem(api.post("/api/ingest", json=[{"content": "é" * 600_000}]), 413, "too_large")


def test_entries_written_by_another_part_are_seen(gateway: Running, api: httpx.Client) -> None:
    entry = append(gateway.hold.store, "from within")
    assert api.get(f"/api/log/{entry.id}").json()["content"] == "from within"


def test_what_one_agent_said_is_listed_alone_and_only_to_those_who_see_that_agent(
    gateway: Running, api: httpx.Client
) -> None:
    made = [post(api, agentId=who)["id"] for who in ("main", "coder", "main")]
    listed = api.get("/api/log", params={"agentId": "main"}).json()
    assert [entry["id"] for entry in listed] == [made[2], made[0]]
    with gateway.client(make_token(gateway.hold.store, "c", agents=["coder"])) as coder:
        assert coder.get("/api/log", params={"agentId": "main"}).json() == []
        assert [e["id"] for e in coder.get("/api/log", params={"agentId": "coder"}).json()] == [made[1]]


OURS = "agent:main:discord:channel:8"
ROOMS = {
    "agent:main:telegram:direct:77": ["Dr. Kaminski"],
    "agent:main:telegram:direct:88": ["plant tulips"],
    "agent:main:main": ["7-21-9", "Dr. Kaminski", "plant tulips"],
    "telegram:group:-100": [],
    "group:-100": [],
    "discord:channel:4242|thread:1": [],
}


def test_a_hosts_messages_and_its_questions_meet_in_one_session(api: httpx.Client) -> None:
    """A host logs under its provider's id of a room, and asks under the session key of its agent."""
    source = {"channel": "discord", "sessionKey": "channel:4242"}
    made = post(api, "The pump in the cellar leaks", agentId="user", source=source)
    assert made["source"]["sessionKey"] == "channel:4242"
    post(api, "Ordered a seal", source={"channel": "discord", "conversationId": "channel:4242"})
    room = {"sessionKey": "agent:main:discord:channel:4242"}
    block = api.get("/api/context", params={"q": "ok", **room}).json()["block"]
    assert "The pump in the cellar leaks" in block
    assert "Ordered a seal" in block
    assert len(api.get("/api/log", params=room).json()) == 2
    other = api.get("/api/context", params={"q": "ok", "sessionKey": "agent:main:slack:channel:4242"})
    assert "pump" not in other.json()["block"]


def test_a_rooms_words_stay_with_the_agent_that_its_key_names(api: httpx.Client) -> None:
    source = {
        "channel": "discord",
        "sessionKey": "agent:work:discord:channel:8",
        "conversationId": "channel:8",
    }
    post(api, "The pump in the cellar leaks", agentId="user", source=source)
    of = {
        key: len(api.get("/api/log", params={"sessionKey": key}).json())
        for key in (source["sessionKey"], OURS)
    }
    assert of == {source["sessionKey"]: 1, OURS: 0}


def test_a_host_is_no_provider_of_rooms(api: httpx.Client) -> None:
    """What a host logs of itself says no service: the room of a service is then none of its making."""
    post(api, "Tool call: exec", type="action", source={"channel": "openclaw", "sessionKey": "channel:8"})
    assert api.get("/api/log", params={"sessionKey": "agent:main:openclaw:channel:8"}).json() == []
    assert len(api.get("/api/log", params={"sessionKey": "channel:8"}).json()) == 1


def test_a_direct_chat_in_which_a_guest_was_heard_reads_as_that_guest(api: httpx.Client) -> None:
    """A host that knows whose direct chat it is says so; what is asked there gets that guest's words only."""
    post(api, "The safe opens with 7-21-9", agentId="user", source={"sessionKey": "agent:main:main"})
    for guest, words in (("77", "My therapist is Dr. Kaminski"), ("88", "I plant tulips in the yard")):
        key = f"agent:main:telegram:direct:{guest}"
        told = {"channel": "telegram", "sessionKey": key, "audience": f"peer:telegram::{guest}"}
        post(api, words, agentId="user", source=told)

    def block(key: str) -> str:
        asked = {"q": "What of the safe, the therapist Kaminski, and the tulips?", "mode": "full"}
        text = api.get("/api/context", params={"sessionKey": key, **asked}).json()["block"]
        return str(text).partition("Mode:")[2]

    words = ("7-21-9", "Dr. Kaminski", "plant tulips")
    assert {key: [word for word in words if word in block(key)] for key in ROOMS} == ROOMS
    for chat in ("agent:main:telegram:direct:88:thread:4", "agent:work:telegram:default:direct:88"):
        assert not any(word in block(chat) for word in words[:2])
