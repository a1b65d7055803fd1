"""Bindings in a running gateway: a message with a service's own ids goes to the agent they are bound to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_stage import agents_serving
from serving import Running

sys.path.append(str(Path(__file__).parents[1] / "channels"))

from channel_stage import SECRET, call, far_end

from holdfast.testing import Say

# The six steps, the most specific first, and what a message of each has.
STEPS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("peer", {"peer": {"kind": "group", "id": "C1"}}, {"peer": {"kind": "group", "id": "C1"}}),
    ("guild", {"guildId": "G1"}, {"guildId": "G1"}),
    ("team", {"teamId": "T1"}, {"teamId": "T1"}),
    ("account", {"accountId": "work"}, {"accountId": "work"}),
    ("channel", {}, {}),
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("bindings") / "home"
    with far_end() as end:
        channel: dict[str, Any] = {"url": end.url, "signingSecret": SECRET, "groupPolicy": "open"}
        channel |= {"requireMention": False, "dmPolicy": "open", "streaming": "off"}
        channel |= {"accounts": {"work": {"url": end.url, "signingSecret": SECRET}}}
        names = [name for name, _, _ in STEPS]
        bound = [
            {"agentId": name, "match": {"channel": "pier"} | match} for name, match, _ in reversed(STEPS)
        ]
        agents = {
            "defaults": {"model": "scripted/scripted", "userTimezone": "UTC"},
            "list": [{"id": "main", "default": True}, *({"id": name} for name in names)],
        }
        config = {"agents": agents, "bindings": bound, "channels": {"pier": channel, "quay": channel}}
        with agents_serving(home, sqlite_template, lambda asked: Say("Noted."), **config) as (found, _):
            yield found


def agent_of(gateway: Running, number: int, channel: str = "pier", **fields: Any) -> str:
    body = {"id": f"b{number}", "text": "hello", "sender": {"id": "ann", "name": "Ann"}}
    told = call(gateway.url, body | {"peer": {"kind": "group", "id": "C9"}} | fields, channel=channel)
    assert told["httpStatus"] in (200, 202), told
    with gateway.client(Authorization=f"Bearer {gateway.admin}") as api:
        return str(api.get(f"/api/agent/{told['runId']}").json()["sessionKey"]).split(":")[1]


def test_the_most_specific_of_the_six_steps_decides_with_the_ids_that_the_service_sends(
    gateway: Running,
) -> None:
    for number, (name, _, fields) in enumerate(STEPS):
        assert agent_of(gateway, number, **fields) == name
        below: dict[str, Any] = {}
        for _, _, more in reversed(STEPS[number:]):
            below |= more
        assert agent_of(gateway, 100 + number, **below) == name
    assert agent_of(gateway, 200, channel="quay") == "main"
    assert agent_of(gateway, 201, teamId="T2") == "channel"
