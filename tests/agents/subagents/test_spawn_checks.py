"""Who may delegate what to whom: the rules by themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents.subagents import Requester, Wish, refusal
from holdfast.agents.subagents.checks import SpawnInput
from holdfast.config.agents import Subagents

AGENTS = ("main", "work", "home")

wishes = st.builds(
    Wish,
    agent_id=st.sampled_from((*AGENTS, "nobody")),
    thread=st.booleans(),
    context=st.sampled_from(("isolated", "fork")),
    sandbox=st.sampled_from(("inherit", "require")),
)
rules = st.builds(
    lambda depth, most, allow: Subagents(
        max_spawn_depth=depth, max_children_per_agent=most, allow_agents=tuple(allow)
    ),
    st.integers(0, 5),
    st.integers(1, 6),
    st.lists(st.sampled_from((*AGENTS, "nobody", "*")), max_size=3),
)
standings = st.builds(
    Requester,
    agent_id=st.sampled_from(AGENTS),
    known_agents=st.just(frozenset(AGENTS)),
    depth=st.integers(0, 6),
    live_children=st.integers(0, 7),
    sandboxed=st.booleans(),
    target_sandboxed=st.booleans(),
    threads=st.booleans(),
)


@given(wishes, rules, standings)
def test_a_spawn_goes_ahead_exactly_when_every_rule_holds(wish: Wish, by: Subagents, here: Requester) -> None:
    own = wish.agent_id == here.agent_id
    holds = (
        here.depth < by.max_spawn_depth
        and here.live_children < by.max_children_per_agent
        and wish.agent_id in here.known_agents
        and (own or "*" in by.allow_agents or wish.agent_id in by.allow_agents)
        and (own or wish.context == "isolated")
        and (here.target_sandboxed or not (here.sandboxed or wish.sandbox == "require"))
        and (here.threads or not wish.thread)
    )
    refused = refusal(wish, by, here)
    assert (refused is None) == holds
    if refused is not None:
        error = refused.error()
        assert (error.code, error.message, bool(error.hint)) == (refused.code, refused.message, True)


@given(wishes, rules, standings)
def test_standing_deeper_or_having_more_children_never_opens_a_way(
    wish: Wish, by: Subagents, here: Requester
) -> None:
    if refusal(wish, by, here) is not None:
        assert refusal(wish, by, replace(here, depth=here.depth + 1)) is not None
        assert refusal(wish, by, replace(here, live_children=here.live_children + 1)) is not None
        assert refusal(wish, by, replace(here, sandboxed=True)) is not None


BASE = Requester(agent_id="main", known_agents=frozenset(AGENTS), depth=0, live_children=0)


@pytest.mark.parametrize(
    ("wish", "settings", "here", "code"),
    [
        ({}, {}, {}, None),
        ({}, {"maxSpawnDepth": 0}, {}, "spawn_disabled"),
        ({}, {}, {"depth": 1}, "spawn_depth"),
        ({"agent_id": "work"}, {}, {}, "agent_not_allowed"),
        ({"agent_id": "work"}, {"allowAgents": ["work"]}, {}, None),
        ({"agent_id": "nobody"}, {"allowAgents": ["*"]}, {}, "unknown_agent"),
        ({"agent_id": "work", "context": "fork"}, {"allowAgents": ["*"]}, {}, "fork_other_agent"),
        ({}, {}, {"sandboxed": True}, "sandbox_left"),
        ({"sandbox": "require"}, {}, {}, "sandbox_unavailable"),
        ({"thread": True}, {}, {}, "thread_unavailable"),
        ({}, {}, {"live_children": 5}, "too_many_children"),
    ],
)
def test_every_refusal_has_its_own_code(
    wish: dict[str, Any], settings: dict[str, Any], here: dict[str, Any], code: str | None
) -> None:
    wanted = Wish(**{"agent_id": "main", **wish})
    refused = refusal(wanted, Subagents.model_validate(settings), replace(BASE, **here))
    assert (None if refused is None else refused.code) == code


def test_a_thread_stays_and_knows_what_was_said_unless_told_otherwise() -> None:
    plain = SpawnInput(task="x").wish("main")
    assert (plain.agent_id, plain.mode, plain.context) == ("main", "run", "isolated")
    bound = SpawnInput(task="x", thread=True).wish("main")
    assert (bound.mode, bound.context) == ("session", "fork")
    other = SpawnInput(task="x", thread=True, agentId="Work").wish("main")
    assert (other.agent_id, other.context) == ("work", "isolated")
    said = SpawnInput(task="x", thread=True, mode="run", context="isolated").wish("main")
    assert (said.mode, said.context) == ("run", "isolated")
