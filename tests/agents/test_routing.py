"""Which agent a message goes to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents import Origin, Route, default_agent, explain, route
from holdfast.config import AgentEntry, Binding

AGENTS = [AgentEntry(id=name, default=name == "home") for name in ("work", "home", "play")]


def bind(agent_id: str, **match: Any) -> Binding:
    return Binding.model_validate({"agentId": agent_id, "match": {"channel": "discord", **match}})


FULL = Origin(
    channel="discord",
    account_id="acc",
    peer_kind="dm",
    peer_id="p1",
    guild_id="g1",
    team_id="t1",
)
LADDER: list[tuple[str, dict[str, Any]]] = [
    ("peer", {"peer": {"kind": "dm", "id": "p1"}}),
    ("guild", {"guildId": "g1"}),
    ("team", {"teamId": "t1"}),
    ("account", {"accountId": "acc"}),
    ("peerKind", {"peer": {"kind": "dm"}}),
    ("channel", {}),
    ("any", {"channel": "*"}),
]


@pytest.mark.parametrize("step", range(len(LADDER)))
def test_the_most_specific_rule_wins_whatever_the_order(step: int) -> None:
    rest = LADDER[step:]
    for order in (rest, rest[::-1]):
        bindings = [bind("work" if rule == LADDER[step][0] else "play", **m) for rule, m in order]
        decision = route(FULL, bindings, AGENTS)
        assert (decision.agent_id, decision.rule) == ("work", LADDER[step][0])


def test_without_a_match_the_default_agent_answers() -> None:
    decision = route(Origin(channel="irc"), [bind("work")], AGENTS)
    assert (decision.agent_id, decision.rule, decision.binding) == ("home", "default", None)


def test_the_default_agent_is_the_marked_one_else_the_first_else_main() -> None:
    assert default_agent(AGENTS) == "home"
    assert default_agent([AgentEntry(id="b"), AgentEntry(id="a")]) == "b"
    assert default_agent([]) == "main"


def test_of_two_bindings_alike_the_earlier_wins() -> None:
    decision = route(FULL, [bind("play", guildId="g1"), bind("work", guildId="g1")], AGENTS)
    assert (decision.agent_id, decision.binding) == ("play", 0)


def test_a_further_field_beats_order_among_bindings_of_one_rule() -> None:
    bindings = [bind("play", accountId="acc"), bind("work", accountId="acc", peer={"kind": "dm"})]
    assert route(FULL, bindings, AGENTS).agent_id == "work"


def test_every_field_of_a_binding_must_match() -> None:
    bindings = [bind("work", guildId="g1", peer={"kind": "dm", "id": "other"})]
    decision = route(FULL, bindings, AGENTS)
    assert decision.rule == "default"
    assert decision.steps[0].reason == "peer.id is 'p1', not 'other'"


def test_a_peer_of_another_kind_with_the_same_id_does_not_match() -> None:
    bindings = [bind("work", peer={"kind": "group", "id": "p1"})]
    assert route(FULL, bindings, AGENTS).rule == "default"


def test_a_binding_for_another_channel_does_not_match_by_its_peer() -> None:
    bindings = [bind("work", channel="slack", peer={"kind": "dm", "id": "p1"})]
    assert route(FULL, bindings, AGENTS).rule == "default"


def test_channel_names_are_compared_without_case_and_ids_with_it() -> None:
    assert route(FULL, [bind("work", channel="Discord")], AGENTS).agent_id == "work"
    assert route(FULL, [bind("work", guildId="G1")], AGENTS).rule == "default"


def test_any_account_is_no_more_than_the_channel() -> None:
    decision = route(FULL, [bind("play", accountId="*"), bind("work", accountId="acc")], AGENTS)
    assert decision.agent_id == "work"
    assert route(FULL, [bind("play", accountId="*")], AGENTS).rule == "channel"


def test_a_numeric_id_in_the_file_matches_its_text() -> None:
    origin = Origin(channel="discord", peer_kind="dm", peer_id="12345")
    assert route(origin, [bind("work", peer={"kind": "dm", "id": 12345})], AGENTS).rule == "peer"


def test_a_binding_that_is_off_or_names_no_agent_is_passed_over() -> None:
    off = bind("work").model_copy(update={"enabled": False})
    decision = route(FULL, [off, bind("gone")], AGENTS)
    assert decision.rule == "default"
    assert [step.reason for step in decision.steps] == [
        "it is switched off",
        "there is no agent 'gone'",
    ]


def test_explain_says_for_each_binding_why_it_did_not_match() -> None:
    origin = Origin(channel="discord", peer_kind="dm", peer_id="p1")
    bindings = [bind("play", guildId="g1"), bind("work", peer={"kind": "dm"})]
    assert explain(route(origin, bindings, AGENTS)) == (
        "bindings[0] -> play (guild): the message has no guildId",
        "bindings[1] -> work (peerKind): matches",
        "work by peerKind: bindings[1]",
    )


TWO = st.sampled_from(["1", "2"])
KINDS = st.sampled_from(["dm", "group"])
CHANNELS = st.sampled_from(["discord", "slack"])
ORIGINS = st.builds(
    Origin,
    channel=CHANNELS,
    account_id=st.none() | TWO,
    peer_kind=st.none() | KINDS,
    peer_id=st.none() | TWO,
    guild_id=st.none() | TWO,
    team_id=st.none() | TWO,
)
PEERS = st.fixed_dictionaries({"kind": KINDS}, optional={"id": TWO})
MATCHES = st.fixed_dictionaries(
    {"channel": CHANNELS | st.just("*")},
    optional={"accountId": TWO | st.just("*"), "guildId": TWO, "teamId": TWO, "peer": PEERS},
)
BINDINGS = st.builds(lambda name, m: bind(name, **m), st.sampled_from(["work", "play"]), MATCHES)
MANY = st.lists(BINDINGS, max_size=6)


def best(decision: Route) -> int:
    return max((s.specificity for s in decision.steps if s.matched), default=-1)


@given(ORIGINS, MANY, BINDINGS, st.integers(0, 6))
def test_a_less_specific_binding_never_changes_the_outcome(
    origin: Origin, bindings: list[Binding], extra: Binding, place: int
) -> None:
    before = route(origin, bindings, AGENTS)
    (alone,) = route(origin, [extra], AGENTS).steps
    after = route(origin, [*bindings[:place], extra, *bindings[place:]], AGENTS)
    if not alone.matched or alone.specificity < best(before):
        assert (after.agent_id, after.rule) == (before.agent_id, before.rule)


@given(ORIGINS, MANY, st.randoms())
def test_order_matters_only_among_equals(origin: Origin, bindings: list[Binding], rng: Any) -> None:
    shuffled = list(bindings)
    rng.shuffle(shuffled)
    one, two = route(origin, bindings, AGENTS), route(origin, shuffled, AGENTS)
    assert (best(one), one.rule) == (best(two), two.rule)
    winners = {s.agent_id for s in one.steps if s.matched and s.specificity == best(one)}
    if len(winners) <= 1:
        assert one.agent_id == two.agent_id


@given(ORIGINS, MANY)
def test_the_winner_matches_and_none_that_matches_is_more_specific(
    origin: Origin, bindings: list[Binding]
) -> None:
    decision = route(origin, bindings, AGENTS)
    if decision.binding is None:
        assert not [step for step in decision.steps if step.matched]
    else:
        winner = decision.steps[decision.binding]
        assert winner.matched
        assert winner.specificity == best(decision)
        assert bindings[decision.binding].agent_id == decision.agent_id


@given(ORIGINS, MANY)
def test_every_binding_is_accounted_for(origin: Origin, bindings: list[Binding]) -> None:
    decision = route(origin, bindings, AGENTS)
    assert [step.index for step in decision.steps] == list(range(len(bindings)))
    assert all((step.reason == "matches") == step.matched for step in decision.steps)
    assert len(explain(decision)) == len(bindings) + 1
