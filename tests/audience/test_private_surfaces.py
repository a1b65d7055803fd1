"""A group that only the owner reads remembers like a direct chat, until somebody else writes there."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from marked_world import DESK, MAIN, World, small_world

from builders import PATIENCE
from holdfast.log import FOR_OWNER, OWNER, SYSTEM, for_group, notes, sessions, surfaces
from holdfast.testing import Asked

SURFACE = for_group("pier", None, "desk")
SECRET = "the vault opens with 4711"
STRANGER = {"sender": {"id": "mallory", "name": "Mallory"}}


@pytest.fixture
def world(home: Path) -> Iterator[World]:
    with small_world(home) as made:
        yield made


def prompt(asked: Asked) -> str:
    return json.dumps(asked.body, ensure_ascii=False)


def expose(world: World, text: str = "Hello, may I join in?") -> dict[str, Any]:
    return world.say(DESK, text, **STRANGER)


def test_it_remembers_like_a_direct_chat(world: World) -> None:
    world.ask(MAIN, f"Remember that {SECRET}")
    world.say(DESK, "What opens the vault?")
    assert "# MEMORY.md" in world.last_prompt
    assert "4711" in world.last_prompt
    world.say(DESK, "The regatta begins at noon")
    world.ask(MAIN, "When does the regatta begin?")
    assert "begins at noon" in world.last_prompt
    caller = world.caller(MAIN)
    assert "begins at noon" in world.use(caller, "memory_search", {"query": "regatta"}).text


class TestExposed:
    @pytest.fixture
    def world(self, world: World) -> World:
        world.ask(MAIN, f"Remember that {SECRET}")
        world.say(DESK, f"For the desk: {SECRET}")
        with world.hold.store.write(OWNER) as tx:
            sessions.update(tx, sessions.find(tx, DESK), label=f"label: {SECRET}")
        world.settle(30)
        return world

    def test_the_very_message_that_exposes_it_is_answered_in_a_fresh_session(self, world: World) -> None:
        run = expose(world)
        assert run["status"] == "committed"
        assert "4711" not in world.last_prompt
        assert "# MEMORY.md" not in world.last_prompt
        assert run["turn"] == 1
        old, new = world.rows(f"SELECT audience, status, label FROM sessions WHERE key = '{DESK}'")
        assert (old[:2], new[:2]) == ((FOR_OWNER, "archived"), (SURFACE, "active"))
        assert new[2] is None

    def test_from_then_on_the_owner_is_answered_there_as_the_group_too(self, world: World) -> None:
        expose(world)
        world.say(DESK, "What opens the vault?")
        assert "4711" not in world.last_prompt
        assert "may I join in" in world.last_prompt
        said = [post for post in world.end.posts if post.body["to"]["id"] == "desk"]
        assert world.marks.found("".join(post.raw.decode() for post in said[1:])) == []

    def test_what_was_said_before_stays_the_owners(self, world: World) -> None:
        expose(world)
        rows = world.rows(
            f"SELECT DISTINCT audience FROM entries WHERE session_key = '{DESK}' AND content LIKE '%4711%'"
        )
        assert rows == [(FOR_OWNER,)]
        caller = world.caller(DESK)
        old = world.rows(f"SELECT id FROM entries WHERE session_key = '{DESK}' AND content LIKE '%4711%'")[0][
            0
        ]
        for tool, arguments in (
            ("context_search", {"query": "vault"}),
            ("context_read", {"id": old}),
            ("context_read", {"id": "span:0-100000"}),
            ("sessions_history", {}),
            ("sessions_list", {}),
            ("session_status", {}),
            ("memory_search", {"query": "vault"}),
            ("memory_get", {"path": f"sessions/{old}.md"}),
            ("clawboard_search", {"q": "vault"}),
            ("clawboard_get_log", {"id": old}),
            ("message", {"action": "read"}),
        ):
            assert "4711" not in world.use(caller, tool, arguments).text, tool
        for path in ("/api/context", "/api/search", "/api/memory/search"):
            assert "4711" not in world.api.get(path, params={"q": "vault", "sessionKey": DESK}).text
        for command in ("/status", "/context", "/usage"):
            world.say(DESK, command, **STRANGER)
            world.settle()
            assert "4711" not in world.end.posts[-1].raw.decode()
        owner = world.caller(MAIN)
        assert "4711" in world.use(owner, "clawboard_get_log", {"id": old}).text

    def test_the_owner_is_asked_about_it_once(self, world: World) -> None:
        expose(world)
        expose(world, "And again")
        with world.hold.store.read(SYSTEM) as tx:
            found = [note for note in notes.waiting(tx, MAIN) if note.kind == "surface-exposed"]
        assert [(note.audience, "Mallory" in note.text) for note in found] == [(FOR_OWNER, True)]
        world.ask(MAIN, "Anything new?")
        assert "declared private" in world.last_prompt
        assert "holdfast channels private pier desk" in world.last_prompt

    def test_what_the_owner_had_set_going_there_speaks_there_no_more(self, world: World) -> None:
        """A standing task of the private days still runs, for the owner: not before the stranger."""
        world.obey(DESK, ("cron_create", {"prompt": "Tell what you know of the vault", "every": "5h"}))
        [id_] = world.ids("standing_tasks")
        expose(world)
        world.settle()
        before = len(world.end.posts)
        assert world.api.post(f"/api/cron/{id_}/run").status_code in (200, 202)
        world.settle(1)
        [(key,)] = world.rows("SELECT key FROM sessions WHERE key LIKE '%:cron:%'")
        assert "4711" in world.last_prompt, key
        assert [post.text for post in world.end.posts[before:]] == []
        [(told,)] = world.rows("SELECT content FROM entries WHERE content LIKE 'Not delivered%'")
        assert "pier:group:desk" in told

    def test_a_child_of_the_private_days_brings_nothing_into_the_group(self, world: World) -> None:
        world.obey(DESK, ("continue_delegate", {"task": "Look into the vault", "delaySeconds": 60}))
        world.obey(DESK, ("continue_work", {"reason": f"go on: {SECRET}", "delaySeconds": 60}))
        expose(world)
        count, posts = len(world.model.requests), len(world.end.posts)
        world.settle(600)
        world.say(DESK, "Anything new?", **STRANGER)
        in_group = [p for p in map(prompt, world.model.requests[count:]) if f"Session: {DESK}" in p]
        assert in_group
        assert not [one for one in in_group if "4711" in one]
        assert not [post for post in world.end.posts[posts:] if "4711" in post.raw.decode()]

    def test_a_child_that_comes_back_after_it_is_the_owners(self, world: World) -> None:
        gate = threading.Event()
        script = world.model._script

        def patient(asked: Asked) -> Any:
            if "Session: agent:main:subagent:" in prompt(asked):
                assert gate.wait(PATIENCE)
            return script(asked)

        world.model._script = patient
        world.obey(DESK, ("sessions_spawn", {"task": f"look slowly: {SECRET}"}))
        expose(world)
        count, posts = len(world.model.requests), len(world.end.posts)
        gate.set()
        world.settle(1)
        world.say(DESK, "Anything new?", **STRANGER)
        in_group = [p for p in map(prompt, world.model.requests[count:]) if f"Session: {DESK}" in p]
        assert not [one for one in in_group if "4711" in one]
        assert not [post for post in world.end.posts[posts:] if "4711" in post.raw.decode()]

    def test_declared_again_it_is_private_again(self, world: World) -> None:
        expose(world)
        with world.hold.store.write(OWNER) as tx:
            assert surfaces.reclaim(tx, SURFACE)
        world.say(DESK, "What opens the vault?")
        assert "4711" in world.last_prompt
        assert "# MEMORY.md" in world.last_prompt
        assert world.rows(f"SELECT audience FROM sessions WHERE key = '{DESK}' AND status = 'active'") == [
            (FOR_OWNER,)
        ]
        expose(world, "Me again")
        assert "4711" not in world.last_prompt


def test_what_was_kept_unanswered_there_is_not_given_to_others(home: Path) -> None:
    """Where the agent must be named, the owner's asides wait; a stranger's call does not get them."""
    with small_world(home, requireMention=True) as world:
        assert world.say(DESK, f"An aside: {SECRET}")["state"] == "kept"
        world.say(DESK, "main: hello?", mentioned=True, **STRANGER)
        assert "4711" not in world.last_prompt
        assert world.say(DESK, "An aside of a stranger's", **STRANGER)["state"] == "kept"
        assert world.say(DESK, "Another by the owner")["state"] == "kept"
        world.say(DESK, "main: and now?", mentioned=True, **STRANGER)
        assert "aside of a stranger" in world.last_prompt
        assert "Another by the owner" in world.last_prompt


def test_a_thread_of_an_exposed_group_begins_without_what_was_said_before(home: Path) -> None:
    for inherit in (False, True):
        folder = home / str(inherit)
        folder.mkdir()
        with small_world(folder, thread={"inheritParent": inherit}) as world:
            world.say(DESK, f"For the desk: {SECRET}")
            world.say(DESK, "in a thread", threadId="t9", **STRANGER)
            assert "4711" not in world.last_prompt
            assert "# MEMORY.md" not in world.last_prompt


def test_a_private_surface_of_all_groups_is_exposed_one_by_one(home: Path) -> None:
    with small_world(home, private=["*"]) as world:
        world.say("agent:main:pier:group:g1", f"For one: {SECRET}", sender={"id": "ada", "name": "Ada"})
        expose(world)
        assert "4711" not in world.last_prompt
        world.say("agent:main:pier:group:g1", "The vault?", sender={"id": "ada", "name": "Ada"})
        assert "4711" in world.last_prompt
