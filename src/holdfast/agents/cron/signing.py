"""Whether a webhook's call comes from who holds its secret. Pure.

`X-Holdfast-Signature: sha256=<hex>` is the HMAC-SHA256 of the body, or, with `X-Holdfast-Timestamp: <unix
seconds>`, of `<timestamp>.<body>`, which then must not lie too far from our own time. GitHub's
`X-Hub-Signature-256` is that of the body.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.errors import Unauthorized

OURS: Final = "x-holdfast-signature"
TIME: Final = "x-holdfast-timestamp"
GITHUB: Final = "x-hub-signature-256"
HEADERS: Final = (OURS, GITHUB)
DELIVERIES: Final = ("x-holdfast-delivery", "x-github-delivery")
_PREFIX: Final = "sha256="
_MOST_ID: Final = 200


@dataclass(frozen=True, slots=True)
class Call:
    """A call whose signature holds. The same `proof` again is the same call again, whoever sends it; the
    sender's own id for it makes a repeat with a new time the same call too."""

    proof: str
    delivery_id: str | None


def sign(secret: bytes, body: bytes, timestamp: int | None = None) -> str:
    """The value of the signature header, as a sender makes it."""
    text = body if timestamp is None else f"{timestamp}.".encode() + body
    return _PREFIX + hmac.new(secret, text, hashlib.sha256).hexdigest()


def verified(secret: bytes, headers: Mapping[str, str], body: bytes, now: int, tolerance_ms: int) -> Call:
    """The call, or `Unauthorized`, which tells nothing of why. Header names are in lower case."""
    ours = headers.get(OURS)
    given = ours or headers.get(GITHUB) or ""
    stamp = _stamp(headers.get(TIME)) if ours and TIME in headers else None
    expected = sign(secret, body, stamp)
    holds = hmac.compare_digest(expected.encode(), given.strip().lower().encode("utf-8", "replace"))
    in_time = stamp is None or abs(now - stamp * 1000) <= tolerance_ms
    if not secret or not holds or not in_time:
        raise refused()
    named = next((headers[name] for name in DELIVERIES if headers.get(name)), None)
    proof = hashlib.sha256(expected.encode()).hexdigest()[:40]
    return Call(proof, None if named is None else named[:_MOST_ID])


def refused() -> Unauthorized:
    """The one answer to a call that is not let in: unknown, switched off, unsigned, badly signed or late."""
    return Unauthorized(
        "the signature does not hold",
        code="bad_signature",
        hint="Sign the body with the webhook's secret; see docs/heartbeat.md.",
    )


def _stamp(text: str | None) -> int:
    digits = (text or "").strip()
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 12):
        raise refused()
    return int(digits)
