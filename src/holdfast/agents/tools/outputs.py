"""Results that were too long to be given whole: kept for a while, read in pages, found in the log."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.agents import safe_files
from holdfast.clock import DAY_MS, Clock
from holdfast.context import AssistantMessage, ToolCall, ToolResult, Trust, message_of
from holdfast.errors import NotFound
from holdfast.home import Home
from holdfast.ids import uuid7
from holdfast.log import Entry


@dataclass(frozen=True, slots=True)
class Page:
    """`start` and `end` are lines from 1, both shown; the rest begins at line `on`, character `offset`."""

    text: str
    start: int
    end: int
    total: int
    on: int | None = None
    offset: int = 0

    @property
    def note(self) -> str:
        """What to call for the rest; empty if all is shown."""
        if self.on is None:
            return "" if self.start <= 1 else f"[lines {self.start} to {self.end}, the last of {self.total}]"
        more = f'"from": {self.on}' + (f', "offset": {self.offset}' if self.offset else "")
        return f"[lines {self.start} to {self.end} of {self.total}; read on with {more}]"


def page_of(lines: Iterable[str], *, start: int, count: int | None, offset: int, most: int) -> Page:
    """Whole lines from `start` on, up to `count` and `most` characters; a line that is longer is cut.

    `offset` passes over the beginning of the first line.
    """
    taken: list[str] = []
    room, total, on, cut = most, 0, None, 0
    for number, line in enumerate(lines, 1):
        total = number
        if number < start or on is not None:
            continue
        skipped = offset if number == start else 0
        piece = line[skipped:]
        if count is not None and len(taken) >= count:
            on = number
        elif len(piece) <= room:
            taken.append(piece)
            room -= len(piece)
        elif taken:
            on = number
        else:
            taken.append(piece[:room])
            on, cut = number, skipped + room
    return Page("".join(taken), start, max(start, start + len(taken) - 1), total, on, cut)


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
class KeptOutput:
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

    def find(self, agent_id: str, session_id: str, name: str) -> KeptOutput:
        """The file of a kept result; another session's is as good as none."""
        id_ = name.removeprefix(PREFIX)
        if _ID.fullmatch(id_):
            for trust in _TRUSTS:
                path = self._folder(agent_id) / _name(session_id, id_, trust)
                if path.is_file():
                    return KeptOutput(path, trust)
        raise NotFound(
            f"no kept output {name[:60]!r}",
            code="unknown_output",
            hint=f"Outputs are kept for {self._keeping.days} days, for their own session; call again.",
        )

    def page(self, agent_id: str, session_id: str, name: str, *, start: int, offset: int, most: int) -> Page:
        """Whole lines of a kept result from `start` on, at most so many characters."""
        kept = self.find(agent_id, session_id, name)
        with safe_files.opened(kept.path.parent, (kept.path.name,)) as stream:
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


_KEPT: Final = re.compile(r'the whole is kept, read on with file_read \{"path": "(output:[0-9a-f-]{36})"')
_MOST_NAMES: Final = 8


@dataclass(frozen=True, slots=True)
class RecordedResult:
    entry: Entry
    is_error: bool

    @property
    def kept(self) -> tuple[str, ...]:
        """The names under which what was cut out of it is kept, if any."""
        return kept_outputs(self.entry.content)


@dataclass(frozen=True, slots=True)
class RecordedCall:
    entry: Entry
    call: ToolCall
    result: RecordedResult | None


def kept_outputs(text: str) -> tuple[str, ...]:
    """The names under which what was cut out of a result is kept, as the result itself tells."""
    return tuple(dict.fromkeys(_KEPT.findall(text)))[:_MOST_NAMES]


def recorded_calls(newest_first: Iterable[Entry]) -> list[RecordedCall]:
    """The calls in a stretch of a session's log, newest first; one without a result in it has none."""
    results: dict[str, RecordedResult] = {}
    found: list[RecordedCall] = []
    for entry in newest_first:
        message = message_of(entry)
        if isinstance(message, ToolResult):
            results[message.call_id] = RecordedResult(entry, message.is_error)
        elif isinstance(message, AssistantMessage):
            found += [
                RecordedCall(entry, call, results.pop(call.id, None)) for call in reversed(message.calls)
            ]
    return found
