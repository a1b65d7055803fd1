"""How long an elected turn waits, and how long a due one waits for a busy session."""

from __future__ import annotations

from typing import Final

from holdfast.config.autonomy import Continuation

FOLD_CHECK_MS: Final = 30_000
DISABLED_RECHECK_MS: Final = 15_000
STALE_RUNNING_MS: Final = 60_000


def work_delay(requested_ms: int | None, settings: Continuation) -> int:
    """The delay of an elected turn; none asked for is the default, kept within the bounds too."""
    return delegate_delay(settings.default_delay_ms if requested_ms is None else requested_ms, settings)


def delegate_delay(requested_ms: int | None, settings: Continuation) -> int:
    """The delay of a delegate; nothing or less is at once."""
    if requested_ms is None or requested_ms <= 0:
        return 0
    return max(settings.min_delay_ms, min(requested_ms, settings.max_delay_ms))


def hedge_at(now: int, settings: Continuation) -> int:
    """When an election is due whose turn never says how it ended."""
    return now + settings.max_delay_ms


def busy_until(now: int, skips: int, settings: Continuation, *, event: bool) -> int:
    """When a due turn is looked at again. An event that will come early needs only the ceiling as a hedge."""
    backoff = settings.busy_skip_backoff
    ceiling = backoff.ceiling_ms or settings.max_delay_ms
    if event:
        return now + ceiling
    try:
        grown = backoff.base_ms * backoff.factor**skips
    except OverflowError:
        return now + ceiling
    return now + int(min(grown, ceiling))


def seconds(ms: int) -> int | float:
    """Milliseconds as a model is told them."""
    return ms // 1000 if ms % 1000 == 0 else ms / 1000
