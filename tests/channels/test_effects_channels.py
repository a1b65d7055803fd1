"""What the settings of a channel change for those who write and read there."""

from __future__ import annotations

import json
import time
from pathlib import Path

import httpx
from channel_stage import SECRET, stage

from builders import PATIENCE
from holdfast.agents.cron import sign
from holdfast.testing import Say
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
