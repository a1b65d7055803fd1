"""The acceptance list of the continuity contract, point by point, through HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Running, running, wait_for

from holdfast.board import tools, topics
from holdfast.clock import ManualClock
from holdfast.log import OWNER, Classification, EntryDraft, Store, entries
from holdfast.runtime import Holdfast, open_home
from plans import assert_no_scan, effort, plans, recorded

KEY = "discord:dm:42"


@pytest.fixture
def hold(store_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[Holdfast]:
    with open_home(tmp_path / "home", store_url=store_url, clock=clock) as opened:
        yield opened


@pytest.fixture
def gateway(hold: Holdfast) -> Iterator[Running]:
    with running(hold) as found:
        yield found


def make(api: httpx.Client, path: str, **body: Any) -> dict[str, Any]:
    answer = api.post(path, json=body)
    assert answer.status_code in (200, 201), answer.text
    made: dict[str, Any] = answer.json()
    return made


def say(api: httpx.Client, text: str, session: str | None = KEY, **fields: Any) -> dict[str, Any]:
    source = {"channel": "discord"} | ({"sessionKey": session} if session else {})
    body = {"content": text, "type": "conversation", "agentId": "user", "source": source} | fields
    return make(api, "/api/log", **body)


def context(api: httpx.Client, **params: Any) -> dict[str, Any]:
    answer = api.get("/api/context", params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found["ok"] is True
    return found


def search(api: httpx.Client, q: str, **params: Any) -> dict[str, Any]:
    answer = api.get("/api/search", params={"q": q, **params})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.fixture
def settle(api: httpx.Client, clock: ManualClock) -> Callable[[], None]:
    """Let a moment pass, and wait until the classifier has sorted what was pending."""

    def wait() -> None:
        clock.advance(seconds=5)
        wait_for(lambda: api.get("/api/classifier/pending").json() == [])

    return wait


@pytest.fixture
def board(api: httpx.Client, settle: Callable[[], None]) -> dict[str, Any]:
    """A board in use: two topics in two spaces, a task in work, a note, and a session that talks."""
    garden = make(api, "/api/topics", name="Garden irrigation", tags=["space:Home"], pinned=True)
    rocket = make(api, "/api/topics", name="Rocket telemetry", tags=["space:Work"])
    task = make(api, "/api/tasks", title="Replace the drip valve", topicId=garden["id"], status="doing")
    said = say(api, "The drip valve behind the greenhouse leaks again.", topicId=garden["id"])
    say(api, "Telemetry of the second stage drops packets at night.", "other", topicId=rocket["id"])
    note = make(
        api,
        "/api/log",
        content="The valve has a half inch thread.",
        type="note",
        agentId="main",
        relatedLogId=said["id"],
        topicId=garden["id"],
        source={"sessionKey": KEY},
    )
    settle()
    search(api, "valve")  # The index is open from here on: no context of a slow machine is late.
    return {"garden": garden, "rocket": rocket, "task": task, "said": said, "note": note}


def test_01_context_is_never_empty_and_never_over_its_limit(api: httpx.Client, board: dict[str, Any]) -> None:
    for most in (400, 700, 2200, 12_000):
        found = context(api, q="where were we with the valve?", sessionKey=KEY, mode="full", maxChars=most)
        assert 0 < len(found["block"]) <= most
        assert found["block"].startswith("[CLAWBOARD_CONTEXT_BEGIN]")
        assert found["block"].endswith("[CLAWBOARD_CONTEXT_END]")
    assert api.get("/api/context", params={"maxChars": 399}).status_code == 422


def test_02_cheap_has_working_set_routing_memory_and_timeline_even_for_a_short_turn(
    api: httpx.Client, board: dict[str, Any]
) -> None:
    found = context(api, q="ok", sessionKey=KEY, mode="cheap")
    assert found["layers"] == ["A:working_set", "A:routing_memory", "A:timeline"]
    assert found["data"]["semantic"] is None
    for text in ("Garden irrigation", "Replace the drip valve (doing)", "leaks again"):
        assert text in found["block"]


def test_03_full_recalls_topics_tasks_logs_and_notes(api: httpx.Client, board: dict[str, Any]) -> None:
    found = context(api, q="which thread does the drip valve have?", sessionKey="fresh session", mode="full")
    assert "B:semantic" in found["layers"]
    recalled = found["data"]["semantic"]
    assert recalled["topics"][0]["id"] == board["garden"]["id"]
    assert recalled["tasks"][0]["id"] == board["task"]["id"]
    assert board["said"]["id"] in [hit["id"] for hit in recalled["logs"]]
    assert recalled["notes"][0]["id"] == board["note"]["id"]
    assert "half inch" in found["block"]


def test_04_one_call_gives_the_whole_block(api: httpx.Client, board: dict[str, Any]) -> None:
    """What a host injects before a run is the block as it is: nothing is left for it to put together."""
    found = context(
        api,
        q="what about the valve?",
        sessionKey=KEY,
        mode="auto",
        includePending=1,
        maxChars=2200,
        workingSetLimit=6,
        timelineLimit=6,
    )
    lines = found["block"].splitlines()
    assert lines[1].startswith("Clawboard continuity hook is active for this turn")
    assert lines[2].startswith("Use this Clawboard retrieval context merged with existing OpenClaw")
    assert "Clawboard context (layered):" in lines
    assert "Current user intent: what about the valve?" in lines
    assert "Mode: auto" in lines
    assert {"ok", "sessionKey", "q", "mode", "layers", "block", "data"} == set(found)


def test_05_the_seven_tools_read_and_write(
    gateway: Running, api: httpx.Client, board: dict[str, Any]
) -> None:
    who = tools.Caller("main", OWNER, KEY)

    def use(name: str, **arguments: Any) -> dict[str, Any]:
        return tools.call(gateway.hold.board, f"clawboard_{name}", arguments, who)

    assert set(tools.schemas()) == {
        f"clawboard_{name}"
        for name in (
            "search",
            "context",
            "get_topic",
            "get_task",
            "get_log",
            "create_note",
            "update_task",
        )
    }
    assert use("search", q="drip valve")["topics"][0]["id"] == board["garden"]["id"]
    assert "[CLAWBOARD_CONTEXT_BEGIN]" in use("context", q="valve")["block"]
    assert use("get_topic", id=board["garden"]["id"])["name"] == "Garden irrigation"
    assert use("get_task", id=board["task"]["id"])["status"] == "doing"
    assert "leaks" in use("get_log", id=board["said"]["id"])["content"]
    note = use("create_note", relatedLogId=board["said"]["id"], text="Spare valves are in the shed.")
    assert api.get(f"/api/log/{note['id']}").json()["topicId"] == board["garden"]["id"]
    use("update_task", id=board["task"]["id"], status="done")
    assert api.get(f"/api/tasks/{board['task']['id']}").json()["status"] == "done"


def test_06_a_digest_does_not_move_a_topic(
    gateway: Running, api: httpx.Client, board: dict[str, Any]
) -> None:
    before = api.get("/api/topics").json()
    with gateway.hold.store.write(OWNER) as tx:
        topics.set_digest(tx, board["rocket"]["id"], "Packets are lost between two and four at night.")
    after = api.get("/api/topics").json()
    assert [(t["id"], t["updatedAt"]) for t in after] == [(t["id"], t["updatedAt"]) for t in before]
    assert "Packets are lost" in context(api, mode="cheap")["block"]
    hits = search(api, "between two and four")
    assert "lexical" not in hits["topics"][0]["parts"] if hits["topics"] else True


def test_07_nothing_outside_the_allowed_spaces_is_shown(api: httpx.Client, board: dict[str, Any]) -> None:
    edges = {"connectivity": {"space-work": False}}
    assert api.patch("/api/spaces/space-home/connectivity", json=edges).status_code == 200
    for ask in ({"spaceId": "space-home"}, {"sessionKey": KEY}):
        found = context(api, q="telemetry of the second stage", mode="full", **ask)
        assert "elemetry of" not in found["block"].replace("Current user intent: telemetry of", "")
        assert board["rocket"]["id"] not in str(found["data"])
        hits = search(api, "telemetry of the second stage drops packets", **ask)
        assert board["rocket"]["id"] not in str([hits["topics"], hits["tasks"], hits["logs"]])
        assert not any("packets" in hit["content"] for hit in hits["logs"])


def test_08_a_topic_lies_in_its_own_space_and_in_those_of_its_tags(
    api: httpx.Client, board: dict[str, Any]
) -> None:
    shared = make(api, "/api/topics", name="Weather station", tags=["space:Home", "space:Work"])
    said = say(api, "The anemometer wobbles in strong wind.", "third", topicId=shared["id"])
    for space in ("space-home", "space-work"):
        assert "Weather station" in context(api, mode="cheap", spaceId=space)["block"]
        hits = search(api, "anemometer wobbles", spaceId=space)
        assert hits["topics"][0]["id"] == shared["id"]
        assert hits["logs"][0]["id"] == said["id"]


def test_09_context_does_not_read_in_proportion_to_the_log(
    gateway: Running, api: httpx.Client, board: dict[str, Any]
) -> None:
    """Twenty times the log of the same session, topic and space: the same statements, the same work."""
    store = gateway.hold.store
    _talk(store, board, 100)
    few = {mode: _work(store, api, mode, 2200) for mode in ("cheap", "full")}
    _talk(store, board, 2000)
    gateway.hold.memory.follow(5000)
    for mode, (statements, work) in few.items():
        more_statements, more_work = _work(store, api, mode, 2300)
        assert more_statements <= statements + 2, mode
        assert more_work <= 1.5 * work, mode


def _talk(store: Store, board: dict[str, Any], count: int) -> None:
    with store.write(OWNER) as tx:
        same = {"session_key": KEY, "agent_id": "user", "status": Classification.CLASSIFIED}
        place = {"topic_id": board["garden"]["id"], "space_id": "space-home"}
        entries.load(tx, [EntryDraft(content=f"valve line {n}", **same, **place) for n in range(count)])
        if store.postgres:
            tx.conn.exec_driver_sql("ANALYZE entries")  # It does so by itself, but not at once.


def _work(store: Store, api: httpx.Client, mode: str, chars: int) -> tuple[int, int]:
    """How many statements a context takes, and what the database does for them; each uses an index.

    The least of a few: what services read in the meantime is not the context's.
    """
    return min(_work_once(store, api, mode, chars + n) for n in range(4))


def _work_once(store: Store, api: httpx.Client, mode: str, chars: int) -> tuple[int, int]:
    with recorded(store) as seen:
        context(api, q="the valve", sessionKey=KEY, mode=mode, maxChars=chars)
    with store.read(OWNER) as tx:
        for plan in plans(tx, seen) if not store.postgres else ():
            for table in ("entries", "changes", "topics", "tasks", "session_routing"):
                assert_no_scan(plan, table)
        return len(seen), sum(effort(tx, sql, params) for sql, params in seen)


def test_10_a_short_turn_recalls_nothing_unless_it_is_in_a_board_chat(
    api: httpx.Client, board: dict[str, Any]
) -> None:
    assert context(api, q="ok", sessionKey=KEY)["data"]["semantic"] is None
    assert context(api, q="", sessionKey=KEY)["data"]["semantic"] is None
    assert context(api, q="the leaking valve", sessionKey=KEY)["data"]["semantic"] is not None
    chat = f"clawboard:task:{board['garden']['id']}:{board['task']['id']}"
    found = context(api, q="continue", sessionKey=chat)
    assert {"A:board_session", "B:semantic"} <= set(found["layers"])
    assert found["data"]["semantic"]["notes"][0]["id"] == board["note"]["id"]


def test_11_search_stays_as_it_is_whether_or_not_context_was_asked(
    api: httpx.Client, board: dict[str, Any]
) -> None:
    before = search(api, "drip valve")
    context(api, q="drip valve", sessionKey=KEY, mode="patient")
    after = search(api, "drip valve")
    ours = {"confidence", "fits", "behind"}
    assert {"ok", "q", "mode", "topics", "tasks", "logs", "notes", "took"} == set(before) - ours
    for kind in ("topics", "tasks", "logs", "notes"):
        assert before[kind] == after[kind] != []
        for hit in before[kind]:
            assert hit["score"] == pytest.approx(sum(hit["parts"].values()), abs=1e-3)


def test_12_an_injected_block_that_is_logged_again_changes_nothing(
    api: httpx.Client, board: dict[str, Any], settle: Callable[[], None]
) -> None:
    question = {"q": "which thread does the valve have?", "sessionKey": KEY, "mode": "full"}
    before, hits = context(api, **question), search(api, "half inch thread valve")
    block = before["block"]
    echo = {"agentId": "main", "source": {"sessionKey": KEY, "channel": "discord"}}
    make(api, "/api/log", content=block, **echo)
    make(api, "/api/log", content=f"> {block}".replace("\n", "\n> "), **echo)
    settle()
    again, found = context(api, **question), search(api, "half inch thread valve")
    assert again["block"] == block
    for kind in ("topics", "tasks", "logs", "notes"):
        assert [hit["id"] for hit in found[kind]] == [hit["id"] for hit in hits[kind]]
