"""The log in memory: what was said is found at once, and what was withdrawn is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest_memory import Desk

from builders import append
from holdfast.clock import ManualClock
from holdfast.log import OWNER, EntryType, Store, entries, entry_model
from holdfast.memory.catalogue import Catalogue
from holdfast.memory.documents import Filter
from holdfast.memory.embedders.static import StaticEmbedder
from holdfast.memory.engine import Index
from holdfast.memory.engine.embedded import EmbeddedIndex
from holdfast.memory.engine.postgres import PostgresIndex
from holdfast.memory.following import SEQ, LogFollower

KEY = "agent:main:main"


def say(desk: Desk, text: str, **fields: object) -> str:
    return append(desk.store, text, **{"session_key": KEY, "role": "user", **fields}).id


def test_what_was_said_a_moment_ago_is_found(new_desk: Callable[..., Desk], store: Store) -> None:
    desk = new_desk(store)
    id_ = say(desk, "My sister Ines has the key to the boathouse.")
    (hit,) = desk.ask("who can open the boathouse?").hits
    assert (hit.path, hit.source) == (f"sessions/{id_}.md", "sessions")


def test_what_was_said_a_moment_ago_is_found_while_another_is_slow_to_take_it_in(
    new_desk: Callable[..., Desk], sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the follower may take its time over a few entries: a search waits for them."""
    desk = new_desk(sqlite_store)
    at_it, go_on = threading.Event(), threading.Event()
    put = desk.memory.index.upsert

    def slow(*args: Any, **more: Any) -> Any:
        at_it.set()
        assert go_on.wait(30)
        return put(*args, **more)

    monkeypatch.setattr(desk.memory.index, "upsert", slow)
    id_ = say(desk, "My sister Ines has the key to the boathouse.")
    follower = threading.Thread(target=desk.memory.follow)
    follower.start()
    assert at_it.wait(30)
    threading.Timer(1.0, go_on.set).start()
    (hit,) = desk.ask("who can open the boathouse?").hits
    follower.join(30)
    assert hit.path == f"sessions/{id_}.md"


def test_a_hit_leads_back_to_the_conversation_around_it(desk: Desk) -> None:
    say(desk, "Where did we put the ladder?")
    id_ = say(desk, "Behind the shed, next to the rain barrel.", role="assistant", agent_id="main")
    say(desk, "Thanks!")
    desk.memory.follow()
    text = desk.memory.read("main", f"sessions/{id_}.md", OWNER)["text"]
    assert text.index("ladder") < text.index("rain barrel") < text.index("Thanks")


@pytest.fixture(params=["embedded", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Index]]:
    """An index that is opened again and again."""
    made: list[Index] = []

    def opened() -> Index:
        while made:
            made.pop().close()
        if request.param == "embedded":
            made.append(EmbeddedIndex(tmp_path / "sorted"))
        else:
            made.append(PostgresIndex(request.getfixturevalue("postgres_url"), "sorted_index"))
        return made[0]

    yield opened
    while made:
        made.pop().close()


def lying(index: Index, **where: frozenset[str]) -> list[str]:
    """What a search by words finds within a filter."""
    view = index.view(Filter(**where))  # type: ignore[arg-type]
    found = view.documents(view.lexical(["walrus", "ferri"], 10).numbers)
    return sorted(one.id for one in found if one is not None)


def test_what_was_sorted_is_found_where_it_lies_now_with_the_vectors_that_it_has(
    engine: Callable[[], Index], sqlite_store: Store, static: StaticEmbedder, tmp_path: Path
) -> None:
    """Also where the process ends after the index was written, and before that is noted."""
    catalogue = Catalogue(tmp_path / "catalogue.db")
    ids = [append(sqlite_store, f"The walrus and ferry {n}", session_key=KEY).id for n in range(3)]
    index = engine()

    def follow(index: Index) -> None:
        LogFollower(sqlite_store, index, catalogue, static).catch_up()

    def sort(id_: str, topic: str | None, space: str | None) -> None:
        with sqlite_store.write(OWNER) as tx:
            entries.annotate(tx, id_, {"topic_id": topic, "space_id": space})

    follow(index)
    better = np.random.default_rng(1).standard_normal((3, 8))
    index.put_vectors("better", ids, better)
    before = index.view(Filter()).dense("better", better[1], 3)
    sort(ids[0], "boats", "open"), sort(ids[1], "boats", "closed")
    follow(index)
    assert lying(index, topics=frozenset({"boats"})) == sorted(ids[:2])
    assert lying(index, spaces=frozenset({"open"})) == ids[:1]
    sort(ids[0], "zoo", "closed"), sort(ids[1], None, None)
    noted = catalogue.fact(SEQ)
    follow(index)
    catalogue.put_fact(SEQ, noted or "")
    for _ in range(2):
        index = engine()
        assert lying(index, topics=frozenset({"boats"})) == lying(index, spaces=frozenset({"open"})) == []
        assert (
            lying(index, topics=frozenset({"zoo"})) == lying(index, spaces=frozenset({"closed"})) == ids[:1]
        )
        after = index.view(Filter()).dense("better", better[1], 3)
        assert after.scores.tolist() == before.scores.tolist()
        assert index.without_vector("better", 5) == []
        follow(index)
    catalogue.close()


def test_tool_traces_and_system_talk_are_not_recalled(desk: Desk) -> None:
    say(desk, "The walrus file was written.", type=EntryType.ACTION)
    say(desk, "Turn 3 about the walrus was interrupted.", type=EntryType.SYSTEM)
    assert desk.ask("walrus").hits == []


def test_a_deleted_entry_is_forgotten_and_a_corrected_one_is_found_by_its_new_words(desk: Desk) -> None:
    gone, wrong = say(desk, "The albatross left."), say(desk, "Call Mr Pemberton.")
    desk.memory.follow()
    with desk.store.write(OWNER) as tx:
        entries.delete(tx, gone)
        entries.correct(tx, wrong, "Call Mr Featherstonehaugh.")
    assert desk.ask("albatross").hits == []
    assert [h.id for h in desk.ask("Featherstonehaugh").hits] == [wrong]
    assert not any("Pemberton" in h.snippet for h in desk.ask("Pemberton").hits)


def test_one_agent_does_not_recall_what_was_said_to_another(desk: Desk) -> None:
    say(desk, "The code word is marmalade.", session_key="agent:work:main")
    assert desk.ask("marmalade", "main").hits == []
    assert len(desk.ask("marmalade", "work").hits) == 1


def test_notes_count_above_chatter(desk: Desk) -> None:
    for number in range(8):
        say(desk, f"We talked about the harbour plan again, part {number}.")
    note = say(desk, "Harbour plan: dredge in May.", type=EntryType.NOTE)
    assert desk.ask("harbour plan").hits[0].id == note


def test_chatter_does_not_crowd_out_files(desk: Desk) -> None:
    desk.write("MEMORY.md", "The reactor manual is in drawer four.")
    desk.memory.update("main")
    for number in range(40):
        say(desk, f"Let us talk about the reactor manual again, number {number}.")
    assert "MEMORY.md" in [hit.path for hit in desk.ask("reactor manual").hits]


def test_conversations_older_than_the_retention_are_not_recalled_but_notes_are(
    new_desk: Callable[..., Desk], sqlite_store: Store, clock: ManualClock
) -> None:
    desk = new_desk(sqlite_store, search={"sessions": {"retentionDays": 30}})
    say(desk, "The comet passes tonight.")
    note = say(desk, "Comet: bring the telescope.", type=EntryType.NOTE)
    clock.advance(hours=24 * 31)
    assert [hit.id for hit in desk.ask("comet").hits] == [note]


def test_conversations_can_be_left_out_altogether(new_desk: Callable[..., Desk], sqlite_store: Store) -> None:
    desk = new_desk(sqlite_store, search={"sessions": {"enabled": False}})
    say(desk, "The comet passes tonight.")
    assert desk.ask("comet").hits == []


def test_an_index_that_fell_behind_catches_up_and_equals_a_fresh_one(
    new_desk: Callable[..., Desk], sqlite_store: Store
) -> None:
    early = new_desk(sqlite_store, index="early")
    for number in range(30):
        say(early, f"Item {number} of the inventory.")
        if number % 10 == 0:
            early.memory.follow()
    with sqlite_store.write(OWNER) as tx:
        page = entries.listing(tx, entry_model.EntryFilter(session_key=KEY), limit=5)
        for entry in page.entries:
            entries.delete(tx, entry.id)
    early.memory.follow()
    fresh = new_desk(sqlite_store, index="fresh")
    fresh.memory.follow()
    assert fresh.memory.index.count == early.memory.index.count == 25
    question = "inventory item 12"
    assert [h.id for h in early.ask(question).hits] == [h.id for h in fresh.ask(question).hits]


def test_a_change_feed_that_was_pruned_past_the_index_leads_to_a_new_build(desk: Desk) -> None:
    gone = say(desk, "The gazebo burned down.")
    desk.memory.follow()
    with desk.store.write(OWNER) as tx:
        entries.delete(tx, gone)
    for number in range(3):
        say(desk, f"filler {number}")
    with desk.store.write(OWNER) as tx:
        tx.conn.exec_driver_sql("DELETE FROM changes WHERE seq < (SELECT max(seq) FROM changes)")
    assert gone not in [hit.id for hit in desk.ask("gazebo").hits]
