"""Results that were too long to be given whole: kept for a while, each for the session that made it."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.agents import opening
from holdfast.agents.tools.paging import Page, page_of
from holdfast.clock import DAY_MS, Clock
from holdfast.context import Trust
from holdfast.errors import NotFound
from holdfast.home import Home
from holdfast.ids import uuid7

PREFIX: Final = "output:"
_ID: Final = re.compile(r"[0-9a-f-]{36}")
_TRUSTS: Final = (Trust.OUTSIDE, Trust.OTHER_SESSION, Trust.TOOL)


@dataclass(frozen=True, slots=True)
class Keeping:
    """The bounds of what is kept for one agent; the oldest goes first."""

    files: int = 200
    bytes_each: int = 4 * 1024**2
    bytes_all: int = 64 * 1024**2
    days: int = 7


@dataclass(frozen=True, slots=True)
class Kept:
    """A kept result. It is trusted no more than the tool that it came from."""

    path: Path
    trust: Trust


class Outputs:
    """Files under `agents/<id>/outputs`. Blocks; call it in a thread."""

    def __init__(self, home: Home, clock: Clock, keeping: Keeping | None = None) -> None:
        self._home = home
        self._clock = clock
        self._keeping = keeping or Keeping()

    def keep(self, agent_id: str, session_id: str, text: str, trust: Trust) -> str:
        """Keep a text; gives the name by which `file_read` finds it."""
        folder = self._folder(agent_id)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        id_ = uuid7()
        data = text.encode("utf-8", "replace")[: self._keeping.bytes_each]
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        path = folder / _name(session_id, id_, trust)
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(data)
        os.utime(path, ns=(self._clock.now() * 1_000_000,) * 2)
        self._sweep(folder)
        return f"{PREFIX}{id_}"

    def find(self, agent_id: str, session_id: str, name: str) -> Kept:
        """The file of a kept result; another session's is as good as none."""
        id_ = name.removeprefix(PREFIX)
        if _ID.fullmatch(id_):
            for trust in _TRUSTS:
                path = self._folder(agent_id) / _name(session_id, id_, trust)
                if path.is_file():
                    return Kept(path, trust)
        raise NotFound(
            f"no kept output {name[:60]!r}",
            code="unknown_output",
            hint=f"Outputs are kept for {self._keeping.days} days, for their own session; call again.",
        )

    def page(self, agent_id: str, session_id: str, name: str, *, start: int, offset: int, most: int) -> Page:
        """Whole lines of a kept result from `start` on, at most so many characters."""
        kept = self.find(agent_id, session_id, name)
        with opening.opened(kept.path.parent, (kept.path.name,)) as stream:
            lines = (raw.decode("utf-8", "replace") for raw in stream)
            return page_of(lines, start=start, count=None, offset=offset, most=most)

    def _folder(self, agent_id: str) -> Path:
        return self._home.path / "agents" / agent_id / "outputs"

    def _sweep(self, folder: Path) -> None:
        """Names begin with the session, but the id within them is in the order of time."""
        found = sorted(folder.glob("*.txt"), key=lambda path: path.name.split(".")[1], reverse=True)
        oldest = (self._clock.now() - self._keeping.days * DAY_MS) / 1000
        total = 0
        for number, path in enumerate(found):
            try:
                facts = path.stat()
            except FileNotFoundError:
                continue
            total += facts.st_size
            over = number >= self._keeping.files or total > self._keeping.bytes_all
            if number and (over or facts.st_mtime < oldest):
                path.unlink(missing_ok=True)


def _name(session_id: str, id_: str, trust: Trust) -> str:
    """An adopted session's id may be anything, so that its hash stands for it."""
    owner = hashlib.sha256(session_id.encode("utf-8", "replace")).hexdigest()[:16]
    return f"{owner}.{id_}.{trust.label}.txt"
