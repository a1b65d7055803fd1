"""What is kept, trimmed and summarised on the way to the model."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from holdfast.config.section import Section, key, part
from holdfast.config.values import (
    Bytes,
    Count,
    DurationMinutes,
    Flag,
    Int,
    Names,
    Positive,
    Ratio,
    Seconds,
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
