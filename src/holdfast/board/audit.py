"""A record of retrievals and decisions for debugging: off unless switched on, and of bounded size."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from holdfast.clock import DAY_MS, Clock, iso
from holdfast.config.board import Audit as AuditOptions

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
                self._path.parent.mkdir(parents=True, exist_ok=True)
                if self._path.exists() and self._path.stat().st_size + len(data) > options.max_bytes:
                    self._rotate(options)
                with self._path.open("ab") as file:
                    file.write(data)
            except OSError as error:
                log.warning("the audit record cannot be written: %s", error)

    def _rotate(self, options: AuditOptions) -> None:
        """The file becomes `.1`, that `.2`, and so on; what is beyond the limit or too old is removed."""
        oldest = self._clock.now() - options.retention_days * DAY_MS
        for number in range(options.keep_files, 0, -1):
            older = self._numbered(number)
            if not older.exists():
                continue
            if number >= options.keep_files or older.stat().st_mtime * 1000 < oldest:
                older.unlink()
            else:
                older.rename(self._numbered(number + 1))
        self._path.rename(self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
