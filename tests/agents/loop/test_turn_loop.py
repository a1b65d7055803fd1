"""A message on its way to a committed reply, through the real clients, tools and agenda."""

from __future__ import annotations

import asyncio
from pathlib import Path

from loop_stage import staged

from holdfast.log import Store, Threads
from holdfast.testing import Call, Calls, Say, Used


def test_a_message_is_accepted_at_once_and_its_reply_is_committed_once(
    store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with staged(store, threads, tmp_path, [Say("Hello to you.", used=Used(900, 100))]) as stage:
            status = await stage.say("hello", key="k1")
            assert (status.status, status.reply, status.model) == (
                "committed",
                "Hello to you.",
                "scripted/scripted",
            )
            assert status.usage == {
                "inputTokens": 900,
                "outputTokens": 100,
                "cacheReadTokens": 0,
                "cacheWriteTokens": 0,
                "cost": 0.0011,
            }
            again = await stage.say("hello", key="k1")
            assert again.run_id == status.run_id
            assert stage.spoken() == [("user", "hello"), ("assistant", "Hello to you.")]
            session = stage.session()
            assert (session.total_tokens, session.context_tokens, session.turn_count) == (1000, 1000, 1)
            assert len(stage.server.requests) == 1

    asyncio.run(main())


def test_tools_run_in_rounds_and_all_of_it_is_in_the_log(
    store: Store, threads: Threads, tmp_path: Path
) -> None:
    script = [
        Calls(Call("look", {"word": "a"}, id="c1"), Call("look", {"word": "b"}, id="c2"), text="Looking."),
        Calls(Call("act", {"word": "x"}, id="c3"), Call("broken", {}, id="c4"), Call("none", {}, id="c5")),
        Say("All done."),
    ]

    async def main() -> None:
        async with staged(store, threads, tmp_path, script) as stage:
            status = await stage.say("go")
            assert status.reply == "All done."
            assert sorted(stage.ran[:2]) == ["look a", "look b"]
            assert stage.ran[2:] == ["act x"]
            said = stage.spoken()
            assert [role for role, _ in said] == [
                *("user", "assistant", "toolResult", "toolResult"),
                *("assistant", "toolResult", "toolResult", "toolResult", "assistant"),
            ]
            assert said[5][1] == "done x"
            assert "fault of its own" in said[6][1]
            assert "no tool" in said[7][1]
            sent = stage.server.requests[2].messages
            assert [m["role"] for m in sent][-8:] == [
                "user",
                "assistant",
                "tool",
                "tool",
                "assistant",
                "tool",
                "tool",
                "tool",
            ]
            assert status.usage["inputTokens"] == 30

    asyncio.run(main())


def test_as_many_turns_run_at_once_as_the_config_says_now(
    store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with staged(store, threads, tmp_path, config={"defaults": {"maxConcurrent": 1}}) as stage:
            kind = stage.runs.kind()
            assert kind.most == 1
            defaults = stage.settings.agents.defaults.model_copy(update={"max_concurrent": 3})
            agents = stage.settings.agents.model_copy(update={"defaults": defaults})
            stage.settings = stage.settings.model_copy(update={"agents": agents})
            assert kind.most == 3

    asyncio.run(main())
