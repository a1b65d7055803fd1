"""Cutting texts into messages: nothing lost, nothing too long, every code fence whole."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.channels.chunking import Chunk, Limits, chunks, next_chunk, open_fence

WORDS = st.sampled_from(
    [
        "kelp",
        "holds",
        "fast.",
        "Why?",
        "```py",
        "```",
        "~~~~",
        "  ```",
        "x = 1",
        "👩‍👩‍👧‍👦",
        "🇮🇹🇫🇷",
        "é",
        "你好。",
        "`" * 40,
    ]
)
GLUE = st.sampled_from(["", " ", "\n", "\n\n", "\n   \n", "\t"])
TEXTS = st.lists(st.tuples(WORDS | st.text(max_size=30), GLUE), max_size=50).map(
    lambda parts: "".join(word + glue for word, glue in parts)
)
LIMITS = st.builds(
    Limits,
    most=st.integers(100, 400),
    least=st.integers(0, 300),
    prefer=st.sampled_from(["paragraph", "newline", "sentence", "whitespace"]),
)


@settings(max_examples=50)
@given(TEXTS, LIMITS)
def test_any_text_comes_back_from_its_messages(text: str, limits: Limits) -> None:
    made = list(chunks(text, limits))
    assert "".join(chunk.raw for chunk in made) == text
    for chunk in made:
        assert len(chunk.text) <= limits.most
        assert open_fence(chunk.text) is None, "a fence is left open"
        assert bool(chunk.text) or not _words(chunk.raw)


@settings(max_examples=50)
@given(TEXTS, LIMITS)
def test_messages_say_what_the_text_says(text: str, limits: Limits) -> None:
    """But for the lines that open and close fences, every word is there in its order."""
    assert _words("\n".join(chunk.text for chunk in chunks(text, limits))) == _words(
        "\n".join(chunk.raw for chunk in chunks(text, limits))
    )


@settings(max_examples=50)
@given(TEXTS, LIMITS, st.integers(1, 40), st.booleans())
def test_a_text_that_grows_is_cut_into_pieces_of_the_whole(
    text: str, limits: Limits, step: int, idle: bool
) -> None:
    done, fence, made = 0, None, list[Chunk]()
    for seen in range(step, len(text) + step, step):
        while chunk := next_chunk(text[done:seen], limits, fence, idle=idle):
            made.append(chunk)
            done, fence = done + len(chunk.raw), chunk.fence
    made += chunks(text[done:], limits, fence)
    assert "".join(chunk.raw for chunk in made) == text
    assert all(len(chunk.text) <= limits.most and open_fence(chunk.text) is None for chunk in made)


@pytest.mark.parametrize(
    ("prefer", "first"),
    [
        ("paragraph", "One is here. Two is here.\nThree is here."),
        ("newline", "One is here. Two is here.\nThree is here.\n\nFour is here."),
    ],
)
def test_a_cut_is_made_at_the_best_place(prefer: str, first: str) -> None:
    text = f"One is here. Two is here.\nThree is here.\n\nFour is here.\n{'five ' * 40}"
    limits = Limits(110, 10, prefer)  # type: ignore[arg-type]
    assert next(chunks(text, limits)).text == first


def test_code_that_is_cut_is_closed_and_opened_again() -> None:
    text = "Look:\n\n```python title\n" + "\n".join(f"line_{n} = {n}" for n in range(20)) + "\n```\n\nDone."
    made = [chunk.text for chunk in chunks(text, Limits(140))]
    assert made[0].startswith("Look:\n\n```python title\nline_0 = 0")
    assert all(part.endswith("\n```") for part in made[:-1])
    assert all(part.startswith("```python\nline_") for part in made[1:])
    assert made[-1].endswith("Done.")


def test_a_paragraph_waits_until_it_is_finished_and_long_enough() -> None:
    limits = Limits(400, 20)
    assert next_chunk("Short.\n\nAnd then", limits) is None
    assert next_chunk("A paragraph of some length, not over yet", limits) is None
    ready = next_chunk("A paragraph of some length.\n\nAnother", limits)
    assert ready is not None
    assert ready.text == "A paragraph of some length."
    assert next_chunk("Code:\n\n```\na = 1\n\nb = 2", Limits(400, 10)) is None


def test_a_text_that_pauses_is_cut_after_a_sentence() -> None:
    ready = next_chunk("It is noon. And the ti", Limits(400, 200), idle=True)
    assert ready is not None
    assert ready.text.strip() == "It is noon."
    assert next_chunk("And the ti", Limits(400, 200), idle=True) is None


def _words(text: str) -> str:
    """What is said, without blanks and without the marks of fences and what stands behind them."""
    kept = [line for line in text.split("\n") if not re.match(r"^ {0,3}(`{3}|~{3})", line)]
    return re.sub(r"\s", "", "".join(kept))
