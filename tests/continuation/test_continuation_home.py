"""A whole home at work by itself: an elected turn, real delegates, a subagent, and their returns."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from builders import soon
from holdfast.agents.loop import Ask
from holdfast.log import OWNER, TurnStatus, sessions, turns
from holdfast.runtime import Holdfast, open_home
from holdfast.services import Services
from holdfast.testing import Asked, Call, Calls, Say, ScriptedOpenAI, Turn

KEY = "agent:main:main"


def answer(asked: Asked) -> Turn:
    """A model that delegates in its first turn, works for those who delegated, and sums up in the end."""
    said = json.dumps(asked.messages)
    if "You are a subagent" in said:
        return Say(f"{'seven' if 'Look into berth one' in said else 'three'} boats")
    if "seven boats" in said and "three boats" in said:
        return Say("Ten boats in all.")
    if "seven boats" in said or "three boats" in said:
        return Say("One has come back.")
    if asked.messages[-1]["role"] == "tool":
        return Say("They are on their way.")
    return Calls(
        Call("continue_delegate", {"task": "Look into berth one", "mode": "silent-wake"}, id="c1"),
        Call("sessions_spawn", {"task": "Look into berth two"}, id="c2"),
    )


def config(url: str) -> str:
    provider = {"baseUrl": url, "apiKey": "none", "models": [{"id": "scripted"}]}
    steady = {"enabled": True, "minDelayMs": 1, "defaultDelayMs": 1}
    defaults = {"model": "scripted/scripted", "continuation": steady, "heartbeat": {"enabled": False}}
    return json.dumps(
        {
            "models": {"providers": {"scripted": provider}},
            "agents": {"defaults": defaults},
            "board": {"enabled": False},
        }
    )


async def replies(hold: Holdfast, wanted: str) -> list[str]:
    """What the session has said, once it has said this."""
    while True:
        with hold.store.read(OWNER) as tx:
            session = sessions.active(tx, KEY)
            found = [] if session is None else turns.listing(tx, session.id)
        done = [t for t in found if t.status is TurnStatus.COMMITTED]
        said = [(await hold.runs.status(t.id)).reply or "" for t in done]
        if wanted in said:
            return said[::-1]
        await asyncio.sleep(0.02)


def test_delegates_and_subagents_run_and_each_return_reaches_the_session_once(tmp_path: Path) -> None:
    async def main() -> None:
        with ScriptedOpenAI(answer) as server:
            (tmp_path / "holdfast.json").write_text(config(server.url))
            with open_home(tmp_path) as hold:
                async with Services(hold).running():
                    await hold.runs.accept(Ask(text="count the boats", session_key=KEY))
                    said = await soon(replies(hold, "Ten boats in all."))
            prompts = [json.dumps(asked.messages) for asked in server.requests]
        assert said[0] == "They are on their way."
        assert said[-1] == "Ten boats in all."
        final = next(text for text in prompts if "seven boats" in text and "three boats" in text)
        assert final.count("seven boats") == 1
        assert final.count("three boats") == 1
        assert 'trust=\\"other_session\\"' in final

    asyncio.run(main())
