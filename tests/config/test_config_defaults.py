"""Every default and example that the specification gives, as it gives them."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest

from holdfast.config import Config, config_schema, parse_config, public_dump
from holdfast.config.source import parse_text

SPECIFIED: dict[str, Any] = {
    "agents.defaults.bootstrapMaxChars": 12000,
    "agents.defaults.bootstrapTotalMaxChars": 60000,
    "agents.defaults.compaction.enabled": True,
    "agents.defaults.compaction.keepRecentTokens": 20000,
    "agents.defaults.compaction.memoryFlush.enabled": True,
    "agents.defaults.compaction.memoryFlush.softThresholdTokens": 4000,
    "agents.defaults.compaction.reserveTokens": 16384,
    "agents.defaults.contextPruning.hardClear.placeholder": "[Old tool result content cleared]",
    "agents.defaults.contextPruning.keepLastAssistants": 3,
    "agents.defaults.contextPruning.mode": "cache-ttl",
    "agents.defaults.contextPruning.softTrim.headChars": 1500,
    "agents.defaults.contextPruning.softTrim.maxChars": 4000,
    "agents.defaults.contextPruning.softTrim.tailChars": 1500,
    "agents.defaults.contextPruning.ttl": "5m",
    "agents.defaults.continuation.busySkipBackoff.baseMs": 1000,
    "agents.defaults.continuation.busySkipBackoff.ceilingMs": None,
    "agents.defaults.continuation.busySkipBackoff.factor": 2,
    "agents.defaults.continuation.contextPressureThreshold": 0.8,
    "agents.defaults.continuation.costCapTokens": 500000,
    "agents.defaults.continuation.crossSessionTargeting": "disabled",
    "agents.defaults.continuation.defaultDelayMs": 15000,
    "agents.defaults.continuation.earlyWarningBand": 0.3125,
    "agents.defaults.continuation.enabled": False,
    "agents.defaults.continuation.maxChainLength": 10,
    "agents.defaults.continuation.maxDelayMs": 300000,
    "agents.defaults.continuation.maxDelegatesPerTurn": 5,
    "agents.defaults.continuation.maxPendingWork": 32,
    "agents.defaults.continuation.minDelayMs": 5000,
    "agents.defaults.continuation.orphanReapStaleCutoffMs": None,
    "agents.defaults.heartbeat.ackMaxChars": 30,
    "agents.defaults.heartbeat.activeHours": None,
    "agents.defaults.heartbeat.enabled": True,
    "agents.defaults.heartbeat.every": "30m",
    "agents.defaults.heartbeat.target": "last",
    "agents.defaults.subagents.archiveAfterMinutes": 60,
    "agents.defaults.subagents.maxConcurrent": 8,
    "agents.defaults.subagents.maxSpawnDepth": 1,
    "agents.defaults.subagents.runTimeoutSeconds": 0,
    "board.audit.enabled": False,
    "board.autoTopicBySession": False,
    "board.contextAugment": True,
    "board.contextLogLimit": 6,
    "board.contextMaxChars": 2200,
    "board.contextMode": "auto",
    "board.contextTaskLimit": 3,
    "board.contextTopicLimit": 3,
    "board.digests.intervalMinutes": 15,
    "board.digests.perCycle": 2,
    "board.ignoreSessionPrefixes": ["internal:clawboard-classifier:"],
    "board.routingMemory.maxItems": 12,
    "board.routingMemory.ttlDays": 90,
    "board.search.concurrency": 3,
    "board.search.includeToolCallLogs": False,
    "board.search.waitMs": 250,
    "board.supervision.ladder": ["1m", "3m", "10m", "15m", "30m", "1h"],
    "board.supervision.progressAfterMinutes": 5,
    "board.timelineLimit": 6,
    "board.workingSetLimit": 6,
    "gateway.host": "127.0.0.1",
    "gateway.limits.entryBytes": 1024**2,
    "gateway.limits.ingestBatch": 1000,
    "gateway.port": 8787,
    "gateway.stream.pingSeconds": 25,
    "gateway.stream.replayLimit": 5000,
    "memory.backend": "builtin",
    "memory.citations": "auto",
    "memory.qmd.command": "qmd",
    "memory.qmd.includeDefaultMemory": True,
    "memory.qmd.limits.maxInjectedChars": 4000,
    "memory.qmd.limits.maxResults": 6,
    "memory.qmd.limits.maxSnippetChars": 700,
    "memory.qmd.limits.timeoutMs": 4000,
    "memory.qmd.scope.default": "deny",
    "memory.qmd.sessions.deltaBytes": 100 * 1024,
    "memory.qmd.sessions.deltaMessages": 50,
    "memory.qmd.sessions.enabled": True,
    "memory.qmd.sessions.retentionDays": 30,
    "memory.qmd.textWeight": 0.3,
    "memory.qmd.update.debounceMs": 15000,
    "memory.qmd.update.embedInterval": "1h",
    "memory.qmd.update.embedTimeoutMs": 120000,
    "memory.qmd.update.interval": "5m",
    "memory.qmd.update.onBoot": True,
    "memory.qmd.update.watchDebounceMs": 1500,
    "memory.qmd.vectorWeight": 0.7,
    "memory.search.chunking.overlap": 128,
    "memory.search.chunking.tokens": 1024,
    "memory.search.embedding.gemini.dimensions": 768,
    "memory.search.embedding.gemini.model": "text-embedding-004",
    "memory.search.embedding.openai.dimensions": 1536,
    "memory.search.embedding.openai.model": "text-embedding-3-small",
    "memory.search.embedding.providers": ["openai", "gemini", "local"],
    "memory.search.limits.maxResults": 6,
    "memory.search.textWeight": 0.4,
    "memory.search.vectorWeight": 0.6,
    "plugins.slots.contextEngine": "legacy",
    "retention.agendaDays": 7,
    "retention.changesDays": 7,
    "retention.deletedDays": 30,
    "retention.transcriptDays": None,
    "session.reset.atHour": 4,
    "session.reset.mode": "daily",
    "tools.allow": [],
    "tools.ownerOnly": ["whatsapp_login"],
}


@pytest.mark.parametrize(("path", "value"), SPECIFIED.items(), ids=list(SPECIFIED))
def test_a_default_is_as_specified(path: str, value: Any) -> None:
    here: Any = public_dump(Config())
    for name in path.split("."):
        here = here[name]
    assert here == value


def test_memory_is_searched_from_direct_chats_alone_by_default() -> None:
    for scope in (Config().memory.search.scope, Config().memory.qmd.scope):
        (rule,) = scope.rules
        assert (scope.default, rule.action, rule.match.chat_type) == ("deny", "allow", "direct")


def test_a_thread_starts_with_a_hundred_messages_by_default() -> None:
    config = parse_config('{channels: {slack: {url: "https://x.example", replyToMode: "all"}}}')
    assert config.channels["slack"].thread.initial_history_limit == 100


EXAMPLES = {
    "agents and bindings": """{
      agents: { list: [
        { id: "home", workspace: "~/.openclaw/workspace-home", default: true },
        { id: "work", workspace: "~/.openclaw/workspace-work" }
      ] },
      bindings: [
        { agentId: "home", match: { channel: "telegram", peer: { kind: "dm", id: "12345" } } },
        { agentId: "work", match: { channel: "slack", teamId: "T123456" } }
      ] }""",
    "bindings by account and by kind": """{
      agents: { list: [{ id: "home" }, { id: "work" }] },
      bindings: [
        { agentId: "home", match: { channel: "whatsapp", accountId: "personal" } },
        { agentId: "work", match: { channel: "whatsapp", accountId: "business" } },
        { agentId: "work", match: { channel: "slack", teamId: "T12345" } },
        { agentId: "home", match: { channel: "discord", peer: { kind: "dm" } } }
      ] }""",
    "an agent in full": """{ agents: { list: [{
      id: "main", default: true, name: "Logic", workspace: "~/w", agentDir: "~/a",
      model: { primary: "anthropic/claude", fallbacks: ["openai/gpt"] },
      identity: { name: "Logic", emoji: "L", creature: "AI", vibe: "sharp", theme: "dark",
                  avatar: "./avatar.png" },
      subagents: { allowAgents: ["*"], model: "openai/small" },
      sandbox: { mode: "non-main", scope: "session", workspaceAccess: "ro" },
      tools: { profile: "coding", deny: ["group:web"] },
    }] } }""",
    "daily reset": '{ session: { reset: { "mode": "daily", "atHour": 4 } } }',
    "idle reset": '{ session: { reset: { "mode": "idle", "idleMinutes": 60 } } }',
    "reset by type": """{ session: { "resetByType": {
      "dm": { "mode": "idle", "idleMinutes": 240 },
      "group": { "mode": "idle", "idleMinutes": 120 } } } }""",
    "reset by channel": """{ session: { "resetByChannel": {
      "discord": { "mode": "idle", "idleMinutes": 10080 } } } }""",
    "pruning": """{ "contextPruning": {
      "mode": "cache-ttl", "ttl": "5m",
      "softTrim": { "maxChars": 4000, "headChars": 1500, "tailChars": 1500 },
      "hardClear": { "placeholder": "[Old tool result content cleared]" } } }""",
    "compaction": """{ "compaction": {
      "enabled": true, "reserveTokens": 16384, "keepRecentTokens": 20000 } }""",
    "memory flush": """{ "compaction": { "memoryFlush": {
      "enabled": true, "softThresholdTokens": 4000,
      "prompt": "Write lasting notes to memory/YYYY-MM-DD.md; reply NO_REPLY if nothing." } } }""",
    "qmd": """{ "memory": {
      "backend": "qmd", "citations": "auto",
      "qmd": {
        "command": "qmd", "includeDefaultMemory": true,
        "sessions": { "enabled": true, "retentionDays": 30 },
        "update": { "interval": "5m", "debounceMs": 15000, "onBoot": true,
                    "embedInterval": "60m" },
        "limits": { "maxResults": 6, "maxSnippetChars": 700, "maxInjectedChars": 4000,
                    "timeoutMs": 4000 },
        "scope": { "default": "deny",
                   "rules": [{ "action": "allow", "match": { "chatType": "direct" } }] } } } }""",
    "engine slot": """{ plugins: {
      slots: { contextEngine: "lossless-claw", },
      entries: { "lossless-claw": { enabled: true, }, }, }, }""",
    "tools": '{ "tools": { "profile": "coding", "alsoAllow": ["message"] } }',
    "allowlist": """{ agents: { list: [{ id: "main", tools: { exec: {
      "allowlist": ["npm test", "git status", "git diff *", "ls -la *", "cat *.md"] } } }] } }""",
    "continuation": "{ agents: { defaults: { continuation: { enabled: true } } } }",
    "announce timeout": "{ agents: { defaults: { subagents: { announceTimeoutMs: 60000 } } } }",
    "a model as a string": '{ agents: { defaults: { model: "openai/gpt" } } }',
}


@pytest.mark.parametrize("text", EXAMPLES.values(), ids=list(EXAMPLES))
def test_an_example_of_the_specification_loads_unchanged(text: str) -> None:
    assert isinstance(parse_config(text), Config)


@pytest.mark.parametrize("text", EXAMPLES.values(), ids=list(EXAMPLES))
def test_an_example_of_the_specification_holds_by_the_schema(text: str) -> None:
    jsonschema_rs.validate(config_schema(), parse_text(text))


def test_the_schema_refuses_an_unknown_key_and_a_wrong_type() -> None:
    check = jsonschema_rs.validator_for(config_schema())
    assert not check.is_valid({"agnets": {}})
    assert not check.is_valid({"gateway": {"port": "x"}})
    assert not check.is_valid({"compaction": {"enabled": 3}})


def test_the_reset_examples_mean_what_they_say() -> None:
    session = parse_config(EXAMPLES["reset by type"]).session
    assert session.reset_by_type.dm is not None
    assert session.reset_by_type.dm.idle_minutes == 240
    assert session.reset.mode == "daily"


def test_the_singular_spelling_of_subagents_is_read_too() -> None:
    config = parse_config("{agents: {defaults: {subagent: {announceTimeoutMs: 5}}}}")
    assert config.agents.defaults.subagents.announce_timeout_ms == 5
