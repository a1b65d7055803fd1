"""Who may read what memory has: an agent recalls for those who hear it, and for nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from conftest_memory import Desk

from builders import append
from holdfast.errors import Forbidden, NotFound
from holdfast.log import OWNER, Reader, for_peer, for_space, heard_by
from holdfast.log.audience import token_reader
from holdfast.log.entry_model import Entry
from holdfast.memory import Chat
from holdfast.memory.tools import call

GUEST = for_peer("discord", None, "7")
AS_GUEST = heard_by(GUEST)
MAIN = "agent:main:main"
DM = "agent:main:discord:dm:7"


def owners_words(desk: Desk, text: str = "The alarm code of the sauna is 4711.") -> Entry:
    return append(desk.store, text, session_key=MAIN, role="user")


def guests_words(desk: Desk, text: str = "The sauna is too hot for me.") -> Entry:
    return append(desk.store, text, session_key=DM, role="user", audience=GUEST)


def tool(desk: Desk, name: str, arguments: dict[str, Any], reader: Reader) -> dict[str, Any]:
    return call(desk.memory, name, arguments, agent="main", reader=reader, chat=Chat())


def test_a_guests_agent_does_not_read_the_owners_words_by_their_path(desk: Desk) -> None:
    secret = owners_words(desk)
    desk.ask("alarm code")
    with pytest.raises(NotFound, match="no conversation"):
        tool(desk, "memory_get", {"path": f"sessions/{secret.id}.md"}, AS_GUEST)
    assert "4711" in tool(desk, "memory_get", {"path": f"sessions/{secret.id}.md"}, OWNER)["text"]


def test_a_guests_search_lists_only_what_the_guest_may_read(desk: Desk) -> None:
    owners_words(desk)
    own = guests_words(desk)
    found = tool(desk, "memory_search", {"query": "sauna alarm code"}, AS_GUEST)
    assert [hit["path"] for hit in found["results"]] == [f"sessions/{own.id}.md"]
    assert found["diagnostics"]["searched"] == 1
    assert (
        len(tool(desk, "memory_search", {"query": "sauna alarm code", "minScore": 0}, OWNER)["results"]) == 2
    )


def test_what_stands_beside_a_guests_words_is_read_only_as_far_as_it_is_theirs(desk: Desk) -> None:
    """The owner once wrote in the same session, before it was the guest's."""
    append(desk.store, "The vault opens with 0815.", session_key=DM, role="user")
    own = guests_words(desk)
    desk.ask("sauna")
    text = tool(desk, "memory_get", {"path": f"sessions/{own.id}.md"}, AS_GUEST)["text"]
    assert "too hot" in text
    assert "0815" not in text


@pytest.mark.parametrize("path", ["MEMORY.md", "memory/2026-01-01.md"])
def test_memory_files_are_the_owners(desk: Desk, path: str) -> None:
    desk.write(path, "The safe is behind the painting.")
    desk.memory.update("main")
    assert not tool(desk, "memory_search", {"query": "safe painting"}, AS_GUEST)["results"]
    for reader in (
        AS_GUEST,
        heard_by(for_space("space-a")),
        token_reader("token", None, frozenset(("other",))),
    ):
        with pytest.raises(Forbidden, match="owner's") as refused:
            tool(desk, "memory_get", {"path": path}, reader)
        assert refused.value.code == "memory_owner_only"
        assert refused.value.hint
    assert "painting" in tool(desk, "memory_get", {"path": path}, OWNER)["text"]


def test_a_guest_does_not_write_into_the_owners_memory(desk: Desk) -> None:
    with pytest.raises(Forbidden) as refused:
        tool(desk, "memory_write", {"text": "Guests may open the safe."}, AS_GUEST)
    assert refused.value.code == "memory_owner_only"
    assert not (desk.workspace() / "memory").exists()


def test_a_reader_of_one_agent_finds_its_files_and_its_words(desk: Desk) -> None:
    desk.write("MEMORY.md", "The heron nests in May.")
    desk.memory.update("main")
    append(desk.store, "The heron is back.", session_key=MAIN, role="assistant", agent_id="main")
    append(desk.store, "Is the heron back?", session_key=MAIN, role="user", agent_id="user")
    of_main = token_reader("token", None, frozenset(("main",)))
    found = desk.ask("heron", reader=of_main)
    assert {hit.source for hit in found.hits} == {"memory", "sessions"}
    assert len(found.hits) == 2


def test_an_entry_that_is_shared_is_found_by_those_it_is_shared_with(desk: Desk) -> None:
    from holdfast.log import entries

    said = append(desk.store, "The ferry leaves at nine.", session_key=MAIN, role="user")
    crew = heard_by(for_space("space-crew"))
    assert not desk.ask("ferry", reader=crew).hits
    with desk.store.write(OWNER) as tx:
        entries.widen(tx, said.id, for_space("space-crew"))
    assert [hit.id for hit in desk.ask("ferry", reader=crew).hits] == [said.id]


def test_what_others_may_not_read_does_not_weigh_in_their_search(
    desk: Desk,
) -> None:
    """The rarity of a word, as a guest's search has it, tells nothing of what the owner said."""
    guests_words(desk, "The kelp is green.")
    alone = [hit.score for hit in desk.ask("kelp", reader=AS_GUEST).hits]
    for number in range(5):
        owners_words(desk, f"Kelp soup number {number}.")
    assert [hit.score for hit in desk.ask("kelp", reader=AS_GUEST).hits] == alone
