"""What was recalled is not remembered again; what is written is never rewritten."""

from __future__ import annotations

import pytest
from conftest_memory import Desk
from hypothesis import given
from hypothesis import strategies as st

from builders import KEY, append
from holdfast.log import OWNER
from holdfast.memory import Chat
from holdfast.memory.echoes import without_echoes
from holdfast.memory.tools import call

QUOTE = "The key is under the mat.\n\nSource: MEMORY.md#L1"


def reply(desk: Desk, text: str, role: str = "assistant") -> None:
    append(desk.store, text, session_key=KEY, role=role, agent_id="main" if role == "assistant" else "user")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (QUOTE, ""),
        (f"Here it is:\n\n{QUOTE}\n\nShall I order a new mat?", "Here it is:\n\nShall I order a new mat?"),
        ("It is under the mat.\nSource: memory/2026-01-01.md#L3-L9", ""),
        ("One.\n\nTwo.\n\nSource: a.md\n\nSource: b.md#L2", "One."),
        ("Source: the newspaper", "Source: the newspaper"),
        ("Open Source: we like it.", "Open Source: we like it."),
        ("plain", "plain"),
    ],
)
def test_paragraphs_that_cite_memory_are_left_out(text: str, left: str) -> None:
    assert without_echoes(text) == left


@given(st.text())
def test_text_without_a_citation_stays_as_it_is(text: str) -> None:
    assert without_echoes(text) == text or "Source: " in text


def test_an_answer_from_memory_is_not_a_second_memory(desk: Desk) -> None:
    desk.write("MEMORY.md", "The key is under the mat.")
    desk.memory.update("main")
    for _ in range(5):
        found = call(
            desk.memory,
            "memory_search",
            {"query": "where is the key?"},
            agent="main",
            reader=OWNER,
            chat=Chat(),
        )
        reply(desk, f"I looked it up.\n\n{found['results'][0]['snippet']}")
    hits = desk.ask("where is the key?").hits
    assert [hit.path for hit in hits if "under the mat" in hit.snippet] == ["MEMORY.md"]


def test_a_person_who_cites_is_still_heard(desk: Desk) -> None:
    reply(desk, QUOTE, role="user")
    assert [hit.source for hit in desk.ask("under the mat").hits] == ["sessions"]


def test_a_new_note_stands_behind_the_old_ones_and_changes_none(desk: Desk) -> None:
    desk.write("MEMORY.md", "Ines drives a Volvo.\n")
    for text in ("Correction: Ines drives a Fiat.", "Ines has sold the Fiat."):
        call(
            desk.memory,
            "memory_write",
            {"text": text, "path": "MEMORY.md"},
            agent="main",
            reader=OWNER,
            chat=Chat(),
        )
    lines = (desk.workspace() / "MEMORY.md").read_text().splitlines()
    assert lines == ["Ines drives a Volvo.", "Correction: Ines drives a Fiat.", "Ines has sold the Fiat."]


def test_what_a_person_strikes_from_a_file_is_forgotten(desk: Desk) -> None:
    desk.write("MEMORY.md", "Ines drives a Volvo.\nThe cat is called Bo.\n")
    desk.memory.update("main")
    desk.write("MEMORY.md", "The cat is called Bo.\n")
    desk.memory.update("main")
    assert not any("Volvo" in hit.snippet for hit in desk.ask("Volvo").hits)
