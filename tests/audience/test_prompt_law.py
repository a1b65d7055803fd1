"""A prompt with a word in it that some hearer may not read is refused, and nothing is sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from marked_world import GIL, MAIN, small_world

from holdfast.agents.loop import planning
from holdfast.context import Text
from holdfast.log import FOR_OWNER


def test_a_planted_leak_fails_the_turn_before_a_model_sees_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check never fires by itself, so a fault is made upstream: a block of the owner's words."""

    async def careless(*_: object) -> tuple[Text, ...]:
        return (Text("continuity", "the sauna opens with 4711", audience=FOR_OWNER),)

    monkeypatch.setattr(planning, "_continuity", careless)
    with small_world(home, dmPolicy="open") as world:
        run = world.say(GIL, "What opens the sauna?")
        assert run["status"] == "failed"
        assert "continuity" in run["error"]
        assert world.model.requests == []
        [(source,)] = world.rows("SELECT source FROM entries WHERE type = 'system'")
        assert json.loads(source)["code"] == "prompt_leak"
        assert not [post for post in world.end.posts if "4711" in post.raw.decode()]
        assert world.ask(MAIN, "What opens the sauna?")["status"] == "committed"
        assert "4711" in world.last_prompt
