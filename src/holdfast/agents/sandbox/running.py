"""Which sandbox a session gets, and a job run to its end there, with nothing left behind.

The kernel's own limit on processes does not bind root, and its limit on memory binds each process alone and
what it shares with others not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.agents.sandbox.backends import (
    Backend,
    Bubblewrap,
    Docker,
    End,
    Host,
    Job,
    Limits,
    Outcome,
    Start,
)
from holdfast.errors import InvalidInput, Unavailable
from holdfast.keys import MainKey, parse_key

if TYPE_CHECKING:
    from holdfast.config.agents import Sandbox
    from holdfast.config.tools import Exec


_HELD: Final = frozenset((b"RssAnon:", b"RssShmem:"))
_SHARE: Final = frozenset((b"Pss_Anon:", b"Pss_Shmem:"))
_MOST: Final = 65_536
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Census:
    """`memory_bytes` is at most too high: shared pages count for each process, and mapped files too."""

    pids: tuple[int, ...] = ()
    memory_bytes: int = 0

    @property
    def processes(self) -> int:
        return len(self.pids)

    def shared_once(self) -> int:
        """What they really hold, each page once where the kernel tells; slower."""
        return sum(_sum(pid, "smaps_rollup", _SHARE) or _sum(pid, "status", _HELD) for pid in self.pids)


def census(pid: int, most: int) -> Census:
    """Count a process and all below it; stops once there are more than `most`."""
    waiting = [pid]
    found: list[int] = []
    memory = 0
    while waiting and len(found) <= most:
        each = waiting.pop()
        found.append(each)
        memory += _resident(each)
        waiting += _children(each)
    return Census(tuple(found), memory)


def _children(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    told = [_read(f"/proc/{pid}/task/{task}/children") for task in tasks]
    return [int(child) for line in told for child in line.split()]


def _resident(pid: int) -> int:
    figures = _read(f"/proc/{pid}/statm").split()
    return int(figures[1]) * _PAGE if len(figures) > 1 else 0


def _sum(pid: int, file: str, names: frozenset[bytes]) -> int:
    """Files that were read into memory are left out: the kernel takes that back when it needs to."""
    lines = (line.split() for line in _read(f"/proc/{pid}/{file}").splitlines())
    return sum(int(line[1]) * 1024 for line in lines if line and line[0] in names)


def _read(path: str) -> bytes:
    """Without the ceremony of a file object: this is done for every process, many times a second."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(file, _MOST)
    except OSError:
        return b""
    finally:
        os.close(file)


log = logging.getLogger(__name__)

_READ: Final = 65_536
_LOOK_SECONDS: Final = 0.02
_REST: Final = 5  # looking at many processes takes its time, most of which is for others
_FAR_PAST: Final = 64
_KILL_SECONDS: Final = 10


def run(
    backend: Backend,
    job: Job,
    *,
    cancelled: Callable[[], bool] = lambda: False,
    heard: Callable[[bytes], None] = lambda _: None,
) -> Outcome:
    """Run a job and wait for it. Blocks; call it in a thread.

    `cancelled` is looked at while it runs, `heard` is handed all output as it comes, past what is kept too.
    """
    start = backend.start(job)
    began = time.monotonic()
    with _begun(start) as process:
        watch = _Watch(process, job.limits, began, cancelled, heard)
        try:
            end = watch.until_over()
        finally:
            _end(process, start)
    code = process.returncode if end == "exited" else None
    return Outcome(end, code, bytes(watch.kept), watch.seen - len(watch.kept), time.monotonic() - began)


@contextlib.contextmanager
def _begun(start: Start) -> Iterator[subprocess.Popen[bytes]]:
    try:
        process = subprocess.Popen(
            start.argv,
            env=dict(start.env),
            cwd=start.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise Unavailable(
            f"the command cannot be started: {error.strerror}: {error.filename or start.argv[0]}",
            code="exec_failed",
            hint="Check that the program is installed and the folder is there.",
        ) from error
    try:
        yield process
    finally:
        assert process.stdout is not None
        process.stdout.close()


class _Watch:
    """Reads what a process says and looks after it, in one thread."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        limits: Limits,
        began: float,
        cancelled: Callable[[], bool],
        heard: Callable[[bytes], None],
    ) -> None:
        self._process = process
        self._limits = limits
        self._deadline = began + limits.seconds
        self._cancelled = cancelled
        self._heard = heard
        self._next_look = began + _LOOK_SECONDS
        self.kept = bytearray()
        self.seen = 0

    def until_over(self) -> End:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while True:
                for _ in selector.select(_LOOK_SECONDS):
                    if not self._take(os.read(self._process.stdout.fileno(), _READ)):
                        return self._after_output()
                over = self._past_limit()
                if over is not None:
                    return over
                if self._process.poll() is not None and not selector.select(0):
                    return "exited"

    def _after_output(self) -> End:
        """The streams are closed; the process itself may go on for a while."""
        while self._process.poll() is None:
            over = self._past_limit()
            if over is not None:
                return over
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_LOOK_SECONDS)
        return "exited"

    def _take(self, data: bytes) -> bool:
        self.seen += len(data)
        room = self._limits.output_bytes - len(self.kept)
        if room > 0:
            self.kept += data[:room]
        if data:
            self._heard(data)
        return bool(data)

    def _past_limit(self) -> End | None:
        now = time.monotonic()
        if now >= self._deadline or self._cancelled():
            return "timeout"
        if self.seen > self._limits.output_bytes * _FAR_PAST:
            return "output"
        if now < self._next_look:
            return None
        over = self._too_many(census(self._process.pid, self._limits.processes))
        looked = time.monotonic()
        self._next_look = looked + max(_LOOK_SECONDS, _REST * (looked - now))
        return over

    def _too_many(self, found: Census) -> End | None:
        most = self._limits.memory_bytes
        if found.processes > self._limits.processes:
            return "processes"
        return "memory" if found.memory_bytes > most and found.shared_once() > most else None


def _end(process: subprocess.Popen[bytes], start: Start) -> None:
    """Whatever is left of the job goes: its process group, and with it the sandbox's own processes."""
    running = process.poll() is None
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if running and start.kill is not None:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(start.kill, capture_output=True, timeout=_KILL_SECONDS, check=False)
    try:
        process.wait(_KILL_SECONDS)
    except subprocess.TimeoutExpired:
        log.warning("process %d cannot be ended: it may run as another user", process.pid)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the commands of a session run. `sandboxed` is what the tool policy must be told."""

    backend: Backend
    scratch: Path
    sandboxed: bool


def is_sandboxed(settings: Sandbox, session_key: str) -> bool:
    """By the mode: no session, all but the agent's main one, or every one."""
    if settings.mode == "off":
        return False
    return settings.mode == "all" or not _is_main(session_key)


def place_of(
    settings: Sandbox,
    root: Path,
    *,
    agent_id: str,
    session_key: str,
    other: Callable[[], Backend | None] = lambda: None,
) -> Place:
    """The backend and the folder of a session; made here, readable by its owner only. `other` is a plugin's
    backend, which goes before what the settings name.

    A sandbox that is asked for and cannot be had is an error, never a command on the open machine.
    """
    sandboxed = is_sandboxed(settings, session_key)
    scratch = root / scope_name(settings, agent_id=agent_id, session_key=session_key)
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Place(backend_of(settings, other()) if sandboxed else Host(), scratch, sandboxed)


def limits_of(settings: Exec) -> Limits:
    """The bounds of one command as the config has them."""
    return Limits(seconds=settings.timeout_seconds, output_bytes=settings.max_output_chars)


def scope_name(settings: Sandbox, *, agent_id: str, session_key: str) -> str:
    """What shares one sandbox, as the name of a folder."""
    if settings.scope == "shared":
        return "shared"
    kind, what = ("agent", agent_id) if settings.scope == "agent" else ("session", session_key)
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", what)[:40].strip("-")
    return f"{kind}-{readable}-{hashlib.sha256(what.encode()).hexdigest()[:12]}"


def backend_of(settings: Sandbox, other: Backend | None = None) -> Backend:
    """The sandbox that the settings ask for, or the other; `Unavailable` says what is missing."""
    wanted: dict[str, list[Backend]] = {
        "auto": [Bubblewrap(), _docker(settings)],
        "bubblewrap": [Bubblewrap()],
        "docker": [_docker(settings)],
    }
    reasons: list[str] = []
    for backend in wanted[settings.backend] if other is None else [other]:
        reason = backend.missing()
        if reason is None:
            return backend
        reasons.append(reason)
    raise Unavailable(
        f"there is no sandbox: {'; '.join(reasons)}",
        code="no_sandbox",
        hint="Install or start one, or set agents.defaults.sandbox.mode to off.",
    )


def _docker(settings: Sandbox) -> Docker:
    own = settings.docker
    env = {name: secret.reveal(os.environ) for name, secret in own.env.items()}
    return Docker(own.image, own.network, own.memory, own.cpus, env)


def _is_main(session_key: str) -> bool:
    try:
        return isinstance(parse_key(session_key), MainKey)
    except InvalidInput:
        return False
