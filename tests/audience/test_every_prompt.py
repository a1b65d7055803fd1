"""What went into prompts, came out of them, and lies in the store: all of it is for those it is kept for."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from marked_world import World
from marks import SURFACES
from tool_arguments import FILES

from holdfast.log import Reader, heard_by, parse_audience

SESSION = re.compile(r"^Session: (\S+)$", re.MULTILINE)


def audiences(world: World) -> dict[str, Reader]:
    """Who hears each session, by its key and by its id."""
    found = world.rows("SELECT key, id, audience, space_id FROM sessions ORDER BY created_at")
    spaces = {id_: frozenset(() if space is None else (space,)) for _, id_, _, space in found}
    by_id = {id_: heard_by(audience, spaces[id_]) for _, id_, audience, _ in found}
    return {key: by_id[id_] for key, id_, _, _ in found} | by_id


def leaks(world: World, found: list[tuple[str, str, Any]]) -> dict[str, list[str]]:
    """Of texts with where they stand and for whom, those that hold what is not for these people."""
    told = ((where, world.marks.leaked(text, heard_by(str(audience)))) for where, audience, text in found)
    return {where: names for where, names in told if names}


def test_each_prompt_held_what_those_who_heard_the_answer_may_read(world: World) -> None:
    heard, seen = audiences(world), set()
    for asked in world.model.requests:
        body = json.dumps(asked.body, ensure_ascii=False)
        named = SESSION.search(str(asked.messages[0].get("content")))
        if not asked.tools:
            continue
        assert named is not None
        seen.add(named[1])
        assert not world.marks.leaked(body, heard[named[1]]), named[1]
    assert seen >= SURFACES.keys()


def test_the_prompts_of_chats_that_others_hear_hold_none_of_the_owners_files(world: World) -> None:
    opened = {"AGENTS.md"}
    for asked in world.model.requests:
        system = str(asked.messages[0].get("content"))
        named = SESSION.search(system)
        if named is not None and asked.tools and audiences(world)[named[1]].audiences is not None:
            files = set(re.findall(r"^# (\S+\.md)$", json.loads(json.dumps(system)), re.MULTILINE))
            assert files <= opened, named[1]
            assert str(world.hold.home.path) not in json.dumps(asked.body)


def test_every_section_of_every_kept_manifest_says_for_whom_it_is_and_the_law_holds(world: World) -> None:
    heard = audiences(world)
    found = world.rows("SELECT session_id, number, body FROM context_manifests")
    assert len(found) > 50
    for session_id, number, body in found:
        for section in json.loads(body)["manifest"]["sections"]:
            parse_audience(section["audience"])
            assert heard[session_id].may_read(section["audience"]), (number, section)


def test_what_went_out_was_for_those_who_heard_it_there(world: World) -> None:
    assert {post.body["to"]["id"] for post in world.end.posts} == {"ada", "gil", "g1", "g2", "desk"}
    for post in world.end.posts:
        to = post.body["to"]
        heard = heard_by(SURFACES[f"agent:main:pier:{to['kind']}:{to['id']}"])
        assert not world.marks.leaked(post.raw.decode(), heard), to


KEPT = {
    "entries": "content || coalesce(summary, '') || coalesce(raw, '') || coalesce(source, '')",
    "sessions": "key || coalesce(label, '') || coalesce(meta, '')",
    "turns": "coalesce(meta, '') || coalesce(error, '')",
    "topics": "name || coalesce(description, '') || coalesce(digest, '')",
    "tasks": "title || coalesce(description, '') || coalesce(digest, '')",
    "notes": "text",
    "attachments": "file_name",
    "session_routing": "items",
}


@pytest.mark.parametrize("table", KEPT)
def test_nothing_in_the_store_holds_words_that_some_of_its_readers_may_not_read(
    world: World, table: str
) -> None:
    """Whatever is made of words carries who may read all of them: summaries, digests, notes, routes."""
    names = "session_key" if table == "session_routing" else "id"
    found = [
        (f"{table} {id_}", audience, text)
        for id_, audience, text in world.rows(f"SELECT {names}, audience, {KEPT[table]} FROM {table}")
    ]
    assert found
    assert not leaks(world, found)


def test_what_agents_set_going_is_kept_within_the_chat_that_asked_for_it(world: World) -> None:
    heard = audiences(world)
    for table, key, text in (
        ("subagent_runs", "requester_key", "task || coalesce(label, '') || coalesce(said, '')"),
        ("continuation_records", "owner_session_key", "state"),
        ("standing_tasks", "json_extract(created_by, '$.sessionKey')", "name || prompt"),
        ("context_states", "session_id", "coalesce(daily, '')"),
    ):
        for session, words in world.rows(f"SELECT {key}, {text} FROM {table} WHERE {key} IS NOT NULL"):
            assert not world.marks.leaked(str(words), heard[session]), (table, session)


def test_what_was_written_down_of_a_session_is_for_those_who_heard_it(world: World) -> None:
    """Trajectories and kept outputs are files of the owner's; each holds one session's words alone."""
    heard = audiences(world)
    logs = world.hold.home.path / "logs"
    files = list((logs / "trajectory").glob("*.jsonl"))
    assert files
    for path in files:
        assert not world.marks.leaked(path.read_text(), heard[path.stem]), path.name
    for path in (*files, *(world.hold.home.path / "agents").rglob("*.txt"), *logs.glob("*.jsonl")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_nobody_else_has_written_into_the_owners_files(world: World) -> None:
    workspace: Path = world.hold.home.path / "workspace"
    for name in FILES:
        path = workspace / name
        if path.is_file() and not name.startswith(".."):
            assert "mine now" not in path.read_text()
            assert set(world.marks.found(path.read_text())) <= {"owner"}, name
