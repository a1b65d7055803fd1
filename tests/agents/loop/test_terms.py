"""What a turn keeps of its ask: the shape that stands in databases, and nothing lost on the way."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents.loop.asks import Address, Ask, Deliver, Form, Options, Terms
from holdfast.context import Occasion, ToolSpec
from holdfast.log import FOR_OWNER

STORED: dict[str, Any] = {
    "agentId": "main",
    "model": "m/x",
    "thinking": "low",
    "sender": "ann",
    "channel": "slack",
    "prompt": "p",
    "systemPrompt": "s",
    "timeoutSeconds": 5,
    "owner": False,
    "ownerSent": True,
    "limitedTo": ["a"],
    "occasion": "heartbeat",
    "deliver": {"kind": "k", "target": "t", "payload": {"a": 1}, "heard": FOR_OWNER},
    "tools": [{"name": "f", "description": "d", "parameters": {"type": "object"}}],
    "mustCall": ["f"],
    "form": {"schema": {"type": "object"}, "name": "n", "strict": True},
}
WHOLE = Terms(
    agent_id="main",
    model="m/x",
    thinking="low",
    sender="ann",
    channel="slack",
    prompt="p",
    system_prompt="s",
    timeout_seconds=5,
    owner=False,
    owner_sent=True,
    limited_to=("a",),
    occasion=Occasion.HEARTBEAT,
    deliver=Deliver(kind="k", target="t", payload={"a": 1}, heard=FOR_OWNER),
    tools=(ToolSpec("f", "d", {"type": "object"}),),
    must_call=("f",),
    form=Form(schema={"type": "object"}, name="n", strict=True),
)


def test_terms_are_kept_as_databases_have_them_and_the_usual_is_left_out() -> None:
    assert WHOLE.json() == STORED
    assert Terms(agent_id="main").json() == {"agentId": "main"}


@given(st.sets(st.sampled_from(sorted(set(STORED) - {"agentId"}))))
def test_whatever_was_kept_is_read_back_as_it_was(kept: set[str]) -> None:
    stored = {"agentId": "main", **{name: STORED[name] for name in kept}}
    assert Terms.read(stored, "other").json() == stored


def test_a_turn_of_another_program_has_the_default_agent_and_an_owner_is_said_outright() -> None:
    assert Terms.read({}, "other") == Terms(agent_id="other")
    assert not Terms.read({"owner": "yes"}, "other").owner
    assert Terms.read({"limitedTo": []}, "other").limited_to == ()


def test_every_option_of_an_ask_reaches_the_turn() -> None:
    options = {option.name: getattr(WHOLE, option.name) for option in fields(Options)}
    ask = Ask(text="hello", **options)
    made = Terms.of(ask, Address("main", "agent:main:main", "slack"))
    assert {name: getattr(made, name) for name in options} == options
    assert (made.agent_id, made.channel) == ("main", "slack")
