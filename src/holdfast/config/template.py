"""The config file that `holdfast init` writes: all defaults, with the common settings to uncomment."""

from __future__ import annotations

_TEXT = """\
/* Holdfast's settings, in JSON5. Every line that starts with // shows a default or an example;
   take the slashes away to change it. All keys: docs/configuration.md. The file is read again
   whenever it changes. */
{
  /* Models. A secret may be "${NAME}", taken from the environment where it is used. */
  // models: {
  //   providers: {
  //     openai: { api: "openai-responses", apiKey: "${OPENAI_API_KEY}" },
  //     anthropic: { api: "anthropic-messages", apiKey: "${ANTHROPIC_API_KEY}" },
  //     ollama: { api: "ollama", baseUrl: "http://127.0.0.1:11434" },
  //   },
  // },

  /* Agents. What is set in defaults holds for all; each may have its own. */
  // agents: {
  //   defaults: {
  //     model: { primary: "openai/gpt-5", fallbacks: ["ollama/qwen3"] },
  //     userTimezone: "local",
  //     heartbeat: { enabled: true, every: "30m", target: "last" },
  //     compaction: { enabled: true, reserveTokens: 16384, keepRecentTokens: 20000 },
  //     contextPruning: { mode: "cache-ttl", ttl: "5m" },
  //     continuation: { enabled: false, maxChainLength: 10, costCapTokens: 500000 },
  //     sandbox: { mode: "off", workspaceAccess: "none" },
  //   },
  //   list: [
  //     { id: "main", default: true },
  //     { id: "work", tools: { profile: "coding", alsoAllow: ["message"] } },
  //   ],
  // },

  /* Which agent a message goes to: peer, server, team, account, channel, else the default. */
  // bindings: [
  //   { agentId: "work", match: { channel: "slack", teamId: "T12345" } },
  // ],

  /* When a session starts afresh. */
  // session: { reset: { mode: "daily", atHour: 4 }, dmScope: "per-channel-peer" },

  /* Memory: the built-in index, or the qmd program. */
  // memory: { backend: "builtin", citations: "auto" },

  /* What agents may do. */
  // tools: { profile: "full", exec: { security: "allowlist", ask: "on-miss" } },

  /* Where people see messages. */
  // channels: {
  //   pier: { url: "https://pier.example/messages", signingSecret: "${PIER_SECRET}" },
  // },

  /* Which engine builds contexts: "legacy" or "lossless". */
  // plugins: { slots: { contextEngine: "legacy" } },

  /* Where the gateway listens, and where the log is kept. */
  // gateway: { host: "127.0.0.1", port: 8787 },
  // store: { url: "postgresql+psycopg://holdfast@localhost/holdfast" },
}
"""


def default_config_text() -> str:
    """A commented JSON5 file that loads as all defaults."""
    return _TEXT
