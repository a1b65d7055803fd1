"""A record of retrievals and decisions for debugging: off unless switched on, and of bounded size."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from holdfast.clock import Clock, iso
from holdfast.config.board import Audit as AuditOptions
from holdfast.logs import Limits, append_rotated

log = logging.getLogger(__name__)

MAX_LINE: Final = 8_000


class Audit:
    """Lines of JSON in one file, rotated by size, old files dropped by number and by age."""

    def __init__(self, path: Path, options: Callable[[], AuditOptions], clock: Clock) -> None:
        self._path = path
        self._options = options
        self._clock = clock
        self._lock = threading.Lock()

    def write(self, event: str, facts: Mapping[str, Any]) -> None:
        """Note an event, if auditing is on. A full disk costs the record, not the work."""
        options = self._options()
        if not options.enabled:
            return
        line = json.dumps(
            {"ts": iso(self._clock.now()), "event": event, **facts}, ensure_ascii=False, default=str
        )
        data = f"{line[:MAX_LINE]}\n".encode()
        with self._lock:
            try:
                limits = Limits(options.max_bytes, options.keep_files, options.retention_days)
                append_rotated(self._path, data, limits, self._clock.now())
            except OSError as error:
                log.warning("the audit record cannot be written: %s", error)
