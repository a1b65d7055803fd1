"""The cookie that keeps a page logged in: a token's id and an end, signed; the token itself is not in it."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final

from holdfast.clock import DAY_MS, Clock
from holdfast.errors import Unauthorized

COOKIE: Final = "holdfast"


class Cookies:
    def __init__(self, key: str, clock: Clock, *, days: int) -> None:
        self._key = key.encode()
        self._clock = clock
        self.days = days

    def make(self, principal_id: str) -> str:
        end = self._clock.now() + self.days * DAY_MS
        text = f"{principal_id}.{end}"
        return f"{text}.{self._sign(text)}"

    def read(self, value: str) -> str:
        """The id in a cookie that we signed and that is not over."""
        text, _, signature = value.rpartition(".")
        id_, _, end = text.rpartition(".")
        good = hmac.compare_digest(signature.encode(), self._sign(text).encode())
        if not (good and end.isdecimal() and int(end) > self._clock.now()):
            raise Unauthorized("this login has ended", code="login_ended", hint="Log in again.")
        return id_

    def _sign(self, text: str) -> str:
        digest = hmac.new(self._key, text.encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")
