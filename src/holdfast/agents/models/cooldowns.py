"""How long a credential rests after it failed. Pure: the state is a value, the time is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.agents.models.types import FailureReason
from holdfast.config.models import Cooldowns

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
RESTING: Final[frozenset[FailureReason]] = frozenset(("auth", "billing", "rate_limit"))


@dataclass(frozen=True, slots=True)
class Rest:
    """A credential's failures since its last success. Billing is counted apart: it lasts longer."""

    failures: int = 0
    billing: int = 0
    last_at: int = 0
    until: int = 0
    reason: FailureReason | None = None

    def resting(self, now: int) -> bool:
        return now < self.until


FRESH: Final = Rest()


def after_failure(
    rest: Rest, reason: FailureReason, now: int, rules: Cooldowns, retry_after_ms: int | None = None
) -> Rest:
    """The state after one more failure. A rest never ends earlier than one that was already given, nor
    than the provider asked for; failures older than the window do not count."""
    if now - rest.last_at >= rules.failure_window_hours * HOUR_MS:
        rest = Rest(until=rest.until)
    billing = rest.billing + (reason == "billing")
    failures = rest.failures + (reason != "billing")
    length = (
        _grown(rules.billing_backoff_hours * HOUR_MS, 2.0, billing, rules.billing_max_hours * HOUR_MS)
        if reason == "billing"
        else _grown(rules.base_minutes * MINUTE_MS, rules.factor, failures, rules.max_minutes * MINUTE_MS)
    )
    return Rest(failures, billing, now, max(rest.until, now + max(length, retry_after_ms or 0)), reason)


def _grown(first: int, factor: float, count: int, most: int) -> int:
    """`first` times `factor` for every failure after the first, at most `most`."""
    length = float(first)
    for _ in range(count - 1):
        if length >= most:
            break
        length *= factor
    return int(min(length, most))
