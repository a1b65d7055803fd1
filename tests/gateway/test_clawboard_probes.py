"""What the existing implementation gets wrong when probed: each probe is a test here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Running, assert_problem, make_token

from holdfast.clock import ManualClock
from holdfast.log import EntryDraft, entries
from holdfast.runtime import Holdfast, open_home


@pytest.fixture
def hold(store_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[Holdfast]:
    with open_home(tmp_path / "home", store_url=store_url, clock=clock) as opened:
        yield opened


def search(api: httpx.Client, q: str, **params: Any) -> dict[str, Any]:
    found: dict[str, Any] = api.get("/api/search", params={"q": q, **params}).json()
    return found


def test_the_only_entry_with_a_rare_word_is_found_however_old(hold: Holdfast, api: httpx.Client) -> None:
    with hold.store.write() as tx:
        old = entries.append(tx, EntryDraft(content="the quokka handshake failed")).entry
        filler = [EntryDraft(content=f"database lock number {n} was released") for n in range(1500)]
        entries.load(tx, filler)
    assert old.id in [hit["id"] for hit in search(api, "quokka database lock")["logs"]]
    assert search(api, "quokka handshake")["logs"][0]["id"] == old.id


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
    api.post("/api/topics", json={"name": "Secret walrus", "tags": ["space:Far"]})
    api.post("/api/topics", json={"name": "Open walrus", "tags": ["space:Near"]})
    token = make_token(gateway.hold.store, "near", spaces=["space-near"])
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
