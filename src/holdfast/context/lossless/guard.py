"""What keeps a summariser from costing too much: a breaker for one that fails, a cap on calls."""

from __future__ import annotations

from collections import deque
from typing import Literal

from holdfast.clock import Clock
from holdfast.context.lossless.settings import Settings

Verdict = Literal["go", "breaker_open", "spend_cap"]


class Guard:
    """One for an engine: failures in a row open the breaker for all, calls are capped by session."""

    def __init__(self, clock: Clock, settings: Settings) -> None:
        self._clock = clock
        self._settings = settings
        self._failures = 0
        self._open_until = 0
        self._calls: dict[str, deque[int]] = {}

    def verdict(self, session_id: str) -> Verdict:
        now = self._clock.now()
        if now < self._open_until:
            return "breaker_open"
        calls = self._calls.get(session_id)
        while calls and calls[0] <= now - self._settings.spend_window_ms:
            calls.popleft()
        if calls is not None and not calls:
            del self._calls[session_id]
        return "spend_cap" if calls and len(calls) >= self._settings.spend_calls else "go"

    def called(self, session_id: str) -> None:
        self._calls.setdefault(session_id, deque()).append(self._clock.now())

    def failed(self) -> None:
        """After enough failures in a row nothing is asked for a while; then one success closes it again."""
        self._failures += 1
        if self._failures >= self._settings.breaker_failures:
            self._open_until = self._clock.now() + self._settings.breaker_ms

    def succeeded(self) -> None:
        self._failures = 0

    def clear(self, session_id: str) -> None:
        """A person asked for it: let this session through once more."""
        self._calls.pop(session_id, None)
        self._open_until = 0
