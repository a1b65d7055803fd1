"""A home whose agents delegate as scripted, with a gateway over it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from serving import Running, running, wait_for

from holdfast.runtime import open_home
from holdfast.testing import Asked, Call, Calls, Say, Script, ScriptedOpenAI, Stall, Turn

KEY = "agent:main:main"


def write_home(home: Path, url: str) -> None:
    """`main` may send off subagents of `other`."""
    cost = {"input": 1.0, "output": 2.0}
    provider = {"baseUrl": url, "apiKey": "none", "models": [{"id": "scripted", "cost": cost}]}
    defaults = {
        "model": "scripted/scripted",
        "skipBootstrap": True,
        "continuation": {"enabled": True, "minDelayMs": 1, "defaultDelayMs": 1},
        "subagents": {"allowAgents": ["*"]},
        "heartbeat": {"every": "0m"},
    }
    config = {
        "models": {"mode": "replace", "providers": {"scripted": provider}},
        "agents": {"defaults": defaults, "list": [{"id": "main", "default": True}, {"id": "other"}]},
        "board": {"enabled": False, "classifier": {"enabled": False}},
        "memory": {"search": {"embedding": {"providers": []}}},
        "gateway": {"shutdownGraceSeconds": 1},
    }
    home.mkdir(exist_ok=True)
    (home / "holdfast.json").write_text(json.dumps(config))


@contextmanager
def delegating(home: Path, script: Script) -> Iterator[tuple[Running, ScriptedOpenAI]]:
    with ScriptedOpenAI(script) as model:
        write_home(home, model.url)
        with open_home(home) as hold, running(hold) as gateway:
            yield gateway, model


def counting_boats(asked: Asked) -> Turn:
    """One delegate and one subagent of `other`; both come back, and then it sums up."""
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
        Call("sessions_spawn", {"task": "Look into berth two", "agentId": "other"}, id="c2"),
    )


def hanging_child(asked: Asked) -> Turn:
    """Its subagent never answers; everything else is small talk."""
    if "You are a subagent" in json.dumps(asked.messages):
        return Stall("Well, ")
    last = asked.messages[-1]
    if last["role"] == "user" and "send it off" in str(last["content"]):
        return Call("sessions_spawn", {"task": "Look for ever"}, id="c1")
    return Say("On its way." if last["role"] == "tool" else "Hello.")


def ask(api: httpx.Client, text: str, key: str = KEY) -> str:
    run: str = api.post("/api/agent", json={"message": text, "sessionKey": key}).json()["runId"]
    return run


def chain_of(api: httpx.Client, id_: str) -> dict[str, Any]:
    found: dict[str, Any] = api.get(f"/api/chains/{id_}").json()
    return found


def when_ended(api: httpx.Client, id_: str) -> dict[str, Any]:
    """The chain once nothing lives in it."""
    wait_for(lambda: chain_of(api, id_)["state"] == "ended")
    return chain_of(api, id_)
