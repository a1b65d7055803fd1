"""The rules of ingest, one row each: what comes in, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.board.rules import Decision, Facts, Scope, decide, normalised_source
from holdfast.log import Classification, EntryDraft, EntryType

PENDING, CLASSIFIED, FAILED = Classification.PENDING, Classification.CLASSIFIED, Classification.FAILED
FACTS = Facts(
    topics={"t1": "space-a", "t2": "space-b"},
    tasks={"k1": "t1", "k2": "t2"},
    spaces=frozenset(("space-a", "space-b")),
)
CHILD = "agent:main:subagent:11111111-1111-1111-1111-111111111111"


def ruled(content: str = "please mend the fence", facts: Facts = FACTS, **fields: Any) -> Decision:
    return decide(EntryDraft(content=content, **fields), facts)


@pytest.mark.parametrize(
    ("fields", "topic", "task", "space", "origin"),
    [
        ({"session_key": "clawboard:task:t1:k1"}, "t1", "k1", "space-a", "board_key"),
        ({"session_key": "clawboard:topic:t2"}, "t2", None, "space-b", "board_key"),
        ({"session_key": "agent:main:clawboard:topic:t2|thread:9"}, "t2", None, "space-b", "board_key"),
        ({"session_key": "clawboard:topic:t1", "topic_id": "t2"}, "t1", None, "space-a", "board_key"),
        (
            {"session_key": "clawboard:topic:t1", "source": {"boardScopeTopicId": "t2"}},
            "t1", None, "space-a", "board_key",
        ),
        ({"topic_id": "t1", "task_id": "k1"}, "t1", "k1", "space-a", "row"),
        ({"topic_id": "t1", "task_id": "k2"}, "t1", None, "space-a", "row"),
        ({"task_id": "k2"}, "t2", "k2", "space-b", "row"),
        ({"topic_id": "t1", "space_id": "space-b"}, "t1", None, "space-a", "row"),
        ({"topic_id": "gone"}, None, None, None, "none"),
        (
            {"source": {"boardScopeTopicId": " t1 ", "boardScopeTaskId": "k1"}},
            "t1", "k1", "space-a", "source",
        ),
        ({"source": {"boardScopeTopicId": "gone"}}, None, None, None, "none"),
        ({"source": {"boardScopeTopicId": 7}}, None, None, None, "none"),
        ({"source": {"boardScopeSpaceId": "space-b"}}, None, None, "space-b", "none"),
        ({"space_id": "space-unknown"}, None, None, None, "none"),
        ({}, None, None, None, "none"),
    ],
)  # fmt: skip
def test_scope_comes_from_the_first_that_names_it(
    fields: dict[str, Any], topic: str | None, task: str | None, space: str | None, origin: str
) -> None:
    found = ruled(**fields)
    assert (found.status, found.code) == (PENDING, None)
    scope = found.scope
    assert (scope.topic_id, scope.task_id, scope.space_id, scope.origin) == (topic, task, space, origin)


@pytest.mark.parametrize(
    ("content", "fields", "status", "code"),
    [
        ("backup done", {"source": {"channel": "cron-event"}}, FAILED, "filtered_cron_event"),
        ("[cron:nightly] run the backup", {}, FAILED, "filtered_cron_event"),
        ("tidy up", {"session_key": "agent:main:cron:job:run:1"}, FAILED, "filtered_cron_event"),
        ("anything", {"source": {"channel": "Heartbeat"}}, FAILED, "filtered_control_plane"),
        ("anything", {"source": {"channel": "maintenance"}}, FAILED, "filtered_control_plane"),
        ("Read HEARTBEAT.md if it exists. Follow it.", {}, FAILED, "filtered_control_plane"),
        ("**HEARTBEAT_OK**", {"role": "assistant"}, FAILED, "filtered_control_plane"),
        ("NO_REPLY", {"role": "assistant"}, FAILED, "filtered_control_plane"),
        ("[Subagent Context] You are a subagent.", {}, FAILED, "filtered_subagent_scaffold"),
        ("[Mon 2026-02-03 10:11 UTC] [Subagent Context] Go.", {}, FAILED, "filtered_subagent_scaffold"),
        ("Tool call: exec ls", {"type": EntryType.ACTION}, FAILED, "filtered_unanchored_tool_activity"),
        ("x", {"type": EntryType.ACTION, "role": "tool"}, FAILED, "filtered_unanchored_tool_activity"),
        (
            "Tool result: exec ok",
            {"type": EntryType.ACTION, "topic_id": "t1"},
            CLASSIFIED,
            "filtered_tool_activity",
        ),
        (
            "Tool error: exec",
            {"type": EntryType.ACTION, "session_key": "clawboard:topic:t1"},
            CLASSIFIED,
            "filtered_tool_activity",
        ),
        (
            "looked",
            {"type": EntryType.ACTION, "source": {"toolName": "memory_search"}},
            CLASSIFIED,
            "filtered_memory_action",
        ),
        ("Tool call: clawboard_search q", {"type": EntryType.ACTION}, CLASSIFIED, "filtered_memory_action"),
        ("started", {"type": EntryType.SYSTEM}, CLASSIFIED, "filtered_non_semantic"),
        ("old", {"type": EntryType.IMPORT}, CLASSIFIED, "filtered_non_semantic"),
        ("/new", {"role": "user"}, CLASSIFIED, "filtered_command"),
        ("/model gpt please", {}, CLASSIFIED, "filtered_command"),
        ("/anything", {}, CLASSIFIED, "filtered_command"),
        (
            "[CLAWBOARD_CONTEXT_BEGIN]\nMode: auto\n[CLAWBOARD_CONTEXT_END]",
            {},
            FAILED,
            "context_injection_noise",
        ),
        ('{"candidateTopics": [], "exchange": "x"}', {}, FAILED, "classifier_payload_noise"),
        ("hello", {"session_key": "internal:clawboard-classifier:7"}, FAILED, "classifier_payload_noise"),
        ("  \n ", {}, FAILED, "conversation_noise"),
        ("on my way", {"session_key": CHILD}, FAILED, "filtered_unlinked_subagent"),
        ("hello", {"session_key": "clawboard:topic:gone"}, FAILED, "unknown_board_scope"),
        ("hello", {"session_key": "clawboard:task:t1:k2"}, FAILED, "unknown_board_scope"),
        ("remember this", {"type": EntryType.NOTE, "topic_id": "t1"}, CLASSIFIED, None),
    ],
)
def test_what_is_no_request_ends_with_its_code(
    content: str, fields: dict[str, Any], status: Classification, code: str | None
) -> None:
    found = ruled(content, **fields)
    assert (found.status, found.code) == (status, code)
    if status is FAILED:
        assert found.scope.topic_id is None
        assert found.scope.task_id is None


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        ("/home/ada/notes is full, why?", {}),
        ("/etc holds what", {}),
        ("What does HEARTBEAT_OK mean?", {}),
        ("Tell me what [Subagent Context] is", {}),
        ("why did the cron job fail?", {}),
        ("[cron] is broken again", {}),
        ("Tool call: is that a good name?", {}),
        ("deployed the site", {"type": EntryType.ACTION}),
        ("yes", {}),
        ("👍", {}),
        ("a note about nothing", {"type": EntryType.NOTE}),
    ],
)
def test_what_a_person_says_is_not_filtered(content: str, fields: dict[str, Any]) -> None:
    assert ruled(content, **fields).status is PENDING


def test_a_subagent_inherits_by_an_explicit_link_alone() -> None:
    linked = Facts(topics=FACTS.topics, tasks=FACTS.tasks, link=Scope("t1", "k1", "space-a"))
    assert ruled(session_key=CHILD, facts=linked).scope == Scope("t1", "k1", "space-a", "link", locked=True)
    on_row = ruled(session_key=CHILD, source={"boardScopeTopicId": "t2"})
    assert (on_row.status, on_row.scope.topic_id) == (PENDING, "t2")
    assert ruled(session_key=CHILD, facts=Facts(awaits_link=True)).status is PENDING
    gone = Facts(topics={}, link=Scope("t1", None, "space-a"))
    assert ruled(session_key=CHILD, facts=gone).code == "filtered_unlinked_subagent"


def test_a_note_lies_with_the_entry_that_it_is_about() -> None:
    facts = Facts(topics=FACTS.topics, tasks=FACTS.tasks, related=Scope("t2", "k2"))
    found = ruled("keep in mind", facts, type=EntryType.NOTE)
    assert (found.status, found.scope.topic_id, found.scope.task_id) == (CLASSIFIED, "t2", "k2")
    assert ruled("just talk", facts).scope.topic_id is None


def test_what_the_caller_sorted_already_stays_sorted() -> None:
    found = ruled(topic_id="t1", status=CLASSIFIED)
    assert (found.status, found.scope.topic_id) == (CLASSIFIED, "t1")
    assert ruled("NO_REPLY", topic_id="t1", status=CLASSIFIED).status is FAILED


def test_the_source_tells_the_scope_that_holds_and_keeps_the_rest() -> None:
    sent = {"channel": "discord", "boardScopeTopicId": "gone", "boardScopeLock": True, "x": [1]}
    locked = Scope("t1", "k1", "space-a", "board_key", locked=True)
    assert normalised_source(sent, locked) == {
        "channel": "discord",
        "x": [1],
        "boardScopeTopicId": "t1",
        "boardScopeTaskId": "k1",
        "boardScopeSpaceId": "space-a",
        "boardScopeKind": "task",
        "boardScopeLock": True,
    }
    assert normalised_source(None, Scope()) is None


def test_a_claim_that_comes_to_nothing_is_kept_as_sent() -> None:
    sent = {"channel": "discord", "boardScopeTopicId": "gone", "boardScopeLock": True, "x": [1]}
    for scope in (Scope(), Scope("t1", None, "space-a", "row", locked=True)):
        assert normalised_source(sent, scope) == sent


IDS = st.sampled_from([None, "t1", "t2", "k1", "k2", "gone", ""])


@given(
    st.text(max_size=40),
    st.sampled_from(list(EntryType)),
    st.sampled_from([None, "a:b", CHILD, "clawboard:topic:t1", "clawboard:task:t1:k1", "clawboard:x"]),
    IDS, IDS, IDS, IDS,
)  # fmt: skip
def test_no_claim_can_place_an_entry_outside_its_lock_or_split_task_and_topic(
    content: str, kind: EntryType, key: str | None, topic: str, task: str, claimed: str, held: str
) -> None:
    source = {"boardScopeTopicId": claimed, "boardScopeTaskId": held}
    found = ruled(content, type=kind, session_key=key, topic_id=topic, task_id=task, source=source)
    scope = found.scope
    assert scope.task_id is None or FACTS.tasks[scope.task_id] == scope.topic_id
    assert scope.topic_id is None or scope.space_id == FACTS.topics[scope.topic_id]
    if key is not None and key.startswith("clawboard:t"):
        assert scope.topic_id in ("t1", None)
    if found.status is FAILED:
        assert found.reason
        assert scope.topic_id is None
