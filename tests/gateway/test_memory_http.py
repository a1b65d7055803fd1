"""`/api/memory`: search, read and status over HTTP, within what the caller and the chat may see."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Running, assert_problem, make_token, running, wait_for

from builders import append
from holdfast.board import topics
from holdfast.clock import ManualClock
from holdfast.gateway.tokens import Scope
from holdfast.log import OWNER, sqlite_url
from holdfast.runtime import forgetting, open_home


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Running]:
    """One gateway for these tests, over two agents, each with a file of its own, indexed."""
    home = tmp_path_factory.mktemp("memory") / "home"
    home.mkdir()
    config = {"agents": {"list": [{"id": "main", "default": True}, {"id": "work"}]}}
    (home / "holdfast.json").write_text(json.dumps(config))
    with open_home(
        home, store_url=sqlite_url(shutil.copy(sqlite_template, home)), clock=ManualClock()
    ) as hold:
        for agent, text in (
            ("main", "# Access\n\nThe staging deploy needs the VPN.\n"),
            ("work", "Turnips."),
        ):
            hold.workspace(agent).mkdir(parents=True)
            (hold.workspace(agent) / "MEMORY.md").write_text(text)
            hold.memory.update(agent)
        with running(hold) as found:
            yield found


def search(client: httpx.Client, q: str, **params: Any) -> dict[str, Any]:
    answer = client.get("/api/memory/search", params={"q": q, **params})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_search_answers_with_sources_and_says_who_served(api: httpx.Client) -> None:
    found = search(api, "what does the staging deploy need?")
    hit = found["results"][0]
    assert (hit["path"], hit["startLine"], hit["endLine"], hit["source"]) == ("MEMORY.md", 1, 3, "memory")
    assert hit["snippet"].endswith("Source: MEMORY.md#L1-L3")
    assert "parts" not in hit
    assert found["diagnostics"]["backend"] == "builtin"
    assert found["diagnostics"]["searched"] >= 1


def test_the_parts_of_a_score_are_shown_when_asked_for(api: httpx.Client) -> None:
    hit = search(api, "staging deploy", explain="true")["results"][0]
    assert sum(hit["parts"].values()) == pytest.approx(hit["score"], abs=0.001)


def test_an_empty_answer_says_why(api: httpx.Client) -> None:
    found = search(api, "staging", minScore=1)
    assert found["results"] == []
    assert "below the least score" in found["diagnostics"]["note"]


def test_what_was_just_said_is_found(gateway: Running, api: httpx.Client) -> None:
    append(gateway.hold.store, "The albatross landed.", session_key="agent:main:main", role="user")
    hit, *_ = [h for h in search(api, "albatross")["results"] if h["source"] == "sessions"]
    read = api.get("/api/memory/get", params={"path": hit["path"]}).json()
    assert "albatross" in read["text"]


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"q": ""},
        {"q": "   "},
        {"q": "x" * 4001},
        {"q": "x", "maxResults": 0},
        {"q": "x", "maxResults": 101},
        {"q": "x", "maxResults": "many"},
        {"q": "x", "minScore": 2},
        {"q": "x", "minScore": "nan"},
    ],
)
def test_a_search_that_makes_no_sense_is_refused(api: httpx.Client, params: dict[str, Any]) -> None:
    assert_problem(api.get("/api/memory/search", params=params), 422, "invalid_input")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/etc/passwd", "path_refused"),
        ("../holdfast.json", "path_refused"),
        ("memory/../../token.md", "path_refused"),
        ("holdfast.db", "path_refused"),
        ("AGENTS.md", "not_in_memory"),
        ("qmd/other/x.md", "not_in_memory"),
    ],
)
def test_paths_that_lead_elsewhere_are_refused(api: httpx.Client, path: str, code: str) -> None:
    assert_problem(api.get("/api/memory/get", params={"path": path}), 422, code)


def test_a_path_with_a_nul_is_refused(api: httpx.Client) -> None:
    assert api.get("/api/memory/get", params={"path": "memory/a\0.md"}).status_code == 422


def test_a_file_or_an_agent_that_is_not_there_is_said_so(api: httpx.Client) -> None:
    assert_problem(api.get("/api/memory/get", params={"path": "memory/none.md"}), 404, "unknown_file")
    for name in ("search", "status", "get"):
        params = {"q": "x", "path": "MEMORY.md", "agentId": "nobody"}
        assert api.get(f"/api/memory/{name}", params=params).status_code == 404


def test_reading_is_paged_and_bounded(api: httpx.Client) -> None:
    read = api.get("/api/memory/get", params={"path": "MEMORY.md", "from": 3, "lines": 1}).json()
    assert (read["text"], read["totalLines"], read["more"]) == ("The staging deploy needs the VPN.", 3, False)
    for bad in ({"from": 0}, {"lines": 0}, {"lines": 10_001}):
        assert_problem(api.get("/api/memory/get", params={"path": "MEMORY.md", **bad}), 422, "invalid_input")


@pytest.mark.parametrize("key", ["agent:main:discord:group:9", "agent:main:slack:channel:c1", "odd-key"])
def test_a_group_chat_gets_nothing(api: httpx.Client, key: str) -> None:
    found = search(api, "staging deploy", sessionKey=key)
    assert (found["results"], found["diagnostics"]["mode"]) == ([], "refused")
    read = api.get("/api/memory/get", params={"path": "MEMORY.md", "sessionKey": key})
    assert_problem(read, 422, "memory_scope")


def test_a_token_limited_to_an_agent_sees_only_that_memory(gateway: Running) -> None:
    with gateway.client(make_token(gateway.hold.store, "w", Scope.READ, agents=["work"])) as limited:
        assert search(limited, "turnips", agentId="work")["results"]
        for name in ("search", "get", "status"):
            for agent in ({}, {"agentId": "main"}):
                params = {"q": "x", "path": "MEMORY.md", **agent}
                assert_problem(limited.get(f"/api/memory/{name}", params=params), 404, "unknown_agent")


def test_a_token_limited_to_spaces_has_no_part_in_memory(gateway: Running) -> None:
    with gateway.client(make_token(gateway.hold.store, "s", Scope.READ, spaces=["s1"])) as limited:
        for name in ("search", "get", "status"):
            params = {"q": "staging", "path": "MEMORY.md"}
            assert_problem(limited.get(f"/api/memory/{name}", params=params), 404, "unknown_agent")


def logged(api: httpx.Client, content: str) -> str:
    made: str = api.post("/api/log", json={"type": "note", "content": content}).json()["id"]
    return made


def test_a_copy_of_any_telling_line_is_found_and_of_a_small_one_none(api: httpx.Client) -> None:
    long = "The spare key hangs behind the third board of the boathouse."
    other = "Ask the harbour master for the tide table of next spring."
    whole = logged(api, f"{long}\n{other}\nThanks a lot!")
    copy = logged(api, f"He wrote: {other} And so I did.")
    logged(api, "Thanks a lot! See you.")
    told = api.get("/api/memory/quotes", params={"entryId": whole}).json()
    assert [(one["kind"], one["id"]) for one in told["quotes"]] == [("entry", copy)]
    assert not told["cut"]


def test_in_a_long_log_the_look_for_copies_is_bounded_and_says_so(
    api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "The otter sleeps under the northern pier."
    whole, near, *_far, last = [logged(api, words) for _ in range(9)]
    assert not api.get("/api/memory/quotes", params={"entryId": whole}).json()["cut"]
    monkeypatch.setattr(forgetting, "MOST_ENTRIES", 2)
    told = api.get("/api/memory/quotes", params={"entryId": whole}).json()
    assert [one["id"] for one in told["quotes"]] == [last, near]
    assert told["cut"]


def test_what_is_forgotten_leaves_every_digest_however_many_there_are(
    gateway: Running, api: httpx.Client
) -> None:
    words = "The heron stole two of the ornamental carp."
    count = forgetting.MOST_QUOTES + 2
    with gateway.hold.store.write(OWNER) as tx:
        for number in range(count):
            topics.upsert(tx, f"Carp {number}", digest=words)
    whole = logged(api, words)
    told = api.get("/api/memory/quotes", params={"entryId": whole}).json()
    assert (len(told["quotes"]), told["cut"]) == (forgetting.MOST_QUOTES, True)
    assert api.post("/api/memory/forget", json={"entryIds": [whole]}).json()["digests"] == count


def test_agents_do_not_find_each_other_s_files(api: httpx.Client) -> None:
    assert [h["snippet"] for h in search(api, "turnips", agentId="work", maxResults=9)["results"]] != []
    assert not any("urnip" in h["snippet"] for h in search(api, "turnips")["results"])


def test_status_tells_what_is_indexed_and_how_fresh(api: httpx.Client) -> None:
    told = api.get("/api/memory/status").json()
    assert (told["agent"], told["backend"]) == ("main", "builtin")
    assert told["collections"][0] == {"name": "memory-root", "files": 1, "chunks": 1}
    assert told["updatedAt"]


def test_the_gateway_takes_in_new_files_and_tells_pages(gateway: Running, api: httpx.Client) -> None:
    """At start the first cycle runs: a file that was written before it is found without any command."""
    wait_for(lambda: api.get("/api/memory/status").json()["updatedAt"] is not None)
    folder: Path = gateway.hold.workspace("main") / "memory"
    folder.mkdir(exist_ok=True)
    (folder / "new.md").write_text("The heron moved in.")
    gateway.services.cycles.schedule_boot()
    wait_for(lambda: search(api, "heron", minScore=0.3)["results"])
    wait_for(lambda: any(c["type"] == "memory.updated" for c in api.get("/api/changes").json()))
    (told, *_) = [c for c in api.get("/api/changes").json() if c["type"] == "memory.updated"]
    assert (told["entityId"], told["data"]["agentId"], told["data"]["indexed"]) == ("main", "main", 1)
