"""How a window is shared out, from 2k to 1M tokens: one pure function over plain values.

On a large window the configured limits hold (60,000 characters of files, 16,384 tokens of reserve, 20,000 of
recent history); on a small one each part has a share, so that there is always room for history, the user's
words and an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.config import Compaction

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
