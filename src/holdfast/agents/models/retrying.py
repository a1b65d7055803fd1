"""What is tried next after a failure. Pure decisions; the room does them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from holdfast.agents.models.types import FailureReason, ModelFailure, ModelRef

Next = Literal["raise", "again", "credential", "model"]

FIRST_MS: Final = 500
LONGEST_MS: Final = 30_000
RETRIES: Final[dict[FailureReason, int]] = {
    "rate_limit": 2,
    "overloaded": 2,
    "network": 2,
    "cut_off": 1,
    "timeout": 1,
    "bad_response": 1,
}
_OF_THE_REQUEST: Final[frozenset[FailureReason]] = frozenset(("context_overflow", "bad_request"))
_OF_THE_CREDENTIAL: Final[frozenset[FailureReason]] = frozenset(("auth", "billing", "rate_limit"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One call that was made or could not be: with which credential (its name), how it went, and why.

    `partial` are the words that came before it broke.
    """

    ref: ModelRef
    credential: str | None
    reason: FailureReason | None
    message: str = ""
    partial: str = ""
    at: int = 0
    took_ms: int = 0
    waited_ms: int = 0

    def __str__(self) -> str:
        by = f" with {self.credential}" if self.credential else ""
        return f"{self.ref}{by}: {self.reason or 'answered'}"


def after(failed: ModelFailure, tries: int, others: int) -> Next:
    """What follows the `tries`th failure of one credential, while `others` credentials are left.

    A fault of the request is the caller's to mend; a fault of the credential moves on to the next at once;
    trouble on the way is tried again a few times, unless the provider asks for more time than we wait.
    """
    if failed.reason in _OF_THE_REQUEST:
        return "raise"
    if failed.reason in _OF_THE_CREDENTIAL and others:
        return "credential"
    patient = failed.retry_after_ms is None or failed.retry_after_ms <= LONGEST_MS
    return "again" if patient and tries <= RETRIES.get(failed.reason, 0) else "model"


def pause_ms(failed: ModelFailure, tries: int, spread: float) -> int:
    """How long to wait before the next try: as the provider asks, else doubling; `spread` (0 to 1) keeps
    many sessions from coming back at the same moment."""
    if failed.retry_after_ms is not None:
        return min(failed.retry_after_ms, LONGEST_MS)
    grown = min(LONGEST_MS, FIRST_MS * 2 ** min(tries - 1, 16))
    return int(grown * (0.75 + 0.5 * spread))
