"""Who is answered on a channel, and what speaks to the agent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.channels.inbound import Inbound, Sender, is_named, judge
from holdfast.channels.surface import Surface
from holdfast.config.channels import ChannelConfig

DIRECT, GROUP = Surface("pier", "dm", "ada"), Surface("pier", "group", "g1")
STRANGER, OWNER = Sender(), Sender(owner=True)


def said(surface: Surface = DIRECT, **fields: Any) -> Inbound:
    given = {"message_id": "1", "sender": "ada", "text": "hello", **fields}
    return Inbound(surface=surface, **given)


@pytest.mark.parametrize(
    ("rules", "who", "state"),
    [
        ({}, STRANGER, "pairing"),
        ({}, Sender(paired=True), "answered"),
        ({}, Sender(denied=True), "ignored"),
        ({}, OWNER, "answered"),
        ({"allowFrom": ["ada"]}, STRANGER, "answered"),
        ({"allowFrom": [7]}, STRANGER, "pairing"),
        ({"dmPolicy": "allowlist"}, STRANGER, "ignored"),
        ({"dmPolicy": "allowlist"}, Sender(paired=True), "ignored"),
        ({"dmPolicy": "allowlist", "allowFrom": ["*"]}, STRANGER, "answered"),
        ({"dmPolicy": "open"}, STRANGER, "answered"),
        ({"dmPolicy": "disabled"}, OWNER, "ignored"),
    ],
)
def test_a_direct_message_is_judged_by_its_policy(rules: dict[str, Any], who: Sender, state: str) -> None:
    assert judge(said(), ChannelConfig.model_validate(rules), who).state == state


CALLED, CALLED_BY_OWNER = Sender(addressed=True), Sender(owner=True, addressed=True)


@pytest.mark.parametrize(
    ("rules", "who", "state"),
    [
        ({}, CALLED, "ignored"),
        ({"groups": ["g1"]}, CALLED, "answered"),
        ({"groups": ["g1"]}, STRANGER, "kept"),
        ({"groups": {"g1": {"requireMention": False}}}, STRANGER, "answered"),
        ({"groups": {"*": {"requireMention": False}}}, STRANGER, "answered"),
        ({"groups": ["g2"]}, CALLED, "ignored"),
        ({"allowFrom": ["ada"]}, CALLED, "answered"),
        ({"groupPolicy": "open"}, CALLED, "answered"),
        ({"groupPolicy": "open", "groupAllowFrom": ["ben"]}, CALLED, "ignored"),
        ({"groupPolicy": "open", "groupAllowFrom": ["ben"]}, CALLED_BY_OWNER, "answered"),
        ({"groupPolicy": "open", "requireMention": False}, STRANGER, "answered"),
        ({"groupPolicy": "disabled"}, CALLED_BY_OWNER, "ignored"),
    ],
)
def test_a_group_message_is_judged_by_its_policy(rules: dict[str, Any], who: Sender, state: str) -> None:
    assert judge(said(GROUP), ChannelConfig.model_validate(rules), who).state == state


@given(st.sampled_from(["pairing", "allowlist", "open", "disabled"]), st.booleans(), st.booleans())
def test_knowing_someone_better_never_shuts_them_out(policy: str, paired: bool, listed: bool) -> None:
    rules = ChannelConfig.model_validate({"dmPolicy": policy, "allowFrom": ["ada"] if listed else []})
    before = judge(said(), rules, Sender(paired=paired)).state
    if before == "answered":
        assert judge(said(), rules, Sender(paired=True, owner=True)).state == "answered"


def test_programs_and_empty_messages_are_left_alone() -> None:
    assert judge(said(bot=True), ChannelConfig(dm_policy="open"), STRANGER).state == "ignored"
    assert judge(said(text=" \n"), ChannelConfig(dm_policy="open"), OWNER).state == "ignored"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("@main when?", True),
        ("so, @Kelp: when?", True),
        ("Kelp, when?", True),
        ("hey kelp! when?", True),
        ("the kelp is green", False),
        ("mail me@main.example", False),
        ("@mainland", False),
    ],
)
def test_the_agent_is_called_by_its_name(text: str, named: bool) -> None:
    assert is_named(text, ("main", "Kelp")) is named
