"""The board: its continuity block, search, classifier, digests and supervision."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from holdfast.config.section import Section, key, part
from holdfast.config.values import (
    Bytes,
    Count,
    Days,
    DurationMs,
    Flag,
    Hours,
    Int,
    Minutes,
    Ms,
    Names,
    Num,
    Positive,
    Seconds,
)


class BoardSearch(Section):
    """Searching the board."""

    concurrency: Positive = key(3, "Searches that run at once.", le=64)
    wait_ms: Ms = key(250, "How long one waits for a place; then `429 search_busy`.")
    include_tool_call_logs: Flag = key(False, "Whether traces of tool calls are found.")
    limit_topics: Int = key(24, "Topics returned.", ge=1, le=800)
    limit_tasks: Int = key(24, "Tasks returned.", ge=1, le=800)
    limit_logs: Int = key(100, "Log entries returned, unless a request says how many.", ge=10, le=5000)
    single_token_window_max_logs: Positive = key(360, "Entries looked at for a one-word query.")
    embedder: Literal["static", "best"] = key(
        "static", "Who embeds what is asked at every turn: the static model, or the best that there is."
    )
    embed_query_cache_size: Count = key(256, "Embedded questions kept, whoever asks them again.")


class Digests(Section):
    """Short digests of topics and tasks."""

    enabled: Flag = key(True, "Whether digests are written.")
    interval_minutes: Minutes = key(15, "Least time between two digests of one topic.", ge=1)
    per_cycle: Count = key(2, "Digests written in one cycle.", le=100)
    max_chars: Positive = key(1800, "Characters of one digest.")
    model: str | None = key(None, "Model that writes them; unset: the classifier's.")


class RoutingMemory(Section):
    """Which topics a session has lately been about."""

    max_items: Int = key(12, "Items per session.", ge=2, le=64)
    ttl_days: Days = key(90, "How long a session's items are kept.", ge=1)
    anchor_max_chars: Positive = key(800, "Characters kept of the text that led there.")
    gc_hours: Hours = key(6, "Time between clean-ups.", ge=1)


class Classifier(Section):
    """Sorting the log into topics and tasks."""

    enabled: Flag = key(True, "Whether the log is sorted.")
    use_model: Flag = key(True, "Whether a model looks over what rules sorted, and writes digests.")
    model: str | None = key(None, "Model that helps; unset: the agent's own.")
    model_calls_per_hour: Count = key(30, "Calls of a model in an hour, digests with them.", le=100_000)
    model_wait_seconds: Seconds = key(180, "How long after it was sorted a model looks it over.", ge=1)
    interval_seconds: Seconds = key(10, "Time between cycles.", ge=1)
    sessions_per_cycle: Positive = key(8, "Sessions looked at in one cycle.", le=1000)
    session_budget_seconds: Seconds = key(75, "Time for one session.", ge=1)
    max_attempts: Int = key(3, "Tries for one entry before it is marked failed.", ge=1, le=20)
    lookback: Positive = key(80, "Earlier entries looked at.", le=1000)
    window: Positive = key(24, "Entries of one bundle.", le=1000)
    summary_max_chars: Positive = key(56, "Characters of an entry's summary.")


class Audit(Section):
    """A record of retrievals and decisions, for debugging."""

    enabled: Flag = key(False, "Whether it is written.")
    max_bytes: Bytes = key(10 * 1024**2, "Size at which a file is rotated.", ge=1024)
    keep_files: Positive = key(5, "Rotated files kept.", le=1000)
    retention_days: Days = key(14, "Days kept.", ge=1)


class Supervision(Section):
    """Following up on delegated work."""

    ladder: tuple[DurationMs, ...] = key(
        ("1m", "3m", "10m", "15m", "30m", "1h"),
        "Times between follow-ups; the last repeats.",
        min_length=1,
        max_length=32,
        validate_default=True,
    )
    progress_after_minutes: Minutes = key(5, "Running work older than this is reported to the user.", ge=1)
    stall_seconds: Seconds = key(180, "Silence after which a run counts as stalled.", ge=1)
    nudge_seconds: Seconds = key(300, "Silence after which a run is nudged.", ge=1)
    recovery_lookback_hours: Hours = key(24, "How far back a restart looks for open runs.")

    @model_validator(mode="after")
    def _ladder_climbs(self) -> Self:
        if any(step <= 0 for step in self.ladder) or list(self.ladder) != sorted(self.ladder):
            raise ValueError("expected the times of the ladder to be above 0 and not to fall")
        return self


class Attachments(Section):
    """Files with messages."""

    max_files: Positive = key(8, "Files per upload.", le=100)
    max_bytes: Bytes = key(10 * 1024**2, "Size of one file.")


class Graph(Section):
    """The memory map."""

    max_entities: Positive = key(120, "Entities shown.", le=5000)
    max_nodes: Positive = key(260, "Nodes shown.", le=5000)
    min_edge_weight: Num = key(0.16, "Weaker links are left out.", ge=0)
    limit_logs: Positive = key(2400, "Entries looked at.", le=100_000)


class BoardConfig(Section):
    """The board."""

    enabled: Flag = key(True, "Whether the board takes part in turns.")
    integration_level: Literal["manual", "write", "full"] = key(
        "full", "`manual` nothing by itself, `write` logs only, `full` logs and context."
    )
    context_augment: Flag = key(True, "Whether the continuity block is put into the prompt.")
    context_max_chars: Int = key(2200, "Characters of the block.", ge=400, le=12000)
    context_mode: Literal["auto", "cheap", "full", "patient"] = key(
        "auto", "When recall is added to continuity."
    )
    context_fetch_timeout_ms: Ms = key(3000, "Time for building the block.", ge=1)
    context_topic_limit: Int = key(3, "Recalled topics.", ge=0, le=40)
    context_task_limit: Int = key(3, "Recalled tasks.", ge=0, le=40)
    context_log_limit: Int = key(6, "Recalled entries.", ge=0, le=100)
    include_pending: Flag = key(True, "Whether entries not yet sorted are used.")
    working_set_limit: Int = key(6, "Topics and tasks of the working set.", ge=0, le=40)
    timeline_limit: Int = key(6, "Lines of the session's timeline.", ge=0, le=40)
    auto_topic_by_session: Flag = key(False, "Whether each session gets a topic of its own.")
    ignore_session_prefixes: Names = key(
        ("internal:clawboard-classifier:",), "Sessions that are never logged to the board."
    )
    search: BoardSearch = part("Searching the board.")
    digests: Digests = part("Short digests.")
    routing_memory: RoutingMemory = part("What a session has been about.")
    classifier: Classifier = part("Sorting the log.")
    audit: Audit = part("A record for debugging.")
    supervision: Supervision = part("Following up on delegated work.")
    attachments: Attachments = part("Files with messages.")
    graph: Graph = part("The memory map.")
