"""What the figures of `bench/continuity.py` rest on: its histories are sound, its judges judge as said."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def histories(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module("histories")


@pytest.fixture
def judges(histories: Any) -> Any:
    return importlib.import_module("continuity_judges")


def test_every_answer_was_said_and_no_question_gives_its_own(histories: Any) -> None:
    loaded = [histories.load(name) for name in histories.names()]
    assert len(loaded) >= 4
    assert {one.language for one in loaded} == {"en", "de", "mixed"}
    assert {one.split for one in loaded} == {"tuning", "held back", "unseen"}


def test_a_history_that_is_buried_is_all_there_and_its_filler_answers_nothing(histories: Any) -> None:
    history = histories.load("a_mara")
    grown = histories.grown(history, 400)
    filler = [line for line in grown.lines if line.matter is not None and histories.is_filler(line.matter)]
    assert len(grown.lines) == 400
    assert [line for line in grown.lines if line not in filler] == list(history.lines)
    assert grown == histories.grown(history, 400)
    assert not any(question.answered_by(line.text) for question in history.questions for line in filler)


@pytest.mark.parametrize(
    ("words", "text", "there"),
    [
        ("14 March", "moved to 14  March, same hours", True),
        ("4 March", "moved to 14 March", False),
        ("~/backup/*.sql", "the dumps are in ~/backup/*.sql.", True),
        ("~/backup/*.sql", "the dumps are in /backup/.sql.", False),
        ("pg_stat_statements", "pgstatstatements", False),
    ],
)
def test_words_stand_where_they_stand_to_the_letter(
    histories: Any, words: str, text: str, there: bool
) -> None:
    assert histories.stands(words, text) is there


def test_the_head_that_repeats_the_question_is_no_part_of_what_is_judged(judges: Any) -> None:
    block = (
        "[B]\nhook\nCurrent user intent: K7?\nMode: auto\nTimeline:\n- user: hi\n- Left out for room: 2\n[E]"
    )
    assert judges.body(block).titled == [("Timeline:", "user: hi")]


def test_a_line_repeats_another_by_its_words_not_by_its_label(judges: Any) -> None:
    said = "2026-02-02 user: The van's clutch slips on the hill. Ford Transit, registration YK17 ODP."
    digest = "topic: Van: - The van's clutch slips on the hill. - Ford Tran…"
    other = "main: The MOT runs out on 2 October."
    assert len(judges.repeats([said, digest, other])) == 1
    assert judges.repeats([said, other]) == []


def test_a_cut_inside_a_word_a_number_or_a_path_is_told_from_one_between_words(judges: Any) -> None:
    text = "They quoted 18,000 euros and put it in ~/roof/offer.pdf."
    torn = [
        "user: They quoted 18…",
        "user: They quoted 18,000 eur…",
        "They quoted 18,000 euros and put it in ~/roof…",
    ]
    torn.append("user: …oted 18,000 euros and put it in…")
    whole = ["user: They quoted 18,000 euros…", "user: …quoted 18,000 euros and put…"]
    assert judges.mid_word_cuts([*torn, *whole], [text]) == torn


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("Leaking roof", True),
        ("The roof", True),
        ("00 UTC", False),
        ("31 minutes", False),
        ("Below 130 per", False),
        ("Roof 000 euros", False),
        ("Roof leaks above", False),
        ("Garden", False),
        ("The roof is leaking", False),
    ],
)
def test_a_name_is_a_noun_phrase_with_a_word_of_its_matter(judges: Any, name: str, good: bool) -> None:
    fault = judges.name_faults(
        name, frozenset({"roof", "leak"}), ["The roof costs 18,000 euros at 05:00 UTC"]
    )
    assert (fault == "") is good
