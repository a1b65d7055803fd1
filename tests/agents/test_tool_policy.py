"""Which tools an agent may use: seven layers, deny wins, and every answer says which layer gave it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents.policy import (
    CATALOGUE,
    GROUPS,
    PROFILES,
    Decision,
    Elevation,
    Policy,
    Rules,
    Situation,
    Unknown,
    allowed,
    decide,
    expand,
    explain,
    policy_of,
    unknown_names,
)
from holdfast.config import parse_config

EVERY = sorted(CATALOGUE)
NOBODY = Situation()


def policy(**root: object) -> Policy:
    return Policy(scopes=(Rules("tools", **{"profile": "full", **root}),))  # type: ignore[arg-type]


def by(tool: str, given_policy: Policy, situation: Situation = NOBODY) -> tuple[bool, str]:
    found = decide(tool, given_policy, situation)
    return found.allowed, found.layer


def test_the_groups_and_profiles_of_the_seed_are_there() -> None:
    assert set(GROUPS["group:memory"]) == {"memory_search", "memory_get", "memory_write"}
    assert {"exec", "shell", "code_run"} == set(GROUPS["group:runtime"])
    assert {"sessions_list", "sessions_send", "sessions_spawn"} < set(GROUPS["group:sessions"])
    assert set(PROFILES) == {"minimal", "coding", "messaging", "full"}
    assert allowed(policy(profile="full"), NOBODY, EVERY) == tuple(EVERY)
    coding = allowed(policy(profile="coding"), NOBODY, EVERY)
    assert {"memory_search", "file_write", "exec"} <= set(coding)
    assert not {"message", "sessions_spawn", "web_fetch", "node_command"} & set(coding)
    minimal = allowed(policy(profile="minimal"), NOBODY, EVERY)
    assert "memory_get" in minimal
    assert not {"exec", "file_write", "message", "clawboard_update_task"} & set(minimal)


def test_also_allow_widens_a_profile() -> None:
    assert by("message", policy(profile="coding")) == (False, "profile")
    assert by("message", policy(profile="coding", also_allow=("message",))) == (True, "allow")
    assert by("exec", policy(profile="coding", also_allow=("message",))) == (True, "profile")


def test_an_allow_list_names_the_set_anew() -> None:
    only = policy(profile="coding", allow=("group:memory", "message"))
    assert by("message", only) == (True, "allow")
    assert by("exec", only) == (False, "allow")


def test_the_outer_allow_list_bounds_the_inner_but_not_also_allow() -> None:
    def scoped(**own: object) -> Policy:
        outer = Rules("tools", profile="full", allow=("group:memory", "exec"))
        return Policy(scopes=(outer, Rules("agents.a.tools", **own)))  # type: ignore[arg-type]

    assert by("file_read", scoped(allow=("file_read",))) == (False, "allow")
    assert by("exec", scoped(allow=("exec",))) == (True, "allow")
    assert by("memory_get", scoped(allow=("exec",))) == (False, "allow")
    assert by("file_read", scoped(also_allow=("file_read",))) == (True, "allow")
    assert by("exec", scoped(profile="minimal")) == (False, "profile")
    assert by("file_read", scoped(profile="coding")) == (False, "allow")


def test_an_agents_profile_replaces_the_shared_one_and_keeps_what_is_also_allowed() -> None:
    shared = Rules("tools", profile="full", also_allow=("message",))
    both = Policy(scopes=(shared, Rules("agents.a.tools", profile="minimal")))
    assert by("exec", both) == (False, "profile")
    assert by("message", both) == (True, "allow")


@pytest.mark.parametrize("name", ["exec", "group:runtime", "ex*", "*"])
def test_deny_wins_over_every_allow(name: str) -> None:
    assert by("exec", policy(allow=("exec",), also_allow=("exec",), deny=(name,))) == (False, "deny")


def test_a_tool_for_the_owner_is_refused_to_others() -> None:
    owned = replace(policy(), owner_only=("whatsapp_login", "node_*"))
    assert by("whatsapp_login", owned) == (False, "owner")
    assert by("node_command", owned) == (False, "owner")
    assert by("whatsapp_login", owned, Situation(is_owner=True)) == (True, "profile")


def test_a_providers_rules_only_take_away() -> None:
    small = (Rules("p", profile="minimal", also_allow=("exec",), deny=("memory_write",)),)
    limited = replace(
        policy(profile="coding"), by_provider={"tiny": small, "tiny/m": (Rules("m", deny=("exec",)),)}
    )
    here = Situation(provider="tiny")
    assert by("exec", limited, here) == (True, "profile")
    assert by("file_read", limited, here) == (False, "provider")
    assert by("memory_write", limited, here) == (False, "provider")
    assert by("exec", limited, Situation(provider="tiny", model="m")) == (False, "provider")
    assert by("exec", limited, Situation(provider="tiny", model="n")) == (True, "profile")
    assert by("file_read", limited, Situation(provider="big")) == (True, "profile")
    widening = replace(policy(profile="minimal"), by_provider={"big": (Rules("p", also_allow=("exec",)),)})
    assert by("exec", widening, Situation(provider="big")) == (False, "profile")


def test_running_elevated_needs_a_sender_that_every_scope_names() -> None:
    house = Elevation("tools.elevated", allow_from={"chat": ("ann", "bob")})
    asked = Situation(elevated=True, channel="chat", sender="ann")
    assert by("exec", replace(policy(), elevation=(house,)), asked) == (True, "profile")
    assert by("exec", policy(), asked) == (False, "elevated")
    assert by("exec", replace(policy(), elevation=(house,)), replace(asked, sender="eve")) == (
        False,
        "elevated",
    )
    assert by("exec", replace(policy(), elevation=(house,)), replace(asked, sender=None)) == (
        False,
        "elevated",
    )
    assert by("exec", replace(policy(), elevation=(house,)), replace(asked, channel="mail")) == (
        False,
        "elevated",
    )
    assert by("file_read", replace(policy(), elevation=(house,)), asked) == (False, "elevated")
    own = Elevation("agents.a.tools.elevated", allow_from={"chat": ("bob",)})
    assert by("exec", replace(policy(), elevation=(house, own)), asked) == (False, "elevated")
    off = replace(house, enabled=False)
    assert by("exec", replace(policy(), elevation=(off,)), asked) == (False, "elevated")


def test_sandboxed_and_spawned_sessions_lose_tools() -> None:
    held = replace(
        policy(),
        sandbox=(Rules("tools.sandbox.tools", deny=("group:web",)),),
        subagents=(Rules("tools.subagents.tools", allow=("group:fs", "sessions_*")),),
    )
    assert by("web_fetch", held, Situation(sandboxed=True)) == (False, "session")
    assert by("web_fetch", held) == (True, "profile")
    child = Situation(subagent=True)
    for tool in ("sessions_list", "sessions_history", "sessions_send", "sessions_spawn"):
        assert by(tool, held, child) == (False, "session")
    assert by("exec", held, child) == (False, "session")
    assert by("file_read", held, child) == (True, "profile")
    assert by("sessions_spawn", held, replace(child, may_spawn=True)) == (True, "profile")
    assert by("sessions_send", held, replace(child, may_spawn=True)) == (False, "session")


def test_a_subagent_reaches_nobody_and_a_leaf_looks_after_no_sessions() -> None:
    leaf, branch = Situation(subagent=True), Situation(subagent=True, may_spawn=True)
    for tool in ("message", "dm_send", "sessions_send", "cron_create", "webhook_create", "gateway"):
        assert by(tool, policy(), leaf) == by(tool, policy(), branch) == (False, "session")
        assert by(tool, policy()) == (True, "profile")
    for tool in ("sessions_spawn", "sessions_list", "sessions_history", "subagents", "continue_delegate"):
        assert by(tool, policy(), leaf) == (False, "session")
        assert by(tool, policy(), branch) == (True, "profile")
    assert by("session_status", policy(), leaf) == (True, "profile")


def test_names_that_stand_for_nothing_are_reported_with_their_place() -> None:
    odd = policy(allow=("exec", "exce"), deny=("group:nonsense", "plug_*", "*"))
    assert unknown_names(odd) == (
        Unknown("tools.allow", "exce"),
        Unknown("tools.deny", "group:nonsense"),
        Unknown("tools.deny", "plug_*"),
    )
    assert Unknown("tools.deny", "plug_*") not in unknown_names(odd, ["plug_in"])
    assert by("exec", policy(allow=("exce",))) == (False, "allow")


def test_explain_has_a_line_for_every_layer_and_the_outcome() -> None:
    lines = explain(decide("exec", policy(deny=("group:runtime",)), NOBODY))
    assert len(lines) == 8
    assert lines[2] == "3. deny: no (tools.deny names it)"
    assert lines[-1] == "exec is refused by deny: tools.deny names it"


def test_the_config_of_an_agent_becomes_its_policy() -> None:
    config = parse_config(
        """{
        tools: {profile: "coding", alsoAllow: ["message"], deny: ["file_delete"],
                byProvider: {openai: {deny: ["exec"]}}, elevated: {allowFrom: {chat: ["ann"]}},
                sandbox: {tools: {deny: ["web_fetch"]}}},
        agents: {list: [{id: "main"}, {id: "work", tools: {profile: "minimal", deny: ["memory_write"]}}]},
        }"""
    )
    main, work = policy_of(config, "main"), policy_of(config, "work")
    assert by("message", main) == (True, "allow")
    assert by("file_delete", main) == (False, "deny")
    assert by("exec", main, Situation(provider="openai")) == (False, "provider")
    assert by("exec", work) == (False, "profile")
    assert by("memory_write", work) == (False, "deny")
    asked = Situation(elevated=True, channel="chat", sender="ann")
    assert by("exec", main, asked) == (True, "profile")
    assert by("whatsapp_login", main) == (False, "profile")
    assert by("whatsapp_login", policy_of(parse_config("{}"), "main")) == (False, "owner")


def test_sandboxed_and_spawned_sessions_have_the_tools_of_their_layer() -> None:
    config = parse_config(
        '{tools: {sandbox: {tools: {allow: ["group:fs"], deny: ["file_delete"]}},'
        ' subagents: {tools: {deny: ["exec"]}}}}'
    )
    policy, sandboxed = policy_of(config, "main"), Situation(sandboxed=True)
    allowed = {name: by(name, policy, sandboxed)[0] for name in ("file_read", "file_delete", "exec")}
    assert allowed == {"file_read": True, "file_delete": False, "exec": False}
    assert not by("exec", policy, Situation(subagent=True))[0]
    assert by("exec", policy)[0]


names = st.sampled_from([*EVERY[::4], *GROUPS, "*", "file_*", "sessions_*", "no_such_tool", "exec"])
lists = st.lists(names, max_size=4).map(tuple)
rules = st.builds(
    Rules,
    st.just("scope"),
    st.sampled_from([None, *PROFILES]),
    lists,
    lists,
    lists,
)
policies = st.builds(
    Policy,
    scopes=st.lists(rules, min_size=1, max_size=2).map(tuple),
    by_provider=st.dictionaries(st.sampled_from(["p", "p/m"]), st.lists(rules, max_size=2).map(tuple)),
    owner_only=lists,
    sandbox=st.lists(rules, max_size=1).map(tuple),
    subagents=st.lists(rules, max_size=1).map(tuple),
)
situations = st.builds(
    Situation,
    provider=st.sampled_from([None, "p"]),
    model=st.sampled_from([None, "m"]),
    is_owner=st.booleans(),
    sandboxed=st.booleans(),
    subagent=st.booleans(),
    may_spawn=st.booleans(),
)


def _denying(found: Policy, name: str, where: str) -> Policy:
    def more(group: tuple[Rules, ...]) -> tuple[Rules, ...]:
        return tuple(replace(one, deny=(*one.deny, name)) for one in group)

    if where == "scopes":
        return replace(found, scopes=more(found.scopes))
    if where == "provider":
        return replace(found, by_provider={key: more(group) for key, group in found.by_provider.items()})
    return replace(found, sandbox=more(found.sandbox), subagents=more(found.subagents))


@given(policies, situations, names, st.sampled_from(["scopes", "provider", "session"]))
def test_another_deny_never_allows_more(found: Policy, at: Situation, name: str, where: str) -> None:
    assert set(allowed(_denying(found, name, where), at, EVERY)) <= set(allowed(found, at, EVERY))


@given(policies, situations, st.randoms(use_true_random=False))
def test_the_order_within_a_list_does_not_matter(found: Policy, at: Situation, random: object) -> None:
    def mixed(group: tuple[Rules, ...]) -> tuple[Rules, ...]:
        def mix(given_names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(random.sample(given_names, len(given_names)))  # type: ignore[attr-defined]

        return tuple(
            replace(one, allow=mix(one.allow), also_allow=mix(one.also_allow), deny=mix(one.deny))
            for one in group
        )

    shuffled = replace(found, scopes=mixed(found.scopes), sandbox=mixed(found.sandbox))
    assert allowed(shuffled, at, EVERY) == allowed(found, at, EVERY)


@given(policies, situations)
def test_groups_are_the_same_as_their_members(found: Policy, at: Situation) -> None:
    def plain(group: tuple[Rules, ...]) -> tuple[Rules, ...]:
        def members(given_names: tuple[str, ...]) -> tuple[str, ...]:
            found_names = sorted(expand(given_names, CATALOGUE).tools)
            return tuple(found_names or given_names)

        return tuple(
            replace(one, allow=members(one.allow), also_allow=members(one.also_allow), deny=members(one.deny))
            for one in group
        )

    spelled = replace(
        found,
        scopes=plain(found.scopes),
        by_provider={key: plain(group) for key, group in found.by_provider.items()},
        sandbox=plain(found.sandbox),
        subagents=plain(found.subagents),
    )
    assert allowed(spelled, at, EVERY) == allowed(found, at, EVERY)


@given(policies, situations, st.sampled_from(EVERY))
def test_the_layer_that_decided_is_named_and_agrees(found: Policy, at: Situation, tool: str) -> None:
    decision: Decision = decide(tool, found, at)
    step = next(one for one in decision.steps if one.layer == decision.layer)
    assert step.says is decision.allowed
    assert step.reason == decision.reason
    assert decision.allowed == (tool in allowed(found, at, EVERY))
    if decision.allowed:
        assert not any(one.says is False for one in decision.steps[2:])
