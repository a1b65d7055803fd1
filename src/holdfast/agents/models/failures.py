"""What went wrong with a call, in our words, and what is tried next after it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from holdfast.agents.models.types import FailureReason, ModelFailure, ModelRef
from holdfast.config.values import MASK
from holdfast.text import clip

if TYPE_CHECKING:
    from pydantic_ai.exceptions import ModelAPIError


_TOLD: Final = 400
_KEPT: Final = 4_000
_OVERFLOW: Final = re.compile(
    r"context[_ ](?:length|window|size|limit)|context the overflows|(?:prompt|input) is too long"
    r"|input token count|number of (?:input )?tokens|too many tokens|request_too_large"
    r"|reduce the length of the (?:messages|prompt)",
    re.IGNORECASE,
)
_BILLING: Final = re.compile(
    r"credit balance|insufficient[_ ](?:quota|credits?|balance|funds)|exceeded your current quota"
    r"|billing|payment required|out of credits",
    re.IGNORECASE,
)
_HINTS: Final[dict[FailureReason, str]] = {
    "auth": "Check the credential: `holdfast doctor` shows which one is used.",
    "billing": "Add credit to the account, or set another model or credential.",
    "rate_limit": "Wait, or add a fallback model or a second credential.",
    "overloaded": "The provider has trouble; try again, or add a fallback model.",
    "timeout": "Try again, or raise the provider's timeoutSeconds.",
    "network": "Check that the provider's address can be reached.",
    "not_found": "Check the model's name; `holdfast doctor` lists what was found.",
    "context_overflow": "Compact the session, or use a model with a larger window.",
}


def failure(
    reason: FailureReason, text: str, ref: ModelRef, *, retry_after_ms: int | None = None, partial: str = ""
) -> ModelFailure:
    return ModelFailure(
        f"{ref}: {clip(text, _TOLD)}",
        reason,
        hint=_HINTS.get(reason, ""),
        retry_after_ms=retry_after_ms,
        partial=partial,
        ref=ref,
        detail=clip(text, _KEPT),
    )


def translated(
    error: Exception, ref: ModelRef, *, started: bool, partial: str, secret: str = ""
) -> ModelFailure | None:
    """An error of the client library as ours; None for one that is a fault of this program. A server that
    repeats the credential in its complaint does not get it into the message."""
    from pydantic_ai import exceptions as theirs

    match error:
        case theirs.ModelAPIError():
            reason = _api_reason(error, started)
            wait = None if error.retry_after is None else max(0, round(error.retry_after * 1000))
            told = _told(error).replace(secret, MASK) if secret else _told(error)
            return failure(reason, told, ref, retry_after_ms=wait, partial=partial)
        case theirs.ContentFilterError():
            return failure("refused", str(error), ref, partial=partial)
        case theirs.UnexpectedModelBehavior():
            return failure("bad_response", error.message, ref, partial=partial)
        case theirs.UserError():
            return failure("bad_request", str(error), ref, partial=partial)
        case UnicodeEncodeError():
            return failure("bad_request", f"the request cannot be written: {error.reason}", ref)
        case ValueError():
            return failure("bad_response", f"the answer cannot be read: {error}", ref, partial=partial)
        case OSError():
            return failure("cut_off" if started else "network", str(error), ref, partial=partial)
        case _ if _is_transport(error):
            return failure("cut_off" if started else "network", str(error), ref, partial=partial)
        case _:
            return None


def _api_reason(error: ModelAPIError, started: bool) -> FailureReason:
    from pydantic_ai import exceptions as theirs

    words = _words(error)
    status = error.status_code if isinstance(error, theirs.ModelHTTPError) else None
    by_kind: tuple[tuple[type[Exception], FailureReason], ...] = (
        (theirs.ModelContextWindowExceededError, "context_overflow"),
        (theirs.ModelQuotaExceededError, "billing"),
        (theirs.ModelRateLimitError, "rate_limit"),
        (theirs.ModelUnavailableError, "overloaded"),
        (theirs.ModelServerError, "overloaded"),
        (theirs.ModelTimeoutError, "timeout"),
        (theirs.ModelConnectionError, "cut_off" if started else "network"),
        (theirs.ModelAuthenticationError, "auth"),
        (theirs.ModelNotFoundError, "not_found"),
        (theirs.ModelRequestRejectedError, "bad_request"),
    )
    found: FailureReason = next(
        (reason for kind, reason in by_kind if isinstance(error, kind)), "bad_response"
    )
    if (found == "bad_request" or status in (413, 500)) and _OVERFLOW.search(words):
        return "context_overflow"
    if found in ("bad_request", "auth", "rate_limit") and _BILLING.search(words):
        return "billing"
    if status == 408:
        return "timeout"
    return "bad_request" if found == "bad_response" and status is not None and status < 500 else found


def _words(error: ModelAPIError) -> str:
    return f"{error.provider_error_code or ''} {error.provider_error_type or ''} {error.message} {error.body}"


def _told(error: ModelAPIError) -> str:
    """What the provider said, without the library's frame around it."""
    body: Any = error.body
    for _ in range(2):
        if isinstance(body, dict) and isinstance(body.get("error"), dict | str):
            body = body["error"]
    if isinstance(body, dict) and isinstance(body.get("message"), str):
        body = body["message"]
    status = getattr(error, "status_code", None)
    said = body if isinstance(body, str) and body.strip() else error.message
    return f"{status} {said}" if status is not None and status > 0 else said


def _is_transport(error: Exception) -> bool:
    """Errors of the HTTP layer that a client let through, known by their package."""
    return type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2", "h11")


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
