"""What a part that runs for as long as the gateway tells of itself: that it goes on, and what stops it.

A part that meets the same trouble again and again says so once, and from then on how often.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from holdfast.errors import HoldfastError

log = logging.getLogger(__name__)

REMIND_SECONDS: Final = 60.0


class Pulse:
    """The passes of one loop. Written by the loop alone, on its own thread; read by anyone."""

    def __init__(self, name: str, *, now: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.passes = 0
        self.errors = 0
        self.error: HoldfastError | str | None = None
        self.last_error: str | None = None
        self.since: float | None = None
        self._now = now
        self._begun: float | None = None
        self._again = 0
        self._told = 0.0

    def begin(self) -> None:
        """A pass begins; until it has passed or failed, the part may be stuck in it."""
        self._begun = self._now()

    def passed(self) -> None:
        """A pass went well."""
        self._begun = None
        self.passes += 1
        if self.error is not None:
            log.info("%s: works again%s", self.name, self._counted())
            self.error, self.since, self._again = None, None, 0

    def failed(self, error: Exception) -> None:
        """A pass went wrong, and there will be another."""
        self._begun = None
        self.errors += 1
        known, self.error = self.error, error if isinstance(error, HoldfastError) else described(error)
        self.since = self._now() if self.since is None else self.since
        if str(known) == str(self.error):
            self._again += 1
            if self._now() - self._told >= REMIND_SECONDS:
                log.warning("%s: %s%s", self.name, self.error, self._counted())
                self._told, self._again = self._now(), 0
            return
        self._told, self._again, self.last_error = self._now(), 0, str(self.error)
        trace = None if isinstance(error, HoldfastError) else error
        log.error("%s: %s; trying again", self.name, self.error, exc_info=trace)

    def busy_for(self) -> float:
        """Seconds since the pass began that is under way."""
        begun = self._begun
        return 0.0 if begun is None else self._now() - begun

    def failing_for(self) -> float:
        """Seconds since it last went well, if it does not now."""
        since = self.since
        return 0.0 if since is None else self._now() - since

    def _counted(self) -> str:
        return f" (the same error {self._again} times more)" if self._again else ""


def described(error: Exception) -> str:
    """A fault that nobody foresaw, in one line."""
    first = (str(error).splitlines() or [""])[0][:300]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
