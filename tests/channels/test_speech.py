"""What of a reply is sent while it is written, and what is held back until it is sure."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.channels.chunking import Limits
from holdfast.channels.speech import (
    ANEW,
    MARKS,
    Mark,
    Speech,
    Step,
    begins_silent,
    left_of_turn,
    remaining,
    shown_end,
    spoken_part,
)
from holdfast.context import is_silent
from holdfast.continuation import tokens

LIMITS = Limits(160, 20)
WORDS = ("Tide.", "It holds.", "NO_REPLY", "CONTINUE_WORK", "CONTINUE_WORK:30", "HEARTBEAT_OK", "N", "CON")
MARKERS = (
    "[[",
    "[[CONTINUE_DELEGATE: a|silent]]",
    "[[ CONTINUE_DELEGATE: a",
    "[[x]]",
    "]]",
    "[",
    "*NO_REPLY*",
)
PARTS = st.sampled_from((*WORDS, *MARKERS))
REPLIES = st.lists(st.tuples(PARTS, st.sampled_from([" ", "\n\n", "", "\n"])), min_size=1, max_size=9).map(
    lambda parts: "".join(word + glue for word, glue in parts)
)


def said_in_steps(reply: str, step: int, mark: Mark | None = None, *, idle: bool = False) -> list[Step]:
    """What is sent while a reply is written `step` characters at a time, and told as runs tell it."""
    speech = Speech(LIMITS, mark or Mark())
    found: list[Step] = []
    for end in range(step, len(reply) + step, step):
        speech.text = reply[: tokens.may_begin(reply[:end])]
        found += speech.ready()
        found += speech.ready(idle=True) if idle else []
    return found


@settings(max_examples=50)
@given(REPLIES, st.integers(1, 30), st.booleans())
def test_no_word_for_the_runtime_is_ever_sent(reply: str, step: int, idle: bool) -> None:
    """However the text arrives: what the hooks take out at its end was not sent, and the rest still is."""
    kept = tokens.parse(reply).text
    sent = said_in_steps(reply, step, idle=idle)
    mark = sent[-1].mark if sent else Mark()
    assert kept.startswith(mark.said.rstrip())
    if is_silent(kept):
        return
    rest = remaining(kept, mark, LIMITS)
    assert ANEW not in rest
    whole = _bare("".join([*(s.text for s in sent), *rest]))
    assert whole.strip(MARKS) == _bare(spoken_part(kept)).strip(MARKS)


@settings(max_examples=50)
@given(REPLIES.filter(lambda text: begins_silent(text) == "silent"), st.integers(1, 9))
def test_a_reply_that_begins_as_none_is_not_begun(reply: str, step: int) -> None:
    assert said_in_steps(reply, step, idle=True) == []


@pytest.mark.parametrize(
    ("text", "sure"),
    [
        ("", "unsure"),
        ("NO", "unsure"),
        ("NO_REPLY", "unsure"),
        ("**NO_REPLY", "unsure"),
        ("NO_REPLY\n", "silent"),
        ("HEARTBEAT_OK. ", "silent"),
        ("No", "speaks"),
        ("NO_REPLYING is ", "speaks"),
        ("Hello", "speaks"),
    ],
)
def test_the_beginning_is_held_back_until_it_is_sure(text: str, sure: str) -> None:
    assert begins_silent(text) == sure


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Done. HEARTBEAT_O", "Done. "),
        ("Done. NO_REPLYING", "Done. NO_REPLYING"),
        ("See [[wiki]] for", "See [[wiki]] for"),
        ("Well: *NO_REP", "Well: "),
    ],
)
def test_the_tail_is_held_back_while_it_may_be_a_word_for_silence(text: str, shown: str) -> None:
    assert text[: shown_end(text)].rstrip() == shown.rstrip()


FIRST = "The tide comes in at noon, and the kelp holds.\n\nThe harbour master "


def test_a_reply_that_goes_on_as_before_is_sent_from_where_it_was() -> None:
    (sent,) = said_in_steps(FIRST, 200)
    whole = f"{FIRST}reads the table.\n\nThat is all there is to say of it today.\n\nBye"
    again = said_in_steps(whole, 5, sent.mark)
    assert [step.text for step in again] == [
        "The harbour master reads the table.",
        "That is all there is to say of it today.",
    ]
    assert remaining(whole, again[-1].mark, LIMITS) == ["Bye"]


def test_a_reply_that_differs_is_sent_whole_and_says_so() -> None:
    (sent,) = said_in_steps(FIRST, 200)
    other = "There is no tide today at all, says the almanac here.\n\nSorry"
    again = said_in_steps(other, 7, sent.mark)
    assert [step.text for step in again] == [ANEW, "There is no tide today at all, says the almanac here."]
    assert remaining(other, again[-1].mark, LIMITS) == ["Sorry"]
    assert remaining("Another.", sent.mark, LIMITS) == [ANEW, "Another."]


def test_a_message_that_is_not_the_last_is_sent_to_its_end_and_not_again() -> None:
    speech = Speech(LIMITS, text="I look it up. NO")
    steps = speech.close()
    assert [step.text for step in steps] == ["I look it up. NO"]
    assert steps[-1].mark.closed
    assert remaining("I look it up. NO", steps[-1].mark, LIMITS) == []
    assert remaining("It is noon.", steps[-1].mark, LIMITS) == ["It is noon."]
    assert Speech(LIMITS, text="NO_REPLY").close() == []
    begun = Speech(LIMITS, Mark("Well. "), "Well. NO_REPLY")
    assert [step.text for step in begun.close()] == [""]
    assert begun.mark.closed


@settings(max_examples=50)
@given(st.lists(st.sampled_from(["One.", "Two.", "Three, and more.", "NO_REPLY"]), unique=True), st.data())
def test_a_turn_that_ends_before_its_blocks_are_made_loses_nothing(
    earlier: list[str], data: st.DataObject
) -> None:
    """Wherever the sending had come to, sent and left are all that was said, once."""
    whole = [*earlier, "The end."]
    sent: list[str] = []
    mark = Mark()
    for text in whole[: data.draw(st.integers(0, len(earlier)))]:
        speech = Speech(LIMITS, Mark(), text)
        sent += [step.text for step in speech.close()]
        mark = speech.mark if speech.mark.closed else mark
    left = left_of_turn(earlier, whole[-1], mark, LIMITS)
    assert [*sent, *left] == [text for text in whole if text != "NO_REPLY"]


def _bare(text: str) -> str:
    return "".join(text.split())
