"""What the existing implementation gets wrong when probed: each probe is a test here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Running, assert_problem, make_token, streaming

from holdfast.board.context_cache import stamp
from holdfast.board.timeline import timeline
from holdfast.board.visibility import EVERYTHING
from holdfast.clock import ManualClock
from holdfast.log import OWNER, EntryDraft, Store, Tx, changes, entries
from holdfast.runtime import Holdfast, open_home
from plans import assert_no_scan, plan_of


@pytest.fixture
def hold(store_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[Holdfast]:
    with open_home(tmp_path / "home", store_url=store_url, clock=clock) as opened:
        yield opened


POOL = 8
"""Threads that the gateway shares among all requests, and makes when it needs them."""


def search(api: httpx.Client, q: str, **params: Any) -> dict[str, Any]:
    found: dict[str, Any] = api.get("/api/search", params={"q": q, **params}).json()
    return found


def test_the_only_entry_with_a_rare_word_is_found_however_old(hold: Holdfast, api: httpx.Client) -> None:
    with hold.store.write(OWNER) as tx:
        old = entries.append(tx, EntryDraft(content="the quokka handshake failed")).entry
        filler = [EntryDraft(content=f"database lock number {n} was released") for n in range(1500)]
        entries.load(tx, filler)
    for question in ("quokka database lock", "quokka handshake"):
        assert search(api, question)["logs"][0]["id"] == old.id


def test_a_topic_of_a_space_by_its_tag_is_searched_from_there(api: httpx.Client) -> None:
    tags = ["space:Alpha", "space:Beta"]
    topic = api.post("/api/topics", json={"name": "Zeppelin hangar", "tags": tags}).json()
    entry = api.post("/api/log", json={"content": "the zeppelin leaks", "topicId": topic["id"]}).json()
    found = search(api, "zeppelin", spaceId="space-beta")
    assert [hit["id"] for hit in found["topics"]] == [topic["id"]]
    assert [hit["id"] for hit in found["logs"]] == [entry["id"]]


def test_a_space_and_a_tag_of_one_name_are_one_space(api: httpx.Client) -> None:
    made = api.post("/api/spaces", json={"name": "Beta"}).json()
    topic = api.post("/api/topics", json={"name": "x", "tags": ["space:Beta"]}).json()
    assert topic["spaceId"] == made["id"] == "space-beta"


def test_a_new_session_sees_no_more_than_its_caller(gateway: Running, api: httpx.Client) -> None:
    for name in ("Near", "Far"):
        api.post("/api/spaces", json={"name": name})
    token = make_token(gateway.hold.store, "near", spaces=["space-near"])
    api.post("/api/topics", json={"name": "Secret walrus", "tags": ["space:Far"]})
    api.post("/api/topics", json={"name": "Open walrus", "spaceId": "space-near"})
    with gateway.client(token) as near:
        found = search(near, "walrus", sessionKey="brand new")
        assert [hit["name"] for hit in found["topics"]] == ["Open walrus"]
        block = near.get("/api/context", params={"sessionKey": "brand new", "q": "walrus", "mode": "full"})
        assert "Secret" not in block.text


def test_an_unknown_space_is_an_error_and_not_the_default_one(api: httpx.Client) -> None:
    for path in ("/api/search?q=x&", "/api/context?", "/api/graph?"):
        assert_problem(api.get(f"{path}spaceId=space-nowhere"), 404, "unknown_space")


def test_an_entry_that_is_too_large_is_refused(api: httpx.Client) -> None:
    assert api.post("/api/log", json={"content": "x" * 2_000_000}).status_code == 413


def test_topics_of_similar_names_stay_apart(api: httpx.Client) -> None:
    ids = {api.post("/api/topics", json={"name": f"Quarterly report {n:03}"}).json()["id"] for n in range(40)}
    assert len(ids) == 40


def test_a_full_gate_says_so(gateway: Running, api: httpx.Client) -> None:
    gate = gateway.hold.board.search.gate
    with gate.entered(), gate.entered(), gate.entered():
        assert_problem(api.get("/api/search", params={"q": "x"}), 429, "search_busy")
    assert api.get("/api/search", params={"q": "x"}).status_code == 200


def test_two_streams_get_every_event_and_take_no_thread_each(gateway: Running, api: httpx.Client) -> None:
    """That nothing is lost after idle pings is told in test_stream."""
    with gateway.client(gateway.admin) as other, streaming(api) as first, streaming(other) as second:
        threads = threading.active_count()
        with gateway.client(gateway.admin) as writer:
            made = [writer.post("/api/log", json={"content": f"line {n}"}).json()["id"] for n in range(3)]
        for events in (first, second):
            told = (event for event in events if event.get("type") == "log.appended")
            assert [next(told)["data"]["id"] for _ in made] == made
        assert threading.active_count() <= threads + POOL


def test_every_working_connection_of_sqlite_is_set_up(sqlite_store: Store) -> None:
    """Foreign keys, write-ahead log and waiting hold on each connection, not only on the first."""
    wanted = {"foreign_keys": 1, "journal_mode": "wal", "synchronous": 1}
    with ExitStack() as open_:
        readers = [open_.enter_context(sqlite_store.read(OWNER)) for _ in range(4)]
        writer = open_.enter_context(sqlite_store.write(OWNER))
        for tx in (*readers, writer):
            told = {name: tx.conn.exec_driver_sql(f"PRAGMA {name}").scalar() for name in wanted}
            assert told == wanted
            assert tx.conn.exec_driver_sql("PRAGMA busy_timeout").scalar() > 0


def test_a_timeline_is_read_from_its_index_in_order(hold: Holdfast) -> None:
    def read(tx: Tx) -> None:
        for thread in (("session_key", "s"), ("topic_id", "t"), ("task_id", "k")):
            timeline(tx, EVERYTHING, thread, limit=6)
        stamp(tx, "s")

    plan = plan_of(hold.store, read)
    for index in ("entries_session", "entries_topic", "entries_task"):
        assert index in plan, plan
    assert "TEMP B-TREE" not in plan
    for table in ("entries", "changes"):
        assert_no_scan(plan, table)


def test_a_merge_into_a_topic_keeps_its_tags(api: httpx.Client) -> None:
    made = api.post("/api/topics", json={"name": "Walrus", "tags": ["space:Far", "big"]}).json()
    again = api.post("/api/topics", json={"name": "walrus", "spaceId": made["spaceId"], "tags": []}).json()
    assert (again["id"], again["tags"]) == (made["id"], made["tags"])


def test_reading_writes_nothing(hold: Holdfast, api: httpx.Client) -> None:
    api.post("/api/topics", json={"name": "Walrus", "tags": ["space:Far"]})
    with hold.store.read(OWNER) as tx:
        before = changes.bounds(tx)
    for path in ("spaces", "topics", "tasks", "search?q=walrus", "context?q=walrus", "graph", "changes"):
        assert api.get(f"/api/{path}").status_code == 200
    with hold.store.read(OWNER) as tx:
        assert changes.bounds(tx) == before


def test_one_thing_is_hidden_from_those_who_may_not_see_it(gateway: Running, api: httpx.Client) -> None:
    far = api.post("/api/topics", json={"name": "Walrus", "tags": ["space:Far"]}).json()
    said = api.post("/api/log", json={"content": "the walrus sleeps", "topicId": far["id"]}).json()
    with gateway.client(make_token(gateway.hold.store, "near", spaces=["space-near"])) as near:
        for path in (f"topics/{far['id']}", f"topics/{far['id']}/thread", f"log/{said['id']}"):
            assert near.get(f"/api/{path}").status_code == 404


def test_a_token_limited_to_agents_finds_what_they_said_among_much_that_others_said(
    gateway: Running, api: httpx.Client
) -> None:
    """The limit is the index's: what others said takes up no place among the few that are asked for."""
    with gateway.hold.store.write(OWNER) as tx:
        others = [EntryDraft(content=f"the walrus sings {n}", agent_id="other") for n in range(60)]
        entries.load(tx, others)
        mine = entries.append(tx, EntryDraft(content="a walrus sleeps somewhere", agent_id="mine")).entry
    with gateway.client(make_token(gateway.hold.store, "mine", agents=["mine"])) as limited:
        found = search(limited, "the walrus sings", limitLogs=10)
        assert [hit["id"] for hit in found["logs"]] == [mine.id]
