"""How full the window is, and what follows from it: pure facts for the carrier, hooks and decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.config import Compaction
from holdfast.context.budget import Budgets

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
