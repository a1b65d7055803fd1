"""What the settings of sessions, messages and turns change, by where a message goes and what is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from loop_stage import MODEL, staged

from holdfast.agents import Origin
from holdfast.agents.loop import Ask
from holdfast.agents.loop.asks import address, queue_mode
from holdfast.config import Config
from holdfast.log import OWNER, Store, Threads, sessions
from holdfast.testing import Say

DM = Origin("pier", peer_kind="dm", peer_id="7")
OTHER = Origin("quay", peer_kind="dm", peer_id="9")
GROUP = Origin("pier", peer_kind="group", peer_id="g1")


def key(origin: Origin, private: bool = False, **session: Any) -> str:
    given: dict[str, Any] = {"session": session}
    if private:
        given["channels"] = {"pier": {"private": ["g1"]}}
    return str(address(Ask(text="hi", origin=origin), Config.model_validate(given)).session_key)


@pytest.mark.parametrize(
    ("session", "origin", "expected", "usual"),
    [
        ({"dmScope": "per-peer"}, DM, "agent:main:dm:7", "agent:main:pier:dm:7"),
        ({"groupScope": "main"}, GROUP, "agent:main:main", "agent:main:pier:group:g1"),
        ({"identityLinks": {"ada": ["quay:9"]}}, OTHER, "agent:main:dm:ada", "agent:main:quay:dm:9"),
    ],
    ids=["dmScope", "groupScope", "identityLinks"],
)
def test_what_shares_a_session_is_as_the_config_says(
    session: dict[str, Any], origin: Origin, expected: str, usual: str
) -> None:
    assert key(origin, private=True, **session) == expected
    assert key(origin, private=True) == usual


def test_a_message_during_a_turn_is_taken_as_the_config_says_of_its_channel() -> None:
    given = {"mode": "followup", "byChannel": {"pier": "steer"}}
    config = Config.model_validate({"messages": {"queue": given}})
    ask = Ask(text="hi", origin=DM)
    assert (queue_mode(ask, config, "pier"), queue_mode(ask, config, "quay")) == ("steer", "queue")
    usual = queue_mode(ask, Config(), "pier")
    assert usual not in ("steer", "queue")


def test_a_turn_lasts_and_starts_afresh_as_the_config_says(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    config = {"defaults": {"timeoutSeconds": 55}, "session": {"resetTriggers": ["clear the deck"]}}

    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, [Say("hi"), Say("ho")], config=config) as stage:
            await stage.say("hello")
            assert 55 in stage.limits
            first = stage.session().id
            await stage.say("clear the deck")
            await stage.say("hello again")
            assert stage.session().id != first
            with stage.store.read(OWNER) as tx:
                assert len(sessions.history(tx, stage.session().key)) == 2

    asyncio.run(main())


def test_a_model_that_thinks_is_asked_to_as_the_config_says(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, [Say("hi")]) as stage:
            thinker = {"id": "scripted", "reasoning": True, "contextWindow": 100_000}
            provider = {"baseUrl": stage.server.url, "apiKey": "key", "models": [thinker]}
            defaults = {"model": MODEL, "thinkingDefault": "high"}
            given = {"models": {"providers": {"scripted": provider}}, "agents": {"defaults": defaults}}
            stage.settings = Config.model_validate(given)
            await stage.say("hello")
            assert stage.server.requests[0].body["reasoning_effort"] == "high"

    asyncio.run(main())
