"""What the settings of a channel change for those who write and read there."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from channel_stage import REPLY, SECRET, stage
from serving import wait_for

from builders import PATIENCE
from holdfast.agents.cron import sign
from holdfast.channels import streaming
from holdfast.log import rung
from holdfast.testing import Say, Stall
from holdfast.testing.script import text_of

BEN = {"sender": {"id": "ben", "name": "Ben"}, "peer": {"kind": "dm", "id": "ben"}}
PLACE = {"peer": {"kind": "channel", "id": "c1"}}


def test_a_channel_pairs_remembers_and_believes_as_the_config_says(home: Path) -> None:
    options = {"pairingMinutes": 7, "toleranceSeconds": 30, "thread": {"initialHistoryLimit": 1}}
    with stage(home, [Say("In the channel."), Say("In the thread.")], **options) as there:
        there.write("hi", **BEN)
        assert "7 minutes" in there.end.arrived(1)[0]
        there.run(there.write("@main the ferry sank", **PLACE))
        there.run(there.write("@main tell me more", **PLACE, threadId="77"))
        shown = " ".join(text_of(m.get("content")) for m in there.model.requests[1].messages)
        assert "In the channel." in shown
        assert "ferry sank" not in shown
        body = json.dumps({"id": "m9", "text": "hi", **BEN}).encode()
        old = int(time.time()) - 60
        headers = {
            "X-Holdfast-Signature": sign(SECRET.encode(), body, old),
            "X-Holdfast-Timestamp": str(old),
            "Content-Type": "application/json",
        }
        path = f"{there.gateway.url}/api/channels/pier/inbound"
        assert httpx.post(path, content=body, headers=headers, timeout=PATIENCE).status_code == 401


def preview(home: Path, script: Any, every_ms: int) -> Any:
    """A channel whose replies are one message that is edited, at most so often."""
    options = {"streaming": "partial", "takesEdits": True, "blockStreamingChunk": {"editMs": every_ms}}
    return stage(home, script, **options)


def test_a_preview_grows_while_words_come_steadily(home: Path) -> None:
    """No pause between them is as long as the time between two edits."""
    with preview(home, [Say(REPLY * 10, chunks=500, pause=0.02)], 50) as there:
        run = there.write("When is high tide?")["runId"]
        wait_for(lambda: len({post.text for post in there.end.posts}) > 3)
        assert there.api.get(f"/api/agent/{run}").json()["status"] == "running"


def test_a_preview_is_edited_no_more_often_than_the_config_says(home: Path) -> None:
    with preview(home, [Say(REPLY, chunks=40, pause=0.04)], 60_000) as there:
        there.run(there.write("When is high tide?"))
        there.settled()
        assert len(there.end.posts) == 2
        assert there.end.posts[-1].text == REPLY


def test_a_reply_is_cut_where_the_config_says_and_waited_for_as_long(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, rest = (
        "The tide comes in at noon\nand the kelp holds.",
        "In the evening it goes out again, as ever.",
    )
    waits: list[float] = []

    async def noted(bell: asyncio.Event, seconds: float) -> bool:
        waits.append(seconds)
        return await rung(bell, seconds)

    monkeypatch.setattr(streaming, "rung", noted)
    chunk = {"minChars": 10, "maxChars": 60, "breakPreference": "sentence", "idleMs": 45_000}
    with stage(home, [Stall(f"{first} {rest}")], blockStreamingChunk=chunk) as there:
        there.write("When is high tide?")
        assert [text.strip() for text in there.end.arrived(1)] == [first]
    assert set(waits) == {45.0}
