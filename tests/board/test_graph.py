"""The memory map: what is named where and together with what, within sight and within bounds."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.board import topics
from holdfast.board.context_room import Board
from holdfast.board.graph import MapAsk
from holdfast.board.graph_entities import MOST_PER_TEXT, entities
from holdfast.board.visibility import Sight
from holdfast.config.board import BoardConfig
from holdfast.log import OWNER, EntryDraft, EntryType, Store, entries

CONFIG = BoardConfig()


@pytest.fixture
def board(sqlite_store: Store) -> Board:
    with sqlite_store.write(OWNER) as tx:
        for name, space in (("Sensors", "space:Lab"), ("Payroll", "space:Office")):
            topic = topics.upsert(tx, name, tags=[space]).topic
            words = (
                "The Zigbee hub lost Node-7" if name == "Sensors" else "Ask Ms Quillfeather for the ledger"
            )
            for n in range(4):
                entries.append(
                    tx, EntryDraft(content=f"{words} again.", topic_id=topic.id, agent_id=f"a{n % 2}")
                )
        trace = EntryDraft(
            content="Tool call: exec zanzibar", type=EntryType.ACTION, code="filtered_tool_activity"
        )
        entries.append(tx, trace)
        entries.append(tx, trace)
    return Board(sqlite_store, lambda: CONFIG)


def labels(made: dict[str, Any], kind: str) -> set[str]:
    return {node["label"] for node in made["nodes"] if node["type"] == kind}


def test_topics_names_and_agents_are_linked(board: Board) -> None:
    made = board.map.build(MapAsk(sight=Sight(reader=OWNER)))
    assert labels(made, "topic") == {"Sensors", "Payroll"}
    assert labels(made, "agent") == {"a0", "a1"}
    assert {node["agentId"] for node in made["nodes"] if node["type"] == "agent"} == {"a0", "a1"}
    assert {"Zigbee", "Node-7"} <= labels(made, "entity")
    kinds = {(edge["type"]) for edge in made["edges"]}
    assert kinds == {"co_occurs", "mentions", "speaks_in"}
    ids = {node["id"] for node in made["nodes"]}
    assert all({edge["source"], edge["target"]} <= ids for edge in made["edges"])
    assert all(0 < edge["weight"] <= 1 for edge in made["edges"])


def test_tool_traces_are_not_on_the_map(board: Board) -> None:
    assert not any(
        "zanzibar" in label.lower()
        for label in labels(board.map.build(MapAsk(sight=Sight(reader=OWNER))), "entity")
    )


def test_the_map_shows_only_what_is_within_sight(board: Board) -> None:
    made = board.map.build(MapAsk(sight=Sight(reader=OWNER, allowed_ids=frozenset(("space-lab",)))))
    assert labels(made, "topic") == {"Sensors"}
    assert "Quillfeather" not in str(made)


def test_what_is_written_for_machines_names_nothing() -> None:
    text = (
        "See https://www.example.org/lead?x=1 for the NAME of it.\\nDo what Anna Schmidt said: `X=1`, curl "
        "-fsSL and log-01a1ec79-e30c-7001-ac5a of 2026-11-18T02:26. TODO: HTTP 404.\n```\nclass NoName:\n```"
    )
    assert list(entities(text).values()) == ["example.org", "Anna Schmidt", "curl"]


def test_words_of_everyday_talk_are_no_names_unless_they_are_written_as_names() -> None:
    text = "somebody wrote that the kitchen thermostat is broken, ask Doctor Window about the boiler"
    assert sorted(entities(text).values()) == ["Doctor Window", "boiler", "kitchen", "thermostat"]


def test_the_map_stays_within_its_bounds(board: Board) -> None:
    made = board.map.build(MapAsk(sight=Sight(reader=OWNER), max_entities=1, max_nodes=3, limit_logs=5))
    assert len(made["nodes"]) <= 3
    assert made["stats"]["entries"] <= 5
    assert len(entities("Alpha-1 " * 500 + " ".join(f"name-{n}" for n in range(500)))) <= MOST_PER_TEXT
