"""What must hold between sections, and how settings combine."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from holdfast.config import Config, InvalidConfig, parse_config
from holdfast.config.source import leniently
from holdfast.errors import ConfigError, NotFound


def faults(text: str) -> dict[str, str]:
    with pytest.raises(InvalidConfig) as caught:
        parse_config(text)
    return {problem.path: problem.message for problem in caught.value.problems}


def test_an_agent_listed_twice_is_named() -> None:
    assert faults('{agents: {list: [{id: "a"}, {id: "a"}]}}') == {
        "agents.list[1].id": "agent 'a' is listed twice"
    }


def test_a_second_default_is_named() -> None:
    found = faults('{agents: {list: [{id: "a", default: true}, {id: "b", default: true}]}}')
    assert found == {"agents.list[1].default": "agent 'a' is the default already"}


def test_a_binding_to_an_unknown_agent_is_named() -> None:
    found = faults('{bindings: [{agentId: "work", match: {channel: "slack"}}]}')
    assert found == {"bindings[0].agentId": "expected one of the agents (main), found 'work'"}


def test_all_problems_are_collected_and_the_first_is_the_message() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config('{gateway: {port: "x", hots: "y"}, logging: {level: 3}}', source="f.json")
    error = caught.value
    assert isinstance(error, InvalidConfig)
    assert [problem.path for problem in error.problems] == [
        "gateway.port",
        "gateway.hots",
        "logging.level",
    ]
    assert str(error) == "f.json: gateway.port: expected a valid integer, found 'x' (and 2 more)"


@pytest.mark.parametrize(
    ("text", "path", "near"),
    [
        ("{agnets: {}}", "agnets", "agents"),
        ("{compction: {}}", "compction", "compaction"),
        ("{compaction: {reserveToken: 1}}", "compaction.reserveToken", "reserveTokens"),
        ('{agents: {list: [{id: "a", workspce: "x"}]}}', "agents.list[0].workspce", "workspace"),
        ("{models: {providers: {o: {baseURL: 1}}}}", "models.providers.o.baseURL", "baseUrl"),
        ("{session: {resetByType: {dm: {athour: 1}}}}", "session.resetByType.dm.athour", "atHour"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(text: str, path: str, near: str) -> None:
    assert faults(text) == {path: f"unknown key; did you mean {near!r}?"}


def test_an_unknown_key_like_no_other_is_just_unknown() -> None:
    assert faults("{zzzzqqq: 1}") == {"zzzzqqq": "unknown key"}


def test_the_settings_of_an_engine_and_of_a_skill_are_free_in_form() -> None:
    config = parse_config(
        '{plugins: {slots: {contextEngine: "x"}, entries: {"x": {config: {anything: [1, {deep: true}]}}}},'
        ' skills: {entries: {gh: {config: {colour: "red"}}}}}'
    )
    assert config.plugins.entries["x"].config == {"anything": [1, {"deep": True}]}
    assert config.skills.entries["gh"].config == {"colour": "red"}


def test_a_shortcut_seeds_the_defaults_and_the_full_key_wins() -> None:
    config = parse_config(
        "{compaction: {reserveTokens: 1, keepRecentTokens: 2},"
        " agents: {defaults: {compaction: {keepRecentTokens: 3}}}}"
    )
    compaction = config.agents.defaults.compaction
    assert (compaction.reserve_tokens, compaction.keep_recent_tokens) == (1, 3)


def test_an_agent_has_its_own_settings_over_the_defaults() -> None:
    config = parse_config(
        "{agents: {defaults: {heartbeat: {every: '10m', target: 'none'}, timeoutSeconds: 9},"
        " list: [{id: 'a', name: 'A', heartbeat: {target: 'x'}}, {id: 'b', timeoutSeconds: 5}]}}"
    )
    one, two = config.agent("a"), config.agent("b")
    assert (one.name, str(one.heartbeat.every), one.heartbeat.target) == ("A", "10m", "x")
    assert (one.timeout_seconds, two.timeout_seconds) == (9, 5)
    assert two.heartbeat == config.agents.defaults.heartbeat


def test_an_agents_settings_must_hold_together_with_the_defaults() -> None:
    found = faults(
        "{agents: {defaults: {continuation: {minDelayMs: 200000}},"
        " list: [{id: 'a', continuation: {maxDelayMs: 100000}}]}}"
    )
    assert found == {
        "agents.list[0].continuation": ("expected minDelayMs to be at most maxDelayMs, with agents.defaults")
    }


def test_an_agent_may_open_its_memory_without_changing_the_rest() -> None:
    config = parse_config(
        "{memory: {citations: 'on'},"
        " agents: {list: [{id: 'a', memory: {search: {scope: {default: 'allow'}}}}, {id: 'b'}]}}"
    )
    assert config.memory_for("a").search.scope.default == "allow"
    assert config.memory_for("a").citations == "on"
    assert config.memory_for("b") == config.memory


def test_without_agents_there_is_one_called_main() -> None:
    assert Config().default_agent_id == "main"
    assert Config().agent("main").heartbeat.enabled
    with pytest.raises(NotFound):
        Config().agent("other")


def test_the_default_agent_is_the_marked_one_else_the_first() -> None:
    marked = parse_config("{agents: {list: [{id: 'a'}, {id: 'b', default: true}]}}")
    assert marked.default_agent_id == "b"
    assert parse_config("{agents: {list: [{id: 'a'}, {id: 'b'}]}}").default_agent_id == "a"


def test_allow_and_also_allow_in_one_scope_are_merged() -> None:
    tools = parse_config("{tools: {allow: ['exec', 'message'], alsoAllow: ['message', 'x']}}").tools
    assert (tools.allow, tools.also_allow) == (("exec", "message", "x"), ())
    alone = parse_config("{tools: {alsoAllow: ['message']}}").tools
    assert (alone.allow, alone.also_allow) == ((), ("message",))


def test_the_qmd_profile_brings_its_weights_unless_some_are_given() -> None:
    profile = parse_config("{memory: {search: {profile: 'qmd'}}}").memory.search
    assert profile.normalised == pytest.approx((0.7, 0.3))
    given = parse_config("{memory: {search: {profile: 'qmd', vectorWeight: 3, textWeight: 1}}}")
    assert given.memory.search.normalised == (0.75, 0.25)


def test_an_idle_reset_without_a_length_is_an_hour() -> None:
    assert parse_config("{session: {reset: {mode: 'idle'}}}").session.reset.idle_minutes == 60


def test_extra_bootstrap_files_must_have_known_names() -> None:
    text = "{hooks: {internal: {entries: {'bootstrap-extra-files': {paths: ['%s']}}}}}"
    assert parse_config(text % "packages/*/AGENTS.md")
    assert "AGENTS.md" in faults(text % "notes/SECRETS.md")["hooks.internal"]


def test_a_config_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValidationError):
        Config().gateway.port = 1


def test_python_names_are_accepted_as_well() -> None:
    assert parse_config("{session: {reset: {at_hour: 5}}}").session.reset.at_hour == 5


def test_a_channel_has_no_name_that_a_session_key_or_a_login_reads_otherwise() -> None:
    named = ", ".join(f"{name}: {{private: ['1']}}" for name in ("cron", "user", "token", "slack"))
    assert faults(f"{{channels: {{{named}}}}}") == {
        f"channels.{name}": f"a channel cannot be called {name!r}: expected another name"
        for name in ("cron", "user", "token")
    }


@pytest.mark.parametrize(
    ("text", "path", "told"),
    [
        ("{teams: {enabled: true}}", "teams.enabled", "not built yet"),
        ("{teams: {list: {a: {}}}}", "teams.list", "not built yet"),
        ("{memory: {search: {rerank: {model: 'x'}}}}", "memory.search.rerank.model", "not built yet"),
        ("{memory: {search: {rerank: {enabled: true}}}}", "memory.search.rerank.enabled", "backend qmd"),
        (
            "{agents: {list: [{id: 'a', memory: {search: {rerank: {enabled: true}}}}]}}",
            "agents.list[0].memory.search.rerank.enabled",
            "backend qmd",
        ),
        (
            "{channels: {telegram: {botToken: 'x', private: ['1']}}}",
            "channels.telegram.botToken",
            "not built",
        ),
        ("{channels: {telegram: {}}}", "channels.telegram", "expected url"),
        ("{channels: {telegram: {enabled: true}}}", "channels.telegram", "expected url"),
        ("{channels: {telegram: {dmPolicy: 'open'}}}", "channels.telegram.dmPolicy", "expected url"),
        ("{channels: {a: {url: 'https://x', urll: 1}}}", "channels.a.urll", "did you mean 'url'"),
        ("{channels: {a: {url: 'https://x', guilds: {}}}}", "channels.a.guilds", "unknown key"),
        (
            "{channels: {a: {url: 'https://x', groups: {g: {tools: 1}}}}}",
            "channels.a.groups.g.tools",
            "unknown",
        ),
        (
            "{channels: {a: {url: 'https://x', accounts: {b: {odd: 1}}}}}",
            "channels.a.accounts.b.odd",
            "unknown",
        ),
        (
            "{hooks: {internal: {entries: {mine: {}}}}}",
            "hooks.internal.entries.mine",
            "expected one of boot-md",
        ),
        ("{skills: {load: {watch: false}}}", "skills.load.watch", "read anew"),
    ],
)
def test_a_setting_without_an_effect_is_an_error_that_says_how_to_mend_it(
    text: str, path: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_config(text)
    (problem,) = caught.value.problems
    assert problem.path == path
    assert told in problem.message
    assert "doctor --fix" in caught.value.hint
    assert "--lenient" in caught.value.hint
    with leniently():
        parse_config(text)
    assert path in caplog.text
    with pytest.raises(InvalidConfig):
        parse_config(text)


def test_what_the_lenient_leave_out_is_told_once_however_often_it_is_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with leniently():
        for text in ("{zzz: 1}", "{zzz: 2}", "{zzz: 1, yyy: 1}"):
            parse_config(text, source="mine.json")
        parse_config("{zzz: 1}", source="yours.json")
    told = [record.getMessage() for record in caplog.records]
    assert [(line.split(":")[0], line.split(": ")[2]) for line in told] == [
        ("mine.json", "zzz"),
        ("mine.json", "yyy"),
        ("yours.json", "zzz"),
    ]


def test_what_is_wrong_is_wrong_for_the_lenient_too() -> None:
    with leniently(), pytest.raises(InvalidConfig) as caught:
        parse_config("{zzz: 1, gateway: {port: 'many'}}")
    assert [problem.path for problem in caught.value.problems] == ["gateway.port"]


def test_a_channel_whose_messages_come_through_the_api_needs_no_address() -> None:
    config = parse_config("{channels: {discord: {private: ['42'], guests: {skills: true}}}}")
    assert config.is_private("discord", "42")
    accounts = "{channels: {pier: {dmPolicy: 'open', accounts: {a: {url: 'https://x.example'}}}}}"
    assert parse_config(accounts).channels["pier"].of_account("a").dm_policy == "open"


@pytest.mark.parametrize("path", ["/", "hooks", "/api", "/api/agent", "/v1/x", "/ws", "/a b", "/a/../b"])
def test_webhooks_answer_at_no_path_of_the_gateways_own(path: str) -> None:
    assert "hooks.path" in faults(f"{{hooks: {{path: {path!r}}}}}")
