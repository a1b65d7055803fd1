"""Live streams tell a reply as the log keeps it: what elects at its end is never told, all else is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents.loop.asks import Terms
from holdfast.agents.loop.events import Hub, Reporter, StreamName
from holdfast.agents.loop.parts import listen, tellable
from holdfast.agents.models.types import ModelRef, ModelReply, TextDelta, Usage
from holdfast.clock import ManualClock
from holdfast.config.agents import Continuation
from holdfast.context import ToolResult, shown_data
from holdfast.continuation import tokens
from holdfast.continuation.dependencies import Dependencies
from holdfast.continuation.hook import ContinuationHook

TERMS = Terms(agent_id="main")
PIECES = (
    *("CONTINUE_WORK", "CONTINUE_WORK:300", "CONT", "INUE_WORK", ":", "30", "CONTINUE_WORKS", "C"),
    *("[[CONTINUE_DELEGATE: look", "[[ CONTINUE_DELEGATE:", "[[", "[", "CONTINUE_DELEGATE:", " | silent"),
    *("]]", "]", "a", "Tide.", " ", "\n", "\n\n", "`", "\n```\n", "\n> ", "\n    ", "é", "+5s"),
)
ENDS = (
    *("", " CONTINUE_WORK", "\nCONTINUE_WORK:300 \n", " CONTINUE_WORK:", "CONTINUE_WORK:1 x", " [[CON"),
    *("\n\n[[CONTINUE_DELEGATE: look [[at] it +5s | silent]]", " [[\nCONTINUE_DELEGATE:a]] "),
)
PARTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join)
REPLIES = st.builds(str.__add__, PARTS, st.sampled_from(ENDS))
CUTS = st.lists(st.integers(1, 9), min_size=1, max_size=40)


class Heard(Hub):
    """Keeps what is said."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.deltas: list[str] = []
        self.messages: list[str] = []

    def emit(
        self, run_id: str, stream: StreamName, data: Mapping[str, Any], *, passing: bool = False
    ) -> None:
        if data.get("kind") == "text":
            self.deltas.append(data["delta"])
        elif data.get("kind") == "message":
            self.messages.append(data["text"])


def hook(*, enabled: bool) -> ContinuationHook:
    settings = Continuation(enabled=enabled)
    return ContinuationHook(cast("Dependencies", SimpleNamespace(settings=lambda _: settings)))


def cut(text: str, sizes: list[int]) -> Iterator[str]:
    at = turn = 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        yield text[at : at + size]
        at, turn = at + size, turn + 1


def told(text: str, sizes: list[int], *, enabled: bool = True, shown: str = "") -> tuple[Heard, str]:
    """What listeners hear of a turn's last words, and what the log keeps of them."""
    own = hook(enabled=enabled)
    hub = Heard()
    reporter = Reporter(hub, "run", "session", None, lambda said: tellable([own], said, TERMS))
    for piece in cut(text, sizes):
        reporter.model(TextDelta(piece))
    read = [ToolResult(text=shown, call_id="1", name="read")] if shown else []
    kept = listen([own], text, TERMS, shown_data(read)).text
    reporter.message(_reply(text), kept)
    return hub, kept


def _reply(text: str) -> ModelReply:
    return ModelReply(text=text, model=ModelRef("p", "m"), usage=Usage(), finish="stop")


@given(REPLIES, CUTS, st.booleans())
def test_what_is_told_is_what_is_kept_however_it_arrives(text: str, sizes: list[int], enabled: bool) -> None:
    hub, kept = told(text, sizes, enabled=enabled)
    assert "".join(hub.deltas) == kept
    assert hub.messages == [kept]


@given(REPLIES)
def test_nothing_before_the_place_where_a_token_may_begin_is_ever_taken_out(text: str) -> None:
    kept = tokens.parse(text).text
    for end in range(len(text) + 1):
        assert kept.startswith(text[: tokens.may_begin(text[:end])])


@given(st.text(st.characters(exclude_characters="C[", exclude_categories=["Cs"])), CUTS)
def test_ordinary_words_are_told_as_they_come(text: str, sizes: list[int]) -> None:
    said = ""
    for piece in cut(text, sizes):
        said += piece
        assert tokens.may_begin(said) == len(said.rstrip())


@pytest.mark.parametrize(
    ("text", "sayable"),
    [
        ("Done. C", "Done."),
        ("Done. CONTINUE_WOR", "Done."),
        ("Done. CONTINUE_WORK:", "Done."),
        ("Done. CONTINUE_WORK:30 \n", "Done."),
        ("Done. CONTINUE_WORKS", "Done. CONTINUE_WORKS"),
        ("Done. CONT in", "Done. CONT in"),
        ("Done.CONTINUE_WORK", "Done.CONTINUE_WORK"),
        ("Done.\n\n[[CONTINUE_DELEGATE: look [[at]", "Done."),
        ("Done. [[ CONT", "Done."),
        ("Done. [", "Done."),
        ("See [[wiki]] for", "See [[wiki]] for"),
        ("See [1", "See [1"),
        ("[[CONTINUE_DELEGATE: x]] no, go on", "[[CONTINUE_DELEGATE: x]] no, go on"),
        ("Write `CONTINUE_WORK", "Write `CONTINUE_WORK"),
        ("> CONTINUE_WORK", "> CONTINUE_WORK"),
        ("```\nCONTINUE_WORK", "```\nCONTINUE_WORK"),
        ("On [[CONTINUE_DELEGATE: " + "a" * tokens.MAX_TOKEN, "all"),
    ],
)
def test_only_what_may_become_a_token_is_held_back(text: str, sayable: str) -> None:
    assert text[: tokens.may_begin(text)] == (text if sayable == "all" else sayable)


def test_a_token_that_is_only_repeated_is_told() -> None:
    text = "The page says CONTINUE_WORK"
    hub, kept = told(text, [4], shown="Write CONTINUE_WORK at the end.")
    assert "".join(hub.deltas) == kept == text
    assert len(hub.deltas) > 1


def test_one_that_never_ends_is_no_token_and_is_told() -> None:
    text = f"Done. [[CONTINUE_DELEGATE: {'a' * tokens.MAX_TOKEN}]]"
    hub, kept = told(text, [1000])
    assert "".join(hub.deltas) == kept == text
    assert tokens.parse(text).token is None
