"""Agents and their defaults: who they are, how their context is built, and what they may do unasked."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import GetJsonSchemaHandler, field_validator, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from holdfast.config.memory import MemoryConfig
from holdfast.config.section import Section, key, part, table
from holdfast.config.tools import ToolsConfig
from holdfast.config.values import (
    Bytes,
    Count,
    DurationMinutes,
    Flag,
    Id,
    Int,
    Minutes,
    Ms,
    Names,
    Num,
    Positive,
    Ratio,
    Seconds,
    Secret,
    TimeOfDay,
    Zone,
)

FLUSH_PROMPT = "Write lasting notes to memory/YYYY-MM-DD.md; reply NO_REPLY if nothing."


class MemoryFlush(Section):
    """A silent turn that writes lasting notes before a compaction."""

    enabled: Flag = key(True, "Whether the flush runs, once per compaction cycle.")
    soft_threshold_tokens: Count = key(4000, "How far below the compaction line it runs.")
    prompt: str = key(FLUSH_PROMPT, "What the agent is told.")
    system_prompt: str | None = key(None, "Added to the system prompt of that turn.")
    force_bytes: Bytes = key(2 * 1024**2, "Run it at this transcript size whatever the tokens; 0: off.")


class QualityGuard(Section):
    """Checks a summary before it replaces history."""

    enabled: Flag = key(True, "Whether summaries are checked.")
    max_retries: Int = key(1, "How often a failing summary is asked for again.", ge=0, le=5)


class Compaction(Section):
    """Summarising older history when the window fills."""

    enabled: Flag = key(True, "Whether compaction runs by itself.")
    reserve_tokens: Count = key(16384, "Tokens kept free for the reply; compaction starts above them.")
    max_reserve_share: Ratio = key(0.25, "The reserve is never more than this share of the window.")
    keep_recent_tokens: Count = key(20000, "Recent tokens that are kept as they are.")
    recent_turns_preserve: Int = key(3, "Recent turns that are kept as they are.", ge=0, le=50)
    mode: Literal["default", "safeguard"] = key(
        "safeguard", "`safeguard` summarises in parts and keeps history if the summary fails."
    )
    model: str | None = key(None, "Model for summaries; unset: the agent's own.")
    timeout_seconds: Seconds = key(180, "Limit for one summary request.", ge=1)
    identifier_policy: Literal["strict", "off"] = key(
        "strict", "Whether exact identifiers must survive in the summary."
    )
    quality_guard: QualityGuard = part("Checks before a summary is accepted.")
    memory_flush: MemoryFlush = part("Lasting notes before compaction.")


class SoftTrim(Section):
    """Keeps the head and the tail of a long old tool result."""

    max_chars: Positive = key(4000, "Longer results are trimmed.")
    head_chars: Count = key(1500, "Characters kept from the start.")
    tail_chars: Count = key(1500, "Characters kept from the end.")

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.head_chars + self.tail_chars > self.max_chars:
            raise ValueError("expected headChars + tailChars to be at most maxChars")
        return self


class HardClear(Section):
    """Replaces an old tool result altogether."""

    enabled: Flag = key(True, "Whether results may be cleared.")
    placeholder: str = key("[Old tool result content cleared]", "What stands in their place.")


class PruningTools(Section):
    """Which tools' results may be pruned."""

    allow: Names = key((), "Only these; empty: all.")
    deny: Names = key((), "Never these.")


class ContextPruning(Section):
    """Trimming old tool results in the request only; the log keeps them whole."""

    mode: Literal["off", "cache-ttl"] = key(
        "cache-ttl", "`cache-ttl` prunes when the provider's prompt cache has gone cold."
    )
    ttl: DurationMinutes = key(
        "5m", "Age of the prompt cache; bare numbers are minutes.", validate_default=True
    )
    keep_last_assistants: Int = key(3, "Recent assistant messages left alone.", ge=0, le=100)
    soft_trim_ratio: Ratio = key(0.3, "Share of the window in use at which trimming starts.")
    hard_clear_ratio: Ratio = key(0.5, "Share of the window in use at which clearing starts.")
    min_prunable_tool_chars: Count = key(50000, "Clear only when there is so much to clear.")
    soft_trim: SoftTrim = part("Head and tail of long results.")
    hard_clear: HardClear = part("Clearing results.")
    tools: PruningTools = part("Which tools' results may be pruned.")


class ActiveHours(Section):
    """The hours within which heartbeats run; an end before the start runs over midnight."""

    start: TimeOfDay | None = key(None, "First minute, as HH:MM.")
    end: TimeOfDay | None = key(None, "Minute at which they stop, as HH:MM; 24:00 is midnight.")
    timezone: Zone = key("user", "`user`, `local` or an IANA name.")

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if self.start is not None and self.start == self.end:
            raise ValueError("expected start and end to differ")
        return self


class Heartbeat(Section):
    """A periodic turn in which the agent looks after things."""

    enabled: Flag = key(True, "Whether the heartbeat runs.")
    every: DurationMinutes = key(
        "30m", "Time between heartbeats; bare numbers are minutes, 0 is off.", validate_default=True
    )
    prompt: str | None = key(None, "What the agent is told; unset: follow HEARTBEAT.md.")
    target: str = key("last", "Where reports go: `last`, `none` or a channel id.", min_length=1)
    model: str | None = key(None, "Model for these turns; unset: the agent's own.")
    ack_max_chars: Count = key(30, "An acknowledgement with no more text than this is not delivered.")
    active_hours: ActiveHours | None = key(None, "When heartbeats run; unset: always.")
    session: str = key("main", "Session in which they run.", min_length=1)
    timeout_seconds: Seconds = key(600, "Limit for one heartbeat turn.", ge=1)
    light_context: Flag = key(False, "Give the turn HEARTBEAT.md alone instead of all files.")
    max_tokens_per_day: Count = key(0, "Tokens of one day's heartbeats, after which they pause; 0: no cap.")
    max_cost_per_day: Num = key(0.0, "The same in dollars, as far as prices are known; 0: no cap.", ge=0)


class BusySkipBackoff(Section):
    """How a due turn waits for a busy session."""

    base_ms: Ms = key(1000, "First wait.", ge=1)
    factor: Num = key(2.0, "Growth of the wait, above 1.", gt=1, le=100)
    ceiling_ms: Ms | None = key(None, "Longest wait; unset: `maxDelayMs`.", ge=1)


class Continuation(Section):
    """Turns that an agent elects for itself; read at the moment of use."""

    enabled: Flag = key(False, "Whether agents may elect turns, delegates and compactions.")
    default_delay_ms: Ms = key(15000, "Delay when the agent names none; kept within the two below.")
    min_delay_ms: Ms = key(5000, "Shortest delay other than none.")
    max_delay_ms: Ms = key(300000, "Longest delay.", ge=1)
    max_chain_length: Positive = key(
        10, "Elected turns and delegates in one chain, over all sessions that it reaches.", le=10000
    )
    cost_cap_tokens: Count = key(500000, "Tokens in one chain, after which nothing is elected; 0: no cap.")
    cost_cap_dollars: Num = key(0.0, "The same in dollars, as far as prices are known; 0: no cap.", ge=0)
    max_chain_minutes: Minutes = key(10080, "How long after it began a chain may elect more; 0: without end.")
    max_delegates_per_turn: Positive = key(5, "Delegates from one turn.", le=1000)
    max_pending_work: Positive = key(32, "Elected turns that may wait per session.", le=10000)
    cross_session_targeting: Literal["disabled", "enabled"] = key(
        "disabled", "Whether a delegate's return may go to other sessions."
    )
    context_pressure_threshold: Num | None = key(
        0.8, "Share of the window at which the agent is warned; null: never.", gt=0, le=1
    )
    early_warning_band: Ratio = key(0.3125, "Earlier warning, as a share of the threshold; 0: off.")
    busy_skip_backoff: BusySkipBackoff = part("Waiting for a busy session.")
    orphan_reap_stale_cutoff_ms: Ms | None = key(
        None, "When an unended parent run counts as dead; unset: 2 hours."
    )
    compaction_floor: Ratio = key(0.7, "Share of the window below which a requested compaction is refused.")
    compaction_cooldown_minutes: Minutes = key(5, "Time between two requested compactions.")

    @model_validator(mode="after")
    def _delays_in_order(self) -> Self:
        if self.min_delay_ms > self.max_delay_ms:
            raise ValueError("expected minDelayMs to be at most maxDelayMs")
        return self


SubagentFile = Literal["AGENTS.md", "TOOLS.md", "SOUL.md", "IDENTITY.md", "USER.md"]


class Subagents(Section):
    """Sessions that another session spawned."""

    max_concurrent: Positive = key(8, "Subagents that run at once.", le=1000)
    max_spawn_depth: Int = key(1, "How deep spawning may nest; 1: subagents spawn none.", ge=0, le=5)
    max_children_per_agent: Int = key(5, "Live children of one session.", ge=1, le=100)
    max_per_chain: Positive = key(
        100, "Subagents and messages to other sessions that may follow from one message.", le=10000
    )
    archive_after_minutes: Minutes = key(60, "Archive a finished subagent's session after; 0: never.")
    announce_timeout_ms: Ms = key(120000, "Limit for delivering a result to the parent.", ge=1)
    run_timeout_seconds: Seconds = key(0, "Limit for one run; 0: none.")
    allow_agents: Names = key((), 'Agents that may be spawned besides itself; "*" for any.')
    model: str | None = key(None, "Model for subagents; unset: the parent's.")
    thinking: str | None = key(None, "Thinking level for subagents; unset: the parent's.")
    cleanup: Literal["keep", "delete"] = key("keep", "What becomes of a finished session.")
    bootstrap_files: tuple[SubagentFile, ...] = key(
        ("AGENTS.md", "TOOLS.md"), "Workspace files in a subagent's prompt."
    )


Thinking = Literal["off", "minimal", "low", "medium", "high", "xhigh"]


class ModelChoice(Section):
    """A model and what to try when it fails; a plain string is the primary."""

    primary: str | None = key(
        None, "`provider/model`; unset: the first that is found, else the built-in recall model."
    )
    fallbacks: Names = key((), "Tried in order when the primary fails.")

    @model_validator(mode="before")
    @classmethod
    def _string_is_primary(cls, data: Any) -> Any:
        return {"primary": data} if isinstance(data, str) else data

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        full = handler.resolve_ref_schema(handler(schema))
        return {"anyOf": [{"type": "string"}, full]}


class Identity(Section):
    """How the agent presents itself, before what its IDENTITY.md says."""

    name: str | None = key(None, "Display name.")
    emoji: str | None = key(None, "An emoji.")
    creature: str | None = key(None, "What it is.")
    vibe: str | None = key(None, "How it comes across.")
    theme: str | None = key(None, "Colour theme.")
    avatar: str | None = key(None, "Picture, as a path or an address.")


class DockerSandbox(Section):
    """The container of a sandboxed tool, where Docker is the backend."""

    image: str = key("debian:stable-slim", "Image to run.", min_length=1)
    network: str = key("none", "Docker network.", min_length=1)
    memory: str | None = key(None, "Memory limit in Docker's form.")
    cpus: Num | None = key(None, "Processor limit.", gt=0)
    env: dict[str, Secret] = table({}, "Environment of the container.")


class Sandbox(Section):
    """Where tools run."""

    mode: Literal["off", "non-main", "all"] = key("off", "Which sessions are sandboxed.")
    scope: Literal["session", "agent", "shared"] = key("agent", "What shares one sandbox.")
    workspace_access: Literal["none", "ro", "rw"] = key("none", "Access to the workspace.")
    backend: Literal["auto", "bubblewrap", "docker"] = key("auto", "What makes the sandbox.")
    network: Flag = key(False, "Whether a bubblewrap sandbox reaches the network.")
    docker: DockerSandbox = part("The container.")


class AgentSettings(Section):
    """What can be set for all agents and for each."""

    model: ModelChoice = part("Model and fallbacks; a string is the model.")
    workspace: str | None = key(
        None, "Workspace folder; unset: `workspace`, or `workspace-<id>` for a further agent."
    )
    thinking_default: Thinking | None = key(None, "Thinking level; unset: the model's own.")
    context_tokens: Positive | None = key(None, "Cap on the context window; unset: the model's.")
    timeout_seconds: Seconds = key(172800, "Limit for one turn.", ge=1)
    max_tool_rounds: Positive = key(100, "Rounds of tool calls in one turn.", le=10000)
    bootstrap_max_chars: Count = key(
        12000,
        "Characters per workspace file (12 KB, read as 12,000); the rest is cut with a marker.",
    )
    bootstrap_total_max_chars: Count = key(60000, "Characters of all workspace files together.")
    skip_bootstrap: Flag = key(False, "Do not write template files into a new workspace.")
    user_timezone: Zone = key("local", "The user's zone: `local` or an IANA name.")
    skills: Names | None = key(None, "Only these skills; unset: all that are eligible.")
    sandbox: Sandbox = part("Where tools run.")
    subagents: Subagents = part("Sessions that this agent spawns.")
    compaction: Compaction = part("Summarising older history.")
    context_pruning: ContextPruning = part("Trimming old tool results.")
    heartbeat: Heartbeat = part("A periodic turn.")
    continuation: Continuation = part("Turns that the agent elects.")

    @field_validator("user_timezone")
    @classmethod
    def _zone_is_real(cls, value: str) -> str:
        if value == "user":
            raise ValueError('expected "local" or a zone such as "Europe/Rome"')
        return value

    @model_validator(mode="before")
    @classmethod
    def _subagent_is_subagents(cls, data: Any) -> Any:
        if isinstance(data, dict) and "subagent" in data and "subagents" not in data:
            return {("subagents" if name == "subagent" else name): v for name, v in data.items()}
        return data


class AgentDefaults(AgentSettings):
    """Settings of every agent that does not have its own."""

    max_concurrent: Positive = key(
        4, "Turns that run at once over all sessions; those that wait do not count.", le=1000
    )


class AgentEntry(AgentSettings):
    """One agent; whatever it leaves out comes from `agents.defaults`."""

    id: Id = key(..., "Its id, in session keys and folders.")
    default: Flag = key(False, "Whether it answers what no binding claims.")
    name: str | None = key(None, "Display name.")
    agent_dir: str | None = key(None, "State folder; unset: `agents/<id>/agent`.")
    identity: Identity = part("How it presents itself.")
    tools: ToolsConfig | None = key(None, "Its own layer of tool policy, over `tools`.")
    memory: MemoryConfig | None = key(None, "Its own memory settings, over `memory`.")


class AgentsConfig(Section):
    """The agents."""

    defaults: AgentDefaults = part("Settings of every agent.")
    list: tuple[AgentEntry, ...] = key((), "The agents; empty: one, `main`.")
