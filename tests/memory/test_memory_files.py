"""Files in memory: found, followed as they change, read by line, and never read twice for nothing."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from conftest_memory import Desk

from holdfast.clock import iso
from holdfast.errors import InvalidInput
from holdfast.log import OWNER, Store
from holdfast.memory import Chat
from holdfast.memory.tools import call, schemas


def test_a_note_is_found_with_its_exact_lines_and_a_citation(desk: Desk) -> None:
    desk.write("MEMORY.md", "# Access\n\nThe staging deploy needs the VPN.\n")
    desk.memory.update("main")
    (hit,) = desk.ask("what does the deploy to staging need?").hits
    assert (hit.path, hit.start, hit.end, hit.source) == ("MEMORY.md", 1, 3, "memory")
    body = desk.ask("staging deploy").json()["results"][0]
    assert body["snippet"].endswith("Source: MEMORY.md#L1-L3")
    assert set(body) == {"path", "snippet", "startLine", "endLine", "score", "source"}


def test_every_score_is_the_sum_of_the_parts_it_shows(desk: Desk) -> None:
    desk.write("MEMORY.md", "The staging deploy needs the VPN.")
    desk.write("memory/2026-01-01.md", "Lunch was good.\n\nThe VPN was slow.")
    desk.memory.update("main")
    for hit in desk.ask("VPN for the staging deploy").hits:
        assert sum(hit.parts.values()) == pytest.approx(hit.score)
        assert 0 <= hit.score <= 1


def test_only_what_changed_is_indexed_again(desk: Desk) -> None:
    for number in range(20):
        desk.write(f"memory/note-{number}.md", f"Note {number} is about subject {number}.")
    assert desk.memory.update("main").indexed == 20
    assert desk.memory.update("main").indexed == 0
    desk.write("memory/note-7.md", "Note 7 is about giraffes now.")
    done = desk.memory.update("main")
    assert (done.seen, done.indexed) == (20, 1)
    assert desk.paths("giraffes")[0] == "memory/note-7.md"


def test_a_file_that_was_only_touched_costs_no_embedding(desk: Desk) -> None:
    desk.write("MEMORY.md", "The key is under the mat.")
    desk.memory.update("main")
    desk.write("MEMORY.md", "The key is under the mat.")
    assert desk.memory.update("main").indexed == 0


def test_deleted_and_renamed_files_are_followed(desk: Desk) -> None:
    desk.write("memory/old.md", "The pangolin sleeps by day.")
    desk.memory.update("main")
    (desk.workspace() / "memory/old.md").rename(desk.workspace() / "memory/new.md")
    done = desk.memory.update("main")
    assert (done.indexed, done.removed) == (1, 1)
    assert desk.paths("pangolin") == ["memory/new.md"]
    (desk.workspace() / "memory/new.md").unlink()
    desk.memory.update("main")
    assert desk.paths("pangolin") == []


def test_a_file_that_shrinks_leaves_no_chunks_behind(desk: Desk) -> None:
    desk.write("MEMORY.md", "\n".join(f"line {n} about zebras and their stripes" for n in range(900)))
    desk.memory.update("main")
    assert desk.memory.index.count > 5
    desk.write("MEMORY.md", "one line about zebras")
    desk.memory.update("main")
    assert desk.memory.index.count == 1


def test_custom_collections_are_searched_and_addressed_by_name(
    new_desk: Callable[..., Desk], sqlite_store: Store
) -> None:
    paths = [{"path": "wiki", "name": "wiki", "mask": "**/*.md"}]
    desk = new_desk(sqlite_store, search={"paths": paths})
    desk.write("wiki/how/deploy.md", "Deploy with the blue button.")
    desk.memory.update("main")
    assert desk.paths("how to deploy") == ["qmd/wiki/how/deploy.md"]
    assert desk.memory.read("main", "qmd/wiki/how/deploy.md", OWNER)["text"] == "Deploy with the blue button."


def test_agents_never_see_each_other_s_files(desk: Desk) -> None:
    desk.write("MEMORY.md", "The password hint is turnip.", agent="main")
    desk.write("MEMORY.md", "I like turnip soup.", agent="work")
    desk.memory.update("main")
    desk.memory.update("work")
    assert "hint" in desk.ask("turnip", "main").hits[0].snippet
    assert [hit.snippet for hit in desk.ask("turnip", "work").hits] == ["I like turnip soup."]


@pytest.mark.parametrize(
    ("key", "allowed"),
    [
        ("agent:main:main", True),
        ("agent:main:telegram:dm:42", True),
        ("agent:main:discord:group:9", False),
        ("agent:main:discord:channel:9", False),
        ("some-conversation", False),
    ],
)
def test_only_private_chats_search_by_default(desk: Desk, key: str, allowed: bool) -> None:
    desk.write("MEMORY.md", "The secret is safe.")
    desk.memory.update("main")
    found = desk.ask("secret", chat=Chat.of(key))
    assert bool(found.hits) is allowed
    assert found.diagnostics.mode == ("hybrid" if allowed else "refused")
    if not allowed:
        assert "scope" in found.diagnostics.note
        with pytest.raises(InvalidInput):
            desk.memory.read("main", "MEMORY.md", OWNER, chat=Chat.of(key))


def test_a_rule_can_open_a_channel_and_citations_stay_out_of_it(
    new_desk: Callable[..., Desk], sqlite_store: Store
) -> None:
    rules = [{"action": "allow", "match": {"channel": "discord"}}]
    desk = new_desk(sqlite_store, search={"scope": {"default": "deny", "rules": rules}})
    desk.write("MEMORY.md", "The secret is safe.")
    desk.memory.update("main")
    found = desk.ask("secret", chat=Chat.of("agent:main:discord:channel:9"))
    assert found.hits
    assert "Source:" not in found.json()["results"][0]["snippet"]


def test_results_are_clamped_in_number_and_size(desk: Desk) -> None:
    for number in range(30):
        desk.write(f"memory/{number}.md", f"lighthouse {number} " + "and the sea around it " * 60)
    desk.memory.update("main")
    found = desk.ask("lighthouse")
    assert len(found.hits) == 5
    assert all(len(hit["snippet"]) <= 700 for hit in found.json()["results"])
    assert all("Source: memory/" in hit["snippet"] for hit in found.json()["results"])
    more = desk.ask("lighthouse", max_results=50)
    assert len(json.dumps(more.json(), ensure_ascii=False)) <= 4000
    assert more.diagnostics.left_out > 0


def test_nothing_is_told_where_nothing_fits_and_the_answer_says_so(desk: Desk) -> None:
    desk.write("MEMORY.md", "# Access\n\nThe staging deploy needs the VPN.\n")
    desk.write(
        "memory/2026-01-01.md", "Ines has the key to the boathouse.\n\nThe boiler was serviced in March.\n"
    )
    desk.memory.update("main")
    for question in (
        "xqzzt flurbo",
        "Translate 'good morning' to Japanese",
        "Wie hoch ist der Kilimandscharo?",
    ):
        found = desk.ask(question)
        assert found.hits == []
        assert "nothing here fits the question" in found.diagnostics.note
        assert found.diagnostics.confidence is not None
        assert found.diagnostics.confidence < 0.2
    assert desk.ask("xqzzt flurbo", min_score=0).hits != []
    found = desk.ask("who has a key to the boathouse?")
    assert found.hits[0].path == "memory/2026-01-01.md"
    assert found.hits[0].score == pytest.approx(found.diagnostics.confidence)
    assert found.hits[0].score > 0.9


def test_one_long_file_has_two_places_while_others_fit(desk: Desk) -> None:
    section = "## Lighthouse {}\n\n" + "The lighthouse keeper wrote about the lamp and the fog. " * 90
    desk.write("memory/long.md", "\n\n".join(section.format(number) for number in range(8)))
    for number in range(6):
        desk.write(f"memory/{number}.md", f"Note {number}: the lighthouse lamp was cleaned by the keeper.")
    desk.memory.update("main")
    paths = [hit.path for hit in desk.ask("lighthouse keeper lamp", max_results=6).hits]
    assert paths.count("memory/long.md") <= 2
    assert len(paths) >= 5


def test_one_file_fills_the_places_that_nothing_else_fits(desk: Desk) -> None:
    section = "## Lighthouse {}\n\n" + "The lighthouse keeper wrote about the lamp and the fog. " * 90
    desk.write("memory/long.md", "\n\n".join(section.format(number) for number in range(4)))
    desk.write("memory/other.md", "Bread and butter.")
    desk.memory.update("main")
    paths = [hit.path for hit in desk.ask("lighthouse keeper lamp", max_results=4).hits]
    assert set(paths) == {"memory/long.md"}
    assert len(paths) > 2


def test_an_empty_answer_says_why(desk: Desk) -> None:
    assert "nothing is indexed" in desk.ask("anything").diagnostics.note
    desk.write("MEMORY.md", "Bread and butter.")
    desk.memory.update("main")
    assert "below the least score" in desk.ask("bread", min_score=1.0).diagnostics.note


def test_reading_is_paged_by_line(desk: Desk) -> None:
    desk.write("MEMORY.md", "\n".join(f"line {n}" for n in range(1, 301)))
    first = desk.memory.read("main", "MEMORY.md", OWNER)
    assert (first["lines"], first["totalLines"], first["more"]) == (120, 300, True)
    part = desk.memory.read("main", "MEMORY.md", OWNER, start=299, lines=5)
    assert (part["text"], part["more"]) == ("line 299\nline 300", False)


def test_a_written_note_is_found_at_once_in_today_s_log(desk: Desk) -> None:
    desk.memory.write("main", "- The badger moved out.", OWNER)
    written = desk.memory.write("main", "- The heron moved in.", OWNER)
    assert written == {"path": "memory/2026-01-01.md", "line": 2}
    assert desk.paths("heron") == ["memory/2026-01-01.md"]


@pytest.mark.parametrize("path", ["AGENTS.md", "../x.md", "memory/x.txt", "/etc/x.md"])
def test_notes_go_nowhere_but_into_memory_files(desk: Desk, path: str) -> None:
    with pytest.raises(InvalidInput):
        desk.memory.write("main", "text", OWNER, path=path)


def test_the_tools_take_what_their_schemas_say_and_refuse_the_rest(desk: Desk) -> None:
    assert set(schemas()) == {"memory_search", "memory_get", "memory_write"}
    call(
        desk.memory,
        "memory_write",
        {"text": "The otter is called Bo."},
        agent="main",
        reader=OWNER,
        chat=Chat(),
    )
    found = call(
        desk.memory,
        "memory_search",
        {"query": "otter", "maxResults": 1},
        agent="main",
        reader=OWNER,
        chat=Chat(),
    )
    assert set(found) >= {"results", "provider", "model", "fallback", "citations"}
    path = found["results"][0]["path"]
    read = call(
        desk.memory,
        "memory_get",
        {"path": path, "from": 1, "lines": 1},
        agent="main",
        reader=OWNER,
        chat=Chat(),
    )
    assert read["text"] == "The otter is called Bo."
    for name, arguments in [
        ("memory_search", {}),
        ("memory_search", {"query": "x", "maxResults": 0}),
        ("memory_search", {"query": "x", "other": 1}),
        ("memory_get", {"path": "MEMORY.md", "from": 0}),
        ("memory_write", {"text": ""}),
        ("memory_forget", {}),
    ]:
        with pytest.raises(InvalidInput):
            call(desk.memory, name, arguments, agent="main", reader=OWNER, chat=Chat())


def test_a_file_that_cannot_be_read_is_reported_and_the_rest_indexed(desk: Desk) -> None:
    desk.write("memory/good.md", "A good file.")
    desk.write("memory/huge.md", "x" * (17 * 1024 * 1024))
    done = desk.memory.update("main")
    assert done.indexed == 1
    assert "huge.md" in done.problems[0]


def test_status_tells_what_is_there(desk: Desk) -> None:
    desk.write("MEMORY.md", "One.")
    desk.memory.update("main")
    told = desk.memory.status("main")
    assert (told["backend"], told["documents"]) == ("builtin", 1)
    assert told["collections"][0] == {"name": "memory-root", "files": 1, "chunks": 1}
    assert told["embedders"][-1]["covered"] == 1.0


def test_the_index_may_be_deleted_and_is_made_again(
    new_desk: Callable[..., Desk], sqlite_store: Store
) -> None:
    first = new_desk(sqlite_store, index="one")
    first.write("MEMORY.md", "The walrus has tusks.")
    first.memory.update("main")
    second = new_desk(sqlite_store, index="two")
    second.memory.update("main")
    assert second.paths("walrus") == first.paths("walrus") == ["MEMORY.md"]


def test_status_tells_when_it_was_updated_as_every_time_is_told(desk: Desk) -> None:
    assert desk.memory.status("main")["updatedAt"] is None
    desk.memory.update("main")
    assert desk.memory.status("main")["updatedAt"] == iso(desk.clock.now())
