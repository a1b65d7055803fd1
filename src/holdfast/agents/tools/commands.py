"""Commands that run: each in a thread of its own, bounded in number, followed or ended by their id."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from holdfast.agents.sandbox import Outcome
from holdfast.agents.tools.said import Said
from holdfast.errors import Busy, NotFound
from holdfast.ids import uuid7

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
    said: Said = field(default_factory=Said)
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


class Commands:
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
        said = Said(most_output, secrets)
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
