"""How much of the window each part may have, how full it is, and what follows from it.

On a large window the configured limits hold (60,000 characters of files, 16,384 tokens of reserve, 20,000 of
recent history); on a small one each part has a share, so that there is always room for history, the user's
words and an answer. What is worth keeping is written into a file before a compaction makes it hard to see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from holdfast.clock import Millis
from holdfast.config import Compaction
from holdfast.context.workspace import daily_path
from holdfast.log import Session, Tx, sessions

CHARS_PER_TOKEN: Final = 3
"""Careful for prose, so that what is cut by characters keeps within its tokens."""

TOOLS: Final = 0.14
SKILLS: Final = 0.06
FILES: Final = 0.30
DAILY: Final = 0.06
RECALL: Final = 0.08
RESULT: Final = 0.20
LEAST_TOOLS: Final = 256
"""A model that has less room for tools than this is only talked with."""

ALL_TOOLS_WINDOW: Final = 64_000
_BRIEF_TOOLS: Final = 2_000
_LARGEST_ANSWER: Final = 1_024
_FLUSH_OUTPUT: Final = 2_048


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """Tokens that each part of a prompt may take in one window, unless the config allows less.

    `reserve` is kept free for the reply, and `prompt` is all the rest: above it history is compacted, and at
    `flush_line` lasting notes are written before. `history` is what is left to instructions, history and the
    user's words where every other part is full. `answer` is the least that a reply needs: a prompt that does
    not leave it is not sent. `flush_output` bounds what an unseen flush may write.
    """

    window: int
    reserve: int
    prompt: int
    tools: int
    skills: int
    files: int
    daily: int
    recall: int
    history: int
    keep_recent: int
    flush_line: int
    flush_output: int
    answer: int
    result: int

    @classmethod
    def for_window(cls, window: int, settings: Compaction) -> Budgets:
        reserve = min(settings.reserve_tokens, int(window * settings.max_reserve_share))
        prompt = max(1, window - reserve)
        tools = int(prompt * TOOLS)
        shares = {
            "tools": tools if tools >= LEAST_TOOLS else 0,
            "skills": int(prompt * SKILLS),
            "files": int(prompt * FILES),
            "daily": int(prompt * DAILY),
            "recall": int(prompt * RECALL),
        }
        return cls(
            window=window,
            reserve=reserve,
            prompt=prompt,
            history=prompt - sum(shares.values()),
            keep_recent=min(settings.keep_recent_tokens, prompt // 4),
            flush_line=prompt - min(settings.memory_flush.soft_threshold_tokens, prompt // 4),
            flush_output=min(_FLUSH_OUTPUT, window // 8),
            answer=min(_LARGEST_ANSWER, window // 16),
            result=int(prompt * RESULT),
            **shares,
        )

    @property
    def brief_tools(self) -> bool:
        """Whether tools are described in few words."""
        return self.tools < _BRIEF_TOOLS

    @property
    def may_list_all_tools(self) -> bool:
        return self.window >= ALL_TOOLS_WINDOW


def chars(tokens: int) -> int:
    """The characters that surely stay within so many tokens of prose."""
    return tokens * CHARS_PER_TOKEN


Band = Literal["calm", "busy", "high", "full"]


@dataclass(frozen=True, slots=True)
class Pressure:
    """How much of a window is in use. What is kept in `reserve` for the reply is no room: above it history is
    compacted, so that the share of what is left runs from nothing to all on every window."""

    used: int
    window: int
    reserve: int = 0

    @property
    def room(self) -> int:
        return max(1, self.window - self.reserve)

    @property
    def share(self) -> float:
        return self.used / self.room if self.window else 1.0

    @property
    def band(self) -> Band:
        if self.share < 0.5:
            return "calm"
        if self.share < 0.75:
            return "busy"
        return "high" if self.share < 0.9 else "full"

    def __str__(self) -> str:
        return f"{self.used:,} of {self.room:,} tokens in use ({self.share:.0%}, {self.band})"


def how_full(settings: Compaction, window: int, *, counted: int | None = None, estimate: int = 0) -> Pressure:
    """What everyone says of a window: what the provider counted in its last call, read and written, or our
    estimate where it did not say."""
    return Pressure(counted or estimate, window, Budgets.for_window(window, settings).reserve)


def needs_compaction(settings: Compaction, *, used: int, window: int) -> bool:
    return settings.enabled and used > Budgets.for_window(window, settings).prompt


NO_REPLY: Final = "NO_REPLY"
HEARTBEAT_OK: Final = "HEARTBEAT_OK"
SILENT_WORDS: Final = (HEARTBEAT_OK, NO_REPLY)


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """The turn to run: what the agent is told, and the file that it is about."""

    prompt: str
    system_prompt: str | None
    path: str


def flush_due(
    session: Session, settings: Compaction, *, used: int, window: int, transcript_bytes: int = 0
) -> bool:
    """Whether the session is near its compaction line and has not been flushed in this cycle."""
    if session.memory_flush_compaction_count == session.compaction_count:
        return False
    return is_near(settings, used=used, window=window, transcript_bytes=transcript_bytes)


def is_near(settings: Compaction, *, used: int, window: int, transcript_bytes: int = 0) -> bool:
    """Whether a session with so much in it is near its compaction line, flushed already or not. A model that
    has no room for tools has nothing to write notes with."""
    flush = settings.memory_flush
    if not (settings.enabled and flush.enabled):
        return False
    budgets = Budgets.for_window(window, settings)
    if not budgets.tools:
        return False
    forced = flush.force_bytes and transcript_bytes >= flush.force_bytes
    return used >= budgets.flush_line or bool(forced)


def flush_plan(settings: Compaction, now: Millis, zone: str) -> FlushPlan:
    """The flush turn of today; the file is named by the user's own date."""
    flush = settings.memory_flush
    path = daily_path(now, zone)
    prompt = flush.prompt.replace("memory/YYYY-MM-DD.md", path)
    if NO_REPLY not in prompt:
        prompt += f" Reply {NO_REPLY} if there is nothing to write."
    return FlushPlan(prompt, flush.system_prompt, path)


def mark_flushed(tx: Tx, session: Session) -> Session:
    """Note that this compaction cycle had its flush; whatever came of it, it is not tried again."""
    return sessions.update(
        tx, session, memory_flush_at=tx.now, memory_flush_compaction_count=session.compaction_count
    )


def is_silent(reply: str) -> bool:
    """Whether a reply is not for the user: it begins or ends with the word alone on its side."""
    words = reply.strip().strip("`*_.\"' \n").split()
    return not words or NO_REPLY in (words[0].strip("`*_.\"':,"), words[-1].strip("`*_.\"':,"))
