"""A request without a session of its own sends nothing off that nobody would ever see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agent_stage import agents_serving

from holdfast.log import OWNER, agenda, turns
from holdfast.testing import Asked, Say

SENDING = {"continue_work", "continue_delegate", "request_compaction", "sessions_spawn"}


@pytest.mark.parametrize("named", [True, False])
def test_only_a_session_that_stays_may_elect_turns_and_send_off_children(
    tmp_path: Path, sqlite_template: Path, named: bool
) -> None:
    offered: list[set[str]] = []

    def model(asked: Asked) -> Say:
        offered.append(set(asked.tools))
        return Say("I go on. CONTINUE_WORK:60")

    defaults = {"model": "scripted/scripted", "continuation": {"enabled": True}}
    agents = {"defaults": defaults, "list": [{"id": "main", "default": True}]}
    with (
        agents_serving(tmp_path / "home", sqlite_template, model, agents=agents) as (gateway, _),
        gateway.client(gateway.admin) as api,
    ):
        body: dict[str, Any] = {"model": "main", "messages": [{"role": "user", "content": "go"}]}
        answer = api.post("/v1/chat/completions", json=body | ({"user": "ann"} if named else {})).json()
        said = answer["choices"][0]["message"]["content"]
        assert said == ("I go on." if named else "I go on. CONTINUE_WORK:60")
        assert (SENDING & offered[0]) == (SENDING if named else set())
        with gateway.hold.store.read(OWNER) as tx:
            waiting = [item.kind for item in agenda.listing(tx) if item.kind.startswith("continuation.")]
            assert bool(waiting) is named
            (turn,) = turns.get_many(tx, [answer["id"].removeprefix("chatcmpl-")])
            assert turn.status == "committed"
