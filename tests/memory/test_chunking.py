from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from holdfast.memory.chunking import chunk
from holdfast.text import rough_tokens

LINE = st.text(
    st.characters(
        blacklist_categories=["Cs"], blacklist_characters="\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\r\n"
    ),
    max_size=60,
)
TEXT = st.lists(st.one_of(LINE, st.sampled_from(["# One", "## Two", "```", "", "---"])), max_size=80).map(
    "\n".join
)


@given(TEXT, st.integers(8, 60), st.integers(0, 7))
def test_chunks_are_whole_lines_at_the_place_they_name(text: str, tokens: int, overlap: int) -> None:
    lines = text.splitlines()
    for piece in chunk(text, tokens=tokens, overlap=overlap):
        assert piece.text == "\n".join(lines[piece.start - 1 : piece.end])


@given(TEXT, st.integers(8, 60), st.integers(0, 7))
def test_every_line_that_says_something_is_in_a_chunk(text: str, tokens: int, overlap: int) -> None:
    covered = {
        n for piece in chunk(text, tokens=tokens, overlap=overlap) for n in range(piece.start, piece.end + 1)
    }
    assert {n for n, line in enumerate(text.splitlines(), 1) if line.strip()} <= covered


@given(TEXT, st.integers(8, 60), st.integers(0, 7))
def test_a_chunk_is_over_the_size_only_if_it_is_a_single_line(text: str, tokens: int, overlap: int) -> None:
    for piece in chunk(text, tokens=tokens, overlap=overlap):
        cost = sum(rough_tokens(line) + 1 for line in piece.text.split("\n"))
        assert cost <= tokens or piece.start == piece.end


@given(TEXT, st.integers(8, 60), st.integers(0, 7))
def test_chunks_move_forward_and_share_no_more_than_the_overlap(text: str, tokens: int, overlap: int) -> None:
    pieces = chunk(text, tokens=tokens, overlap=overlap)
    lines = text.splitlines()
    for before, after in pairwise(pieces):
        assert after.start > before.start
        shared = lines[after.start - 1 : before.end]
        assert sum(rough_tokens(line) + 1 for line in shared) <= overlap


def test_a_heading_begins_a_new_chunk_once_the_one_before_is_half_full() -> None:
    text = "# First\n" + "words and more words here\n" * 6 + "# Second\n" + "other words stand here\n" * 6
    first, second, *_ = chunk(text, tokens=60, overlap=10)
    assert second.text.startswith("# Second")
    assert first.end + 1 == second.start


def test_a_chunk_knows_the_headings_it_stands_under() -> None:
    text = "# Plan\n## Phase one\n" + "a line of text in the plan\n" * 40
    last = chunk(text, tokens=60, overlap=0)[-1]
    assert last.headings == ("Plan", "Phase one")
    assert last.embed_text.startswith("Plan › Phase one\n")


def test_what_looks_like_a_heading_in_a_code_fence_is_none() -> None:
    text = "# Real\n```\n# not a heading\n```\n" + "text\n" * 40
    assert all(piece.headings == ("Real",) for piece in chunk(text, tokens=30, overlap=0))


def test_front_matter_and_comments_are_not_embedded_but_kept() -> None:
    (piece,) = chunk("---\nname: x\n---\n<!-- todo -->\nThe text.\n")
    assert piece.embed_text == "The text."
    assert "name: x" in piece.text


def test_one_changed_line_changes_only_the_hash_of_its_chunks() -> None:
    lines = [f"line number {n} of a longer file" for n in range(400)]
    before = {p.hash for p in chunk("\n".join(lines), tokens=128, overlap=16)}
    lines[200] = "something else"
    after = {p.hash for p in chunk("\n".join(lines), tokens=128, overlap=16)}
    assert len(after - before) <= 2
