"""Lineage: a child session belongs to a topic because a spawn says so, and for no other reason."""

from __future__ import annotations

import pytest

from builders import append
from holdfast.board import ingest, lineage, topics
from holdfast.board.rules import Scope
from holdfast.errors import InvalidInput
from holdfast.log import OWNER, Classification, EntryDraft, Store, agenda, entries, entry_model

CHILD = "agent:main:subagent:11111111-1111-1111-1111-111111111111"
OTHER = "agent:main:subagent:22222222-2222-2222-2222-222222222222"


def topic(store: Store, name: str = "Fence") -> str:
    with store.write(OWNER) as tx:
        return topics.upsert(tx, name).topic.id


def log(store: Store, key: str, text: str = "looking at the fence") -> entry_model.Entry:
    with store.write(OWNER) as tx:
        return entries.append(tx, ingest.prepare(tx, EntryDraft(content=text, session_key=key))).entry


def test_a_child_of_a_board_chat_is_bound_to_its_topic(store: Store) -> None:
    fence = topic(store)
    with store.write(OWNER) as tx:
        lineage.link_spawn(tx, f"clawboard:topic:{fence}", CHILD)
    entry = log(store, CHILD)
    assert (entry.topic_id, entry.status) == (fence, Classification.PENDING)
    assert entry.source is None or entry.source["boardScopeTopicId"] == fence
    assert log(store, OTHER).code == "filtered_unlinked_subagent"


def test_a_grandchild_is_bound_through_its_parent(store: Store) -> None:
    fence = topic(store)
    with store.write(OWNER) as tx:
        lineage.link_spawn(tx, f"clawboard:topic:{fence}", CHILD)
        lineage.link_spawn(tx, CHILD, OTHER)
    assert log(store, OTHER).topic_id == fence


def test_a_parent_without_scope_binds_nothing(store: Store) -> None:
    fence = topic(store)
    append(store, "about the fence", session_key="agent:main:main", topic_id=fence)
    with store.write(OWNER) as tx:
        assert lineage.link_spawn(tx, "agent:main:main", CHILD) is None
    assert log(store, CHILD).code == "filtered_unlinked_subagent"


def test_a_child_of_a_request_waits_for_the_topic_of_the_request(store: Store) -> None:
    fence = topic(store)
    request = append(store, "mend the fence", session_key="agent:main:main")
    with store.write(OWNER) as tx:
        lineage.link_spawn(tx, "agent:main:main", CHILD, request_id=request.id)
    early = log(store, CHILD)
    assert (early.status, early.topic_id) == (Classification.PENDING, None)
    with store.write(OWNER) as tx:
        entries.annotate(tx, request.id, {"topic_id": fence, "status": Classification.CLASSIFIED})
    assert log(store, CHILD).topic_id == fence


def test_what_a_child_logged_before_its_link_is_sorted_after_all(store: Store) -> None:
    fence = topic(store)
    early = log(store, CHILD)
    assert early.status is Classification.FAILED
    with store.write(OWNER) as tx:
        lineage.link(tx, CHILD, Scope(fence), parent_key="agent:main:main")
    with store.read(OWNER) as tx:
        assert entries.get(tx, early.id).status is Classification.PENDING
        assert [item.kind for item in agenda.listing(tx)] == ["board.classify"]


def test_a_link_needs_a_topic(store: Store) -> None:
    with store.write(OWNER) as tx, pytest.raises(InvalidInput):
        lineage.link(tx, CHILD, Scope(), parent_key="agent:main:main")


def test_only_a_subagents_session_is_linked(store: Store) -> None:
    fence = topic(store)
    with store.write(OWNER) as tx, pytest.raises(InvalidInput):
        lineage.link(tx, "agent:main:main", Scope(fence), parent_key="agent:other:main")
