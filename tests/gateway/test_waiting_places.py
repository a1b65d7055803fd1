"""Turns that wait for a person, and talk that waits to be sorted, keep nobody from being answered."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from agent_stage import agents_serving
from serving import wait_for

from builders import PATIENCE
from holdfast.testing import Asked, Call, Say


class CountedModel:
    """Asks for a command that needs approval, except in small talk; counts the calls that run at once.

    The first waits for a second one, so that there are two whatever the machine is busy with.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.two = threading.Event()
        self.now = self.most = 0

    def __call__(self, asked: Asked) -> Say | Call:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            if self.now == 2:
                self.two.set()
        assert self.two.wait(4 * PATIENCE)
        time.sleep(0.05)
        with self.lock:
            self.now -= 1
        last = asked.messages[-1]
        if last["role"] == "tool":
            return Say("Made.")
        return Say("Hello.") if "small talk" in str(last["content"]) else Call("exec", {"command": "touch a"})


def test_open_approvals_freeze_no_other_session_and_all_end_once_they_are_given(
    tmp_path: Path, sqlite_template: Path
) -> None:
    model = CountedModel()
    defaults = {"model": "scripted/scripted", "userTimezone": "UTC", "maxConcurrent": 2}
    agents = {"defaults": defaults, "list": [{"id": "main", "default": True}]}
    with (
        agents_serving(tmp_path / "home", sqlite_template, model, agents=agents) as (gateway, _),
        gateway.client(gateway.admin) as api,
    ):
        waiting = [_ask(api, f"w{n}", "make it") for n in range(3)]
        wait_for(lambda: len(_pending(api)) == 3)
        answered = _ask(api, "w3", "small talk")
        wait_for(lambda: _status(api, answered) == ("committed", "Hello."))
        for approval in _pending(api):
            api.post(f"/api/approvals/{approval['id']}", json={"decision": "approve"}).raise_for_status()
        wait_for(lambda: all(_status(api, run) == ("committed", "Made.") for run in waiting))
        assert model.most == 2


def test_whoever_asks_is_answered_while_a_long_history_waits_to_be_sorted(
    tmp_path: Path, sqlite_template: Path
) -> None:
    def answer(asked: Asked) -> Say | Call:
        last = asked.messages[-1]
        return Say("Made.") if last["role"] == "tool" else Call("exec", {"command": "touch a"})

    with (
        agents_serving(tmp_path / "home", sqlite_template, answer) as (gateway, _),
        gateway.client(gateway.admin) as api,
    ):
        history = [
            {
                "content": f"The {WARES[n % 13]} of harbour {n % 17} costs {n} euros, says boat {n % 29}.",
                "agentId": "user",
                "source": {"sessionKey": f"agent:main:web:dm:h{n % 20}"},
            }
            for n in range(8_000)
        ]
        for start in range(0, len(history), 1_000):
            api.post("/api/ingest", json=history[start : start + 1_000]).raise_for_status()
        run = _ask(api, "now", "make it")
        wait_for(lambda: len(_pending(api)) == 1)
        for path in ("/api/search?q=tar+of+harbour", "/api/context?q=tar+of+harbour&mode=full"):
            api.get(path).raise_for_status()
        api.post(f"/api/approvals/{_pending(api)[0]['id']}", json={"decision": "approve"}).raise_for_status()
        wait_for(lambda: _status(api, run) == ("committed", "Made."))
        left = api.get("/api/log", params={"classificationStatus": "pending", "limit": 1}).json()
        assert left, "all of it came before whoever asked"


WARES = ("tar", "rope", "sail", "oak", "salt", "net", "oil", "iron", "flax", "pitch", "wool", "corn", "slate")


def _ask(api: Any, name: str, text: str) -> str:
    ask = {"message": text, "sessionKey": f"agent:main:web:dm:{name}"}
    run: str = api.post("/api/agent", json=ask).json()["runId"]
    return run


def _pending(api: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get("/api/approvals").json()
    return found


def _status(api: Any, run: str) -> tuple[str, str]:
    found = api.get(f"/api/agent/{run}").json()
    return found.get("status", ""), found.get("reply") or ""
