"""What the owner opens to guests, and nothing beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from marked_world import GIL, ONE, World, small_world

from holdfast.agents.sandbox import Bubblewrap

FILES = re.compile(r"# (\w+\.md)\\n\\n")
IDENTITY = {"SOUL.md", "IDENTITY.md", "TOOLS.md"}
MISSING = Bubblewrap().missing()
needs_bubblewrap = pytest.mark.skipif(MISSING is not None, reason=f"bubblewrap: {MISSING}")


def shown(world: World) -> set[str]:
    """The workspace files in the prompt that came last."""
    return set(FILES.findall(world.last_prompt))


def offered(world: World) -> set[str]:
    return set(world.model.requests[-1].tools)


def test_by_default_a_guest_gets_instructions_and_talk(home: Path) -> None:
    with small_world(home, dmPolicy="open") as world:
        for key in (GIL, ONE):
            world.say(key, "Hello")
            assert shown(world) == {"AGENTS.md"}
            assert world.marks.found(world.last_prompt) == []
            assert not offered(world) & {"file_read", "file_write", "exec", "skill_read", "memory_write"}
            assert str(home) not in world.last_prompt


def test_identity_opens_who_the_agent_is_and_nothing_else(home: Path) -> None:
    with small_world(home, dmPolicy="open", guests={"identity": True}) as world:
        for key in (GIL, ONE):
            world.say(key, "Hello")
            assert shown(world) == IDENTITY | {"AGENTS.md"}
            assert "In SOUL.md" in world.last_prompt
            for name in ("MEMORY.md", "USER.md", "HEARTBEAT.md", "the skill", "memory/"):
                assert f"In {name}" not in world.last_prompt
            assert not offered(world) & {"file_read", "exec", "skill_read"}
            assert "the owner's" in world.use(world.caller(key), "memory_get", {"path": "SOUL.md"}).text


def test_skills_open_skills_and_nothing_else(home: Path) -> None:
    with small_world(home, dmPolicy="open", guests={"skills": True}) as world:
        world.say(GIL, "Hello")
        assert "How the sauna is heated" in world.last_prompt
        assert shown(world) == {"AGENTS.md"}
        caller = world.caller(GIL)
        assert "In the skill" in world.use(caller, "skill_read", {"name": "sauna"}).text
        for path in ("../../MEMORY.md", "/etc/passwd"):
            assert world.use(caller, "skill_read", {"name": "sauna", "file": path}).is_error
        assert world.use(caller, "file_read", {"path": "MEMORY.md"}).is_error


def test_one_chat_may_be_opened_or_closed_for_itself(home: Path) -> None:
    for all_, own, opened in ((False, True, True), (True, False, False)):
        folder = home / str(all_)
        folder.mkdir()
        of_chat = {"gil": {"identity": own}, "g1": {"folder": own}}
        with small_world(folder, dmPolicy="open", guests={"identity": all_}, guestsIn=of_chat) as world:
            world.say(GIL, "Hello")
            assert (shown(world) >= IDENTITY) is opened
            world.say(ONE, "Hello")
            assert (shown(world) >= IDENTITY) is all_
            assert ("file_read" in offered(world)) is own


class TestFolder:
    def test_files_of_the_chat_alone_are_reached(self, home: Path) -> None:
        with small_world(home, dmPolicy="open", guests={"folder": True}) as world:
            for key in (GIL, ONE):
                world.say(key, "Hello")
            assert {"file_read", "file_write", "exec"} <= offered(world)
            assert shown(world) == {"AGENTS.md"}
            guest, group = world.caller(GIL), world.caller(ONE)
            assert not world.use(guest, "file_write", {"path": "note.txt", "content": "mine"}).is_error
            assert world.use(guest, "file_read", {"path": "note.txt"}).text.startswith("mine")
            assert world.use(group, "file_read", {"path": "note.txt"}).is_error
            home_ = world.hold.home.path
            for path in (
                "MEMORY.md",
                "../workspace/MEMORY.md",
                f"{home_}/workspace/MEMORY.md",
                f"{home_}/holdfast.json",
                "/workspace/MEMORY.md",
                "/etc/passwd",
            ):
                assert world.use(guest, "file_read", {"path": path}).is_error, path
                if not path.startswith("MEMORY"):
                    assert world.use(guest, "file_write", {"path": path, "content": "x"}).is_error, path
            assert not world.use(guest, "file_write", {"path": "MEMORY.md", "content": "x"}).is_error
            assert "In MEMORY.md" in (home_ / "workspace" / "MEMORY.md").read_text()
            assert not list((home_ / "workspace").glob("note.txt"))

    @needs_bubblewrap
    def test_commands_run_in_a_sandbox_from_which_nothing_of_the_home_is_reached(self, home: Path) -> None:
        with small_world(home, dmPolicy="open", guests={"folder": True}) as world:
            world.say(GIL, "Hello")
            guest = world.caller(GIL)
            ran = world.use(guest, "exec", {"command": "echo hello > own.txt; cat own.txt; pwd"})
            assert "hello" in ran.text, ran.text
            home_ = world.hold.home.path
            for command in (
                f"cat {home_}/workspace/MEMORY.md {home_}/holdfast.json {home_}/credentials/token",
                f"grep -rs mkowner {home_} /workspace . / --include=*.md",
                f"ls -R {home_}",
                f"echo pwned > {home_}/workspace/SOUL.md",
            ):
                told = world.use(guest, "exec", {"command": command, "timeoutSeconds": 20}).text
                assert world.marks.found(told) == [], command
            assert world.use(guest, "exec", {"command": "cat MEMORY.md", "elevated": True}).is_error
            assert "In SOUL.md" in (home_ / "workspace" / "SOUL.md").read_text()
