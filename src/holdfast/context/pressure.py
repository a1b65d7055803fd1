"""How full the window is, and what follows from it: pure facts for the carrier, hooks and decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.config import Compaction

Band = Literal["calm", "busy", "high", "full"]


@dataclass(frozen=True, slots=True)
class Pressure:
    used: int
    window: int

    @property
    def share(self) -> float:
        return self.used / self.window if self.window else 1.0

    @property
    def band(self) -> Band:
        if self.share < 0.5:
            return "calm"
        if self.share < 0.75:
            return "busy"
        return "high" if self.share < 0.9 else "full"

    def __str__(self) -> str:
        return f"{self.used:,} of {self.window:,} tokens in use ({self.share:.0%}, {self.band})"


def reserve(settings: Compaction, window: int) -> int:
    """Tokens kept free for the reply; never more than a share of a small window."""
    return min(settings.reserve_tokens, int(window * settings.max_reserve_share))


def prompt_budget(settings: Compaction, window: int) -> int:
    return max(1, window - reserve(settings, window))


def needs_compaction(settings: Compaction, *, used: int, window: int) -> bool:
    return settings.enabled and used > window - reserve(settings, window)
