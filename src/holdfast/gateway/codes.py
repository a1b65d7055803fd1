"""Login codes: what `holdfast up` prints for a browser. Each opens the pages once, and only for minutes.

The newest alone counts. Its hash lies in the home, so that any process there can make one and any redeem it;
to redeem is to remove the file, which succeeds once.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import Final

from holdfast.clock import Clock
from holdfast.errors import Unauthorized, Unavailable
from holdfast.home import Home

LASTS_MS: Final = 10 * 60_000
FRAGMENT: Final = "#code="


class LoginCodes:
    """Blocks; call it in a thread."""

    def __init__(self, home: Home, clock: Clock) -> None:
        self._home = home
        self._clock = clock

    def make(self) -> str:
        """A code that takes the place of the one before."""
        code = secrets.token_urlsafe(24)
        kept = {"hash": _hash(code), "expiresAt": self._clock.now() + LASTS_MS}
        draft = self._file.with_name(f".{self._file.name}.{secrets.token_hex(4)}")
        try:
            draft.touch(mode=0o600)
            draft.write_text(json.dumps(kept))
            os.replace(draft, self._file)
        except OSError as error:
            raise Unavailable(
                f"{self._file} cannot be written: {error.strerror}", code="home_unusable"
            ) from error
        return code

    def redeem(self, code: str) -> None:
        """Spend a code; `Unauthorized` for one that is unknown, over or spent."""
        try:
            kept = json.loads(self._file.read_text())
            good = hmac.compare_digest(kept["hash"], _hash(code)) and kept["expiresAt"] > self._clock.now()
            if not good:
                raise _ended()
            self._file.unlink()
        except (OSError, ValueError, KeyError, TypeError):
            raise _ended() from None

    @property
    def _file(self) -> Path:
        return self._home.credentials / "login_code"


def login_link(home: Home, clock: Clock, url: str) -> str:
    """Where a browser logs in by itself. The code stands in the fragment, which no server is ever sent."""
    return f"{url}/{FRAGMENT}{LoginCodes(home, clock).make()}"


def _ended() -> Unauthorized:
    return Unauthorized(
        "this login link has been used or is over",
        code="code_ended",
        hint="`holdfast token --link` makes another; the token of `holdfast token` works too.",
    )


def _hash(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "replace")).hexdigest()
