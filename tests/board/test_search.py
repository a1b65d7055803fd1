"""Searching the board: the whole history, within sight, with scores that can be told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import PATIENCE
from holdfast.board import spaces, tasks, topics
from holdfast.board.context import ContextAsk
from holdfast.board.context_cache import ShortCache, Stamp
from holdfast.board.gate import Gate
from holdfast.board.noise import (
    is_classifier_payload,
    is_control_plane,
    is_cron,
    is_plain,
    is_scaffold,
    key_of,
)
from holdfast.board.search import Found, SearchAsk, SearchFound, cleaned
from holdfast.board.search_forms import fit_form, found_forms, found_json
from holdfast.board.search_ranking import by_place, name_part, rank_places
from holdfast.board.shown import Shown
from holdfast.board.visibility import Sight
from holdfast.clock import ManualClock
from holdfast.errors import Busy
from holdfast.log import OWNER, EntryDraft, EntryType, entries
from holdfast.log.audience import token_reader
from holdfast.runtime import Holdfast, open_home


@pytest.fixture
def hold(store_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[Holdfast]:
    with open_home(tmp_path / "home", store_url=store_url, clock=clock) as opened:
        yield opened


def say(hold: Holdfast, text: str, **fields: object) -> str:
    with hold.store.write(OWNER) as tx:
        return entries.append(tx, EntryDraft(content=text, role="user", **fields)).entry.id  # type: ignore[arg-type]


def find(hold: Holdfast, q: str, **sight: object) -> SearchFound:
    return hold.board.search.run(SearchAsk(q=q, sight=Sight(reader=OWNER, **sight)))  # type: ignore[arg-type]


def test_where_nothing_that_was_said_fits_there_is_silence_and_it_says_so(hold: Holdfast) -> None:
    with hold.store.write(OWNER) as tx:
        roof = topics.upsert(tx, "Roof repair").topic
    for text in (
        "The gutter above the kitchen drips.",
        "Slate tiles cost 1,150 euros.",
        "Anna paints on Monday.",
    ):
        say(hold, text, topic_id=roof.id)
    found = find(hold, "xqzzt flurbo")
    assert not found
    assert not found.fits
    found = find(hold, "what do the slate tiles cost?")
    assert found.fits
    assert found.logs[0].text == "Slate tiles cost 1,150 euros."
    block = hold.board.continuity.build(ContextAsk(q="xqzzt flurbo", sight=Sight(reader=OWNER)))
    assert block.data["semantic"]["fits"] is False
    assert "Semantic recall" not in block.block


def test_topics_and_tasks_are_found_by_their_words_and_by_what_was_said_in_them(hold: Holdfast) -> None:
    with hold.store.write(OWNER) as tx:
        roof = topics.upsert(tx, "Roof repair").topic
        task = tasks.upsert(tx, "Order slate tiles", topic_id=roof.id).task
    say(hold, "The gutter above the kitchen drips.", topic_id=roof.id, task_id=task.id)
    assert find(hold, "roof repair").topics[0].item.id == roof.id
    assert find(hold, "slate").tasks[0].item.id == task.id
    found = find(hold, "gutter kitchen")
    assert (found.topics[0].item.id, found.tasks[0].item.id) == (roof.id, task.id)
    assert "entries" in found.topics[0].parts


def test_a_renamed_and_a_deleted_topic_are_found_as_they_are(hold: Holdfast) -> None:
    with hold.store.write(OWNER) as tx:
        one, other = topics.upsert(tx, "Aardvark").topic, topics.upsert(tx, "Basilisk").topic
    assert find(hold, "aardvark").topics[0].item.id == one.id
    with hold.store.write(OWNER) as tx:
        topics.update(tx, one.id, {"name": "Chimera"})
        topics.delete(tx, other.id)
    assert find(hold, "chimera").topics[0].item.id == one.id
    assert find(hold, "basilisk").topics == []


def test_a_digest_and_a_system_tag_are_never_found(hold: Holdfast) -> None:
    with hold.store.write(OWNER) as tx:
        topic = topics.upsert(tx, "Plain", tags=["system:xylophone"]).topic
        topics.set_digest(tx, topic.id, "All about the zeppelin.")
    assert find(hold, "zeppelin").topics == find(hold, "xylophone").topics == []


def test_an_entry_that_moves_out_of_sight_is_gone_at_once(hold: Holdfast) -> None:
    with hold.store.write(OWNER) as tx:
        spaces.upsert(tx, "Left", default_visible=False)
        spaces.upsert(tx, "Right", default_visible=False)
        topic = topics.upsert(tx, "Moving", tags=["space:Left"]).topic
    say(hold, "the walrus sings", topic_id=topic.id)
    assert find(hold, "walrus", space_id="space-left").logs
    with hold.store.write(OWNER) as tx:
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
    waiting.join(PATIENCE)
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


_words = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
_maybe = st.none() | _words
_entry = st.builds(
    Shown,
    position=st.integers(1, 9),
    id=_words,
    type=st.sampled_from(["conversation", "note"]),
    content=_words,
    status=st.sampled_from(["pending", "classified"]),
    created_at=st.integers(0, 4_102_444_800_000),
    role=_maybe,
    session_key=_maybe,
    agent_id=_maybe,
    agent_label=_maybe,
    summary=_maybe,
    space_id=_maybe,
    topic_id=_maybe,
    task_id=_maybe,
    code=_maybe,
    stored_source=st.none(),
)
_part = st.dictionaries(st.sampled_from(["dense", "lexical", "session"]), st.floats(0, 2))
_found = st.lists(
    st.builds(Found, _entry, st.floats(0, 2), _part, _words | _words.map(lambda text: 90 * text))
)


@given(_found, _found)
def test_the_answer_that_is_written_out_reads_as_the_forms(
    logs: list[Found[Shown]], notes: list[Found[Shown]]
) -> None:
    found = SearchFound(logs=logs, notes=notes)
    forms = found_forms(found) | fit_form(found)
    assert json.loads(f"{{{found_json(found)}}}") == json.loads(json.dumps(forms))


_openings = st.sampled_from(
    (
        *("", "HEARTBEAT_OK", "heartbeat poll: x", "Read HEARTBEAT.md and go", "**NO_REPLY**", "[heartbeat]"),
        *("[cron:daily] go", "[Subagent Context] x", "[HOLDFAST_CLASSIFIER]", '{"candidateTopics": []}'),
    )
)
_channels = st.sampled_from(["", "bench", "cron", "heartbeat", "backup"])
_keys = st.sampled_from([None, "", "agent:main:main", "agent:main:cron:daily", "bench:1", "agent:cron:main"])


@given(_openings | _words, _channels, _keys)
def test_no_glance_takes_machine_talk_for_plain_words(text: str, channel: str, key: str | None) -> None:
    text = text.strip()
    if is_plain(channel, key, text):
        assert not is_scaffold(text)
        assert not is_control_plane(channel, text)
        assert not is_cron(channel, key_of(key), text)
        assert not is_classifier_payload(text)


def test_large_answers_that_are_kept_push_out_others() -> None:
    cache: ShortCache[str] = ShortCache(kept=3, heaviest=10)
    now = Stamp(1)
    for key, weight in (("a", 1), ("b", 8), ("b", 2), ("c", 7)):
        cache.put(key, now, key, weight=weight)
    assert [cache.get(key, now) for key in "abc"] == ["a", "b", "c"]
    cache.put("d", now, "d", weight=8)
    assert [cache.get(key, now) for key in "abcd"] == [None, None, None, "d"]


def test_words_of_other_writers_crowd_out_none_that_may_be_seen(hold: Holdfast) -> None:
    say(hold, "the quokka sleeps", agent_id="coder", session_key="agent:main:main")
    for n in range(30):
        say(hold, f"the quokka quokka jumps {n}", agent_id="main", session_key="agent:main:main")
    with hold.store.read(OWNER) as tx:
        sight = Sight(reader=token_reader("coder", None, frozenset(("coder",))))
        assert sight.view(tx).spaces is None
    found = hold.board.search.run(SearchAsk(q="quokka", sight=sight, logs=5))
    assert [one.text for one in found.logs] == ["the quokka sleeps"]
    nobody = replace(sight, reader=token_reader("nobody", None, frozenset()))
    assert not hold.board.search.run(SearchAsk(q="quokka", sight=nobody, logs=5)).logs


def test_of_a_single_word_only_so_many_entries_are_looked_at(hold: Holdfast) -> None:
    hold.config.patch({"board": {"search": {"singleTokenWindowMaxLogs": 3}}})
    for n in range(6):
        say(hold, f"The gutter above window {n} drips.")
    assert len(find(hold, "gutter").logs) == 3
    assert len(find(hold, "gutter drips").logs) == 6
