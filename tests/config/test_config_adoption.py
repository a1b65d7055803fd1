"""Taking over an OpenClaw config, and the pages made from the models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.config import Config, adopt_openclaw
from holdfast.config.docs import configuration_page
from holdfast.config.source import check

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"

OPENCLAW: dict[str, Any] = {
    "meta": {"lastTouchedVersion": "2026.9.6"},
    "gateway": {"mode": "local", "bind": "loopback", "port": 18789, "auth": {"token": "t"}},
    "agents": {
        "defaults": {
            "workspace": "~/.openclaw/workspace",
            "memorySearch": {
                "query": {"hybrid": {"vectorWeight": 0.8, "textWeight": 0.2}},
                "chunking": {"tokens": 400, "overlap": 80},
            },
            "compaction": {"mode": "odd", "reserveTokensFloor": 20000},
        },
        "list": [
            {"id": "main", "groupChat": {"mentionPatterns": ["@x"]}},
            {"id": "Not An Id"},
            {"id": "work"},
        ],
    },
    "bindings": [
        {"agentId": "Not An Id", "match": {"channel": "slack"}},
        {"agentId": "work", "match": {"channel": "telegram", "peer": {"kind": "direct", "id": 7}}},
    ],
    "session": {"idleMinutes": 30},
    "heartbeat": {"every": "1h"},
    "logging": {"level": "warn", "redactSensitive": "tools"},
    "channels": {
        "discord": {"token": "x", "guilds": {"1": {}}, "dmPolicy": "open"},
        "slack": {"botToken": "x", "private": ["C1"]},
    },
    "plugins": {"load": {"paths": ["~/x"]}, "entries": {"lossless": {"enabled": True}, "voice": {}}},
    "hooks": {"enabled": True, "token": "t", "path": "/in", "mappings": []},
    "skills": {"load": {"watch": True, "extraDirs": ["~/skills"]}},
}


def test_what_we_know_of_an_openclaw_file_is_kept() -> None:
    config = check(adopt_openclaw(OPENCLAW)[0])
    assert (config.gateway.host, config.gateway.port) == ("127.0.0.1", 18789)
    assert config.memory.search.normalised == pytest.approx((0.8, 0.2))
    assert config.memory.search.chunking.tokens == 400
    assert config.agents.defaults.compaction.reserve_tokens == 20000
    assert config.agents.defaults.heartbeat.every == 3_600_000
    assert config.session.reset.idle_minutes == 30
    assert (config.logging.level, config.logging.redact) == ("warning", True)
    assert [agent.id for agent in config.agents.list] == ["main", "work"]
    assert config.channels.keys() == {"slack"}
    assert config.channels["slack"].private == ("C1",)
    assert (config.hooks.path, config.skills.load.extra_dirs) == ("/in", ("~/skills",))
    assert config.plugins.entries.keys() == {"lossless"}
    (binding,) = config.bindings
    assert binding.match.peer is not None
    assert (binding.match.peer.kind, binding.match.peer.id) == ("dm", "7")


def test_what_is_left_out_is_named_by_its_path_in_the_original() -> None:
    assert adopt_openclaw(OPENCLAW)[1] == [
        "agents.defaults.compaction.mode",
        "agents.list[0].groupChat",
        "agents.list[1]",
        "bindings[0]",
        "channels.discord",
        "channels.slack.botToken",
        "gateway.mode",
        "hooks.mappings",
        "meta",
        "plugins.entries.voice",
        "plugins.load",
        "skills.load.watch",
    ]


def test_memory_settings_come_along_from_either_place() -> None:
    given = {
        "provider": "gemini",
        "model": "text-embedding-9",
        "query": {"maxResults": 9, "minScore": 0.2},
        "extraPaths": ["../near", {"path": "/srv/notes", "pattern": "runbooks/**/*.md"}, "~/wiki"],
        "sources": ["memory"],
    }
    for data in ({"memory": {"search": given}}, {"agents": {"defaults": {"memorySearch": given}}}):
        kept, left_out = adopt_openclaw(data)
        search = check(kept).memory.search
        assert (search.embedding.providers, search.embedding.gemini.model) == (
            ("gemini",),
            "text-embedding-9",
        )
        assert (search.limits.max_results, search.limits.min_score) == (9, 0.2)
        assert [(one.path, one.mask) for one in search.paths] == [
            ("/srv/notes", "runbooks/**/*.md"),
            ("~/wiki", "**/*.md"),
        ]
        assert not search.sessions.enabled
        assert [path.rpartition(".")[2] for path in left_out] == ["extraPaths"]


def test_adopting_changes_nothing_in_what_it_was_given() -> None:
    before = repr(OPENCLAW)
    adopt_openclaw(OPENCLAW)
    assert repr(OPENCLAW) == before


def test_a_config_of_our_own_is_adopted_whole() -> None:
    data = {"gateway": {"port": 1}, "agents": {"list": [{"id": "a"}]}}
    assert adopt_openclaw(data) == (data, [])


KEYS = st.sampled_from(
    [
        "agents",
        "defaults",
        "list",
        "id",
        "bindings",
        "session",
        "reset",
        "mode",
        "tools",
        "exec",
        "allow",
        "gateway",
        "auth",
        "port",
        "channels",
        "memory",
        "heartbeat",
        "x",
        "logging",
        "memorySearch",
    ]
)
LEAVES = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["a", "30m", "off", ""])
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4)
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(KEYS, TREES, max_size=6))
def test_whatever_the_file_holds_the_outcome_loads(data: dict[str, Any]) -> None:
    kept, _ = adopt_openclaw(data)
    assert isinstance(check(kept), Config)


def test_the_page_of_settings_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == configuration_page(), (
        "run: python -m holdfast.config.docs > docs/configuration.md"
    )


def test_every_key_of_the_page_has_a_meaning() -> None:
    rows = [line for line in configuration_page().splitlines() if line.startswith("| `")]
    assert len(rows) > 400
    assert not [row for row in rows if row.endswith("|  |")]
