"""Background commands on disk: what each had written, readable after the gateway was stopped or killed."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.clock import DAY_MS, Clock
from holdfast.home import Home

MOST_FILES: Final = 64
KEPT_DAYS: Final = 7
_ID: Final = re.compile(r"cmd-[0-9a-f-]{36}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One command as it was last seen; `end` is None for one that nobody saw end."""

    id: str
    command: str
    output: str
    seconds: float
    end: str | None = None
    code: int | None = None


class CommandFiles:
    """Files under `agents/<id>/commands`, for the session that began the command alone. Blocks."""

    def __init__(self, home: Home, clock: Clock) -> None:
        self._home = home
        self._clock = clock

    def write(self, agent_id: str, session_id: str, record: Record) -> None:
        """Put a record in place whole, or leave the one before."""
        path = self._path(agent_id, session_id, record.id)
        new = not path.exists()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_suffix(".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with os.fdopen(os.open(draft, flags, 0o600), "w", encoding="utf-8") as file:
            json.dump(asdict(record), file, ensure_ascii=False)
        os.replace(draft, path)
        os.utime(path, ns=(self._clock.now() * 1_000_000,) * 2)
        if new:
            self._sweep(path.parent)

    def find(self, agent_id: str, session_id: str, id_: str) -> Record | None:
        """The record of a command of this session; another's is as good as none."""
        if not _ID.fullmatch(id_):
            return None
        try:
            kept: Any = json.loads(self._path(agent_id, session_id, id_).read_text("utf-8"))
            return Record(**kept)
        except (OSError, ValueError, TypeError):
            return None

    def _path(self, agent_id: str, session_id: str, id_: str) -> Path:
        owner = hashlib.sha256(session_id.encode("utf-8", "replace")).hexdigest()[:16]
        return self._home.path / "agents" / agent_id / "commands" / f"{id_}.{owner}.json"

    def _sweep(self, folder: Path) -> None:
        """Ids are in the order of time."""
        oldest = (self._clock.now() - KEPT_DAYS * DAY_MS) / 1000
        for number, path in enumerate(sorted(folder.glob("cmd-*.json"), reverse=True)):
            try:
                if number >= MOST_FILES or path.stat().st_mtime < oldest:
                    path.unlink()
            except FileNotFoundError:
                continue
