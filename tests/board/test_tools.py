"""The board's tools: strict about what they take, small in what they give, and no way around visibility."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.board import tasks, tools, topics
from holdfast.board.context_room import Board
from holdfast.config.board import BoardConfig
from holdfast.errors import InvalidInput, NotFound
from holdfast.log import OWNER, EntryDraft, Store, entries

CONFIG = BoardConfig()


@pytest.fixture
def desk(sqlite_store: Store) -> dict[str, Any]:
    with sqlite_store.write(OWNER) as tx:
        mine = topics.upsert(tx, "Mine", tags=["space:Mine"]).topic
        other = topics.upsert(tx, "Other", tags=["space:Other"]).topic
        task = tasks.upsert(tx, "Dig", topic_id=mine.id).task
        hidden = tasks.upsert(tx, "Hide", topic_id=other.id).task
        said = entries.append(tx, EntryDraft(content="x" * 9_000, topic_id=mine.id)).entry
        secret = entries.append(tx, EntryDraft(content="secret", topic_id=other.id)).entry
    ids = {"mine": mine, "other": other, "task": task, "hidden": hidden, "said": said, "secret": secret}
    return {"board": Board(sqlite_store, lambda: CONFIG), **{name: one.id for name, one in ids.items()}}


def use(desk: dict[str, Any], name: str, **arguments: Any) -> dict[str, Any]:
    caller = tools.Caller("main", OWNER, "agent:main:main", frozenset(("space-mine",)))
    return tools.call(desk["board"], f"clawboard_{name}", arguments, caller)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("search", {}),
        ("search", {"q": ""}),
        ("search", {"q": "x", "limitLogs": 5000}),
        ("search", {"q": "x", "spaceId": "space-other"}),
        ("context", {"mode": "deep"}),
        ("context", {"maxChars": 100}),
        ("get_topic", {"id": ""}),
        ("create_note", {"text": "no entry named"}),
        ("update_task", {"id": "TASK", "status": "snoozed"}),
        ("update_task", {"id": "TASK", "dueDate": "tomorrow"}),
        ("update_task", {"id": "TASK"}),
        ("unknown", {}),
    ],
)
def test_what_does_not_fit_the_schema_is_refused(desk: dict[str, Any], name: str, arguments: Any) -> None:
    given = {k: desk["task"] if v == "TASK" else v for k, v in arguments.items()}
    with pytest.raises(InvalidInput):
        use(desk, name, **given)


def test_what_is_out_of_sight_looks_like_nothing(desk: dict[str, Any]) -> None:
    for name, arguments in (
        ("get_topic", {"id": desk["other"]}),
        ("get_task", {"id": desk["hidden"]}),
        ("get_log", {"id": desk["secret"]}),
        ("create_note", {"relatedLogId": desk["secret"], "text": "n"}),
        ("create_note", {"relatedLogId": desk["said"], "text": "n", "topicId": desk["other"]}),
        ("create_note", {"relatedLogId": desk["said"], "text": "n", "taskId": desk["hidden"]}),
        ("update_task", {"id": desk["hidden"], "status": "done"}),
    ):
        with pytest.raises(NotFound):
            use(desk, name, **arguments)


def test_answers_are_small(desk: dict[str, Any]) -> None:
    assert len(json.dumps(use(desk, "get_log", id=desk["said"], includeRaw=True))) < 5_000


def test_a_note_is_written_once_and_lies_where_its_entry_lies(desk: dict[str, Any]) -> None:
    first = use(desk, "create_note", relatedLogId=desk["said"], text="Dig deeper.")
    again = use(desk, "create_note", relatedLogId=desk["said"], text="Dig deeper.")
    assert (first["created"], again["created"], again["id"]) == (True, False, first["id"])
    assert (first["topicId"], first["type"]) == (desk["mine"], "note")


def test_a_task_is_changed_in_the_given_fields_only(desk: dict[str, Any]) -> None:
    made = use(desk, "update_task", id=desk["task"], status="doing", dueDate="2026-03-01T09:00:00Z")
    assert (made["status"], made["dueDate"], made["title"]) == ("doing", "2026-03-01T09:00:00.000Z", "Dig")
    assert use(desk, "update_task", id=desk["task"], dueDate="")["dueDate"] is None


def test_every_tool_has_a_schema_that_forbids_what_it_does_not_know() -> None:
    for schema in tools.schemas().values():
        assert schema["description"]
        assert schema["parameters"]["additionalProperties"] is False
