"""Plain talk goes around the client library, and the provider cannot tell."""

from __future__ import annotations

import random
from typing import Any

import pytest
from model_stage import READ, asked, heard

from holdfast.agents.models import dialects
from holdfast.context import (
    AssistantMessage,
    CarrierMessage,
    Image,
    Message,
    SystemMessage,
    ToolCall,
    ToolResult,
    UserMessage,
)
from holdfast.testing import Say, ScriptedOpenAI

PICTURE = Image("image/png", "https://example.org/a.png")
KINDS: list[list[Message]] = [
    [UserMessage(text="one")],
    [UserMessage(text=" ")],
    [UserMessage(text="look", images=(PICTURE,))],
    [AssistantMessage(text="two")],
    [AssistantMessage(text="")],
    [
        AssistantMessage(text="wait", calls=(ToolCall("c1", "file_read", {"path": "a"}),)),
        ToolResult(text="read", call_id="c1", name="file_read"),
    ],
    [CarrierMessage(text="by the way")],
]


def test_the_provider_gets_the_same_messages_whether_or_not_talk_goes_around_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chance = random.Random(11)
    sent = [_conversation(chance) for _ in range(60)]
    around, through = _received(sent, 1, monkeypatch), _received(sent, 1_000, monkeypatch)
    assert around == through
    monkeypatch.undo()
    assert sum(dialects.without_talk(one)[0] is not None for one in sent) > 10


def _conversation(chance: random.Random) -> list[Message]:
    system: list[Message] = [SystemMessage(text="Be brief.")] * chance.randint(0, 1)
    plain = [chance.choice([*KINDS[:2], *KINDS[3:5]]) for _ in range(chance.randint(0, 7))]
    mixed = [chance.choice(KINDS) for _ in range(chance.randint(0, 5))]
    body = [message for part in (*plain, *mixed) for message in part]
    return [*system, *body, UserMessage(text="Go on.")]


def _received(
    sent: list[list[Message]], enough: int, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[Any, ...]]:
    monkeypatch.setattr(dialects, "_ENOUGH", enough)
    with ScriptedOpenAI(lambda _: Say("Yes.")) as server:
        heard(server, *(asked(*one, tools=(READ,)) for one in sent), input=["text", "image"])
        return [(one.messages, one.body["tools"], sorted(one.body)) for one in server.requests]
