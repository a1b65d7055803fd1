"""Tools that whoever asks runs himself: a call ends the turn, unless the user spoke before that."""

from __future__ import annotations

import asyncio
from pathlib import Path

from loop_stage import ask, staged

from builders import soon
from holdfast.context import ToolSpec
from holdfast.log import Store, Threads
from holdfast.testing import Call, Calls, Say

PING = ToolSpec("ping", "Ask a host.", {"type": "object", "properties": {"host": {"type": "string"}}})


def test_a_lent_tool_is_offered_and_its_call_ends_the_turn(
    store: Store, threads: Threads, tmp_path: Path
) -> None:
    script = [
        Calls(Call("look", {"word": "a"}, id="c1"), Call("ping", {"host": "h"}, id="c2"), text="Wait."),
        Say("Without it."),
    ]

    async def main() -> None:
        async with staged(store, threads, tmp_path, script) as stage:
            status = await stage.say("go", tools=(PING,))
            handed = [{"id": "c2", "name": "ping", "arguments": {"host": "h"}}]
            assert (status.status, status.reply, status.json()["handed"]) == ("committed", "Wait.", handed)
            assert stage.ran == ["look a"]
            assert (await stage.events(status.run_id))[-1].data["handed"] == handed
            assert "ping" in stage.server.requests[0].tools
            await stage.say("never mind")
            assert "ping" not in stage.server.requests[1].tools
            results = [m["content"] for m in stage.server.requests[1].messages if m["role"] == "tool"]
            assert results[0] == "seen a"
            assert "was not recorded" in results[1]

    asyncio.run(main())


def test_who_speaks_before_a_call_is_handed_over_is_heard_first(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    script = [
        Calls(Call("wait", {"word": "a"}, id="c1"), Call("ping", {"host": "h"}, id="c2")),
        Say("As you wish."),
    ]

    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, script) as stage:
            run = await stage.runs.accept(ask("go", tools=(PING,)))
            await soon(stage.begun.wait())
            await stage.runs.steer(ask("do not ping"))
            stage.gate.set()
            status = await soon(stage.runs.wait(run.run_id))
            assert (status.reply, status.json().get("handed")) == ("As you wish.", None)
            results = [m["content"] for m in stage.server.requests[1].messages if m["role"] == "tool"]
            assert results[0] == "waited a"
            assert "Not run: the user wrote" in results[1]

    asyncio.run(main())
