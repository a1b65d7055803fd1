"""A group that only the owner reads remembers like a direct chat, until somebody else writes there."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from marked_world import DESK, MAIN, World, small_world

from builders import PATIENCE
from holdfast.log import FOR_OWNER, OWNER, SYSTEM, Audience, for_group, notes, sessions, surfaces
from holdfast.testing import Asked

SECRET = "the vault opens with 4711"
STRANGER = {"sender": {"id": "mallory", "name": "Mallory"}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[World]:
    """One home for all tests here, in which every group was declared private; each test has a group."""
    home = tmp_path_factory.mktemp("private")
    shutil.copy(sqlite_template, home / "holdfast.db")
    with small_world(home, private=["*"], groups=["*"]) as made:
        made.ask(MAIN, f"Remember that {SECRET}")
        yield made


@pytest.fixture
def desk() -> str:
    """The session of a private group of the test's own."""
    return f"agent:main:pier:group:desk{next(_NUMBERS)}"


_NUMBERS = itertools.count(11)


def surface(desk: str) -> Audience:
    return for_group("pier", None, id_of(desk))


def id_of(desk: str) -> str:
    return desk.rsplit(":", 1)[1]


def prompt(asked: Asked) -> str:
    return json.dumps(asked.body, ensure_ascii=False)


def expose(world: World, desk: str, text: str = "Hello, may I join in?") -> dict[str, Any]:
    return world.say(desk, text, **STRANGER)


def test_it_remembers_like_a_direct_chat(world: World, desk: str) -> None:
    world.ask(MAIN, f"Remember that {SECRET}")
    world.say(desk, "What opens the vault?")
    assert "# MEMORY.md" in world.last_prompt
    assert "4711" in world.last_prompt
    world.say(desk, "The regatta begins at noon")
    world.ask(MAIN, "When does the regatta begin?")
    assert "begins at noon" in world.last_prompt
    caller = world.caller(MAIN)
    assert "begins at noon" in world.use(caller, "memory_search", {"query": "regatta"}).text


class TestExposed:
    @pytest.fixture
    def world(self, world: World, desk: str) -> World:
        world.say(desk, f"For the desk: {SECRET}")
        with world.hold.store.write(OWNER) as tx:
            sessions.update(tx, sessions.find(tx, desk), label=f"label: {SECRET}")
        world.settle(30)
        return world

    def test_the_very_message_that_exposes_it_is_answered_in_a_fresh_session(
        self, world: World, desk: str
    ) -> None:
        run = expose(world, desk)
        assert run["status"] == "committed"
        assert "4711" not in world.last_prompt
        assert "# MEMORY.md" not in world.last_prompt
        assert run["turn"] == 1
        old, new = world.rows(f"SELECT audience, status, label FROM sessions WHERE key = '{desk}'")
        assert (old[:2], new[:2]) == ((FOR_OWNER, "archived"), (surface(desk), "active"))
        assert new[2] is None

    def test_from_then_on_the_owner_is_answered_there_as_the_group_too(self, world: World, desk: str) -> None:
        expose(world, desk)
        world.say(desk, "What opens the vault?")
        assert "4711" not in world.last_prompt
        assert "may I join in" in world.last_prompt
        said = [post for post in world.end.posts if post.body["to"]["id"] == id_of(desk)]
        assert world.marks.found("".join(post.raw.decode() for post in said[1:])) == []

    def test_what_was_said_before_stays_the_owners(self, world: World, desk: str) -> None:
        expose(world, desk)
        before = f"FROM entries WHERE session_key = '{desk}' AND content LIKE '%4711%'"
        assert world.rows(f"SELECT DISTINCT audience {before}") == [(FOR_OWNER,)]
        caller = world.caller(desk)
        old = world.rows(f"SELECT id {before}")[0][0]
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
            assert "4711" not in world.api.get(path, params={"q": "vault", "sessionKey": desk}).text
        for command in ("/status", "/context", "/usage"):
            world.say(desk, command, **STRANGER)
        world.settle()
        assert "4711" not in "".join(post.raw.decode() for post in world.end.posts)
        owner = world.caller(MAIN)
        assert "4711" in world.use(owner, "clawboard_get_log", {"id": old}).text

    def test_the_owner_is_asked_about_it_once(self, world: World, desk: str) -> None:
        expose(world, desk)
        expose(world, desk, "And again")
        with world.hold.store.read(SYSTEM) as tx:
            waiting = [note for note in notes.waiting(tx, MAIN) if note.kind == "surface-exposed"]
        found = [note for note in waiting if id_of(desk) in note.text]
        assert [(note.audience, "Mallory" in note.text) for note in found] == [(FOR_OWNER, True)]
        world.ask(MAIN, "Anything new?")
        assert "declared private" in world.last_prompt
        assert f"holdfast channels private pier {id_of(desk)}" in world.last_prompt

    def test_what_the_owner_had_set_going_there_speaks_there_no_more(self, world: World, desk: str) -> None:
        """A standing task of the private days still runs, for the owner: not before the stranger."""
        world.obey(desk, ("cron_create", {"prompt": "Tell what you know of the vault", "every": "5h"}))
        [id_] = world.ids("standing_tasks")
        expose(world, desk)
        world.settle()
        before = len(world.end.posts)
        assert world.api.post(f"/api/cron/{id_}/run").status_code in (200, 202)
        world.settle(1)
        [(key,)] = world.rows("SELECT key FROM sessions WHERE key LIKE '%:cron:%'")
        assert "4711" in world.last_prompt, key
        assert [post.text for post in world.end.posts[before:]] == []
        [(told,)] = world.rows("SELECT content FROM entries WHERE content LIKE 'Not delivered%'")
        assert f"pier:group:{id_of(desk)}" in told

    def test_a_child_of_the_private_days_brings_nothing_into_the_group(self, world: World, desk: str) -> None:
        world.obey(desk, ("continue_delegate", {"task": "Look into the vault", "delaySeconds": 60}))
        world.obey(desk, ("continue_work", {"reason": f"go on: {SECRET}", "delaySeconds": 60}))
        expose(world, desk)
        count, posts = len(world.model.requests), len(world.end.posts)
        world.settle(600)
        world.say(desk, "Anything new?", **STRANGER)
        in_group = [p for p in map(prompt, world.model.requests[count:]) if f"Session: {desk}" in p]
        assert in_group
        assert not [one for one in in_group if "4711" in one]
        assert not [post for post in world.end.posts[posts:] if "4711" in post.raw.decode()]

    def test_a_child_that_comes_back_after_it_is_the_owners(
        self, world: World, desk: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gate = threading.Event()
        script = world.model._script

        def patient(asked: Asked) -> Any:
            if "Session: agent:main:subagent:" in prompt(asked):
                assert gate.wait(PATIENCE)
            return script(asked)

        monkeypatch.setattr(world.model, "_script", patient)
        world.obey(desk, ("sessions_spawn", {"task": f"look slowly: {SECRET}"}))
        expose(world, desk)
        count, posts = len(world.model.requests), len(world.end.posts)
        gate.set()
        world.settle(1)
        world.say(desk, "Anything new?", **STRANGER)
        in_group = [p for p in map(prompt, world.model.requests[count:]) if f"Session: {desk}" in p]
        assert not [one for one in in_group if "4711" in one]
        assert not [post for post in world.end.posts[posts:] if "4711" in post.raw.decode()]

    def test_declared_again_it_is_private_again(self, world: World, desk: str) -> None:
        expose(world, desk)
        with world.hold.store.write(OWNER) as tx:
            assert surfaces.reclaim(tx, surface(desk))
        world.say(desk, "What opens the vault?")
        assert "4711" in world.last_prompt
        assert "# MEMORY.md" in world.last_prompt
        assert world.rows(f"SELECT audience FROM sessions WHERE key = '{desk}' AND status = 'active'") == [
            (FOR_OWNER,)
        ]
        expose(world, desk, "Me again")
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


def test_one_private_group_that_others_come_to_leaves_the_rest_private(world: World, desk: str) -> None:
    other = f"{desk}b"
    expose(world, desk)
    assert "4711" not in world.last_prompt
    world.say(other, "The vault?")
    assert "4711" in world.last_prompt
