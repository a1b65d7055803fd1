"""What an agent does without being asked: heartbeat, continuation, subagents."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from holdfast.config.section import Section, key, part
from holdfast.config.values import (
    Count,
    DurationMinutes,
    Flag,
    Int,
    Minutes,
    Ms,
    Names,
    Num,
    Positive,
    Ratio,
    Seconds,
    TimeOfDay,
    Zone,
)


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
