"""The engine in a real home: what a model is sent, turn after turn."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from holdfast.context import AssistantMessage, Message, UserMessage
from holdfast.log import SYSTEM, for_group, sessions
from holdfast.runtime import open_home

PLUGIN = Path(__file__).parents[1]


def assembled(home: Path, said: list[Message], *, budget: int = 50_000, **config: Any) -> Any:
    home.mkdir(exist_ok=True)
    plugins = {
        "load": {"paths": [str(PLUGIN)]},
        "slots": {"contextEngine": "last-twenty"},
        "entries": {"last-twenty": {"config": config}},
    }
    (home / "holdfast.json").write_text(json.dumps({"plugins": plugins}))
    with open_home(home) as hold:
        with hold.store.write(SYSTEM) as tx:
            ours = sessions.ensure(tx, "agent:main:main")
            group = sessions.ensure(tx, "agent:main:irc:group:g", audience=for_group("irc", None, "g"))

        async def ask() -> Any:
            await hold.context.bootstrap(ours, said)
            seen = await hold.context.assemble(ours, token_budget=budget)
            return seen, await hold.context.assemble(group, token_budget=budget)

        return asyncio.run(ask())


def talk(count: int) -> list[Message]:
    said: list[Message] = []
    for number in range(count):
        said += [UserMessage(text=f"question {number}"), AssistantMessage(text=f"answer {number}")]
    return said


def test_the_last_messages_are_shown_and_the_note_stands_above_them(tmp_path: Path) -> None:
    seen, _ = assembled(tmp_path / "home", talk(30), messages=6, note="We sail at noon.")
    assert [message.text for message in seen.messages] == [m.text for m in talk(30)[-6:]]
    assert seen.system_prompt_addition == "We sail at noon."


def test_the_note_is_the_owners_alone(tmp_path: Path) -> None:
    ours, group = assembled(tmp_path / "home", talk(1), note="secret")
    assert ours.system_prompt_addition == "secret"
    assert group.system_prompt_addition is None


def test_what_does_not_fit_is_left_out_from_the_oldest_on(tmp_path: Path) -> None:
    long = [UserMessage(text=f"{n} " + "word " * 400) for n in range(10)]
    seen, _ = assembled(tmp_path / "home", [*long, *talk(1)], budget=1200)
    assert seen.messages[-1].text == "answer 0"
    assert 2 <= len(seen.messages) < 6
    assert isinstance(seen.messages[0], UserMessage)
