"""Searching the board: the whole history, within sight, with scores that can be told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.board import spaces, tasks, topics
from holdfast.board.context_sight import Sight
from holdfast.board.gate import Gate
from holdfast.board.search import SearchAsk, SearchFound, cleaned
from holdfast.board.search_ranking import by_place, name_part, rank_places
from holdfast.clock import ManualClock
from holdfast.errors import Busy
from holdfast.log import EntryDraft, EntryType, entries
from holdfast.runtime import Holdfast, open_home


@pytest.fixture
def hold(store_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[Holdfast]:
    with open_home(tmp_path / "home", store_url=store_url, clock=clock) as opened:
        yield opened


def say(hold: Holdfast, text: str, **fields: object) -> str:
    with hold.store.write() as tx:
        return entries.append(tx, EntryDraft(content=text, role="user", **fields)).entry.id  # type: ignore[arg-type]


def find(hold: Holdfast, q: str, **sight: object) -> SearchFound:
    return hold.board.search.run(SearchAsk(q=q, sight=Sight(**sight)))  # type: ignore[arg-type]


def test_topics_and_tasks_are_found_by_their_words_and_by_what_was_said_in_them(hold: Holdfast) -> None:
    with hold.store.write() as tx:
        roof = topics.upsert(tx, "Roof repair").topic
        task = tasks.upsert(tx, "Order slate tiles", topic_id=roof.id).task
    say(hold, "The gutter above the kitchen drips.", topic_id=roof.id, task_id=task.id)
    assert find(hold, "roof repair").topics[0].item.id == roof.id
    assert find(hold, "slate").tasks[0].item.id == task.id
    found = find(hold, "gutter kitchen")
    assert (found.topics[0].item.id, found.tasks[0].item.id) == (roof.id, task.id)
    assert "entries" in found.topics[0].parts


def test_a_renamed_and_a_deleted_topic_are_found_as_they_are(hold: Holdfast) -> None:
    with hold.store.write() as tx:
        one, other = topics.upsert(tx, "Aardvark").topic, topics.upsert(tx, "Basilisk").topic
    assert find(hold, "aardvark").topics[0].item.id == one.id
    with hold.store.write() as tx:
        topics.update(tx, one.id, {"name": "Chimera"})
        topics.delete(tx, other.id)
    assert find(hold, "chimera").topics[0].item.id == one.id
    assert find(hold, "basilisk").topics == []


def test_a_digest_and_a_system_tag_are_never_found(hold: Holdfast) -> None:
    with hold.store.write() as tx:
        topic = topics.upsert(tx, "Plain", tags=["system:xylophone"]).topic
        topics.set_digest(tx, topic.id, "All about the zeppelin.")
    assert find(hold, "zeppelin").topics == find(hold, "xylophone").topics == []


def test_an_entry_that_moves_out_of_sight_is_gone_at_once(hold: Holdfast) -> None:
    with hold.store.write() as tx:
        spaces.upsert(tx, "Left", default_visible=False)
        spaces.upsert(tx, "Right", default_visible=False)
        topic = topics.upsert(tx, "Moving", tags=["space:Left"]).topic
    say(hold, "the walrus sings", topic_id=topic.id)
    assert find(hold, "walrus", space_id="space-left").logs
    with hold.store.write() as tx:
        topics.update(tx, topic.id, {"tags": ["space:Right"]})
    assert not find(hold, "walrus", space_id="space-left")
    assert find(hold, "walrus", space_id="space-right").logs


def test_tool_traces_are_not_found_and_notes_come_first(hold: Holdfast) -> None:
    say(hold, "Tool call: exec {'cmd': 'ls harbour'}", type=EntryType.ACTION, code="filtered_tool_activity")
    for n in range(5):
        say(hold, f"We talked about the harbour, part {n}.")
    note = say(hold, "Harbour: dredge in May.", type=EntryType.NOTE)
    found = find(hold, "harbour")
    assert [one.item.id for one in found.notes] == [note]
    assert all("Tool call" not in one.text for one in found.logs)
    assert found.notes[0].score > found.logs[0].score


def test_the_same_question_is_answered_anew_after_a_write(hold: Holdfast) -> None:
    say(hold, "the pelican landed")
    assert len(find(hold, "pelican").logs) == 1
    assert find(hold, "pelican") is find(hold, "pelican")
    say(hold, "the pelican left")
    assert len(find(hold, "pelican").logs) == 2


def test_the_gate_turns_away_who_would_wait_too_long() -> None:
    gate = Gate(lambda: 1, lambda: 10)
    with gate.entered():
        with pytest.raises(Busy) as refused, gate.entered():
            pass
        assert (refused.value.code, refused.value.status) == ("search_busy", 429)
    with gate.entered():
        pass


def test_a_place_that_comes_free_goes_to_who_waits() -> None:
    gate, inside = Gate(lambda: 1, lambda: 30_000), threading.Event()

    def enter() -> None:
        with gate.entered():
            inside.set()

    waiting = threading.Thread(target=enter)
    with gate.entered():
        waiting.start()
        assert not inside.is_set()
    waiting.join(30)
    assert inside.is_set()


def test_what_entries_lend_is_bounded() -> None:
    lent = by_place([("t", 1.0)] * 50 + [(None, 1.0)])
    assert rank_places([], lent, frozenset())["t"].total == pytest.approx(0.42)


def test_a_question_that_names_a_topic_counts_for_it() -> None:
    assert name_part("roof REPAIR", "Roof repair") > name_part("roof", "Roof repair") > 0
    assert name_part("the roof needs repair soon", "Roof repair") > 0 == name_part("garden", "Roof repair")


def test_an_injected_block_in_a_question_is_not_searched_for() -> None:
    block = "[CLAWBOARD_CONTEXT_BEGIN]\nWorking set topics:\n- x\n[CLAWBOARD_CONTEXT_END]"
    assert cleaned(f"{block}\nwhere is it?") == "where is it?"
