"""Commands that run: what they have said so far, and the files in which that is kept."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from holdfast.agents.sandbox import Outcome
from holdfast.clock import DAY_MS, Clock
from holdfast.errors import Busy, NotFound
from holdfast.home import Home
from holdfast.ids import uuid7
from holdfast.logs import MASK

_LEAST: Final = 2_000


@dataclass(frozen=True, slots=True)
class OutputPart:
    """A part of it: from where one left off to `end`; `missing` bytes before the last piece were not kept."""

    first: bytes
    last: bytes
    missing: int
    end: int

    def text(self) -> str:
        gap = f"\n[… {self.missing} bytes were not kept …]\n" if self.missing else ""
        return f"{self.first.decode('utf-8', 'replace')}{gap}{self.last.decode('utf-8', 'replace')}"


class CommandOutput:
    """Filled by the command's own thread, read by any. A secret that comes in two pieces is masked too."""

    def __init__(self, most: int = 200_000, secrets: tuple[str, ...] = ()) -> None:
        self._half = max(most, _LEAST) // 2
        self._secrets = sorted((s.encode() for s in secrets if s), key=len, reverse=True)
        self._held = b""
        self._head = bytearray()
        self._tail = bytearray()
        self._seen = 0
        self._lock = threading.Lock()

    @property
    def seen(self) -> int:
        return self._seen

    def take(self, data: bytes) -> None:
        """More output; what could be the beginning of a secret is held back until it is none."""
        with self._lock:
            whole = self._masked(self._held + data)
            keep = self._beginning(whole)
            self._held = whole[len(whole) - keep :]
            self._add(whole[: len(whole) - keep])

    def close(self) -> None:
        """There is no more to come."""
        with self._lock:
            held, self._held = self._held, b""
            self._add(held)

    def since(self, start: int = 0) -> OutputPart:
        """What came from a place on; of what was not kept, how much it was."""
        with self._lock:
            first = bytes(self._head[start:])
            begins = self._seen - len(self._tail)
            last = bytes(self._tail[max(0, start - begins) :])
            missing = max(0, begins - max(start, len(self._head)))
            return OutputPart(first, last, missing, self._seen)

    def _add(self, data: bytes) -> None:
        self._seen += len(data)
        room = self._half - len(self._head)
        self._head += data[:room] if room > 0 else b""
        self._tail += data[max(0, room) :]
        del self._tail[: max(0, len(self._tail) - self._half)]

    def _masked(self, data: bytes) -> bytes:
        for secret in self._secrets:
            data = data.replace(secret, MASK.encode())
        return data

    def _beginning(self, data: bytes) -> int:
        """How long the end of the data is that may be the beginning of a secret."""
        most = max((len(secret) for secret in self._secrets), default=1) - 1
        for size in range(min(most, len(data)), 0, -1):
            if any(secret.startswith(data[-size:]) for secret in self._secrets if len(secret) > size):
                return size
        return 0


MOST_OF_SESSION: Final = 8
MOST_RUNNING: Final = 64
MOST_KEPT: Final = 256
STOPS: Final = "stops"
_LAST_WAIT: Final = 5.0
_KEEP_SECONDS: Final = 1.0

Work: TypeAlias = Callable[["Command"], Outcome]
Keep: TypeAlias = Callable[["Command"], None]


@dataclass(slots=True, eq=False)
class Command:
    """One command. `watched` is asked too whether to end it: by the turn that waits for it, then by who looks
    after its session.

    `keep` writes down how far it is, now and then and at its end; it is set when it goes to the background.
    """

    id: str
    session_id: str
    text: str
    said: CommandOutput = field(default_factory=CommandOutput)
    told: int = 0
    keep: Keep | None = None
    _kept: tuple[float, int] = (0.0, -1)
    watched: Callable[[], bool] | None = None
    done: Future[Outcome] = field(default_factory=Future)
    began: float = field(default_factory=time.monotonic)
    killed: bool = False
    outcome: Outcome | None = None

    @property
    def running(self) -> bool:
        return not self.done.done()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def ended(self) -> bool:
        """Whether it is to be ended; asked from its own thread, many times a second."""
        self._keep_up()
        watched = self.watched
        return self.killed or (watched is not None and watched())

    def _keep_up(self, *, last: bool = False) -> None:
        at, seen = self._kept
        now = time.monotonic()
        if self.keep is not None and (last or (self.said.seen != seen and now - at >= _KEEP_SECONDS)):
            self._kept = (now, self.said.seen)
            self.keep(self)

    def end(self, outcome: Outcome | None, error: BaseException | None = None) -> None:
        """Its work is over, one way or the other; written down before anyone is told."""
        self.said.close()
        self.outcome = outcome
        try:
            self._keep_up(last=True)
        finally:
            if error is not None:
                self.done.set_exception(error)
            elif outcome is not None:
                self.done.set_result(outcome)


class BackgroundCommands:
    """Those of all sessions; what has ended stays to be read until newer ones push it out."""

    def __init__(self, *, of_session: int = MOST_OF_SESSION, running: int = MOST_RUNNING) -> None:
        self._of_session = of_session
        self._running = running
        self._known: dict[str, Command] = {}
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._closed = False

    def start(
        self,
        session_id: str,
        text: str,
        work: Work,
        *,
        secrets: tuple[str, ...] = (),
        watched: Callable[[], bool] | None = None,
        most_output: int = 200_000,
    ) -> Command:
        """Begin a command; `Busy` where too many run."""
        said = CommandOutput(most_output, secrets)
        command = Command(f"cmd-{uuid7()}", session_id, text, said, watched=watched)
        command.done.set_running_or_notify_cancel()
        thread = threading.Thread(target=self._run, args=(command, work), name=command.id, daemon=True)
        with self._lock:
            self._admit(session_id)
            self._known[command.id] = command
            self._threads.add(thread)
            self._drop_oldest()
        thread.start()
        return command

    def get(self, session_id: str, id_: str) -> Command:
        """A command of this session; another's is as good as none."""
        command = self._known.get(id_)
        if command is None or command.session_id != session_id:
            known = [c.id for c in list(self._known.values()) if c.session_id == session_id]
            hint = f"There are {', '.join(known[-5:])}." if known else "No command of this session is known."
            raise NotFound(f"no command {id_[:60]!r}", code="unknown_command", hint=hint)
        return command

    def behind(self, session_id: str) -> int:
        """How many of a session run in the background; those that a turn waits for end with it."""
        return sum(c.keep is not None and not c.killed for c in self._of(session_id))

    def end_session(self, session_id: str) -> None:
        """End what runs for a session."""
        for command in self._of(session_id):
            command.killed = True

    def _of(self, session_id: str) -> list[Command]:
        with self._lock:
            return [c for c in self._known.values() if c.session_id == session_id and c.running]

    def close(self) -> None:
        """End all of them; none is begun after."""
        with self._lock:
            self._closed = True
            for command in self._known.values():
                command.killed = True
            threads = list(self._threads)
        until = time.monotonic() + _LAST_WAIT
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _run(self, command: Command, work: Work) -> None:
        outcome: Outcome | None = None
        failed: BaseException | None = None
        try:
            outcome = work(command)
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits for the command
            failed = error
        try:
            command.end(outcome, failed)
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _admit(self, session_id: str) -> None:
        running = [c for c in self._known.values() if c.running]
        own = sum(1 for c in running if c.session_id == session_id)
        if self._closed:
            raise Busy("Holdfast is stopping", code="stopping")
        if own >= self._of_session:
            raise Busy(
                f"{own} commands of this session run already",
                code="too_many_commands",
                hint="Wait for one with poll, or end one with kill.",
            )
        if len(running) >= self._running:
            raise Busy(
                f"{len(running)} commands of all sessions run already",
                code="too_many_commands",
                hint="Try again when some have ended.",
            )

    def _drop_oldest(self) -> None:
        ended = [id_ for id_, command in self._known.items() if not command.running]
        for id_ in ended[: max(0, len(self._known) - MOST_KEPT)]:
            del self._known[id_]


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
