"""`holdfast board …`: by itself and through a gateway that runs, and how it reads at 80 and 120 columns."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_stage import Run
from click.testing import Result

from holdfast.board import ingest, spaces, tasks, topics
from holdfast.cli.commands.board import Item, hits, listed, thread
from holdfast.log import OWNER, EntryDraft, EntryType, entries
from holdfast.runtime import open_home

KEY = "discord:dm:42"


def body(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def text(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def board(run: Run, home: Path) -> dict[str, str]:
    """Two spaces that do not see each other, a topic in each, a task, a note, and what was said."""
    run("init")
    with open_home(home) as hold, hold.store.write(OWNER) as tx:
        for name in ("Home", "Work"):
            spaces.upsert(tx, name, default_visible=False)
        garden = topics.upsert(tx, "Garden irrigation", tags=["space:Home"], pinned=True).topic
        rocket = topics.upsert(tx, "Rocket telemetry", tags=["space:Work"], status="doing").topic
        task = tasks.upsert(tx, "Replace the drip valve", topic_id=garden.id, status="doing").task
        topics.set_digest(tx, garden.id, "The valve is the third one this year.")
        said = _say(tx, "The drip valve behind the greenhouse leaks again.", garden.id)
        _say(tx, "Telemetry of the second stage drops packets.", rocket.id, session="other")
        note = _say(tx, "The valve has a half inch thread.", garden.id, type=EntryType.NOTE)
        beat = _say(tx, "HEARTBEAT_OK", None)
    return {
        "garden": garden.id,
        "rocket": rocket.id,
        "task": task.id,
        "said": said,
        "note": note,
        "beat": beat,
    }


def _say(tx: Any, words: str, topic: str | None, session: str = KEY, **fields: Any) -> str:
    draft = EntryDraft(content=words, topic_id=topic, session_key=session, agent_id="user", **fields)
    return entries.append(tx, ingest.prepare(tx, draft)).entry.id


@pytest.fixture(params=["alone", "served"])
def served(request: pytest.FixtureRequest, board: dict[str, str], home: Path) -> Iterator[None]:
    """Every command answers the same by itself and when a gateway has the home open."""
    if request.param == "alone":
        yield
        return
    from holdfast.cli.client import announced
    from holdfast.gateway import listen
    from holdfast.gateway.server import server_for

    with open_home(home) as hold:
        sock = listen("127.0.0.1", 0)
        server = server_for(hold)
        worker = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[sock])))
        worker.start()
        try:
            with announced(hold.home, f"http://127.0.0.1:{sock.getsockname()[1]}"):
                yield
        finally:
            server.should_exit = True
            worker.join(30)


@pytest.mark.usefixtures("served")
def test_everything_on_the_board_can_be_read(run: Run, board: dict[str, str]) -> None:
    sees = {one["id"]: one for one in body(run("board", "spaces", "--json"))}
    assert {"space-home", "space-work"} <= set(sees)
    assert "itself alone" in text(run("board", "spaces"))

    listing = text(run("board", "topics"))
    assert "Garden irrigation" in listing
    assert "active, pinned" in listing
    only = body(run("board", "topics", "--space", "space-work", "--json"))
    assert [one["id"] for one in only] == [board["rocket"]]
    moving = body(run("board", "topics", "--status", "doing", "--json"))
    assert [one["id"] for one in moving] == [board["rocket"]]

    shown = text(run("board", "topics", board["garden"]))
    assert "The valve is the third one this year." in shown
    assert shown.index("leaks again") < shown.index("half inch")
    full = body(run("board", "topics", board["garden"], "--json"))
    assert [one["id"] for one in full["thread"]] == [board["note"], board["said"]]

    assert "Replace the drip valve" in text(run("board", "tasks", "--topic", board["garden"]))
    assert body(run("board", "tasks", board["task"], "--json"))["topicId"] == board["garden"]

    found = text(run("board", "search", "drip valve", "--explain"))
    assert found.startswith("Topics")
    assert board["task"] in found
    assert "lexical" in found
    assert "Nothing was found." in text(run("board", "search", "zeppelin", "--topic", board["rocket"]))

    made = run("board", "context", "the drip valve", "--session", KEY, "--mode", "full", "--max-chars", 900)
    assert text(made).startswith("[CLAWBOARD_CONTEXT_BEGIN]")
    assert "half inch thread" in made.stdout
    assert "Rocket" not in made.stdout
    assert "characters; A:working_set" in made.stderr

    why = text(run("board", "log", board["beat"], "--why"))
    assert why.startswith("rule: a heartbeat or upkeep")
    assert "filtered_control_plane" in why
    assert "leaks again" in text(run("board", "log", board["said"]))
    assert board["said"] in text(run("board", "log", "--session", KEY))


@pytest.mark.usefixtures("served")
def test_what_is_not_there_is_said_in_one_line(run: Run) -> None:
    for args in (["topics", "topic-none"], ["tasks", "task-none"], ["log", "none"], ["log", "none", "--why"]):
        result = run("board", *args)
        assert result.exit_code != 0
        assert result.stderr.startswith("error: no ")
        assert "Traceback" not in result.output
    assert run("board", "topics", "--space", "space-nowhere").exit_code != 0


def test_wrong_use_ends_with_two(run: Run, board: dict[str, str]) -> None:
    for args in (["log", "--why"], ["search"], ["context", "--max-chars", "10"], ["topics", "-n", "0"]):
        assert run("board", *args).exit_code == 2, args


LONG = "Wir haben die Ventile im Gewächshaus getauscht und danach den Druck noch zweimal gemessen. " * 6
ENTRY = {"agentLabel": None, "agentId": "user", "createdAt": "2026-02-03T10:11:12.000Z", "content": LONG}


@pytest.mark.parametrize("width", [20, 80, 120, 300])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    id_ = "topic-01a1e388-6f90-7000-9abe-f719f9979893"
    names = ("dense", "lexical", "beside", "answer", "statement", "passage", "name", "session")
    parts = dict.fromkeys(names, 0.1234)
    hit = {"id": id_, "score": 0.8123, "parts": parts, "content": LONG}
    lines = [
        *listed([Item(LONG, id_, "doing, pinned, high", "space-home  2026-02-03 10:11")], width),
        *hits([hit], width, explain=True),
        *thread([{**ENTRY, "id": id_}], width),
    ]
    assert max(map(len, lines)) <= max(40, min(width, 120))
    assert len(lines) <= 40
    if width >= 80:
        assert sum(id_ in line for line in lines) == 3
        assert lines[0].endswith("doing, pinned, high")


def test_in_a_pipe_each_thing_is_one_whole_line() -> None:
    (line,) = thread([{**ENTRY, "id": "log-1"}], None)
    assert line == f"2026-02-03 10:11  log-1  user: {LONG.strip()}"
    (line,) = hits([{"id": "log-1", "score": 0.5, "parts": {}, "content": "a\nb\x1b[2J"}], None)
    assert line == "0.50  log-1  a b\ufffd[2J"
