"""What the settings of heartbeats, webhooks and schedules change in the turns that nobody asks for."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from heart_stage import HOME, HeartStage

sys.path.append(str(Path(__file__).parents[1] / "cron"))

from test_webhook_calls import BODY, hooks, signed

from builders import rows
from holdfast.agents.cron import Wish
from holdfast.log import OWNER, Store, Threads, sessions
from holdfast.testing import Say

LONG = "HEARTBEAT_OK, and the nightly build was green again, as it has been for all of this week."


def test_a_heartbeat_is_what_the_config_says(sqlite_store: Store, threads: Threads, tmp_path: Path) -> None:
    """At half past midnight in Greenwich it is morning in Tokyo; one beat is all that a day may cost."""
    heartbeat = {
        "ackMaxChars": 200,
        "lightContext": True,
        "model": "scripted/other",
        "timeoutSeconds": 77,
        "maxCostPerDay": 0.0000001,
        "activeHours": {"start": "09:00", "end": "12:00", "timezone": "Asia/Tokyo"},
    }

    async def main() -> None:
        async with HeartStage(
            sqlite_store, threads, tmp_path, [Say(LONG), Say(LONG)], heartbeat=heartbeat
        ) as stage:
            stage.checklist("- Look at the build\n")
            stage.heartbeats.schedule()
            assert (await stage.beat(minutes=30)).last_status == "ok"
            (request,) = stage.server.requests
            assert request.model == "other"
            assert "Rules of AGENTS.md" not in json.dumps(request.messages)
            assert 77 in stage.limits
            after = await stage.beat(minutes=30)
            assert (after.last_status, after.last_reason) == ("skipped", "spend_cap")

    asyncio.run(main())


def called(store: Store, threads: Threads, home: Path, **own: Any) -> HeartStage:
    """A stage on which one signed call was made, and its turn is over."""
    agents = {} if (given := own.pop("agents", None)) is None else {"agents": given}
    config = {**hooks(**own), **agents}
    stage = HeartStage(store, threads, home, [Say("hello"), Say("sorted")], **config)

    async def main() -> None:
        async with stage:
            await stage.say("hi", deliver=HOME)
            await stage.standing.receive("github", signed(), BODY)
            await stage.until(lambda: len(stage.server.requests) == 2 and stage._quiet())

    asyncio.run(main())
    return stage


def test_a_call_of_a_webhook_is_a_turn_as_the_config_says(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    own = {
        "session": "main",
        "deliver": "last",
        "model": "scripted/other",
        "timeoutSeconds": 66,
        "owner": True,
    }
    stage = called(sqlite_store, threads, tmp_path, **own)
    assert stage.server.requests[1].model == "other"
    assert 66 in stage.limits
    asked = [json.loads(meta)["ask"] for (meta,) in rows(sqlite_store, "SELECT meta FROM turns")]
    (hook,) = [one for one in asked if one.get("sender") == "hook:github"]
    assert hook.get("owner", True) is True
    with sqlite_store.read(OWNER) as tx:
        assert sessions.find(tx, "agent:main:main").turn_count == 2
    assert [target for target, _ in stage.posted()] == ["chat:42", "chat:42"]


def test_a_call_goes_to_the_agent_that_the_config_names(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    agents = {
        "defaults": {"model": "scripted/scripted", "userTimezone": "UTC"},
        "list": [{"id": "main", "default": True}, {"id": "clerk"}],
    }
    called(sqlite_store, threads, tmp_path, agents=agents, agent="clerk")
    with sqlite_store.read(OWNER) as tx:
        assert sessions.find(tx, "agent:clerk:hook:github").turn_count == 1


def test_standing_tasks_run_only_where_the_config_says_so(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with HeartStage(
            sqlite_store, threads, tmp_path, [Say("done")], cron={"enabled": False}
        ) as stage:
            wish = Wish(prompt="Look.", every="1h", session="main", deliver="none")
            stage.standing.add(wish, {"kind": "cli", "owner": True})
            await stage.beat(hours=1)
            assert stage.standing.listing()[0]["runs"] == 0
            assert stage.server.requests == []

    asyncio.run(main())
