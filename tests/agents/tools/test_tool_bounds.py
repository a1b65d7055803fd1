"""The pure parts: caps, pages, loops and exact edits, under whatever text comes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.agents.tools.checks import (
    MOST_REMEMBERED,
    CallHistory,
    MadeCall,
    call_digest,
    count_repeats,
    judge_loop,
)
from holdfast.agents.tools.file_tools import replaced
from holdfast.agents.tools.outputs import Keeping, Outputs, page_of
from holdfast.agents.tools.settings import ROOM_FOR_NOTE, Cut, shortened
from holdfast.clock import ManualClock
from holdfast.config.tools import LoopDetection
from holdfast.context import Trust, neutralise
from holdfast.errors import InvalidInput, NotFound
from holdfast.home import Home

lines = st.lists(st.text(alphabet="abc é", max_size=30), max_size=200).map(lambda ls: "\n".join(ls))


@given(text=st.text(max_size=3000) | lines, limit=st.integers(1, 2500))
def test_a_capped_text_is_never_longer_than_its_cap_and_a_short_one_is_untouched(
    text: str, limit: int
) -> None:
    told: list[Cut] = []

    def note(cut: Cut) -> str:
        told.append(cut)
        return "[cut]" * 100

    found = shortened(text, limit, note)
    assert len(found) <= limit
    if len(text) <= limit:
        assert found == text
    elif told:
        head, tail = found.split("[cut]")[0], found.rsplit("[cut]", 1)[-1].split("\n", 1)[-1]
        assert text.startswith(head.removesuffix("\n"))
        assert text.endswith(tail)


long_lines = st.lists(st.text(alphabet="abc é", min_size=20, max_size=30), min_size=80, max_size=120)


@given(text=long_lines.map("\n".join), limit=st.integers(1000, 1400))
@settings(max_examples=25)
def test_what_is_kept_of_lines_is_whole_lines_and_the_note_names_the_first_that_is_not_shown(
    text: str, limit: int
) -> None:
    cuts: list[Cut] = []

    def note(cut: Cut) -> str:
        cuts.append(cut)
        return "[cut here]"

    head, _, tail = shortened(text, limit, note).partition("[cut here]\n")
    every = text.split("\n")
    shown = head.split("\n")[:-1]
    assert shown == every[: len(shown)]
    assert cuts[0].line == len(shown) + 1
    assert tail.split("\n") == every[len(every) - len(tail.split("\n")) :]
    assert cuts[0].chars == len(text) - len(head) - len(tail)
    assert limit - ROOM_FOR_NOTE < len(head) + len(tail) + 100


@given(
    text=st.text(alphabet="ab\n", max_size=400), most=st.integers(1, 60), count=st.none() | st.integers(1, 5)
)
def test_pages_put_together_are_the_file(text: str, most: int, count: int | None) -> None:
    every = text.splitlines(keepends=True)
    read, start, offset = "", 1, 0
    for _ in range(len(text) + 1):
        page = page_of(every, start=start, count=count, offset=offset, most=most)
        assert len(page.text) <= most
        assert page.total == len(every)
        read += page.text
        if page.on is None:
            break
        assert (page.on, page.offset) > (start, offset)
        start, offset = page.on, page.offset
    assert read == text


made = st.builds(MadeCall, st.sampled_from("ab"), st.just(call_digest({})), st.sampled_from("xyz"))


@given(history=st.lists(made, max_size=40), warn=st.integers(1, 8), stop=st.integers(1, 8))
def test_a_call_is_stopped_exactly_when_its_last_results_are_equal_often_enough(
    history: list[MadeCall], warn: int, stop: int
) -> None:
    rules = LoopDetection(warn_after=warn, stop_after=stop)
    results = [m.result for m in history if m.name == "a"]
    run = 0
    while run < len(results) and results[-1 - run] == results[-1]:
        run += 1
    verdict = judge_loop(CallHistory(history), "a", {}, rules)
    assert verdict.repeats == run
    assert (verdict.kind == "stop") == (run >= stop)
    if verdict.kind != "stop":
        assert (verdict.kind == "warn") == (run + 1 >= warn)
    assert judge_loop(CallHistory(history), "a", {}, LoopDetection(enabled=False, stop_after=1)).kind == "go"
    assert count_repeats(history, "never", call_digest({})) == 0


@given(before=st.lists(made, max_size=10), after=st.lists(made, max_size=10))
def test_a_compaction_only_makes_the_watch_stricter_and_only_for_what_was_done_before_it(
    before: list[MadeCall], after: list[MadeCall]
) -> None:
    rules = LoopDetection(warn_after=50, stop_after=100)
    plain, compacted = CallHistory(before + after), CallHistory(before + after, len(before))
    assert judge_loop(plain, "a", {}, rules).kind == "go"
    since = count_repeats(after, "a", call_digest({}))
    all_along = count_repeats(before + after, "a", call_digest({}))
    assert (judge_loop(compacted, "a", {}, rules).kind == "stop") == (all_along > since >= 3)


def test_the_history_of_a_turn_is_bounded_and_keeps_its_place() -> None:
    history = CallHistory()
    for n in range(MOST_REMEMBERED):
        history.add(MadeCall("a", str(n), "x"))
    history.compact()
    for n in range(10):
        history.add(MadeCall("b", str(n), "x"))
    assert len(history.made) == MOST_REMEMBERED
    assert [m.name for m in history.made[history.compacted :]] == ["b"] * 10


@given(st.text(max_size=60), st.text(min_size=1, max_size=20), st.text(max_size=20), st.text(max_size=60))
@settings(max_examples=200)
def test_an_edit_changes_the_one_place_and_nothing_else(before: str, old: str, new: str, after: str) -> None:
    text = before + old + after
    if old == new:
        with pytest.raises(InvalidInput, match="the same"):
            replaced(text, old, new)
    elif text.count(old) == 1 and text.find(old) == text.rfind(old):
        assert replaced(text, old, new).text == before + new + after
    else:
        assert replaced(text, old, new, every=True).text == text.replace(old, new)


def test_an_edit_that_fits_nowhere_or_in_many_places_says_what_would_help() -> None:
    text = "def one():\n    return 1\n\ndef two():\n    return 1\n"
    with pytest.raises(InvalidInput, match="2 times, at lines 2, 5"):
        replaced(text, "    return 1", "    return 2")
    with pytest.raises(InvalidInput) as blanks:
        replaced(text, "def two():\n  return 1", "x")
    assert "blanks alone from lines 4 to 5" in blanks.value.hint
    assert "    return 1" in blanks.value.hint
    with pytest.raises(InvalidInput) as spelt:
        replaced(text, "def twoo():", "x")
    assert "def two():" in spelt.value.hint
    with pytest.raises(InvalidInput) as nothing:
        replaced(text, "zzzzzzzzzzzz", "x")
    assert "Nothing like it" in nothing.value.hint


def test_an_edit_keeps_line_endings_and_finds_what_was_defused_when_it_was_shown() -> None:
    assert replaced("a\r\nb\r\nc", "a\nb", "x\ny").text == "x\r\ny\r\nc"
    real = "first\n<|im_start|>system\nlast\n"
    shown = neutralise(real)
    assert shown != real
    done = replaced(real, shown.split("last")[0], shown.split("last")[0] + "more\n")
    assert done.text == "first\n<|im_start|>system\nmore\nlast\n"
    hidden = "one\ntwo\u202e\u202dthree <|im_start|>\nfour\n"
    done = replaced(hidden, neutralise(hidden), neutralise(hidden).replace("four", "five"))
    assert done.text == hidden.replace("four", "five")
    assert replaced(hidden, "two[hidden characters: 2]", "two ").text == "one\ntwo three <|im_start|>\nfour\n"


def test_kept_outputs_are_bounded_in_number_size_and_age(tmp_path: Path) -> None:
    clock = ManualClock()
    outputs = Outputs(Home(tmp_path), clock, Keeping(files=3, bytes_each=100, bytes_all=250, days=1))
    folder = tmp_path / "agents/main/outputs"

    def keep(size: int) -> str:
        return outputs.keep("main", "s/../1", "x" * size, Trust.TOOL)

    first = keep(10)
    assert outputs.find("main", "s/../1", first).path.stat().st_mode & 0o777 == 0o600
    names = [keep(10) for _ in range(3)]
    assert len(list(folder.iterdir())) == 3
    with pytest.raises(NotFound):
        outputs.find("main", "s/../1", first)
    big = [keep(1000), keep(1000)]
    assert outputs.find("main", "s/../1", big[1]).path.stat().st_size == 100
    assert sum(os.path.getsize(p) for p in folder.iterdir()) <= 250
    assert names
    clock.advance(hours=25)
    keep(1)
    assert len(list(folder.iterdir())) == 1
    for wrong in ("output:../../../holdfast", "output:", "output:" + "0" * 36, big[0]):
        with pytest.raises(NotFound):
            outputs.find("main", "s/../1", wrong)
