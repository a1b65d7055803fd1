"""A fresh home with a small model: what its first turns hold, which tools it is told of, and what it says
where something does not fit."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from builders import KEY, PATIENCE, soon
from holdfast.agents.loop import Ask, RunStatus
from holdfast.cli.workspaces import prepare_workspaces
from holdfast.context import Manifest, load_manifest, replay
from holdfast.context.tokens import raw_tokens
from holdfast.log import OWNER, Turn, agenda, sessions, sqlite_url, turns
from holdfast.runtime import Holdfast, open_home
from holdfast.testing import Asked, Call, Say, Script, ScriptedOpenAI, Used, too_long


@dataclass
class Fresh:
    hold: Holdfast
    server: ScriptedOpenAI

    async def say(self, text: str, **fields: Any) -> RunStatus:
        accepted = await self.hold.runs.accept(Ask(text=text, session_key=KEY, **fields))
        return await soon(self.hold.runs.wait(accepted.run_id))

    def manifest(self, number: int | None = None) -> Manifest:
        with self.hold.store.read(OWNER) as tx:
            stored = load_manifest(tx, sessions.find(tx, KEY).id, number)
            assert replay(tx, stored).identical
        return stored.manifest

    def turns(self) -> list[Turn]:
        with self.hold.store.read(OWNER) as tx:
            return turns.listing(tx, sessions.find(tx, KEY).id)[::-1]

    def told_of(self, call: int = -1) -> list[str]:
        """The tools that a request named, in order."""
        return list(self.server.requests[call].tools)


@asynccontextmanager
async def fresh(
    tmp_path: Path, template: Path, script: Script, *, window: int, **config: Any
) -> AsyncIterator[Fresh]:
    """A home as `holdfast up` leaves it, with a model of this window; the same folder is the same home."""
    home = tmp_path / "home"
    server = ScriptedOpenAI(script)
    server.start()
    home.mkdir(exist_ok=True)
    model = {"id": "scripted", "contextWindow": window}
    provider = {"baseUrl": server.url, "apiKey": "none", "models": [model]}
    agents = {"defaults": {"model": "small/scripted", "userTimezone": "UTC", **config.pop("defaults", {})}}
    written = {"models": {"providers": {"small": provider}}, "agents": agents, **config}
    (home / "holdfast.json").write_text(json.dumps(written))
    if not (home / "holdfast.db").exists():
        shutil.copy(template, home / "holdfast.db")
    with open_home(home, store_url=sqlite_url(home / "holdfast.db")) as hold:
        prepare_workspaces(hold.home, hold.settings, new_only=True)
        runner = agenda.Runner(hold.store, hold.threads, idle_seconds=0.5)
        hold.runs.register(runner)
        task = asyncio.create_task(runner.run())
        try:
            yield Fresh(hold, server)
        finally:
            await runner.stop(5.0)
            await task
            await hold.aclose()
            server.close()


def before_the_words(found: Manifest) -> int:
    return sum(s.tokens for s in found.sections if s.place not in ("input", "pending"))


@pytest.mark.parametrize(
    ("window", "most"), [(2_048, 1_024), (4_096, 1_500), (8_192, 2_500), (32_768, 5_000)]
)
def test_a_first_hello_is_answered_and_leaves_room(
    tmp_path: Path, sqlite_template: Path, window: int, most: int
) -> None:
    async def main() -> None:
        async with fresh(tmp_path, sqlite_template, [Say("Hello to you.")], window=window) as here:
            assert (await here.say("Hello")).reply == "Hello to you."
            found = here.manifest()
            assert before_the_words(found) <= most
            assert found.used <= window * 3 // 4
            assert bool(here.told_of()) == (window > 2_048)
            assert [turn.trigger for turn in here.turns()] == ["user"]

    asyncio.run(main())


def test_at_8k_a_model_uses_tools(tmp_path: Path, sqlite_template: Path) -> None:
    script = [Call("memory_write", {"text": "The deploy needs the VPN."}), Say("Noted.")]

    async def main() -> None:
        async with fresh(tmp_path, sqlite_template, script, window=8_192) as here:
            assert (await here.say("Note that the deploy needs the VPN.")).reply == "Noted."
            assert {"memory_search", "memory_write", "exec", "file_read", "tool_search"} <= set(
                here.told_of(0)
            )
        notes = (tmp_path / "home" / "workspace" / "memory").glob("*.md")
        assert any("needs the VPN" in path.read_text() for path in notes)

    asyncio.run(main())


@pytest.mark.parametrize("window", [8_192, 9_216, 12_288])
def test_an_engine_that_puts_words_aside_has_the_tools_that_read_them_in_a_small_window_too(
    tmp_path: Path, sqlite_template: Path, window: int
) -> None:
    async def main() -> None:
        plugins = {"slots": {"contextEngine": "lossless"}}
        async with fresh(tmp_path, sqlite_template, [Say("Hello.")], window=window, plugins=plugins) as here:
            assert (await here.say("Hello")).reply == "Hello."
            assert {"context_read", "context_search", "memory_search", "tool_search"} <= set(here.told_of())

    asyncio.run(main())


def test_a_tool_that_was_found_is_told_of_from_the_next_call_on_and_after_a_restart(
    tmp_path: Path, sqlite_template: Path
) -> None:
    script = [Call("tool_search", {"query": "list sessions"}), Say("One session."), Say("Again.")]

    async def main() -> None:
        async with fresh(tmp_path, sqlite_template, script, window=8_192) as here:
            assert (await here.say("Which sessions are there?")).reply == "One session."
            first, second = here.told_of(0), here.told_of(1)
            assert "sessions_list" not in first
            assert second[: len(first)] == first
            assert "sessions_list" in second
            result = here.server.requests[1].messages[-1]["content"]
            assert "sessions_list(limit?, offset?): List the sessions" in result
            assert (await here.say("And now?")).reply == "Again."
            assert here.told_of(2) == second
            assert here.manifest(1).call == 1
        async with fresh(tmp_path, sqlite_template, [Say("Still.")], window=8_192) as here:
            assert (await here.say("And after a restart?")).reply == "Still."
            assert here.told_of(0) == second

    asyncio.run(main())


def test_a_tool_that_is_allowed_but_not_told_of_runs_when_it_is_called(
    tmp_path: Path, sqlite_template: Path
) -> None:
    script = [Call("session_status", {}), Say("It stands well.")]

    async def main() -> None:
        async with fresh(tmp_path, sqlite_template, script, window=8_192) as here:
            assert (await here.say("How does this session stand?")).reply == "It stands well."
            assert "session_status" not in here.told_of(0)
            assert "session_status" in here.told_of(1)
            assert "usedPercent" in str(here.server.requests[1].messages[-1]["content"])

    asyncio.run(main())


def test_what_policy_forbids_is_neither_found_nor_run(tmp_path: Path, sqlite_template: Path) -> None:
    script = [
        Call("tool_search", {"query": ""}),
        Call("tool_search", {"query": "exec run a shell command"}),
        Call("exec", {"command": "ls"}),
        Say("I may not."),
    ]

    async def main() -> None:
        tools = {"deny": ["group:runtime", "sessions_*"]}
        async with fresh(tmp_path, sqlite_template, script, window=8_192, tools=tools) as here:
            assert (await here.say("Run ls.")).reply == "I may not."
            said = [str(m["content"]) for m in here.server.requests[-1].messages if m["role"] == "tool"]
            assert "file_delete(path): " in said[0]
            assert not any(f"{name}(" in text for name in ("exec", "sessions_list") for text in said[:2])
            assert "not allowed here" in said[2]
            assert "exec" not in here.told_of()

    asyncio.run(main())


def test_a_large_window_is_told_of_every_tool_and_a_setting_says_otherwise(
    tmp_path: Path, sqlite_template: Path
) -> None:
    async def main() -> None:
        for number, (window, catalogue) in enumerate([(128_000, "auto"), (128_000, "core"), (16_384, "all")]):
            place = tmp_path / str(number)
            place.mkdir()
            options: dict[str, Any] = {"window": window, "tools": {"catalogue": catalogue}}
            async with fresh(place, sqlite_template, [Say("Yes.")], **options) as here:
                await here.say("Hello")
                assert ("sessions_list" in here.told_of()) == (catalogue != "core")
                assert ("tool_search" in here.told_of()) == (catalogue == "core")

    asyncio.run(main())


def test_a_turn_that_does_not_fit_has_its_account_and_says_what_is_too_large(
    tmp_path: Path, sqlite_template: Path
) -> None:
    async def main() -> None:
        tools = {"catalogue": "all"}
        async with fresh(tmp_path, sqlite_template, [], window=4_096, tools=tools) as here:
            accepted = await here.hold.runs.accept(Ask(text="Hello", session_key=KEY))
            events = [event async for event in here.hold.runs.subscribe(accepted.run_id)]
            end = events[-1].data
            assert end["code"] == "context_overflow"
            assert "The largest part is tools" in end["hint"]
            assert "tools.catalogue" in end["hint"]
            found = here.manifest(1)
            assert found.refused == end["error"]
            assert max(found.sections, key=lambda s: s.tokens).name == "tools"
            assert here.server.requests == []
            assert (await here.say("word " * 9_000)).status == "failed"
            assert here.manifest(2).refused is not None

    asyncio.run(main())


def test_a_providers_refusal_names_the_largest_part_too(tmp_path: Path, sqlite_template: Path) -> None:
    async def main() -> None:
        async with fresh(tmp_path, sqlite_template, [too_long()] * 9, window=32_768) as here:
            accepted = await here.hold.runs.accept(Ask(text="Hello", session_key=KEY))
            end = [event async for event in here.hold.runs.subscribe(accepted.run_id)][-1].data
            assert end["code"] == "model_context_overflow"
            assert "The largest part is tools" in end["hint"]
            assert here.manifest(1).refused is None

    asyncio.run(main())


def test_lasting_notes_of_a_small_model_are_bounded(tmp_path: Path, sqlite_template: Path) -> None:
    flushes: Queue[Asked] = Queue()

    def answer(asked: Asked) -> Say:
        if "Write lasting notes" not in asked.last_text:
            return Say("Nearly full.", used=Used(2_900, 20))
        flushes.put(asked)
        return Say("NO_REPLY", used=Used(2_950, 2))

    async def main() -> None:
        async with fresh(tmp_path, sqlite_template, answer, window=4_096) as here:
            await here.say("A long story")
            flushed = await asyncio.to_thread(flushes.get, timeout=PATIENCE)
            assert "memory_write" in flushed.tools
            assert flushed.body.get("max_tokens", flushed.body.get("max_completion_tokens")) == 512

    asyncio.run(main())


@pytest.mark.parametrize("engine", ["legacy", "lossless"])
def test_a_long_talk_in_a_small_window_goes_on(tmp_path: Path, sqlite_template: Path, engine: str) -> None:
    """Every request leaves room for an answer, whatever was said before."""

    def answer(asked: Asked) -> Say:
        size = raw_tokens(json.dumps(asked.body, ensure_ascii=False))
        return Say("A word on that matter. " * 12, used=Used(size, 80))

    async def main() -> None:
        plugins = {"slots": {"contextEngine": engine}}
        async with fresh(tmp_path, sqlite_template, answer, window=4_096, plugins=plugins) as here:
            for number in range(14):
                status = await here.say(f"Matter {number}: " + f"we have to look at ship {number}. " * 30)
                assert status.status == "committed", status.error
                found = here.manifest()
                assert found.used + 256 <= found.window
            assert before_the_words(found) > 1_500
            last = json.dumps(here.server.requests[-1].body)
            assert "Matter 13" in last
            assert "Matter 0: we have to look" not in last

    asyncio.run(main())


def test_a_turn_with_many_results_goes_on_in_a_small_window(tmp_path: Path, sqlite_template: Path) -> None:
    calls = [Call("file_read", {"path": f"part{n}.txt"}, id=f"c{n}") for n in range(12)]

    async def main() -> None:
        async with fresh(tmp_path, sqlite_template, [*calls, Say("All read.")], window=8_192) as here:
            for n in range(12):
                (tmp_path / "home" / "workspace" / f"part{n}.txt").write_text(
                    f"Part {n}. " + "A plain word. " * 240
                )
            status = await here.say("Read all parts.")
            assert status.reply == "All read.", status.error
            assert here.manifest().used + 512 <= 8_192
            shown = [str(m["content"]) for m in here.server.requests[-1].messages if m["role"] == "tool"]
            assert "Part 11." in shown[-1]
            assert "Left out here to make room" in shown[0]

    asyncio.run(main())
